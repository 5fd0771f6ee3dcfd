"""What is said of a knob whose values were tried: by what came of them, and of nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from advisor import config as documents, knobs
from advisor.executor.requests import TrialRequest, TrialResult
from advisor.model import Candidate, Knob
from advisor.objective import THROUGHPUT
from advisor.settings import Workload
from advisor.tuner.context import Source, TuningContext
from advisor.tuner.moves import with_value
from advisor.tuner.state import TunerState
from advisor.tuner.value_trials import try_values
from tests.runs import a_run
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.search import formula_search, on_formula

TEXT = b"""\
num_workers: 2
prefetch_factor: 2
precision: fp32
batch_size: 4
accumulation_steps: 8
"""
DOCUMENT = documents.parse(TEXT, "yaml", "train.yaml")
CONTEXT = TuningContext(
    sources=(Source(document=DOCUMENT, findings=knobs.find(DOCUMENT)),),
    workload=Workload.model_validate({"command": "x", "numeric-tolerance": "1%"}),
    objective=THROUGHPUT,
    cpus=4,
    memory_limit_gib=8.0,
    precisions=("float32", "bfloat16"),
    has_gpu=False,
    smallest_gain=0.03,
    budget_s=600.0,
)
BEGUN = TunerState(context=CONTEXT, remaining_s=600.0, originals=(a_run(), a_run()))


def knob_of(kind: str) -> Knob:
    return next(knob for knob in BEGUN.all_knobs if knob.kind == kind)


def prefetching(now: TunerState, value: int, rate: float, *, outcome: str) -> TunerState:
    """Where a pass over the loader ends that tries `value`, at this rate."""
    stage = try_values(now, knob_of("prefetch_factor"), [value])
    request = next(stage).request
    assert isinstance(request, TrialRequest)
    with pytest.raises(StopIteration) as end:
        stage.send(
            TrialResult(id="1", request=request, result=a_run(units_per_s=rate), remaining_s=599.0)
        )
    ended: TunerState = end.value.value
    assert ended.verdict_on(knob_of("prefetch_factor")).outcome == outcome
    return ended


FOUND = prefetching(BEGUN, 4, 2.0, outcome="found")
"""After a first pass."""


def test_a_second_pass_without_a_gain_leaves_what_the_first_found() -> None:
    prefetching(FOUND, 8, 2.0, outcome="found")


def test_a_value_that_lost_is_kept_with_what_was_measured() -> None:
    reason = (
        prefetching(BEGUN, 4, 0.61, outcome="kept").verdict_on(knob_of("prefetch_factor")).reason
    )
    assert reason.endswith("faster by more than 3 %. `4` ran at 0.61x.")


def test_a_value_that_lost_is_told_against_the_rate_of_the_table() -> None:
    """That is the median of equal runs, not the fastest of them."""
    rates = (1.0, 1.5, 0.9)
    begun = replace(BEGUN, originals=tuple(a_run(units_per_s=rate) for rate in rates))
    lost = prefetching(begun, 4, 0.5, outcome="kept").verdict_on(knob_of("prefetch_factor"))
    assert lost.reason.endswith("`4` ran at 0.50x.")


def test_a_second_pass_may_lead_back_to_what_the_config_says() -> None:
    assert prefetching(FOUND, 2, 4.0, outcome="kept").best == Candidate()


def test_what_moved_along_goes_back_with_the_knob() -> None:
    """The candidate that is run is the one that is named; the others keep what was found."""
    moved = candidate(FOUND, "batch_size", 16)
    assert set_by(moved) == {"prefetch_factor": 4, "batch_size": 16, "accumulation_steps": 2}
    back = candidate(replace(FOUND, best=moved), "batch_size", 4)
    assert set_by(back) == {"prefetch_factor": 4}
    none = candidate(BEGUN, "num_workers", 0)
    assert set_by(none) == {"num_workers": 0, "prefetch_factor": None}
    assert candidate(replace(BEGUN, best=none), "num_workers", 2) == Candidate()
    one = candidate(replace(BEGUN, best=none), "num_workers", 1)
    assert set_by(one) == {"num_workers": 1}, "what no workers had taken along goes back with some"


def candidate(now: TunerState, kind: str, value: int) -> Candidate:
    moved = with_value(now, knob_of(kind), value)
    assert isinstance(moved, Candidate)
    return moved


def set_by(found: Candidate) -> dict[str, object]:
    return {change.path: change.new for change in found.changes}


CHECKPOINTING = "gradient_checkpointing"
TEXT = "lr: 0.1\nbatch_size: 4\ngradient_checkpointing: true\n"
SLOWER = {CHECKPOINTING: 0.6}


def training(**more: Any) -> RecordedEngine:
    """One whose activations are computed twice, which costs time."""
    return on_formula(load_s=1e-6, step_kind="optimizer step", **{"flags": SLOWER, **more})


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({}, "changed"),
        ({"fails": lambda values, _: "gpu-oom" * (values[CHECKPOINTING] is False)}, "kept"),
        ({"flags": {CHECKPOINTING: 1.0}}, "kept"),
        ({"flags": {}, "observed": {"recomputes": False}}, "kept"),
    ],
    ids=["faster", "no memory", "no gain", "a flag that loads a checkpoint"],
)
def test_checkpointing_is_taken_off_where_memory_and_gain_are_there(
    tmp_path, more, outcome
) -> None:
    """The results are the same, so that it is written once it is proven."""
    search = formula_search(tmp_path, training(**more), TEXT)
    assert search.decisions[CHECKPOINTING].outcome == outcome
    assert (CHECKPOINTING in search.values) is (outcome == "changed")


def test_recomputation_that_was_seen_is_taken_off_before_anything_else(tmp_path) -> None:
    """One trial of a large gain: a search of batches and workers may spend the budget."""
    text = f"{TEXT}gradient_accumulation_steps: 8\nnum_workers: 0\n"
    search = formula_search(tmp_path, training(process_s=12.0), text, budget_s=100.0)
    first = search.asked("search")[0].request.variant.candidate
    assert set_by(first) == {CHECKPOINTING: False}
    assert search.decisions[CHECKPOINTING].outcome == "changed"


@pytest.mark.parametrize(("guard", "asked"), [({"numeric-tolerance": "2%"}, True), ({}, False)])
def test_plain_attention_is_set_against_that_of_torch(tmp_path, guard, asked) -> None:
    """It rounds otherwise, so only where the user declared a tolerance."""
    text = "lr: 0.1\nmodel:\n  attn_implementation: eager\n"
    search = formula_search(tmp_path, training(), text, workload=guard)
    tried = {c.new for a in search.executor.attempts for c in a.request.variant.candidate.changes}
    assert ("sdpa" in tried) is asked
    assert search.decisions["attn_implementation"].outcome == ("kept" if asked else "listed")


@pytest.mark.parametrize(
    ("guard", "device", "cause", "written"),
    [
        ({"numeric-tolerance": "2%"}, "cuda:0", "faster", True),
        ({}, "cuda:0", "needs-consent", False),
        ({"numeric-tolerance": "2%"}, "cpu", "no-need", False),
    ],
)
def test_an_optimizer_by_name_is_set_against_its_fused_one(
    tmp_path, guard, device, cause, written
) -> None:
    """It rounds otherwise, as fused kernels do: on a card, within the declared tolerance."""
    engine = training(
        flags={"optim": 1.3},
        on={"optim": "adamw_torch_fused"},
        observed={"device": device, "trains": "optimizer"},
    )
    text = "lr: 0.1\nbatch_size: 4\noptim: adamw_torch\n"
    search = formula_search(tmp_path, engine, text, workload=guard)
    assert search.decisions["optim"].knob_class == "numeric"
    assert search.decisions["optim"].cause == cause
    assert (search.values.get("optim") == "adamw_torch_fused") is written


UNTRIED = {
    "num_beams: 4": ("num_beams", "quality"),
    "n_envs: 8": ("n_envs", "training"),
}


@pytest.mark.parametrize("budget_s", [600.0, 8.0])
@pytest.mark.parametrize("line", UNTRIED)
def test_what_changes_the_product_and_is_never_tried_is_told(tmp_path, line, budget_s) -> None:
    """However long the call: one that ended early seemed to have come to it later."""
    path, knob_class = UNTRIED[line]
    text = f"batch_size: 4\n{line}\n"
    search = formula_search(tmp_path, on_formula(load_s=1e-6), text, budget_s=budget_s)
    decision = search.decisions[path]
    assert decision.cause == "never-alone"
    assert decision.knob_class == knob_class
    assert not any(c.path == path for c in search.winner.changes)
