"""Rate by batch and workers, fitted to the runs.

A step costs a launch and each unit's compute. Loading costs each unit: beside the step with
workers, else before it. That form has three unknowns, so that two or three runs already say where
the rate levels off; a general surface would need a run at each point.

How a step splits into launch and compute is not fitted but weighed: each split of a grid counts by
how well it explains the runs. Where runs leave several, forecasts differ, and their spread is what
the search explores. Errors are Student's, so that one unlucky run does not rule out the truth. What
the form misses is carried over from each run to its neighbours, and far from all runs a forecast is
wide.

Record: benchmarks/results/tables-cpu2.md, `search_quality`: 99.5 % of the optimum in 7.0 processes,
of 200 programs whose processes differ by 2 %. Recorded programs: benchmarks/results/surfaces.
"""

import functools
import itertools
import math
import statistics
from typing import NamedTuple

NORMAL = statistics.NormalDist()
SPLITS = tuple(10 ** (-3 + 0.25 * i) for i in range(29))
"""Launch over compute of the first batch."""
GROWTHS = (0.0, 0.15, 0.3)
"""Exponents of a unit's compute once caches no longer hold the batch."""
FALL = 1.0
"""Deviations by which a larger batch must be slower for compute to grow."""
SHAPE = 0.02
"""Relative error of the two-cost form at measured points; judgement."""
FAR = 0.04
"""Relative error of the form far from all measured points; judgement."""
TAILS = 4.0
"""Degrees of freedom of the errors' Student distribution: runs may be unlucky. Judgement."""


class Point(NamedTuple):
    """One run as the fit sees it."""

    batch: float
    workers: int
    rate: float
    wait_share: float

    @property
    def step_s(self) -> float:
        """Time of one batch without waiting for it."""
        return max(1e-3, 1.0 - self.wait_share) * self.batch / self.rate


class Forecast(NamedTuple):
    """Expected rate of one point, smoothed by neighbours."""

    log_rate: float
    sd: float

    def improvement(self, log_best: float) -> float:
        """Expected log gain over `log_best`, where a loss counts as none.

        Expected improvement of a normal forecast (Jones, Schonlau and Welch, *Journal of Global
        Optimization* 13, 1998): wide forecasts are worth a run even if their mean is no better.
        """
        z = (self.log_rate - log_best) / self.sd
        return self.sd * (z * NORMAL.cdf(z) + NORMAL.pdf(z))


class _Split(NamedTuple):
    launch: float
    """Launch over the compute of the first batch."""
    growth: float
    log_step_s: float
    """A step at the first batch, in seconds."""


class ThroughputModel:
    """Forecasts of the rate at any batch and number of workers, from the runs so far."""

    def __init__(
        self, points: tuple[Point, ...], loader: tuple[tuple[int, float], ...], sigma: float
    ) -> None:
        """Fit the points by loader rate and noise.

        `loader`: its units/s alone by workers; empty: no cost. `sigma`: relative standard
        deviation between equal processes.
        """
        self._first = points[0].batch
        self._loader = loader
        self._sigma = math.hypot(sigma, SHAPE)
        self._splits = self._weighed(points)
        self._residuals = [
            (point, math.log(point.rate) - self._mean(point.batch, point.workers)[0])
            for point in points
        ]

    def at(self, batch: float, workers: int) -> Forecast:
        """Mean of all splits for one point, and its neighbours' residuals."""
        mean, variance = self._mean(batch, workers)
        near, carried = 0.0, 0.0
        for point, residual in self._residuals:
            apart = math.log2(batch / point.batch) ** 2
            most = max(workers, point.workers)
            apart += (workers - point.workers) ** 2 / (1.0 + 0.25 * most**2)
            alike = math.exp(-apart / 2)
            near += alike
            carried += alike * residual
        variance += (0.7 * self._sigma) ** 2 / (1 + near) + FAR**2 / (1 + 4 * near)
        return Forecast(log_rate=mean + carried / (near + 1), sd=math.sqrt(variance))

    def _weighed(self, points: tuple[Point, ...]) -> list[tuple[float, _Split]]:
        found = []
        growths = GROWTHS if self._falls(points) else GROWTHS[:1]
        for launch, growth in itertools.product(SPLITS, growths):
            shape = [
                math.log(point.step_s)
                - _log_share(launch, growth, point.batch / self._first)
                for point in points
            ]
            split = _Split(launch, growth, statistics.fmean(shape))
            belief = sum(
                _log_student(each - split.log_step_s, self._sigma) for each in shape
            )
            for point in points:
                expected = self._log_rate(split, point.batch, point.workers)
                belief += _log_student(math.log(point.rate) - expected, self._sigma)
            found.append((belief, split))
        top = max(belief for belief, _ in found)
        total = sum(math.exp(belief - top) for belief, _ in found)
        return [(math.exp(belief - top) / total, split) for belief, split in found]

    def _falls(self, points: tuple[Point, ...]) -> bool:
        """True if a larger batch was slower."""
        return any(
            math.log(small.rate / large.rate) > FALL * self._sigma
            for small, large in itertools.permutations(points, 2)
            if small.batch < large.batch and small.workers == large.workers
        )

    def _mean(self, batch: float, workers: int) -> tuple[float, float]:
        rates = [
            (weight, self._log_rate(each, batch, workers)) for weight, each in self._splits
        ]
        mean = sum(weight * rate for weight, rate in rates)
        return mean, sum(weight * (rate - mean) ** 2 for weight, rate in rates)

    def _log_rate(self, split: _Split, batch: float, workers: int) -> float:
        share = _log_share(split.launch, split.growth, batch / self._first)
        step_s = math.exp(split.log_step_s + share)
        load_s = batch / _between(self._loader, workers) if self._loader else 0.0
        return math.log(batch / (max(step_s, load_s) if workers else step_s + load_s))


fitted = functools.lru_cache(maxsize=64)(ThroughputModel)
"""Each request replays the search, so fits recur."""


def _log_share(launch: float, growth: float, batches: float) -> float:
    return math.log((launch + batches ** (1 + growth)) / (launch + 1))


def _log_student(error: float, scale: float) -> float:
    return -(TAILS + 1) / 2 * math.log1p((error / scale) ** 2 / TAILS)


@functools.lru_cache(maxsize=1024)
def _between(pairs: tuple[tuple[int, float], ...], count: int) -> float:
    table = dict(pairs)
    below = max((known for known in table if known <= count), default=min(table))
    above = min((known for known in table if known >= count), default=max(table))
    if above <= below:
        return table[below]
    part = (count - below) / (above - below)
    return table[below] + part * (table[above] - table[below])
