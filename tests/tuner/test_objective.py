"""What decides, and under which bounds: one object scores every run, and everybody asks it."""

from pathlib import Path
from typing import Any

import pytest

from advisor import objective
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula
from tests.tuner.configs import TEST

COSTS = {"load_s": 1e-6, "launch_s": 0.004, "unit_s": 0.0005}
"""A batch of n takes 4 + n/2 ms: 225 items/s and 4.5 ms alone, 2000 items/s at most."""


def searched(
    folder: Path, aim: objective.Objective, batch: int = 1, **formula: Any
) -> FormulaSearch:
    engine = on_formula(**{**COSTS, **formula})
    text = f"batch_size: {batch}\n"
    return formula_search(folder, engine, text, workload=TEST, objective=aim)


def test_a_bound_on_latency_takes_a_smaller_batch_than_throughput_alone(tmp_path) -> None:
    """At 20 ms a batch may hold 32 items; 95 of a hundred are inside, in every round."""
    free = searched(tmp_path, objective.THROUGHPUT)
    aim = objective.parse("throughput", ["latency_p95<=20.1ms"])
    bound = searched(tmp_path, aim)
    assert free.values["batch_size"] > 64
    assert bound.values["batch_size"] == 32
    proof = bound.state.confirmations[-1]
    assert all((run.latency_p95_ms or 1e9) <= 20.1 for run in proof.runs("after"))
    assert "latency_p95<=20.1ms" in bound.decisions["batch_size"].reason


def test_the_latency_itself_makes_a_batch_smaller(tmp_path) -> None:
    """A unit's user waits for the whole batch: from 64, one by one is 36 ms against 4.5 ms."""
    search = searched(tmp_path, objective.parse("latency"), batch=64)
    assert search.values["batch_size"] == 1
    gain = search.state.confirmations[-1].interval(search.context.objective)
    assert gain.estimate == pytest.approx(36 / 4.5, rel=0.01)


def test_an_original_outside_a_bound_is_brought_inside_though_it_is_slower(tmp_path) -> None:
    """The largest batch that holds it; the report says that the bound is what was gained."""
    aim = objective.parse("throughput", ["memory<=3GiB"])
    search = searched(tmp_path, aim, batch=64, base_gib=1.0, unit_gib=0.1)
    assert search.values["batch_size"] == 16
    gain = search.state.confirmations[-1].interval(aim)
    assert gain.high < 1


def test_a_bound_that_nothing_keeps_changes_nothing(tmp_path) -> None:
    """Also where the search would have gained without it."""
    search = searched(tmp_path, objective.parse("throughput", ["latency_p95<=1ms"]))
    assert search.values == {}


@pytest.mark.parametrize(("idle_w", "batch"), [(0.0, 1), (300.0, 512)])
def test_energy_takes_the_batch_that_takes_least_of_it(tmp_path, idle_w, batch) -> None:
    """Where power follows the rate a batch saves none; where the card idles between, it does."""
    aim = objective.parse("energy")
    search = searched(tmp_path, aim, power_w=lambda rate: idle_w + 0.1 * rate)
    assert search.values.get("batch_size", 1) == batch


def test_what_is_not_told_ends_the_search_before_it_begins(tmp_path) -> None:
    """After the original, which is the first that could have told it."""
    search = searched(tmp_path, objective.parse("energy"))
    assert search.stop.reason == "not-measured"
    assert {attempt.request.purpose for attempt in search.executor.attempts} == {"baseline"}
    assert objective.parse("energy").unmeasured(search.state.original) == ("energy",)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("memory<=7GiB", 7.0),
        ("memory <= 512 MiB", 0.5),
        ("latency_p95<=0.08s", 80.0),
        ("power<=250W", 250.0),
        ("throughput>=12.5", 12.5),
        ("energy<=1Wh", 3600.0),
    ],
)
def test_bounds_are_read_in_their_units(text, bound) -> None:
    assert objective.parse_constraint(text).bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("parse", "said"),
    [
        (lambda: objective.parse_constraint("memory<7"), "no constraint"),
        (lambda: objective.parse_constraint("speed>=7"), "throughput"),
        (lambda: objective.parse_constraint("memory<=7W"), "GiB or MiB"),
    ],
)
def test_what_is_no_objective_is_refused_with_the_forms_allowed(parse, said) -> None:
    with pytest.raises(ValueError, match=said):
        parse()
