"""From a ledger to the measured window: warm-up discarded, whole cycles, rate, waits, shares."""

from __future__ import annotations

import bisect
import math
from typing import Any, Sequence

from . import steps, timeline, training
from .averages import median
from .clock import DeviceClock
from .log import EXHAUSTED, Log

SETTLED = 1.25
"""Warm-up lasts while a block of steps is slower than the median of the later blocks by this."""
FORWARDS_DISCARDED = 5
PART_S = 0.1
"""Shortest part of a window: what disturbs from outside is told in slices of this length."""
PARTS = 128
"""Most parts of a window."""
PATIENCE = 4.0
"""Past so many times the measured seconds, a few slow steps are enough."""
FEW_STEPS = 3
MANY_STEPS = 10_000
DISCARD_LIMIT = 4.0
"""A deep loader queue is waited for during at most this many times the measured seconds."""


class Window:
    """Steps [first, last) of a ledger, and what they say. Times are perf_counter seconds."""

    def __init__(self, ledger: steps.Ledger, first: int, last: int) -> None:
        self.ledger = ledger
        self.first = first
        self.last = last
        self.host_bounds = ledger.bounds
        """Of all steps, on the host's clock whatever becomes of the ledger's."""
        self.start = ledger.bounds[first]
        self.end = ledger.bounds[last]
        self.notes: list[str] = []

    @property
    def seconds(self) -> float:
        """Wall time of the window."""
        return self.end - self.start

    @property
    def count(self) -> int:
        """Steps in the window."""
        return self.last - self.first

    def on_device(self, clock: DeviceClock) -> None:
        """Move the bounds to when the device was done; the host only queued by then."""
        self.ledger.bounds = [clock.done(bound) for bound in self.ledger.bounds]
        self.start = self.ledger.bounds[self.first]
        self.end = self.ledger.bounds[self.last]

    def units_per_s(self) -> float | None:
        """End to end rate. A sampler stopped inside a batch also pays for the pause between
        batches, where one was seen."""
        ledger = self.ledger
        if self.seconds <= 0 or (ledger.iterative and ledger.forwards_per_unit is None):
            return None
        units = sum(ledger.units[self.first : self.last])
        cycles = [mark for mark in ledger.marks if self.first <= mark < self.last]
        if not ledger.iterative or ledger.gap_s is None or self.whole_cycles(cycles):
            return units / self.seconds
        pauses = sum(ledger.bounds[m + 1] - ledger.bounds[m] for m in cycles)
        inside = self.count - len(cycles)
        if inside <= 0:
            return units / self.seconds
        forward_s = (self.seconds - pauses) / inside
        many = ledger.forwards_per_batch or 1.0
        return (ledger.batch or 1.0) / ((many - 1) * forward_s + ledger.gap_s)

    def whole_cycles(self, cycles: list[int]) -> bool:
        """Whether the window is a whole number of batches."""
        return bool(cycles) and cycles[0] == self.first and self.last in self.ledger.marks

    def batch_seconds(self) -> list[float]:
        """What each whole batch took from its first step to the next one's; empty where the
        window lies within one."""
        ledger = self.ledger
        edges: Sequence[int] = range(self.first, self.last + 1)
        if ledger.iterative:
            edges = [mark for mark in ledger.marks if self.first <= mark <= self.last]
        return [ledger.bounds[b] - ledger.bounds[a] for a, b in zip(edges, edges[1:])]

    def parts(self, multiple: int) -> list[tuple[float, float, float, int]]:
        """Consecutive parts (start, end, units, marks), each of whole cycles of `multiple` steps.

        `marks` counts the steps in which an epoch or a sampler's batch begins, with its pause.
        """
        least_s = max(PART_S, self.seconds / PARTS)
        edges = [self.first]
        for step in range(self.first + multiple, self.last - multiple + 1, multiple):
            if self.ledger.bounds[step] - self.ledger.bounds[edges[-1]] >= least_s:
                edges.append(step)
        if len(edges) > 1 and self.end - self.ledger.bounds[edges[-1]] < least_s:
            edges.pop()
        return [self._part(low, high) for low, high in zip(edges, [*edges[1:], self.last])]

    def _part(self, low: int, high: int) -> tuple[float, float, float, int]:
        ledger = self.ledger
        marks = sum(low <= mark < high for mark in ledger.marks)
        return ledger.bounds[low], ledger.bounds[high], sum(ledger.units[low:high]), marks


class Need:
    """What is still missing before the process may stop."""

    def __init__(self, seconds: float, why: str) -> None:
        self.seconds = seconds
        """Best guess of the time until it is there."""
        self.why = why


def workers_of(log: Log, ledger: steps.Ledger) -> tuple[int, int]:
    """(workers, prefetch factor) of the ledger's loader; zeros without one."""
    if ledger.loader is None:
        return 0, 0
    facts = log.loaders[ledger.loader]
    return int(facts.get("workers") or 0), int(facts.get("prefetch") or 0)


def warm_up(log: Log, ledger: steps.Ledger, measure_s: float, since: float = 0.0) -> int:
    """The first step that counts after the time `since`, were the run long enough."""
    workers, prefetch = workers_of(log, ledger)
    bounds = ledger.bounds
    begin = bisect.bisect_left(bounds, since)
    if ledger.kind == steps.FORWARD:
        discard = FORWARDS_DISCARDED
    else:
        batches = max(3, workers * prefetch + 2)
        discard = math.ceil(batches / (ledger.batches_per_step or 1.0))
        last = begin + discard
        if last < ledger.steps and bounds[last] - bounds[begin] > DISCARD_LIMIT * measure_s:
            by_time = bisect.bisect_left(bounds, bounds[begin] + DISCARD_LIMIT * measure_s) - begin
            discard = min(discard, max(3, workers + 2, by_time))
    first = max(begin + discard, bisect.bisect_left(bounds, log.warm_until))
    return _settled(ledger, first, max(5, 2 * workers))


def _settled(ledger: steps.Ledger, first: int, size: int) -> int:
    """`first`, moved past leading blocks that are slower than what follows."""
    bounds = ledger.bounds
    blocks = [bounds[k + size] - bounds[k] for k in range(first, ledger.steps - size + 1, size)]
    skipped = 0
    while len(blocks) - skipped >= 4:
        if blocks[skipped] <= SETTLED * median(blocks[skipped + 1 :]):
            break
        skipped += 1
    return first + skipped * size


def multiple_of(log: Log, ledger: steps.Ledger) -> int:
    """Steps come in bursts of the number of workers."""
    workers, _ = workers_of(log, ledger)
    if ledger.kind == steps.FORWARD or workers < 2:
        return 1
    per_step = round(ledger.batches_per_step) or 1
    return workers // math.gcd(workers, per_step)


def find(
    log: Log,
    ledger: steps.Ledger,
    plan: dict[str, Any],
    whole: bool = False,
    since: float = 0.0,
) -> tuple[Window | None, Need | None]:
    """The window as it stands, and what is missing for it to be full (None: it is full).

    `whole`: the program ended, or is never to be stopped: everything after warm-up is taken.
    `since`: something changed then, and what came before does not count.
    """
    measure_s = float(plan.get("measure_s") or 3.0)
    min_steps = int(plan.get("min_steps") or 1)
    steady = warm_up(log, ledger, measure_s, since)
    if whole:
        return _all_of_it(log, ledger, steady, min_steps), None
    done = ledger.steps
    typical_s = _typical_step_s(ledger)
    if done <= steady:
        return None, Need(max(0.05, (steady - done + 1) * typical_s), "warm-up")
    first, last, cycle_s = _cycles(ledger, steady, measure_s, min_steps)
    multiple = multiple_of(log, ledger)
    if cycle_s is None:
        first += (last - first) % multiple
    if last <= first:
        return None, Need(max(0.05, typical_s, (cycle_s or 0.0) / 2), "a whole cycle")
    window = Window(ledger, first, last)
    slack_s = cycle_s / 2 if cycle_s else 0.0
    missing_s = measure_s - slack_s - window.seconds
    if window.count >= MANY_STEPS and any(log.dropped.values()):
        missing_s = 0.0  # of steps as quick as these no more are held at once
    missing_steps = min_steps - window.count
    if window.seconds >= PATIENCE * measure_s:
        missing_steps = min(missing_steps, FEW_STEPS - window.count)
    if missing_s > 0 or missing_steps > 0:
        wait_s = max(missing_s, missing_steps * typical_s, cycle_s / 2 if cycle_s else 0.0)
        return window, Need(max(wait_s, 0.02), "time" if missing_s > 0 else "steps")
    if window.units_per_s() is None:
        return window, Need(max(0.2, measure_s / 4), "a batch finished to the end")
    missing_batches = int(plan.get("whole_batches") or 0) - ledger.finished_batches
    if missing_batches > 0:
        return window, Need(max(0.1, measure_s / 4), "batches finished to the end")
    return window, None


def _typical_step_s(ledger: steps.Ledger) -> float:
    recent = ledger.bounds[-40:]
    return (recent[-1] - recent[0]) / (len(recent) - 1) if len(recent) > 1 else 0.2


def _cycles(
    ledger: steps.Ledger, steady: int, measure_s: float, min_steps: int
) -> tuple[int, int, float | None]:
    """(first, last, cycle seconds): whole epochs or batches where they are short or few-stepped.

    Where cycles are long the window lies inside one, and the seconds are None.
    """
    last = ledger.steps
    marks = [mark for mark in _leading(ledger.marks) if mark >= steady]
    bounds = ledger.bounds
    lengths = [bounds[b] - bounds[a] for a, b in zip(marks, marks[1:])]
    if not marks:
        return steady, last, None
    cycle_s = median(lengths) if lengths else None
    if cycle_s is not None and cycle_s <= measure_s:
        return marks[0], marks[-1], cycle_s
    enough_s = bounds[marks[-1]] - bounds[marks[0]] >= measure_s
    if ledger.kind == steps.FORWARD:
        return (marks[0], marks[-1], cycle_s) if lengths and enough_s else (steady, last, None)
    if enough_s and marks[-1] - marks[0] >= min_steps:
        return marks[0], marks[-1], cycle_s
    if lengths:
        after = marks[-1] + 1
        before = max(zip(lengths, marks[1:], marks))
        if bounds[last] - bounds[min(after, last)] < before[0]:
            return before[2] + 1, before[1], None
        return min(after, last), last, None
    if bounds[marks[0]] - bounds[steady] >= bounds[last] - bounds[min(marks[0] + 1, last)]:
        return steady, marks[0], None
    return min(marks[0] + 1, last), last, None


def _leading(marks: list[int]) -> list[int]:
    """Marks of neighbouring steps (a validation pass between two epochs) count once."""
    return [m for k, m in enumerate(marks) if not k or m - marks[k - 1] > 1]


def _all_of_it(log: Log, ledger: steps.Ledger, steady: int, min_steps: int) -> Window | None:
    """Everything after warm-up; a short run gives up part of the warm-up, and says so."""
    done = ledger.steps
    if done < 1:
        return None
    wanted = steady
    if done - steady < min(min_steps, max(4, done // 2)):
        steady = min(steady, max(1 if done > 1 else 0, done // 4))
    multiple = multiple_of(log, ledger)
    first = steady + (done - steady) % multiple if done - steady > 2 * multiple else steady
    window = Window(ledger, first, done)
    if steady != wanted:
        window.notes.append(
            f"the program ended by itself after {done + 1} step{'s' * (done > 0)}: {first} were "
            f"discarded as warm-up where {wanted} would have been right"
        )
    return window


# --- where the time went ------------------------------------------------------------------


def overlap(entries: Sequence[tuple[Any, ...]], start: float, end: float) -> float:
    """Seconds of (enter, exit, ...) entries inside [start, end]; entries do not overlap."""
    inside = [entry for entry in entries if entry[1] > start and entry[0] < end]
    return float(sum(min(entry[1], end) - max(entry[0], start) for entry in inside))


def shares(log: Log, window: Window, clock: DeviceClock | None = None) -> dict[str, float]:
    """Parts of the window's wall clock; they add up to 1. On a device see `timeline.shares`.

    Each moment counts once, whatever nests in what: a batch may be fetched, and all passes made,
    within the optimizer's step.
    """
    ledger, total = window.ledger, window.seconds
    if total <= 0:
        return {}
    foreign = _foreign_spans(log, ledger) if ledger.kind in steps.TRAINING else []
    if clock is not None:
        return _beside_device(log, window, clock, foreign)
    left: list[timeline.Span] = [(window.start, window.end)]
    parts: dict[str, float] = {}
    waits = _waits(log, ledger, clock)
    if waits is not None:
        parts["data_wait"], left = timeline.split(left, timeline.merged(waits))
    aside, left = _aside(log, foreign, left)
    running = [] if log.running is None else [(log.running[0], window.end)]
    made, left = timeline.split(left, timeline.merged([*log.passes, *log.opts]))
    called, _ = timeline.split(left, timeline.merged([*log.forwards, *running]))
    free = total - sum(parts.values()) - sum(aside.values())
    parts.update(aside, compute=min(made + watched_factor(log, window) * called, free))
    parts["other"] = max(0.0, total - sum(parts.values()))
    return {name: seconds / total for name, seconds in parts.items()}


def _aside(
    log: Log, foreign: list[tuple[float, float]], left: list[timeline.Span]
) -> tuple[dict[str, float], list[timeline.Span]]:
    """Seconds of what is no step, and the rest of `left`. A validation lasts until the next batch,
    so what is saved before that lies in it."""
    found: dict[str, float] = {}
    for name, spans in (("saving", log.saves), ("validation", foreign)):
        seconds, left = timeline.split(left, timeline.merged(spans))
        if seconds:
            found[name] = seconds
    return found, left


def _beside_device(
    log: Log, window: Window, clock: DeviceClock, foreign: list[tuple[float, float]]
) -> dict[str, float]:
    """The same where a device works; what the host did is told of the watched batches alone."""
    aside, left = _aside(log, foreign, [(window.start, window.end)])
    parts = {name: seconds / window.seconds for name, seconds in aside.items()}
    own = window.ledger.loader
    mine = [entry for entry in log.nexts if entry[2] == own]
    unwatched = [(one[0], other[0]) for one, other in zip(mine, mine[1:]) if not one[4]]
    fetches = [] if own is None else _waits(log, window.ledger, None) or []
    host = timeline.Host(
        fetches=fetches, calls=calls_of(log, fetches), copies=log.copies, waits=log.waits
    )
    watched = timeline.without(left, timeline.merged(unwatched)) or left
    found = timeline.shares(host, clock.marks(), watched)
    scale = max(0.0, 1.0 - sum(parts.values()))
    return {**parts, **{name: share * scale for name, share in found.items()}}


def calls_of(log: Log, fetches: Sequence[timeline.Span]) -> list[timeline.Span]:
    """Forwards, backwards, and of the optimizers' steps what neither these nor the fetches are."""
    passes = [*log.forwards, *log.inners, *log.passes]
    inside = timeline.merged([*passes, *fetches])
    return [*passes, *timeline.without(timeline.merged(log.opts), inside)]


def watched_factor(log: Log, window: Window) -> float:
    """Root forwards were watched in some batches only: what to multiply their time by."""
    inside = [
        entry[4]
        for entry in log.nexts
        if entry[2] == window.ledger.loader and window.start < entry[1] <= window.end
    ]
    return len(inside) / sum(inside) if any(inside) else 1.0


def _foreign_spans(log: Log, ledger: steps.Ledger) -> list[tuple[float, float]]:
    """Spans in which another loader than the measured ones was in turn; without any, those in
    which the network was called without gradients."""
    spans: list[tuple[float, float]] = []
    if ledger.loader is None:
        return training.evaluations(log, ledger.root)
    for position, (enter, end, which, items, _) in enumerate(log.nexts):
        if which == ledger.loader or which in ledger.beside:
            continue
        later = log.nexts[position + 1][0] if position + 1 < len(log.nexts) else end
        spans.append((enter, end if items == EXHAUSTED else later))
    return spans


def wait_share(log: Log, window: Window, clock: DeviceClock | None = None) -> float | None:
    """Share of the window spent inside the loader's `__next__`; None without a loader, and where
    another thread than the one that works waits for it."""
    waits = _waits(log, window.ledger, clock)
    if window.seconds <= 0 or waits is None:
        return None
    return min(1.0, overlap(waits, window.start, window.end) / window.seconds)


def _waits(
    log: Log, ledger: steps.Ledger, clock: DeviceClock | None
) -> list[tuple[float, float]] | None:
    if ledger.loader is None:
        return None
    if log.is_read_aside(ledger.loader):
        return None
    own = {ledger.loader, *ledger.beside}
    waits = [(n[0], n[1]) for n in log.nexts if n[2] in own]
    return waits if clock is None else _idle(waits, clock)


def _idle(spans: list[tuple[float, float]], clock: DeviceClock) -> list[tuple[float, float]]:
    """The parts of the host's `spans` in which the device had nothing left to do."""
    idle = [(max(start, clock.done(start)), end) for start, end in spans]
    return [(start, end) for start, end in idle if end > start]
