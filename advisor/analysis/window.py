"""Measured window: warm-up discarded, whole cycles, throughput."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from advisor.analysis.averages import median
from advisor.analysis.step_series import FORWARD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.analysis.device_clock import DeviceClock
    from advisor.analysis.events import EventLog
    from advisor.analysis.step_series import StepSeries
    from advisor.model import MeasurePlan

SETTLED = 1.25
"""Warm-up lasts while a block of steps is slower than the median of the later ones by this."""
FORWARDS_DISCARDED = 5
PART_S = 0.1
"""Shortest part of a window."""
PARTS = 128
"""Most parts of a window."""
PATIENCE = 4.0
"""Past so many times the measured seconds, a few slow steps are enough."""
FEW_STEPS = 3
DISCARD_LIMIT = 4.0
"""Longest wait for a deep loader queue, as a multiple of the measured seconds."""
INTERRUPTED = 0.5
"""An interruption that lasts longer than this part of the measured seconds may end the window."""
ENOUGH = 0.25
"""Least part of the measured seconds that such a window holds."""
QUICK_STEP_S = 0.02
"""Hooks slow a shorter step noticeably: its window begins once steps are only counted."""


@dataclass(slots=True)
class Window:
    """Steps [first, last) of a series; times are of the process's clock."""

    series: StepSeries
    first: int
    last: int
    start: float = 0.0
    end: float = 0.0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start = self.series.bounds[self.first]
        self.end = self.series.bounds[self.last]

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.end - self.start

    @property
    def count(self) -> int:
        """Steps in the window."""
        return self.last - self.first

    def on_device(self, clock: DeviceClock) -> Window | None:
        """Return the same window by the device's clock."""
        bounds = self.series.bounds
        marked = [k for k in range(self.first, self.last + 1) if clock.is_marked(bounds[k])]
        if len(marked) < 2:
            return None
        window = Window(self.series, marked[0], marked[-1], notes=self.notes)
        window.start, window.end = clock.done(window.start), clock.done(window.end)
        return window if window.seconds > 0 else None

    def units_per_s(self) -> float | None:
        """Units finished a second.

        A sampler that was stopped inside a batch also pays for the pause between batches, where
        one was seen; without a known number of forwards it has no rate.
        """
        series = self.series
        units = sum(series.units[self.first : self.last])
        if not series.iterative:
            return units / self.seconds if self.seconds > 0 else None
        if not series.forwards_per_unit:
            return None
        cycles = [mark for mark in series.marks if self.first <= mark < self.last]
        if self._holds_whole_cycles(cycles) or series.gap_s is None:
            return units / self.seconds
        pauses = sum(series.bounds[k + 1] - series.bounds[k] for k in cycles)
        inside = self.count - len(cycles)
        if inside <= 0:
            return units / self.seconds
        forward_s = (self.seconds - pauses) / inside
        many = series.forwards_per_batch or 1.0
        return (series.batch or 1.0) / ((many - 1) * forward_s + series.gap_s)

    def _holds_whole_cycles(self, cycles: list[int]) -> bool:
        """Return True for a whole number of batches."""
        return bool(cycles) and cycles[0] == self.first and self.last in self.series.marks

    def batch_seconds(self) -> list[float]:
        """Seconds between first steps of consecutive batches.

        Empty where the window lies within one batch.
        """
        series = self.series
        edges: Sequence[int] = range(self.first, self.last + 1)
        if series.iterative:
            edges = [mark for mark in series.marks if self.first <= mark <= self.last]
        return [series.bounds[b] - series.bounds[a] for a, b in pairwise(edges)]

    def parts(self, multiple: int) -> list[tuple[float, float, float]]:
        """Consecutive parts of `multiple` steps, with their units."""
        bounds = self.series.bounds
        least_s = max(PART_S, self.seconds / PARTS)
        edges = [self.first]
        for step in range(self.first + multiple, self.last - multiple + 1, multiple):
            if bounds[step] - bounds[edges[-1]] >= least_s:
                edges.append(step)
        if len(edges) > 1 and bounds[self.last] - bounds[edges[-1]] < least_s:
            edges.pop()
        return [
            (bounds[low], bounds[high], sum(self.series.units[low:high]))
            for low, high in pairwise([*edges, self.last])
        ]


@dataclass(frozen=True, slots=True)
class Missing:
    """Reason why the window is not full yet."""

    seconds: float
    """Best guess of the time until it is."""
    why: str


def warm_up(log: EventLog, series: StepSeries, measure_s: float) -> int:
    """First step that counts, were the run long enough."""
    workers, prefetch = _workers(log, series)
    bounds = series.bounds
    if series.kind == FORWARD:
        discard = FORWARDS_DISCARDED
    else:
        batches = max(3, workers * prefetch + 2)
        discard = math.ceil(batches / (series.batches_per_step or 1.0))
        if discard < series.steps and bounds[discard] - bounds[0] > DISCARD_LIMIT * measure_s:
            by_time = bisect.bisect_left(bounds, bounds[0] + DISCARD_LIMIT * measure_s)
            discard = min(discard, max(3, workers + 2, by_time))
    first = max(discard, bisect.bisect_left(bounds, log.warm_until))
    return _settled(series, first, max(5, 2 * workers))


def counted_from(log: EventLog, series: StepSeries, steady: int) -> int:
    """First step after warm-up and slow hooks."""
    since = log.counting_since
    if since is None or typical_step_s(series) >= QUICK_STEP_S:
        return steady
    return max(steady, bisect.bisect_left(series.bounds, since))


def _workers(log: EventLog, series: StepSeries) -> tuple[int, int]:
    """Workers and prefetch factor of the loader, or zeros."""
    if series.loader is None:
        return 0, 0
    facts = log.loader(series.loader)
    return facts.workers, facts.prefetch or 0


def _settled(series: StepSeries, first: int, size: int) -> int:
    """Skip slow leading blocks after `first`."""
    bounds = series.bounds
    blocks = [bounds[k + size] - bounds[k] for k in range(first, series.steps - size + 1, size)]
    skipped = 0
    while len(blocks) - skipped >= 4:
        if blocks[skipped] <= SETTLED * median(blocks[skipped + 1 :]):
            break
        skipped += 1
    return first + skipped * size


def burst(log: EventLog, series: StepSeries) -> int:
    """Steps of one burst of worker batches."""
    workers, _ = _workers(log, series)
    if series.kind == FORWARD or workers < 2:
        return 1
    per_step = round(series.batches_per_step) or 1
    return workers // math.gcd(workers, per_step)


def find_window(
    log: EventLog,
    series: StepSeries,
    plan: MeasurePlan,
    *,
    now: float | None = None,
    whole: bool = False,
) -> tuple[Window | None, Missing | None]:
    """Find the window and the reason it is incomplete.

    `whole`: the program ended, or is never to be stopped: everything after warm-up is taken.
    `now`: the present by the process's clock, where the program still runs.
    """
    steady = counted_from(log, series, warm_up(log, series, plan.measure_s))
    if whole:
        return _everything(log, series, steady, plan.min_steps), None
    typical_s = typical_step_s(series)
    if series.steps <= steady:
        missing = (steady - series.steps + 1) * typical_s
        return None, Missing(max(0.05, missing), "warm-up")
    first, last, cycle_s = _cycles(series, steady, plan)
    if cycle_s is None:
        first += (last - first) % burst(log, series)
    if last <= first:
        return None, Missing(max(0.05, typical_s, (cycle_s or 0.0) / 2), "a whole cycle")
    window = Window(series, first, last)
    if _ends_early(window, plan, now, typical_s):
        return window, None
    return window, _missing(window, plan, typical_s, cycle_s)


def _missing(
    window: Window, plan: MeasurePlan, typical_s: float, cycle_s: float | None
) -> Missing | None:
    """Describe missing seconds, steps or batches."""
    measure_s = plan.measure_s
    missing_s = measure_s - (cycle_s or 0.0) / 2 - window.seconds
    missing_steps = plan.min_steps - window.count
    if window.seconds >= PATIENCE * measure_s:
        missing_steps = min(missing_steps, FEW_STEPS - window.count)
    if missing_s > 0 or missing_steps > 0:
        wait_s = max(missing_s, missing_steps * typical_s, (cycle_s or 0.0) / 2, 0.02)
        return Missing(wait_s, "time" if missing_s > 0 else "steps")
    if window.units_per_s() is None:
        return Missing(max(0.2, measure_s / 4), "a batch finished to the end")
    if plan.whole_batches > window.series.finished_batches:
        return Missing(max(0.1, measure_s / 4), "batches finished to the end")
    return None


def _ends_early(window: Window, plan: MeasurePlan, now: float | None, typical_s: float) -> bool:
    """Return True if an interruption ends the window early."""
    series = window.series
    if now is None or series.iterative or series.rollouts or plan.whole_batches:
        return False
    interrupted_s = now - series.bounds[-1]
    return (
        interrupted_s > max(INTERRUPTED * plan.measure_s, 10 * typical_s)
        and window.seconds >= ENOUGH * plan.measure_s
        and window.count >= max(FEW_STEPS, plan.min_steps)
    )


def typical_step_s(series: StepSeries) -> float:
    """Mean length of the latest steps."""
    recent = series.bounds[-40:]
    return (recent[-1] - recent[0]) / (len(recent) - 1) if len(recent) > 1 else 0.2


def _cycles(series: StepSeries, steady: int, plan: MeasurePlan) -> tuple[int, int, float | None]:
    """First step, last step, and seconds of a cycle.

    Whole epochs or batches where they are short or hold few steps. Where cycles are long the window
    lies inside one, and the seconds are None. Rollouts belong to the work: their cycles are whole.
    """
    last = series.steps
    marks = [mark for mark in _leading(series.marks) if mark >= steady]
    bounds = series.bounds
    lengths = [bounds[b] - bounds[a] for a, b in pairwise(marks)]
    if series.rollouts:
        return (marks[0], marks[-1], median(lengths)) if lengths else (steady, steady, None)
    if not marks:
        return steady, last, None
    cycle_s = median(lengths) if lengths else None
    if cycle_s is not None and cycle_s <= plan.measure_s:
        return marks[0], marks[-1], cycle_s
    enough_s = bounds[marks[-1]] - bounds[marks[0]] >= plan.measure_s
    if series.kind == FORWARD:
        return (marks[0], marks[-1], cycle_s) if lengths and enough_s else (steady, last, None)
    if enough_s and marks[-1] - marks[0] >= plan.min_steps:
        return marks[0], marks[-1], cycle_s
    return _longest_between([steady - 1, *marks], last, bounds)


def _longest_between(
    marks: list[int], last: int, bounds: list[float]
) -> tuple[int, int, float | None]:
    """Longest run of steps that no marked step interrupts."""
    edges = [(low + 1, high) for low, high in pairwise([*marks, last]) if high > low + 1]
    if not edges:
        return last, last, None
    first, end = max(edges, key=lambda edge: bounds[edge[1]] - bounds[edge[0]])
    return first, end, None


def _leading(marks: list[int]) -> list[int]:
    """Count neighbouring marked steps once."""
    return [m for k, m in enumerate(marks) if not k or m - marks[k - 1] > 1]


def _everything(log: EventLog, series: StepSeries, steady: int, min_steps: int) -> Window | None:
    """Window of everything after a possibly shortened warm-up."""
    done = series.steps
    if done < 1:
        return None
    wanted = steady
    if done - steady < min(min_steps, max(4, done // 2)):
        steady = min(steady, max(1 if done > 1 else 0, done // 4))
    multiple = burst(log, series)
    first = steady + (done - steady) % multiple if done - steady > 2 * multiple else steady
    window = Window(series, first, done)
    if steady != wanted:
        window.notes.append(
            f"the program ended by itself after {done + 1} step{'s' * (done > 0)}: {first} were "
            f"discarded as warm-up where {wanted} would have been right"
        )
    return window
