"""Where the search over batch and workers stands, and which cell is worth the next process."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from advisor.executor.comparison import COLLAPSED
from advisor.tuner.loader import counts
from advisor.tuner.prices import LEAST_STEPS
from advisor.tuner.standing import MIN_STEPS, TunerState
from advisor.tuner.surface import Forecast, Point, Surface

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.model import Candidate, JsonScalar, Knob, Run
    from advisor.tuner.facts import Data

DOUBLINGS = 10
LEAP = 8
"""The batch grows by no more at once; by less where memory would not hold as many times the first
peak, which is the most it can be while nothing else is known."""
LEAST_GAIN = 0.01
"""An expected gain below this ends the search, and so much closer rates are a tie; at least a tenth
of the noise."""

NOTHING = -1e3
"""On the scale of logarithms: less than any run is worth."""
DEAREST = 4.0
"""Usual windows, or processes, that the window of a large batch may take."""

FLAT: Data = (("stop", "flat"),)
"""What ended a search that nothing else ended."""

GridPoint = tuple[int, int]
"""Batch and workers; 0 stands for a knob that is not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridState:
    """What one search over the grid has seen."""

    batch: Knob | None
    workers: Knob | None
    start: GridPoint
    runs: Mapping[GridPoint, tuple[Candidate, Run]]
    points: tuple[Point, ...]
    most: int
    """No larger batch is tried."""
    stop: Data = FLAT
    refused: frozenset[GridPoint] = field(default_factory=frozenset)
    aside: Mapping[GridPoint, tuple[Candidate, Run]] = field(default_factory=dict)
    """What ran far below its promise, and no other cell speaks for."""

    def bounded(self, most: int, *stop: tuple[str, JsonScalar]) -> GridState:
        """Nothing above `most`, and why."""
        return replace(self, most=min(most, self.most), stop=stop)

    def learned(self, point: Point) -> GridState:
        """With what one more run tells of the others."""
        return replace(self, points=(*self.points, point))


def most_promising(
    now: TunerState, found: GridState, surface: Surface, kept_s: float
) -> tuple[GridPoint | None, float]:
    """The cell with the largest expected gain; when that is none, a smaller one that ties.

    Of those that are worth a process the ones that fit into the budget beside `kept_s` come first.
    None when nothing is left that is.
    """
    forecast = {cell: worth(now, surface, cell) for cell in cells(now, found)}
    ran = {cell: worth(now, surface, cell) for cell in inside(now, found)}
    top = max((each.log_rate for each in ran.values()), default=NOTHING)
    new = [
        cell
        for cell in forecast
        if cell not in found.runs and window_s(now, cell, surface) <= longest_s(now)
    ]
    gains = {cell: forecast[cell].improvement(top) for cell in new}
    fits = [c for c in new if price_of(now, found, c, surface) <= now.remaining_s - kept_s]
    worthy = [cell for cell in fits if gains[cell] >= tie(now)]
    best = max(worthy or new, key=lambda cell: (gains[cell], -cell[0], -cell[1]), default=None)
    if best is None or gains[best] >= tie(now):
        return best, gains[best] if best is not None else 0.0
    if found.start in ran and top - ran[found.start].log_rate <= tie(now):
        return None, 0.0
    chosen = smallest_level(now, found, ran)
    fewer = [c for c in new if c[0] == chosen[0] and found.start[1] <= c[1] < chosen[1]]
    may_do = [c for c in fewer if forecast[c].log_rate + forecast[c].sd >= top - tie(now)]
    return min(may_do, default=None), 0.0


def worth(now: TunerState, surface: Surface, cell: GridPoint, *, ran: bool = False) -> Forecast:
    """What a cell is worth to the objective, on the scale on which gains add up."""
    batch = batch_of(cell)
    told = surface.seen_at(batch, cell[1]) if ran else surface.at(batch, cell[1])
    return replace(told, log_rate=now.facts.objective.log_worth(told.log_rate, batch))


def inside(now: TunerState, found: GridState) -> list[GridPoint]:
    """Cells that ran inside the constraints."""
    return [cell for cell, (_, run) in found.runs.items() if not now.facts.objective.broken(run)]


def window_s(now: TunerState, cell: GridPoint, surface: Surface) -> float:
    """What the fewest steps of a window would take there."""
    forwards = now.original.effects.forwards_per_unit if now.iterative else 1.0
    pace = now.facts.objective.pace(now.original) / now.original.units_per_s
    rate = math.exp(surface.at(batch_of(cell), cell[1]).log_rate) / pace
    step_s = batch_of(cell) / rate / (forwards or 1.0)
    return MIN_STEPS * step_s


def price_of(now: TunerState, found: GridState, cell: GridPoint, surface: Surface) -> float:
    """What a process takes there: as long as the usual one, unless its few steps take longer."""
    there_s, here_s = (window_s(now, each, surface) for each in (cell, found.start))
    whole = LEAST_STEPS / MIN_STEPS
    return now.price_s + max(0.0, whole * there_s - max(whole * here_s, now.facts.measure_s))


def longest_s(now: TunerState) -> float:
    """What a window may take: a batch that gains little is not worth minutes of the budget."""
    return DEAREST * max(now.facts.measure_s, now.price_s)


def smallest_level(
    now: TunerState, found: GridState, ran: Mapping[GridPoint, Forecast]
) -> GridPoint:
    """Of the cells that ran and tie with the best, the smallest not below the config's own, unless
    smaller ones are what is wanted."""
    top = max(each.log_rate for each in ran.values())
    level = [cell for cell, each in ran.items() if each.log_rate >= top - tie(now)]
    if now.facts.objective.better_below(found.runs[found.start][1]):
        return min(level)
    return min([cell for cell in level if larger(cell, found.start)] or level)


def cells(now: TunerState, found: GridState) -> list[GridPoint]:
    """All that may still be tried, and those that ran."""
    most = min(found.most, leap(now, found) * max(batch for batch, _ in found.runs))
    batches = [found.start[0] * 2**n for n in range(DOUBLINGS + 1)] if found.batch else [0]
    if found.batch and now.facts.objective.better_below(found.runs[found.start][1]):
        batches += [found.start[0] >> n for n in range(1, found.start[0].bit_length())]
    workers = {found.start[1]} | (counts(now, found.start[1]) if found.workers else set())
    return [
        (batch, count)
        for batch in batches
        if batch <= most or not found.batch
        for count in sorted(workers)
        if (batch, count) not in found.refused
    ]


def leap(now: TunerState, found: GridState) -> int:
    """How many times the largest batch that ran may be tried next."""
    peaks = {batch: run.held_gib for (batch, _), (_, run) in found.runs.items()}
    first = peaks[found.start[0]]
    if len(peaks) > 1 or not first:
        return LEAP
    return max(2, min(LEAP, int(now.facts.memory_limit_gib / first)))


def larger(cell: GridPoint, start: GridPoint) -> bool:
    """Neither knob is below where the config has it: nothing is made smaller for no gain."""
    return cell[0] >= start[0] and cell[1] >= start[1]


def tie(now: TunerState) -> float:
    """Relative rates closer than this are equal, once all runs together have smoothed them."""
    return max(LEAST_GAIN, now.noise / 20)


def collapsed(
    now: TunerState, found: GridState, surface: Surface, cell: GridPoint, run: Run
) -> bool:
    """Whether `run` is so far below what the others promise that it has to be seen twice.

    Where they promise little for sure, one that is slower than the start is doubted at half of the
    promise: a tenth of a large gain looks like a small loss.
    """
    told, start = surface.at(batch_of(cell), cell[1]), math.log(found.points[0].rate)
    rate, half = math.log(now.facts.objective.pace(run)), math.log(COLLAPSED)
    sure = told.log_rate - max(half, 4 * told.sd)
    slower = min(told.log_rate - half, start - math.log1p(now.band))
    return rate < max(sure, start - half, slower)


def loader_of(now: TunerState) -> tuple[tuple[int, float], ...]:
    """Units/s of the loader alone; by what the program waits where it was not measured. Nothing
    where the pace is no rate in time."""
    if not now.facts.objective.metric.time_only:
        return ()
    if now.loader_alone:
        return tuple(sorted(now.loader_alone.items()))
    run = now.original
    if not run.wait_share or run.effects.workers is None:
        return ()
    waited = run.units_per_s if run.effects.workers else run.units_per_s / run.wait_share
    one = waited / max(1, run.effects.workers)
    return tuple((count, one * max(1, count)) for count in range(now.facts.cpus + 1))


def point_of(now: TunerState, run: Run, cell: GridPoint) -> Point:
    """`run` as the fit sees it: at its cell, but for a batch that was not filled."""
    batch = min(run.effects.batch or math.inf, batch_of(cell))
    share = (run.wait_share or 0.0) if now.facts.objective.metric.time_only else 0.0
    pace = now.facts.objective.pace(run)
    return Point(batch=batch, workers=cell[1], rate=pace, wait_share=share)


def batch_of(cell: GridPoint) -> float:
    return float(max(1, cell[0]))


def memory_refusal(now: TunerState, found: GridState, batch: int) -> Data:
    """Why `batch` must not even be tried, from the memory of the two largest that ran."""
    runs = {cell[0]: run for cell, (_, run) in found.runs.items()}
    peaks = [(b, run.held_gib) for b, run in sorted(runs.items()) if run.held_gib]
    if not peaks:
        return ()
    (last, high) = peaks[-1]
    slope = (high - peaks[-2][1]) / (last - peaks[-2][0]) if len(peaks) > 1 else 0.0
    expected = high + max(slope, 0.0) * (batch - last)
    if expected <= now.facts.memory_limit_gib:
        return ()
    told: dict[str, JsonScalar] = {
        "stop": "memory-expected",
        "value": batch,
        "expected_gib": expected,
        "limit_gib": now.facts.memory_limit_gib,
        "peaks": ", ".join(f"{b}: {p:.2f} GiB" for b, p in peaks[-2:]),
    }
    return tuple(told.items())
