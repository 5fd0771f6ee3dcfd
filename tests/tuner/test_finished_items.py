"""Only finished items are compared, and only with items that were counted alike."""

import math
from dataclasses import replace
from typing import Any

import pytest

from advisor.model import UNFINISHED, Failure, Run, Trial
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import formula_search, on_formula

BATCH = "batch_size: 4\nnum_workers: 0\n"
FASTER = Formula(load_s=1e-6, step_kind="root forward", counted="generation")


@pytest.mark.parametrize("counted", UNFINISHED)
def test_the_batch_of_what_is_no_finished_item_is_never_written(tmp_path, counted) -> None:
    """A larger batch has more rows, and may finish fewer items."""
    engine = on_formula(load_s=1e-6, step_kind="root forward", counted=counted)
    search = formula_search(tmp_path, engine, BATCH)
    assert search.values == {}
    decision = search.decisions["batch_size"]
    assert decision.outcome == "listed"
    assert UNFINISHED[counted] in decision.reason


def test_the_batch_of_finished_items_is_written(tmp_path) -> None:
    search = formula_search(tmp_path, RecordedEngine(FASTER), BATCH)
    assert search.values["batch_size"] > 4


class Otherwise(RecordedEngine):
    """A program whose larger batches are counted in another way."""

    def run(self, trial: Trial, *args: Any, **more: Any) -> Run | Failure:
        result = super().run(trial, *args, **more)
        if isinstance(result, Run) and trial.candidate.changes:
            return replace(result, counted="row of a forward", rate_source="rows")
        return result


def test_runs_that_are_counted_otherwise_are_refused_by_name(tmp_path) -> None:
    """However fast they look."""
    search = formula_search(tmp_path, Otherwise(FASTER), BATCH)
    assert search.values == {}
    assert "such rates do not compare" in search.decisions["batch_size"].reason


class InSteps(RecordedEngine):
    """A program of whose largest batches nothing tells the samples: steps are counted then."""

    def run(self, trial: Trial, *args: Any, **more: Any) -> Run | Failure:
        result = super().run(trial, *args, **more)
        batches = [c.new for c in trial.candidate.changes if c.kind == "batch_size"]
        if isinstance(result, Run) and batches and int(str(batches[0])) > 64:
            steps_per_s = result.units_per_s / int(str(batches[0]))
            return replace(result, counted="step", unit="step", units_per_s=steps_per_s)
        return result


def test_a_batch_that_is_counted_otherwise_hides_no_smaller_one(tmp_path) -> None:
    """Its rate is one of steps: it bent the model, which then promised nothing of any batch."""
    engine = InSteps(replace(FASTER, launch_s=0.05, unit_s=1e-4))
    search = formula_search(tmp_path, engine, BATCH)
    labels = [each.request.variant.label for each in search.asked("search")]
    assert len(labels) == len(set(labels))  # nor is it run again as an outlier
    assert search.values["batch_size"] >= 32


class Sorted(RecordedEngine):
    """Items in order of their cost: a rate grows with the items that were done before."""

    def run(self, trial: Trial, *args: Any, **more: Any) -> Run | Failure:
        result = super().run(trial, *args, **more)
        if isinstance(result, Failure):
            return result
        items = result.units
        rates = [result.units_per_s * math.exp(items * (k - 3.5) / 8 / 4000) for k in range(8)]
        return replace(result, windows=tuple(rates))


def test_a_gain_that_later_items_explain_is_not_written(tmp_path) -> None:
    """The original's own rate shows how much they cost less."""
    search = formula_search(tmp_path, Sorted(FASTER), BATCH)
    assert search.values == {}
    assert "later items, which cost less" in search.decisions["batch_size"].reason
