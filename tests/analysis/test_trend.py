"""Data sorted by cost: a faster variant comes further, to items that cost less."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from advisor.analysis import trend
from advisor.commands.compare import later_items
from advisor.model import Items, LoaderWork, PassItems, Run, WorkFacts
from tests.runs import a_run

PARTS, WINDOW_S = 8, 3.0


def sorted_run(batch: int, *, before: float, cost_s: float = 0.02, launch_s: float = 0.0) -> Run:
    """Window of three seconds, and twenty batches, of items whose cost halves every 280."""
    now, item, edges = 0.0, before, []
    while now < WINDOW_S or len(edges) < 20:
        now += launch_s + sum(cost_s * math.exp(-(item + k) / 400) for k in range(batch))
        item += batch
        edges.append((now, item))
    size = len(edges) // PARTS
    marks = [(0.0, before), *edges[size - 1 :: size]][: PARTS + 1]
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(marks)]
    units = item - before
    return a_run(units=units, units_before=before, units_per_s=units / now, windows=tuple(rates))


def warming_run(speed: float, seed: int = 0) -> Run:
    """Rate that rises by a tenth over the window, whatever its items are."""
    drawn = random.Random(seed)
    rates = [speed * (1 + 0.1 * k / PARTS + drawn.gauss(0, 0.003)) for k in range(PARTS)]
    return a_run(units=speed * WINDOW_S, units_per_s=speed, windows=tuple(rates))


@pytest.mark.parametrize("batch", [16, 64])
def test_a_gain_of_later_items_is_told_apart_from_one_of_the_batch(batch) -> None:
    """Batches cost what their items cost: the whole gain is that of the items."""
    originals = [sorted_run(4, before=12)] * 2
    after = sorted_run(batch, before=3.0 * batch)
    gain = math.log(after.units_per_s / originals[0].units_per_s)
    assert gain > math.log(1.03)
    assert trend.head_start(originals, after) == pytest.approx(gain, rel=0.25)


@pytest.mark.parametrize("rise", [0.0, 0.02])
@pytest.mark.parametrize(("orders", "owes"), [(((0, 1), (0, 1)), True), (((3, 0), (1, 2)), False)])
def test_a_level_rate_beyond_all_items_of_rising_originals_may_owe_them_everything(
    orders, owes, rise
) -> None:
    """Costs have levelled off, or all but. Where equal runs draw other orders nothing is sorted."""
    originals = []
    for first in orders:
        seen = LoaderWork(passes=(PassItems(drawn=Items(count=2, first=first)),))
        originals.append(replace(sorted_run(4, before=12), work=WorkFacts(loader=seen)))
    rates = tuple(2300.0 * (1 + rise * part) for part in range(PARTS))
    after = a_run(units=4600.0, units_before=2100.0, units_per_s=2300.0, windows=rates)
    gain = math.log(2300.0 / originals[0].units_per_s)
    owed = trend.head_start(originals, after)
    assert owed == pytest.approx(gain) if owes else owed < gain / 10


def test_compare_refuses_a_rate_that_later_items_explain() -> None:
    """By name, as other work; a variant that is as fast was measured on the same items."""
    first = [sorted_run(4, before=12)] * 3
    assert "later items cost less" in later_items(first, [sorted_run(64, before=192)] * 3, 0.03)
    assert later_items(first, [sorted_run(4, before=12)] * 3, 0.03) == ""


def test_a_warm_up_is_no_trend_of_items() -> None:
    """The faster run comes further in items, and not in time."""
    originals = [warming_run(100.0, seed) for seed in (1, 2)]
    assert trend.head_start(originals, warming_run(400.0, 3)) < 0.1


def test_items_of_equal_cost_have_no_trend() -> None:
    drawn = random.Random(1)
    runs = [
        a_run(units=300.0, windows=tuple(100 * (1 + drawn.gauss(0, 0.02)) for _ in range(PARTS)))
        for _ in range(50)
    ]
    assert sum(trend.slope(run) != 0.0 for run in runs) <= 3
    assert trend.head_start(runs[:2], a_run(units=900.0, windows=(300.0,) * PARTS)) == 0.0
