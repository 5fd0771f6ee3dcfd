"""Measured window: steps of one kind, on a clock that stands still in validation.

Two runs of one config must have one rate, wherever their windows happen to end. An epoch's end
or a validation inside one window and not in the other would else be the larger part of their
difference. `docs/how-it-measures.md` has the rules; `Window.units_per_s` is where they meet.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, median

from advisor.analysis.device_time import DeviceClock
from advisor.analysis.events import EventLog, typed
from advisor.analysis.step_series import FORWARD, GENERATION, StepSeries
from advisor.model import MeasurePlan

# By judgement: what is cut off too little spoils a rate, and too much takes a short trial's time.
SETTLED = 1.25
"""Warm-up lasts while a block of steps is slower than the later ones' median by this."""
FORWARDS_DISCARDED = 5
"""Forwards of a sampler that are warm-up at least."""
GENERATIONS_DISCARDED = 1
"""Generations that are warm-up at least: each has many forwards, which warm the network up.

Judgement: none spoils the rate by the first one, and each more costs a trial seconds."""
DISCARD_LIMIT = 4.0
"""Longest wait for a deep loader queue, as a multiple of the measured seconds."""
QUICK_STEP_S = 0.02
"""A window of shorter steps begins once they are only counted, since recording slows them more.

Record: benchmarks/results/probe-cpu4.md: recording takes 82 to 122 us of a step in the median,
0.6 % of this length at most."""
LATE = 3.0
"""A window of so many times the measured seconds is late."""
ENOUGH, FEW_STEPS = 0.25, 3
"""Share of the measured seconds, and steps, that end a late window."""
PARTS = 8
"""Parts of a window whose rates tell its steadiness, at least: of fewer whole cycles, those."""


@dataclass(slots=True)
class Window:
    """Steps [first, last) of a series; times by the process's clock."""

    series: StepSeries
    first: int
    last: int
    start: float = 0.0
    end: float = 0.0
    notes: list[str] = field(default_factory=list)
    whole_run: bool = False
    """From the first batch that was asked for to the program's end."""

    def __post_init__(self) -> None:
        self.start = self.series.bounds[self.first]
        self.end = self.series.bounds[self.last]

    @property
    def aside_s(self) -> float:
        """Validation inside the window."""
        bounds, clock = self.series.bounds, self.series.clock
        return (bounds[self.last] - clock[self.last]) - (
            bounds[self.first] - clock[self.first]
        )

    @property
    def seconds(self) -> float:
        """Length of the window without validation."""
        return self.end - self.start - self.aside_s

    @property
    def count(self) -> int:
        return self.last - self.first

    def on_device(self, clock: DeviceClock) -> Window | None:
        """Return the same window by the device's clock; None with fewer than two marks.

        It begins and ends at marked steps, so it may be shorter by a few: for the steps between
        marks the device's clock is not known. A whole run keeps the host's clock, as its first
        batch was waited for before any step was marked.
        """
        if self.whole_run:
            return None
        bounds = self.series.bounds
        marked = [k for k in range(self.first, self.last + 1) if clock.is_marked(bounds[k])]
        if len(marked) < 2:
            return None
        window = Window(self.series, marked[0], marked[-1], notes=self.notes)
        window.start, window.end = clock.done(window.start), clock.done(window.end)
        return window if window.seconds > 0 else None

    def units_per_s(self) -> float | None:
        """Units a second; None for a sampler without a known number of forwards.

        A window of whole cycles (epochs, rollouts) divides what was done by the time. Any other
        would have an epoch's restart too often or not at all: 3 s with one restart, of an epoch
        of ten minutes, say that there is one each 3 s. So its ordinary steps and its restarts
        are told apart, and the rate is that of one whole cycle made of both:

            cycle_steps - 1 ordinary steps of `step_s`, and one that begins the cycle, `gap_s`
        """
        series = self.series
        if self.seconds <= 0 or (series.iterative and not series.forwards_per_unit):
            return None
        units = sum(series.units[self.first : self.last])
        begins = [mark for mark in series.marks if self.first <= mark < self.last]
        whole = begins and begins[0] == self.first and self.last in series.marks
        ordinary = self.count - len(begins)
        if whole or not ordinary or series.gap_s is None or not series.cycle_steps:
            return units / self.seconds
        gaps_s = sum(series.clock[mark + 1] - series.clock[mark] for mark in begins)
        step_s = (self.seconds - gaps_s) / ordinary
        cycle_s = (series.cycle_steps - 1) * step_s + series.gap_s
        if cycle_s <= 0:  # as a forged clock may have it
            return None
        return series.cycle_steps * units / self.count / cycle_s

    def batch_seconds(self) -> list[float]:
        """Seconds of each batch; none if the window lies within one."""
        series = self.series
        edges: Sequence[int] = range(self.first, self.last + 1)
        if series.iterative:
            edges = [mark for mark in series.marks if self.first <= mark <= self.last]
        return [series.clock[b] - series.clock[a] for a, b in pairwise(edges)]

    def part_rates(self) -> tuple[float, ...]:
        """Units a second of consecutive parts: whole cycles, or equally many steps.

        A part of a pass that begins with the start of its workers is many times as slow as one of
        batches that were ready by then. Parts that cut passes anywhere would tell a steady program
        as an unsteady one.
        """
        clock, units = self.series.clock, self.series.units
        edges = [at for at in self.series.cycle_starts if self.first <= at <= self.last]
        if len(edges) > 2 and (edges[0], edges[-1]) == (self.first, self.last):
            edges = edges[:: max(1, (len(edges) - 1) // PARTS)]
        else:
            edges = list(range(self.first, self.last + 1, max(1, self.count // PARTS)))
        return tuple(
            sum(units[low:high]) / max(1e-9, clock[high] - clock[low])
            for low, high in pairwise(edges)
        )


def warm_up(log: EventLog, series: StepSeries, measure_s: float) -> int:
    """First step that counts, were the run long enough.

    A loader's workers have filled their queue while the program was still starting. Until it is
    used up, batches come as fast as the model takes them, and a loader that cannot keep up looks
    as if it could: `workers * prefetch` batches are therefore discarded. With a deep queue of
    slow batches that alone may take longer than a trial should, so it ends after DISCARD_LIMIT
    times the measured seconds, once each worker has made a batch.

    Steps that are slow for any other reason are taken off in blocks, as long as the first block
    is slower than those behind it. A block spans two rounds of the workers, since within a round
    one step waits and the others do not. The forwards of a sampler wait for none of them. Where
    threads of the program's own may have loaded ahead, how much is not known: there first blocks
    that are faster than what follows are taken off as well.
    """
    facts, clock = log.loader(series.loader), series.clock
    workers = facts.workers
    prefetch = typed(facts.arguments, "prefetch_factor", int) or 0
    if series.kind == FORWARD:
        discard = FORWARDS_DISCARDED
    elif series.kind == GENERATION:
        discard = GENERATIONS_DISCARDED
    else:
        batches = max(3, workers * prefetch + 2)
        discard = math.ceil(batches / (series.batches_per_step or 1.0))
        limit = clock[0] + DISCARD_LIMIT * measure_s
        if discard < series.steps and clock[discard] > limit:
            discard = min(discard, max(3, workers + 2, bisect.bisect_left(clock, limit)))
    first = max(discard, bisect.bisect_left(series.bounds, log.warm_until))
    size = 5 if series.kind == FORWARD else max(5, 2 * workers)
    loaded_ahead = _own_ahead_since(log, series) is not None
    blocks = [
        clock[k + size] - clock[k] for k in range(first, series.steps - size + 1, size)
    ]
    while len(blocks) >= 4 and (
        blocks[0] > SETTLED * median(blocks[1:])
        or (loaded_ahead and blocks[0] * SETTLED < mean(blocks[1:]))
    ):
        first += size
        del blocks[0]
    return first


def burst(log: EventLog, series: StepSeries) -> int:
    """Steps of one burst of worker batches; 1 where batches come alone.

    Workers that started together finish together: one step waits for all of them, and the next
    ones find their batch ready. A window of whole bursts has its share of both.
    """
    workers = log.loader(series.loader).workers
    if series.kind == FORWARD or workers < 2:
        return 1
    return workers // math.gcd(workers, round(series.batches_per_step) or 1)


def find_window(
    log: EventLog,
    series: StepSeries,
    plan: MeasurePlan,
    *,
    now: float | None = None,
    whole: bool = False,
) -> tuple[Window | None, float]:
    """Find the window, and guess the seconds until full; 0: it is.

    `whole`: take everything after warm-up. `now`: time if the program still runs.

    Short cycles are measured whole, from the first that began after warm-up. A cycle longer than
    the window is not waited for, with one exception: of a reinforcement learner that acts and
    then learns, only whole cycles have a rate. A window that slow steps hold up is ended late
    with fewer steps, rather than never.

    A process is stopped by what this says while it runs, and has its rate from what this says
    of its whole log. So a window begins where steps are only counted, if they are, and not where
    the latest ones happen to be quick: those of short passes are quick or slow by where a pass
    stands, and a window that was full would shrink to the few steps since the counting began.
    """
    steady = warm_up(log, series, plan.measure_s)
    if log.counting_since is not None:
        steady = max(steady, bisect.bisect_left(series.bounds, log.counting_since))
    if whole:
        return _everything(log, series, steady, plan.min_steps), 0.0
    if series.steps <= steady:
        return None, max(0.05, (steady - series.steps + 1) * series.typical_s)
    began = series.bounds[steady]
    late = (series.bounds[-1] if now is None else now) - began >= LATE * plan.measure_s
    marks = [mark for mark in series.cycle_starts if mark >= steady]
    if series.counted == "rollout" and len(marks) < 2:
        return None, max(0.05, series.typical_s)
    if len(marks) > 1:
        cycle_s = median([series.clock[b] - series.clock[a] for a, b in pairwise(marks)])
        cycles = Window(series, marks[0], marks[-1])
        wait_s = _wait_s(cycles, plan, cycle_s / 2, late=late)
        short = series.counted == "rollout" or (cycle_s <= plan.measure_s and not late)
        if short or not wait_s:
            return cycles, wait_s
    first = steady + (series.steps - steady) % burst(log, series)
    if first == series.steps:
        return None, max(0.05, series.typical_s)
    window = Window(series, first, series.steps)
    return window, _wait_s(window, plan, 0.0, late=late)


def _wait_s(window: Window, plan: MeasurePlan, slack_s: float, *, late: bool) -> float:
    """Guess of the time until the window has its seconds, steps and batches."""
    wanted_s, wanted_steps = plan.measure_s - slack_s, plan.min_steps
    if late:
        wanted_s, wanted_steps = ENOUGH * plan.measure_s, min(FEW_STEPS, plan.min_steps)
    missing_s, missing_steps = wanted_s - window.seconds, wanted_steps - window.count
    if missing_s > 0 or missing_steps > 0:
        return max(missing_s, missing_steps * window.series.typical_s, slack_s, 0.02)
    finished = window.series.finished_batches >= plan.whole_batches
    has_rate = window.units_per_s() is not None
    return 0.0 if finished and has_rate else max(0.2, plan.measure_s / 4)


def _everything(
    log: EventLog, series: StepSeries, steady: int, min_steps: int
) -> Window | None:
    """Window of everything after a possibly shortened warm-up."""
    done = series.steps
    if done < 1:
        return None
    wanted = steady
    if done - steady < min(min_steps, max(4, done // 2)):
        steady = min(steady, max(1 if done > 1 else 0, done // 4))
    multiple = burst(log, series)
    first = steady + (done - steady) % multiple if done - steady > 2 * multiple else steady
    own_since = _own_ahead_since(log, series)
    if log.ended and (own_since is not None or first < _loaded_ahead(log, series)):
        return _whole_run(log, series, own_since)
    window = Window(series, first, done)
    if steady != wanted:
        window.notes.append(
            f"the program ended by itself after {done + 1} step{'s' * (done > 0)}: {first} were "
            f"discarded as warm-up where {wanted} would have been right"
        )
    return window


def _loaded_ahead(log: EventLog, series: StepSeries) -> int:
    """Steps whose batches workers may have loaded before the first step; 0 without workers."""
    if series.kind in {FORWARD, GENERATION}:
        return 0
    facts = log.loader(series.loader)
    prefetch = typed(facts.arguments, "prefetch_factor", int) or 0
    return math.ceil(facts.workers * prefetch / (series.batches_per_step or 1.0))


def _own_ahead_since(log: EventLog, series: StepSeries) -> float | None:
    """Since when threads of the program's own may have loaded ahead of the steps; None: none did.

    A sampler's forwards and a library's generation are long for other reasons than their data.
    Where a DataLoader gives the working thread its batches, only threads that began with its
    first one can be its dataset's.
    """
    since = log.ahead_since
    if since is None or series.iterative or series.kind == GENERATION:
        return None
    if series.loader is None or log.loader(series.loader).other_thread:
        return since
    return since if since >= _first_asked(log, series) else None


def _first_asked(log: EventLog, series: StepSeries) -> float:
    """When the first batch of the series was asked of a loader; infinite without one."""
    starts = (fetch.start for fetch in log.fetches if fetch.loader in series.loaders)
    return min(starts, default=math.inf)


def _whole_run(log: EventLog, series: StepSeries, own_since: float | None) -> Window:
    """Window of a run that ended before the batches that were loaded ahead were used up.

    Those came as fast as the model took them: 1,500 items in two batches, loaded at 250 a second,
    had a rate of 1,500. Their loading has to count, so the window begins where the first batch was
    asked for, or with the threads of the program's own that loaded. What the start of the workers
    and the first steps take counts along.
    """
    begin = min(_first_asked(log, series), math.inf if own_since is None else own_since)
    series = series.begun(begin)
    window = Window(series, 0, series.steps, whole_run=True)
    by = "its workers" if own_since is None else "its own threads"
    window.notes.append(
        f"the program ended by itself after {series.steps} steps, whose batches {by} may "
        "have loaded ahead. The rate is that of the whole run, its start included"
    )
    return window
