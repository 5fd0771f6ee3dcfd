"""Answers of a search that a card, a compiler or a budget used to spoil."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from advisor.model import Run, Shares
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.search import formula_search, on_formula
from tests.tuner.configs import GUARD, INFERENCE, TEST
from tests.tuner.whatifs import CONFIG, ON_CUDA, advice_of, computing, tried

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Failure, Trial


# --- precision --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("followed", "outcome"), [({"bf16"}, "changed"), ({"fp16"}, "changed"), (set(), "ignored")]
)
def test_a_precision_is_ignored_only_if_every_value_is(
    tmp_path: Path, followed: set[str], outcome: str
) -> None:
    """The program may know one half precision only; bfloat16 is asked for first."""

    class Knows(RecordedEngine):
        def run(self, trial: Trial) -> Run | Failure:
            run = super().run(trial)
            asked = {str(c.new) for c in trial.candidate.changes if c.kind == "precision"}
            rate = 100.0 * (1.5 if asked & followed else 1.0)
            seen = replace(run.effects, dtype="float16" if asked & followed else "float32")  # type: ignore[arg-type, type-var]
            return replace(run, units_per_s=rate, effects=seen)  # type: ignore[arg-type, type-var]

    engine = on_formula(Knows, load_s=1e-6, bf16_speedup=1.0)
    search = formula_search(
        tmp_path,
        engine,
        "precision: fp32\n",
        workload=GUARD,
        precisions=("float32", "float16", "bfloat16"),
    )
    asked = [c.new for a in search.asked("search") for c in a.request.variant.candidate.changes]
    assert asked[0] == "bf16"
    assert search.decisions["precision"].outcome == outcome


# --- compilation ------------------------------------------------------------------------------


class Compiles(RecordedEngine):
    """Compilation takes `cost_s`, and `launch` of the time goes to launches."""

    cost_s, launch = 20.0, 0.5

    def run(self, trial: Trial) -> Run | Failure:
        run = super().run(trial)
        if not isinstance(run, Run):
            return run
        run = replace(run, shares=Shares(launch=self.launch, compute=0.9))
        if run.whatif is not None and run.whatif.name.startswith("compile"):
            run = replace(run, whatif=replace(run.whatif, cost_s=self.cost_s))
        return run


class Quick(Compiles):
    cost_s = 4.0


class ComputeBound(Compiles):
    launch = 0.0


def compiling(kind: type[Compiles], **more: Any) -> RecordedEngine:
    """Training on a card of which compilation doubles the rate."""
    switches = {"compile": 1.6, "compile=reduce-overhead": 2.0, "cudnn_benchmark": 1.1}
    observed = {**ON_CUDA, "compiled": False}
    return on_formula(
        kind, coded={"batch_size": 4, "num_workers": 0}, load_s=1e-6, observed=observed,
        step_kind="optimizer step", switches=switches, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "first"), [(Compiles, "compile=reduce-overhead"), (ComputeBound, "cudnn_benchmark")]
)
def test_cuda_graphs_come_first_where_launches_dominate(
    tmp_path: Path, kind: type[Compiles], first: str
) -> None:
    """Elsewhere compilation comes last, because it costs most."""
    engine = compiling(kind)
    search = formula_search(tmp_path, engine, CONFIG)
    assert tried(engine)[0] == first
    assert {"compile", "compile=reduce-overhead"} & {each.title for each in advice_of(search)}


def test_the_price_of_compilation_is_measured(tmp_path: Path) -> None:
    """At 90 s each, assumed, three minutes would hold no comparison of it."""
    engine = compiling(Quick, process_s=10.0)
    search = formula_search(tmp_path, engine, CONFIG, budget_s=180.0)
    (advice,) = [each for each in advice_of(search) if each.title.startswith("compile")]
    assert "takes 4 s once" in advice.reason
    compared = [a.request for a in search.lab.attempts if a.request.variant.extra_s == 4.0]
    assert compared


def test_a_switch_is_never_run_in_a_process_of_another_variant(tmp_path: Path) -> None:
    """cuDNN keeps the algorithm of its first call: a flag that changes later does nothing."""
    engine = computing(switches={"cudnn_benchmark": 1.4})
    search = formula_search(tmp_path, engine, CONFIG)
    assert [each.title for each in advice_of(search)] == ["cudnn_benchmark"]
    for asked in engine.asked:
        assert asked.trial.plan.whatif in (None, "cudnn_benchmark", "channels_last", "tf32")


# --- memory of a batch ------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cuda:0", "cpu"])
def test_a_batch_on_a_card_says_what_its_steps_do_not_show(tmp_path: Path, device: str) -> None:
    """Validation and the longest batch may need more memory than the measured steps."""
    engine = on_formula(load_s=1e-6, observed={"device": device})
    search = formula_search(tmp_path, engine, INFERENCE, workload=TEST, memory_gib=80.0)
    reason = search.decisions["batch_size"].reason
    assert ("a validation pass or a longer batch may need more" in reason) is (device != "cpu")


# --- likely -----------------------------------------------------------------------------------


def test_a_gain_that_noise_hides_is_likely_with_the_budget_that_would_do(tmp_path: Path) -> None:
    """A true 1.5x, never told as unchanged: proven, or likely with the way to finish it."""
    for seed in range(12):
        engine = on_formula(load_s=1e-6, launch_s=2.5e-4, noise=0.2, seed=seed, process_s=5.0)
        folder = tmp_path / str(seed)
        folder.mkdir()
        search = formula_search(
            folder, engine, "batch_size: 1\n", workload=TEST, budget_s=90.0, host_noise=0.4
        )
        estimates = [each.interval(search.context.objective) for each in search.state.confirmations]
        if search.winner.changes or not any(e and e.estimate > 1.03 for e in estimates[-1:]):
            continue
        assert search.state.likely is not None
        assert any("confirmation" in each.what and each.matters for each in search.state.skipped)
