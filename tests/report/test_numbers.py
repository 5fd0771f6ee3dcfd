"""Numbers read as a careful person would write them."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from advisor import numbers
from advisor.report.schema import Gain

SHOWN: dict[Callable[[Any], str], dict[Any, str]] = {
    numbers.number: {
        1.4832: "1.48", 0.012345: "0.0123", 9.999: "10.0", 99.96: "100", 1612.4: "1,612",
        8: "8", 12000: "12,000", 0.0: "0", 1.5e-9: "1.50e-09", -2.5: "-2.50",
    },
    numbers.duration: {
        0.0: "0 s", 0.0000005: "0.500 us", 0.000724: "724 us", 0.672: "672 ms", 0.9996: "1.0 s",
        6.23: "6.2 s", 42.4: "42 s", 59.7: "1 min", 725.0: "12 min 5 s", 3599.9: "1 h",
        13200.0: "3 h 40 min", 183600.0: "2 d 3 h",
    },
    numbers.percent: {0: "0 %", 0.0002: "<0.1 %", 0.004: "0.4 %", 0.0996: "10 %", 0.87: "87 %"},
    numbers.gib: {0.004: "4.10 MiB", 0.5: "512 MiB", 12.34: "12.3 GiB", 0.0: "0 MiB"},
    numbers.plural: {"tile": "tiles", "batch": "batches", "query": "queries", "ray": "rays"},
    numbers.one: {"tile": "a tile", "image": "an image", "unit": "a unit", "item": "an item"},
}  # fmt: skip


@pytest.mark.parametrize("show", SHOWN)
def test_a_figure_has_its_digits_and_its_unit(show) -> None:
    assert {value: show(value) for value in SHOWN[show]} == SHOWN[show]


@pytest.mark.parametrize("show", [numbers.number, numbers.duration, numbers.percent, numbers.gib])
def test_a_figure_that_is_missing_is_not_measured(show) -> None:
    assert {show(value) for value in (None, math.nan, math.inf)} == {"not measured"}


def test_one_of_a_kind_is_no_plural() -> None:
    assert [numbers.many(many, "query") for many in (1, 1200)] == ["1 query", "1,200 queries"]


@pytest.mark.parametrize(
    ("gain", "shown"),
    [
        (Gain(ratio=2.9, low=2.71, high=3.12, pairs=6), "2.90x (2.71 to 3.12)"),
        (Gain(ratio=31.2, low=28.4, high=34.1, pairs=6), "31.2x (28.4 to 34.1)"),
        (Gain(ratio=5.72, low=1.94, high=None, pairs=2), "more than 1.94x"),
        (Gain(ratio=0.95, low=0.11, high=None, pairs=2), "0.95x, bounds too wide to tell"),
    ],
)
def test_a_gain_shows_its_bounds_and_promises_no_more(gain, shown) -> None:
    assert gain.text == shown
