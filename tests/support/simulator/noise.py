"""Time, noise and neighbours of a machine that is imagined, with truths that are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from advisor.model import JsonScalar

if TYPE_CHECKING:
    import random

Values = Mapping[str, JsonScalar]
"""Settings in force by the last word of their path: `batch_size`."""

WINDOWS = 8
"""Sub-windows of a run."""


class VirtualClock:
    """Seconds that pass only when something takes time."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def __call__(self) -> float:
        """Seconds so far."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += max(0.0, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What makes equal processes differ; shares and standard deviations are relative."""

    between: float = 0.0
    """Standard deviation between processes."""
    within: float = 0.0
    """Standard deviation between the sub-windows of one process."""
    modes: tuple[tuple[float, float], ...] = ()
    """(factor on the rate, weight): a process runs in one of these."""
    flips: bool = False
    """Modes change for parts of a run, not only from process to process."""
    collapse: float = 0.0
    """Share of processes that run at a tenth of their rate."""
    startup: float = 0.0
    """Standard deviation of the start-up, on a logarithmic scale."""

    def rates(self, rng: random.Random) -> tuple[float, ...]:
        """Factors on the rates of one process' sub-windows."""
        process = math.exp(rng.gauss(0.0, self.between))
        if rng.random() < self.collapse:
            process *= 0.1
        mode = self._mode(rng)
        return tuple(
            process
            * (self._mode(rng) if self.flips else mode)
            * math.exp(rng.gauss(0.0, self.within))
            for _ in range(WINDOWS)
        )

    def _mode(self, rng: random.Random) -> float:
        if not self.modes:
            return 1.0
        factors, weights = zip(*self.modes, strict=True)
        return float(rng.choices(factors, weights)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one neighbour takes from a run."""

    share: float
    """Of the window, in which it works."""
    cpus: float
    """CPUs that it keeps busy meanwhile."""
    slower: float
    """How many times slower the run is meanwhile."""
    told: bool
    """Whether the host tells of it."""


class Neighbourly(Protocol):
    """Another program on the machine."""

    @property
    def name(self) -> str:
        """Its command name."""
        ...

    def during(self, process: int, start_s: float, end_s: float, values: Values) -> Taken:
        """What it takes from a window of the process that was run as number so and so, from 0."""
        ...

    def at_work(self, now_s: float) -> tuple[float, float]:
        """(CPUs that the host tells of right now, when it will have stopped)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """Another program that comes with some processes, whatever the time, and goes with them."""

    held: Callable[[int, Values], float | None]
    """CPUs that it keeps busy beside a process; None: the host does not tell."""
    slowed: float = 1.0
    """How much longer a run takes for each of those CPUs."""
    name: str = "neighbour"

    def during(self, process: int, start_s: float, end_s: float, values: Values) -> Taken:
        """All of the window or nothing of it."""
        del start_s, end_s
        cpus = self.held(process, values)
        held = cpus or 0.0
        return Taken(
            share=float(held > 0), cpus=held, slower=1 + self.slowed * held, told=cpus is not None
        )

    def at_work(self, now_s: float) -> tuple[float, float]:
        """Never between processes."""
        return 0.0, now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Another program that works `busy_s` of every `period_s` seconds."""

    period_s: float = 20.0
    busy_s: float = 5.0
    since_s: float = 0.0
    cpus: float = 1.0
    """CPUs that it keeps busy meanwhile."""
    slowdown: float | Callable[[Values], float] = 2.0
    """How many times slower a run is meanwhile."""
    name: str = "neighbour"
    told: bool = True
    """Whether the host tells of it."""

    def during(self, process: int, start_s: float, end_s: float, values: Values) -> Taken:
        """As much of the window as its bursts cover."""
        del process
        worked_s = self._worked_s(end_s) - self._worked_s(start_s)
        return Taken(
            share=worked_s / (end_s - start_s) if end_s > start_s else 0.0,
            cpus=self.cpus,
            slower=self.slowdown(values) if callable(self.slowdown) else self.slowdown,
            told=self.told,
        )

    def at_work(self, now_s: float) -> tuple[float, float]:
        """The burst that `now_s` lies in."""
        into = (now_s - self.since_s) % self.period_s
        if not self.told or now_s < self.since_s or into >= self.busy_s:
            return 0.0, now_s
        endless = self.busy_s >= self.period_s
        return self.cpus, math.inf if endless else now_s + self.busy_s - into

    def _worked_s(self, now_s: float) -> float:
        whole, into = divmod(max(0.0, now_s - self.since_s), self.period_s)
        busy_s = min(self.busy_s, self.period_s)
        return whole * busy_s + min(into, busy_s)
