"""What is said of a knob whose values were tried: by what came of them, and of nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from advisor import config as documents, knobs
from advisor.executor.requests import SkippedRun, TrialRequest, TrialResult
from advisor.model import Candidate, Knob
from advisor.objective import THROUGHPUT
from advisor.settings import Workload
from advisor.tuner.state import Result, Source, Stage, TunerState, TuningContext
from advisor.tuner.value_trials import try_values
from tests.runs import a_failure, a_run
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
ELSEWHERE = BEGUN.skip("one whole batch", 900.0)
"""Something else did not fit into the budget, this knob's values did."""


def knob_of(kind: str) -> Knob:
    return next(knob for knob in BEGUN.all_knobs if knob.kind == kind)


def ended(stage: Stage, *rates: float | str | None) -> TunerState:
    """Where `stage` ends if its processes run at these rates, fail so, or do not fit (None)."""
    try:
        turn = next(stage)
        for rate in rates:
            assert isinstance(turn.request, TrialRequest)
            turn = stage.send(answer(turn.request, rate))
    except StopIteration as end:
        return end.value
    raise AssertionError(turn.request)


def answer(request: TrialRequest, rate: float | str | None) -> Result:
    if rate is None:
        return SkippedRun(request=request, needed_s=9.0, remaining_s=1.0)
    if isinstance(rate, float):
        return TrialResult(
            id="1", request=request, result=a_run(units_per_s=rate), remaining_s=599.0
        )
    return TrialResult(id="1", request=request, result=a_failure(rate), remaining_s=599.0)


def said(now: TunerState, kind: str) -> str | None:
    word = now.verdict_on(knob_of(kind))
    return word.outcome if word else None


def with_prefetch_of(value: int) -> TunerState:
    """After a first pass over the loader, which found `value`."""
    now = ended(try_values(BEGUN, knob_of("prefetch_factor"), [value]), 2.0)
    assert said(now, "prefetch_factor") == "found"
    return now


def test_a_second_pass_without_a_gain_leaves_what_the_first_found() -> None:
    now = with_prefetch_of(4)
    now = ended(try_values(now, knob_of("prefetch_factor"), [8]), 2.0)
    assert said(now, "prefetch_factor") == "found"


def test_a_second_pass_may_lead_back_to_what_the_config_says() -> None:
    now = with_prefetch_of(4)
    now = ended(try_values(now, knob_of("prefetch_factor"), [2]), 4.0)
    assert said(now, "prefetch_factor") == "kept"
    assert now.best == Candidate()


def test_what_moved_along_goes_back_with_the_knob() -> None:
    """The candidate that is run is the one that is named; the others keep what was found."""
    now = with_prefetch_of(4)
    moved = candidate(now, "batch_size", 16)
    assert set_by(moved) == {"prefetch_factor": 4, "batch_size": 16, "accumulation_steps": 2}
    back = candidate(replace(now, best=moved), "batch_size", 4)
    assert set_by(back) == {"prefetch_factor": 4}
    none = candidate(BEGUN, "num_workers", 0)
    assert set_by(none) == {"num_workers": 0, "prefetch_factor": None}
    assert candidate(replace(BEGUN, best=none), "num_workers", 2) == Candidate()


def candidate(now: TunerState, kind: str, value: int) -> Candidate:
    moved = now.with_value(knob_of(kind), value)
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


@pytest.mark.parametrize(("guard", "asked"), [({"numeric-tolerance": "2%"}, True), ({}, False)])
def test_plain_attention_is_set_against_that_of_torch(tmp_path, guard, asked) -> None:
    """It rounds otherwise, so only where the user declared a tolerance."""
    text = "lr: 0.1\nmodel:\n  attn_implementation: eager\n"
    search = formula_search(tmp_path, training(), text, workload=guard)
    tried = {c.new for a in search.executor.attempts for c in a.request.variant.candidate.changes}
    assert ("sdpa" in tried) is asked
    assert search.decisions["attn_implementation"].outcome == ("kept" if asked else "listed")
