"""How long it takes with more processes, each on a GPU of its own: two measured, more scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.report import numbers
from advisor.report.guide import as_it_is

if TYPE_CHECKING:
    from advisor.report.model import Gain, Report

COUNTS = (1_000, 10_000)
MOST = 8
"""Processes up to which a line is told."""
TWO = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """So many processes side by side."""

    processes: int
    units_per_s: float
    times: tuple[str, ...]
    """For each of COUNTS, start-up included where that was measured."""
    how: str


def crews(report: Report) -> list[Crew]:
    """From one process to MOST; none where two were not measured side by side."""
    side, gain = as_it_is(report), _of_two(report)
    if gain is None or not side.units_per_s or report.unit == "token":
        return []
    start_s = side.startup_s or 0.0
    found = []
    for many in range(1, MOST + 1):
        rates = [
            side.units_per_s * times(many, ratio)
            for ratio in (gain.ratio, gain.high, gain.low)
            if ratio is not None
        ]
        middle, *bounds = rates
        found.append(
            Crew(
                processes=many,
                units_per_s=middle,
                times=tuple(_told(count, middle, bounds, start_s) for count in COUNTS),
                how="measured" if many <= TWO else "scaled",
            )
        )
    return found


def _of_two(report: Report) -> Gain | None:
    if report.objective != "throughput":
        return None
    scaled = [each for each in report.comparisons if each.purpose == "scaling"]
    return next((each.gain for each in scaled if each.gain is not None), None)


def times(many: int, two: float) -> float:
    """How many times the rate of one process `many` have, where two have `two` times it.

    What the second takes from the first, each further one is taken to take from all: the law of
    contention, n / (1 + c (n - 1)). Two that are more than twice as fast are told as twice.
    """
    if many <= TWO:
        return 1.0 if many == 1 else two
    contention = max(0.0, TWO / two - 1.0)
    return many / (1.0 + contention * (many - 1))


def _told(count: int, middle: float, bounds: list[float], start_s: float) -> str:
    """`11 min 16 s (11 min to 11 min 32 s)`"""
    whole, *ends = [numbers.duration(count / rate + start_s) for rate in (middle, *bounds)]
    if len(set(ends)) < TWO:
        return whole
    return f"{whole} ({ends[0]} to {ends[1]})"
