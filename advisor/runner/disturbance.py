"""From what others did and when, to a run's rate over clean time, and to what is told of it. Pure.

A window is cut into parts by the probe and into slices by the watcher. Parts that lie in clean
slices count; parts in which a cycle begins (a pause, a validation pass) weigh as much as in the
whole window, whichever of them were clean.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.machine.others import mean
from advisor.machine.readings import HARMFUL_EVENT_REASONS
from advisor.model import Disturbance
from advisor.probe.patience import disturbed_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from advisor.machine.others import LoadSample
    from advisor.model import Telemetry

CARRIED_S = 0.1
"""After others left, queues are fuller or emptier than they were, and caches are cold."""
PART_SHARE = 0.05
"""A part of which others disturbed no more than this is clean: steps may last for seconds."""
CLEAN_S = 1.0
"""Shortest clean time that a rate can be told from."""
CLEAN_SHARE = 0.25
"""... of the window: of less, what was left is not what the program mostly does."""
TAKEN_SHARE = 0.03
"""Of the CPUs that the run keeps busy: mean that others may take in slices that look clean one by
one. It is below what two processes of the same thing differ by."""
WINDOWS = 8
HELD_SHARE = 0.01
"""Busy samples of a card whose clocks were held down, from which on the run was disturbed."""


Span = tuple[float, float]
"""Epoch seconds, from and to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of one process' window, of whole cycles."""

    start: float
    """Epoch seconds."""
    end: float
    units: float
    marks: int = 0
    """Steps in it in which an epoch or a sampler's batch begins."""

    @property
    def seconds(self) -> float:
        return self.end - self.start


def spans(slices: Iterable[LoadSample]) -> list[Span]:
    """Stretches of time in which others disturbed, with what they leave behind; in order."""
    found: list[Span] = []
    for each in slices:
        extend(found, each)
    return found


def extend(found: list[Span], latest: LoadSample) -> None:
    """Add to the spans what the next slice says."""
    if not latest.disturbed:
        return
    end = latest.end + CARRIED_S
    if found and latest.start <= found[-1][1]:
        found[-1] = (found[-1][0], end)
    else:
        found.append((latest.start, end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How much of a window counts, and what it says."""

    factor: float
    """Rate over what counts, as a multiple of the rate over the whole window."""
    counted: tuple[tuple[Part, ...], ...]
    """Process by process."""
    disturbance: Disturbance


def judge(
    parts: Sequence[Sequence[Part]], slices: Sequence[LoadSample], start: float, end: float
) -> Judged:
    """What others did to a window of epoch seconds whose parts are known, process by process."""
    inside = [each for each in slices if each.start < end and each.end > start]
    told = Disturbance(
        others_cpus=mean((each, each.others_cpus) for each in inside),
        waited_cpus=mean((each, each.waited_cpus) for each in inside),
        steal_share=mean((each, each.steal_share) for each in inside),
    )
    whole = tuple(tuple(each) for each in parts)
    if told.others_cpus is None:
        return Judged(factor=1.0, counted=whole, disturbance=told)
    bad = spans(inside)
    disturbed = disturbed_s(bad, start, end)
    clean = tuple(tuple(p for p in each if _is_clean(p, bad)) for each in whole)
    seconds = min((sum(p.seconds for p in each) for each in clean), default=0.0)
    share = (seconds if clean else end - start - disturbed) / (end - start)
    enough = share >= CLEAN_SHARE and seconds >= min(CLEAN_S, (1 - PART_SHARE) * (end - start))
    crept = _taken_share(inside) > TAKEN_SHARE
    if enough and not crept:
        told = replace(told, disturbed=False, clean_share=min(1.0, share))
        return Judged(factor=_factor(whole, clean), counted=clean, disturbance=told)
    untouched = not crept and share >= 1 - PART_SHARE
    told = replace(told, disturbed=not untouched, clean_share=0.0 if crept else min(1.0, share))
    return Judged(factor=1.0, counted=whole, disturbance=told)


def on_card(told: Disturbance, telemetry: Telemetry) -> Disturbance:
    """The same with what disturbed on the GPU, for which no part of the window can be left out."""
    held = tuple(
        (reason, share)
        for reason, share in telemetry.event_reasons
        if reason in HARMFUL_EVENT_REASONS and share > HELD_SHARE
    )
    foreign = telemetry.foreign_pids
    disturbed = True if foreign or held else told.disturbed
    return replace(told, disturbed=disturbed, foreign_gpu_pids=foreign, clocks_held=held)


def window_rates(parts: Sequence[Sequence[Part]]) -> tuple[float, ...]:
    """Units/s of consecutive sub-windows of equally many parts, the processes added up."""
    size = max(1, min(map(len, parts), default=0) // WINDOWS)
    rates = [
        [_over(each[low : low + size]) for low in range(0, len(each) - size + 1, size)]
        for each in parts
    ]
    return tuple(sum(each) for each in zip(*rates, strict=False))


def _over(parts: Sequence[Part]) -> float:
    """Units/s; 0 for the rest of a window that took no time."""
    seconds = sum(part.seconds for part in parts)
    return sum(part.units for part in parts) / seconds if seconds > 0 else 0.0


def _is_clean(part: Part, bad: list[Span]) -> bool:
    return disturbed_s(bad, part.start, part.end) <= PART_SHARE * part.seconds


def _taken_share(slices: Iterable[LoadSample]) -> float:
    """CPUs that others took in the slices that look clean, as a share of those the run used."""
    clean = [each for each in slices if not each.disturbed]
    others = mean((each, each.others_cpus) for each in clean)
    waited = mean((each, each.waited_cpus) for each in clean)
    own = mean((each, each.own_cpus) for each in clean)
    return min(others or 0.0, waited or 0.0) / own if own else 0.0


def _factor(whole: Sequence[Sequence[Part]], clean: Sequence[Sequence[Part]]) -> float:
    before = sum(_rate(each, each) for each in whole)
    return sum(map(_rate, whole, clean)) / before if before > 0 else 1.0


def _rate(whole: Sequence[Part], clean: Sequence[Part]) -> float:
    """Units/s of a process, were the whole window as fast as its clean parts of each sort."""
    units = seconds = 0.0
    fast = _by_sort(clean)
    for sort, (done, took) in _by_sort(whole).items():
        done_fast, took_fast = fast.get(sort, (0.0, 0.0))
        units += done
        seconds += took if done_fast <= 0 else took_fast * done / done_fast
    return units / seconds if seconds > 0 else 0.0


def _by_sort(parts: Iterable[Part]) -> dict[bool, tuple[float, float]]:
    """(units, seconds) of the parts in which a cycle begins, and of the others."""
    sums: dict[bool, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for part in parts:
        units, seconds = sums[part.marks > 0]
        sums[part.marks > 0] = units + part.units, seconds + part.seconds
    return sums
