"""What is kept for a proof: nothing of it, as long as there is nothing to prove."""

import random
from pathlib import Path
from typing import Any

import pytest

from advisor.model import Trial
from advisor.tuner import reserves
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula

BUDGET_S = 240.0
CHECKPOINTING = "gradient_checkpointing"
TEXT = """\
batch_size: 4
accumulation_steps: 8
num_workers: 0
gradient_checkpointing: true
"""
NO_GAIN = {"load_s": 1e-5, "launch_s": 1e-4, "unit_s": 0.01, "flags": {CHECKPOINTING: 1.0}}


def training(folder: Path, seed: int, process_s: float, **engine: Any) -> FormulaSearch:
    """A training whose settings are as good as they get."""
    observed = {"trains": "optimizer", **engine.pop("observed", {})}
    played = on_formula(
        process_s=process_s,
        seed=seed,
        step_kind="optimizer step",
        observed=observed,
        **NO_GAIN,
        **engine,
    )
    return formula_search(folder, played, TEXT, budget_s=BUDGET_S, cpus=2, gpu=False)


@pytest.mark.parametrize("seed", range(4))
def test_no_setting_stays_untried_for_a_proof_of_nothing(tmp_path, seed) -> None:
    """Half of the budget was kept while nothing was found: two rounds are enough for a find."""
    for process_s in range(8, 24, 2):
        search = training(tmp_path, seed, float(process_s), noise=0.03)
        untried = [each for each in search.state.skipped if each.matters]
        found = search.state.confirmations
        left_s = search.executor.budget.remaining_s
        assert not untried or found or left_s < reserves.fewest_s(search.state), process_s


@pytest.mark.parametrize("seed", range(12))
def test_a_setting_of_the_config_gets_its_rounds_before_a_switch_does(tmp_path, seed) -> None:
    """On a busy host thirteen runs of `threads=1` left no time for what could be written."""
    busy = random.Random(seed)
    search = training(
        tmp_path,
        seed,
        12.0,
        noise=0.05,
        held=lambda *_: float(busy.random() < 0.4),
        slowed=0.3,
        observed={"threads": 2},
        switches={"threads=1": 1.0},
    )
    untried = [each for each in search.state.skipped if CHECKPOINTING in each.task.about]
    repeated = [each for each in search.asked("whatif") if each.request.series]
    assert not (untried and repeated)


def test_a_batch_whose_rounds_no_longer_fit_is_not_what_is_taken(tmp_path) -> None:
    """A window of twenty batches of 4,096 took a minute: the largest gain was left unproven."""

    def process_s(trial: Trial) -> float:
        grown = [c.new for c in trial.candidate.changes if c.kind == "batch_size"]
        return 6.0 + 0.013 * float(grown[0] if grown else 16)

    engine = on_formula(
        process_s=process_s, noise=0.01, load_s=1e-5, launch_s=0.05, unit_s=3e-4, trains=False
    )
    search = formula_search(tmp_path, engine, "batch_size: 16\n", budget_s=BUDGET_S)
    (confirmation,) = search.state.confirmations
    assert confirmation.proven
    assert search.values["batch_size"] >= 256
