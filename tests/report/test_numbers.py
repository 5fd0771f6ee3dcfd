"""Numbers read as a careful person would write them."""

from __future__ import annotations

import math

import pytest

from advisor import numbers
from advisor.model import Interval
from advisor.report import sections, sentences
from advisor.report.schema import Gain
from tests.report import examples


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.4832, "1.48"),
        (0.012345, "0.0123"),
        (9.999, "10.0"),
        (99.96, "100"),
        (1612.4, "1,612"),
        (8, "8"),
        (12000, "12,000"),
        (0.0, "0"),
        (1.5e-9, "1.50e-09"),
        (-2.5, "-2.50"),
        (None, "not measured"),
        (math.nan, "not measured"),
        (math.inf, "not measured"),
    ],
)
def test_a_number_has_three_significant_digits(value: float | None, shown: str) -> None:
    assert numbers.number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (0.0000005, "0.500 us"),
        (0.000724, "724 us"),
        (0.672, "672 ms"),
        (0.9996, "1.0 s"),
        (6.23, "6.2 s"),
        (42.4, "42 s"),
        (59.7, "1 min"),
        (725.0, "12 min 5 s"),
        (3599.9, "1 h"),
        (13200.0, "3 h 40 min"),
        (183600.0, "2 d 3 h"),
        (None, "not measured"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float | None, shown: str) -> None:
    assert numbers.duration(seconds) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0, "0 %"),
        (0.0002, "<0.1 %"),
        (0.004, "0.4 %"),
        (0.0996, "10 %"),
        (0.87, "87 %"),
        (None, "not measured"),
    ],
)
def test_a_share_reads_as_percent(share: float | None, shown: str) -> None:
    assert numbers.percent(share) == shown


@pytest.mark.parametrize(
    ("gib", "shown"),
    [(0.004, "0.004 GiB"), (0.41, "0.41 GiB"), (12.34, "12.3 GiB"), (None, "not measured")],
)
def test_memory_carries_its_unit(gib: float | None, shown: str) -> None:
    assert numbers.gib(gib) == shown


def test_a_gain_shows_its_interval() -> None:
    assert numbers.gain(Gain(ratio=2.9, low=2.71, high=3.12, pairs=6)) == "2.90x (2.71 to 3.12)"
    assert numbers.gain(Gain(ratio=31.2, low=28.4, high=34.1, pairs=6)) == "31.2x (28.4 to 34.1)"
    assert numbers.gain(None) == "not measured"


@pytest.mark.parametrize(
    ("unit", "units"),
    [("tile", "tiles"), ("batch", "batches"), ("query", "queries"), ("ray", "rays")],
)
def test_units_have_a_plural(unit: str, units: str) -> None:
    assert numbers.plural(unit) == units


def test_a_unit_has_its_article() -> None:
    assert [numbers.one(unit) for unit in ("tile", "image", "sample", "item")] == [
        "a tile", "an image", "a sample", "an item",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gib", "shown"),
    [
        (12.34, "12.3 GiB"),
        (0.5, "512 MiB"),
        (0.000233, "0.239 MiB"),
        (472 / 1024**3, "472 B"),
        (0.0, "0 MiB"),
        (None, "not measured"),
    ],
)
def test_a_small_part_of_the_memory_is_told_in_what_it_is_small_in(
    gib: float | None, shown: str
) -> None:
    """Never as `0.000450 MiB`."""
    assert numbers.memory(gib) == shown


@pytest.mark.parametrize(
    ("count", "noun", "told"),
    [
        (1, "process", "1 process"),
        (2, "process", "2 processes"),
        (0, "CPU", "0 CPUs"),
        (1, "GPU", "1 GPU"),
        (1200, "query", "1,200 queries"),
    ],
)
def test_one_of_a_kind_is_no_plural(count: int, noun: str, told: str) -> None:
    assert numbers.many(count, noun) == told


@pytest.mark.parametrize("objective", ["latency", "energy", "cost"])
def test_a_gain_of_a_unit_has_its_article(objective: str) -> None:
    gain = Interval(estimate=2.0, low=1.8, high=2.2, n=4)
    told = sentences.gained(gain, "image", objective)
    title = sections.render(examples.improved(unit="image", objective=objective)).splitlines()[0]
    for line in (told, title):
        assert " a image" not in line
    assert "an image" in told


def test_bounds_that_tell_no_size_promise_no_gain() -> None:
    """Above its low bound is no claim where that is a loss."""
    wide = Gain(ratio=5.72, low=1.94, high=None, pairs=2)
    assert numbers.gain(wide) == "more than 1.94x"
    lost = Gain(ratio=0.95, low=0.11, high=None, pairs=2)
    assert numbers.gain(lost) == "0.95x, bounds too wide to tell"
