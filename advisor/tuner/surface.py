"""What is known of such programs, fitted to what was measured: the rate by batch and workers.

A step costs a launch and then each unit's compute; loading costs each unit, beside the step where
there are workers and before it where there are none. Where the launch ends and the compute begins
is not known, so every split is weighed by how well it explains the runs. Where a larger batch was
slower a unit may take longer in it, as where caches overflow. Real programs differ from that: what
is left over is taken along to the neighbours, and what is far from every run is doubted.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from dataclasses import dataclass, replace

SPLITS = tuple(10 ** (-3 + 0.25 * i) for i in range(29))
"""Launch over compute of the first batch."""
GROWTHS = (0.0, 0.15, 0.3)
"""How fast a unit's compute grows with the batch once caches no longer hold it, as an exponent."""
FALL = 1.0
"""That is believed where a larger batch was slower by so many deviations of equal processes."""
LOADERS = tuple(math.exp(x) for x in (-1.2, -0.6, -0.25, 0.0, 0.25))
"""The loader beside the compute, over the loader alone."""
LOADER_SPREAD = 0.3
SHAPE = 0.02
"""Relative error of the form itself, where something was measured."""
FAR = 0.04
"""The same, far from everything that was measured."""
UNLUCKY = 3.0
"""So many deviations of what is left over are carried to the neighbours; more was bad luck."""
NORMAL = 1.4826
"""Standard deviations in a median of absolute ones."""
TAILS = 4.0
"""Degrees of freedom of Student's distribution: a run may have been unlucky."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run: units a batch, loader workers, units/s, share of the time waiting for data."""

    batch: float
    workers: int
    rate: float
    wait_share: float

    @property
    def step_s(self) -> float:
        """Of one batch, without waiting for it."""
        return max(1e-3, 1.0 - self.wait_share) * self.batch / self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A rate that was not measured, or was and is smoothed by its neighbours."""

    log_rate: float
    sd: float

    def improvement(self, log_best: float) -> float:
        """Expected relative gain over `log_best`, where less than that is none."""
        z = (self.log_rate - log_best) / self.sd
        below = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        return self.sd * (z * below + math.exp(-z * z / 2) / math.sqrt(2 * math.pi))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """One way to explain the runs, and how much it is believed."""

    weight: float
    launch_share: float
    growth: float
    log_step_s: float
    """Of the first batch."""
    loader: float

    def log_share(self, batches: float) -> float:
        """What a step takes of the first batch's, for so many times as many units."""
        return _log_share(self.launch_share, self.growth, batches)


class Surface:
    """The fit; pure: the same points give the same forecasts."""

    def __init__(
        self,
        points: tuple[Point, ...],
        loader: tuple[tuple[int, float], ...],
        sigma: float,
    ) -> None:
        """`loader`: units/s of the loader alone by workers, empty where it costs nothing.

        `sigma`: relative standard deviation between equal processes.
        """
        self._first = points[0].batch
        self._loader = dict(loader)
        self._sigma = math.hypot(sigma, SHAPE)
        self._splits = self._weighed(points)
        self._told: dict[tuple[float, int], Forecast] = {}
        self._left_over = [
            (point, math.log(point.rate) - self._mean(point.batch, point.workers)[0])
            for point in points
        ]
        off = NORMAL * statistics.median(abs(each) for _, each in self._left_over)
        self._off = max(self._sigma, off)

    def at(self, batch: float, workers: int) -> Forecast:
        """What is to be expected there."""
        if (batch, workers) not in self._told:
            self._told[batch, workers] = self._forecast(batch, workers, self._sigma)
        return self._told[batch, workers]

    def seen_at(self, batch: float, workers: int) -> Forecast:
        """The same where something ran: what is left over by more than chance is the program's own
        way there."""
        return self._forecast(batch, workers, self._off)

    def _forecast(self, batch: float, workers: int, off: float) -> Forecast:
        """`off`: how far programs lie from the form, as a standard deviation."""
        mean, variance = self._mean(batch, workers)
        near = carried = 0.0
        most_apart = UNLUCKY * off
        for point, left_over in self._left_over:
            apart = math.log2(batch / point.batch) ** 2
            most = max(workers, point.workers)
            apart += (workers - point.workers) ** 2 / (1.0 + 0.25 * most**2)
            alike = math.exp(-apart / 2)
            near += alike
            carried += alike * max(-most_apart, min(most_apart, left_over))
        variance += (0.7 * self._sigma) ** 2 / (1 + near) + FAR**2 / (1 + 4 * near)
        doubt = (self._sigma / off) ** 2
        return Forecast(log_rate=mean + carried / (near + doubt), sd=math.sqrt(variance))

    def _weighed(self, points: tuple[Point, ...]) -> tuple[_Split, ...]:
        steps = [(point.batch, math.log(point.step_s)) for point in points]
        loads = [self._load_s(point.batch, point.workers) for point in points]
        found = []
        growths = GROWTHS if self._falls(points) else GROWTHS[:1]
        for launch, growth in itertools.product(SPLITS, growths):
            shape = [
                log_s - _log_share(launch, growth, batch / self._first) for batch, log_s in steps
            ]
            log_step_s = _middle(shape)
            fit = sum(_log_student(each - log_step_s, 0.7 * self._sigma + 0.02) for each in shape)
            for loader in LOADERS if self._loader else (1.0,):
                split = _Split(
                    weight=0,
                    launch_share=launch,
                    growth=growth,
                    log_step_s=log_step_s,
                    loader=loader,
                )
                belief = fit - 0.5 * (math.log(loader) / LOADER_SPREAD) ** 2
                for point, load_s in zip(points, loads, strict=True):
                    told = self._log_rate(split, point.batch, point.workers, load_s)
                    belief += _log_student(math.log(point.rate) - told, self._sigma)
                found.append((belief, split))
        top = max(belief for belief, _ in found)
        likely = [(math.exp(belief - top), split) for belief, split in found if belief > top - 8]
        total = sum(weight for weight, _ in likely)
        return tuple(replace(split, weight=weight / total) for weight, split in likely)

    def _falls(self, points: tuple[Point, ...]) -> bool:
        """Whether a larger batch was slower than a smaller one: nothing else says that a unit's
        compute grows, and where it does not a search that fears it ends too early."""
        return any(
            math.log(small.rate / large.rate) > FALL * self._sigma
            for small, large in itertools.permutations(points, 2)
            if small.batch < large.batch and small.workers == large.workers
        )

    def _mean(self, batch: float, workers: int) -> tuple[float, float]:
        load_s = self._load_s(batch, workers)
        rates = [(s.weight, self._log_rate(s, batch, workers, load_s)) for s in self._splits]
        mean = sum(weight * rate for weight, rate in rates)
        return mean, sum(weight * (rate - mean) ** 2 for weight, rate in rates)

    def _load_s(self, batch: float, workers: int) -> float:
        return batch / _between(self._loader, workers) if self._loader else 0.0

    def _log_rate(self, split: _Split, batch: float, workers: int, load_s: float) -> float:
        step_s = math.exp(split.log_step_s + split.log_share(batch / self._first))
        load_s /= split.loader
        return math.log(batch / (max(step_s, load_s) if workers else step_s + load_s))


fitted = functools.lru_cache(maxsize=64)(Surface)
"""The search is replayed answer by answer: the same fit is asked for again and again."""


def _log_share(launch: float, growth: float, batches: float) -> float:
    return math.log((launch + batches ** (1 + growth)) / (launch + 1))


def _middle(values: list[float]) -> float:
    """The mean of few, the median of many."""
    if len(values) < 5:
        return sum(values) / len(values)
    ordered = sorted(values)
    return (ordered[len(values) // 2] + ordered[(len(values) - 1) // 2]) / 2


def _log_student(error: float, scale: float) -> float:
    return -(TAILS + 1) / 2 * math.log1p((error / scale) ** 2 / TAILS)


def _between(table: dict[int, float], count: int) -> float:
    """The table's value at `count`, on a straight line between the nearest two."""
    below = max((known for known in table if known <= count), default=min(table))
    above = min((known for known in table if known >= count), default=max(table))
    if above <= below:
        return table[below]
    part = (count - below) / (above - below)
    return table[below] + part * (table[above] - table[below])
