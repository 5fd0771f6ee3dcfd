"""Rate by batch and workers, fitted to the runs.

A step costs a launch and each unit's compute. Loading costs each unit: beside the step with
workers, else before it. That form has three unknowns, so that two or three runs already say where
the rate levels off; a general surface would need a run at each point.

How a step splits into launch and compute is not fitted but weighed: each split of a grid counts by
how well it explains the runs. Where runs leave several, forecasts differ, and their spread is what
the search explores. Errors are Student's, so that one unlucky run does not rule out the truth. What
the form misses is carried over from each run to its neighbours, and far from all runs a forecast is
wide.

Units: rates in units a second, times in seconds, batches in units. Logarithms are natural, so that
a small difference of two is a relative one. The numbers are judgement, checked as a whole.
Record: benchmarks/results/tables-cpu2.md, `search_quality`: 99.4 % of the optimum in 6.4 processes,
of 200 programs whose processes differ by 2 %. Recorded programs: benchmarks/results/surfaces.
"""

import functools
import itertools
import math
import operator
import statistics
from typing import NamedTuple

NORMAL = statistics.NormalDist()
SPLITS = tuple(10 ** (-3 + 0.25 * i) for i in range(29))
"""Launch over compute of the first batch: a thousandth to ten thousand times, four to a decade."""
GROWTHS = (0.0, 0.15, 0.3)
"""Exponents by which a unit's compute grows with the batch, once caches no longer hold it.

Record: benchmarks/results/tables-cpu2.md, `surfaces`: with 0 alone 20 of 40 searches of reviews
ended beside its best batches, and with these 5."""
SLOWER_SIGMAS = 1.0
"""Standard deviations by which a larger batch must be slower before a growth is thought of."""
ERROR_NEAR = 0.02
"""Relative error of the two-cost form at measured points, beside the noise of processes."""
ERROR_FAR = 0.04
"""Relative error of the form far from all measured points, on top of that."""
STUDENT_FREEDOM = 4.0
"""Degrees of freedom of the errors' Student distribution: runs may be unlucky."""
NEIGHBOUR_WORKERS_SHARE = 0.5
"""Workers by which two points are as far apart as by a doubled batch, as a share of the larger."""
NOISE_KEPT = 0.7
"""Share of the noise, as a deviation, in a forecast without a run nearby; runs there average it.

Judgement: smaller trusts a formula beyond what one noisy run can say, larger runs more points
than pay."""
ERROR_FADES = 4.0
"""How fast the far error falls with runs nearby: one run at the very point leaves a fifth of its
variance.

Judgement: smaller runs neighbours of a point that ran, larger leaves out ones that differ from it.
"""
LEAST_BUSY_SHARE = 1e-3
"""Share of a step beside its waits, at least: a share of 0 would be a step without length.

Judgement: larger makes the step of a program that nearly always waits too long. Smaller lets an
error of the wait make it nothing."""


class Point(NamedTuple):
    """One run as the fit sees it."""

    batch: float
    workers: int
    rate: float
    """Units a second."""
    wait_share: float
    """Share of time in which the program waited for a batch."""

    @property
    def step_s(self) -> float:
        """Seconds of one batch without the wait for it."""
        return max(LEAST_BUSY_SHARE, 1.0 - self.wait_share) * self.batch / self.rate


class Forecast(NamedTuple):
    """Expected rate of one point, smoothed by neighbours."""

    log_rate: float
    sd: float
    """Standard deviation of `log_rate`."""

    def improvement(self, log_best: float) -> float:
        """Expected log gain over `log_best`, where a loss counts as none.

        Expected improvement of a normal forecast (Jones, Schonlau and Welch, *Journal of Global
        Optimization* 13, 1998): wide forecasts are worth a run even if their mean is no better.
        """
        z = (self.log_rate - log_best) / self.sd
        return self.sd * (z * NORMAL.cdf(z) + NORMAL.pdf(z))


class _Split(NamedTuple):
    """One way to split a step into launch and compute, with the step's time that fits it best."""

    launch: float
    """Launch over the compute of the first batch."""
    growth: float
    """One of GROWTHS."""
    log_step_s: float
    """Logarithm of the seconds of a step at the first batch."""


class ThroughputModel:
    """Forecasts of the rate at any batch and number of workers, from the runs so far."""

    def __init__(
        self,
        points: tuple[Point, ...],
        loader: tuple[tuple[int, float], ...],
        sigma: float,
        *,
        items: float = math.inf,
    ) -> None:
        """Fit the points by loader rate and noise.

        `loader`: its units/s alone by workers; empty: no cost. `sigma`: relative standard
        deviation between equal processes. `items`: units of one pass over the data.
        """
        self._first = points[0].batch
        self._loader = loader
        self._items = items
        self._sigma = math.hypot(sigma, ERROR_NEAR)
        self._splits = self._weighed(points)
        self._residuals = [
            (point, math.log(point.rate) - self._mean(point.batch, point.workers)[0])
            for point in points
        ]
        self._corrections = self._of_residuals()

    def at(self, batch: float, workers: int) -> Forecast:
        """Mean of all splits for one point, corrected by what its neighbours' runs differed by.

        The correction is that of a Gaussian process over the runs' residuals: what ran at the very
        point is believed before its neighbours, and the more, the more the form misses the runs.
        """
        mean, variance = self._mean(batch, workers)
        weights = [_closeness(point, batch, workers) for point, _ in self._residuals]
        near = sum(weights)
        correction = sum(map(operator.mul, weights, self._corrections))
        variance += (NOISE_KEPT * self._sigma) ** 2 / (1 + near)
        variance += ERROR_FAR**2 / (1 + ERROR_FADES * near)
        return Forecast(log_rate=mean + correction, sd=math.sqrt(variance))

    def _of_residuals(self) -> list[float]:
        """What each run adds to the correction at its own point; elsewhere times its closeness.

        The form's own error is taken to be as large as the noise, or as the points' residuals are
        where these are larger: then what ran counts, and not the form. By points, not runs: three
        baselines that the form meets say nothing of the others.
        """
        by_place: dict[tuple[float, int], list[float]] = {}
        for point, residual in self._residuals:
            by_place.setdefault((point.batch, point.workers), []).append(residual)
        means = [statistics.fmean(residuals) for residuals in by_place.values()]
        misses = statistics.fmean(mean * mean for mean in means)
        noise = self._sigma**2 / max(self._sigma**2, misses)
        matrix = [
            [
                _closeness(other, point.batch, point.workers)
                + (noise if at == place else 0.0)
                for at, (other, _) in enumerate(self._residuals)
            ]
            for place, (point, _) in enumerate(self._residuals)
        ]
        return _solved(matrix, [residual for _, residual in self._residuals])

    def _weighed(self, points: tuple[Point, ...]) -> list[tuple[float, _Split]]:
        """Every split of the grid with its weight: its likelihood, so that all sum to 1."""
        fits = []
        growths = GROWTHS if self._falls(points) else GROWTHS[:1]
        for launch, growth in itertools.product(SPLITS, growths):
            shape = [
                math.log(point.step_s)
                - _log_share(launch, growth, point.batch / self._first)
                for point in points
            ]
            split = _Split(launch, growth, statistics.fmean(shape))
            belief = sum(
                _log_student(log_step_s - split.log_step_s, self._sigma)
                for log_step_s in shape
            )
            for point in points:
                expected = self._log_rate(split, point.batch, point.workers)
                belief += _log_student(math.log(point.rate) - expected, self._sigma)
            fits.append((belief, split))
        top = max(belief for belief, _ in fits)
        total = sum(math.exp(belief - top) for belief, _ in fits)
        return [(math.exp(belief - top) / total, split) for belief, split in fits]

    def _falls(self, points: tuple[Point, ...]) -> bool:
        """True if a larger batch was slower, with as many workers."""
        return any(
            math.log(small.rate / large.rate) > SLOWER_SIGMAS * self._sigma
            for small, large in itertools.permutations(points, 2)
            if small.batch < large.batch and small.workers == large.workers
        )

    def _mean(self, batch: float, workers: int) -> tuple[float, float]:
        """Mean and variance of the splits' logarithms of the rate at a point."""
        rates = [
            (weight, self._log_rate(split, batch, workers))
            for weight, split in self._splits
        ]
        mean = sum(weight * rate for weight, rate in rates)
        return mean, sum(weight * (rate - mean) ** 2 for weight, rate in rates)

    def _log_rate(self, split: _Split, batch: float, workers: int) -> float:
        """Logarithm of the rate: a batch loads beside the step with workers, else before it."""
        share = _log_share(split.launch, split.growth, batch / self._first)
        step_s = math.exp(split.log_step_s + share)
        busy = min(
            workers, max(1.0, self._items / batch)
        )  # one batch keeps one of them busy
        load_s = batch / _between(self._loader, busy) if self._loader else 0.0
        return math.log(batch / (max(step_s, load_s) if workers else step_s + load_s))


fitted = functools.lru_cache(maxsize=64)(ThroughputModel)
"""Each request replays the search, so fits recur."""


def _closeness(point: Point, batch: float, workers: int) -> float:
    """How much a run tells of another point: 1 at the same, exp(-1/2) at twice the batch."""
    doublings = math.log2(batch / point.batch)
    scale = 1.0 + (NEIGHBOUR_WORKERS_SHARE * max(workers, point.workers)) ** 2
    return math.exp(-(doublings**2 + (workers - point.workers) ** 2 / scale) / 2)


def _log_share(launch: float, growth: float, batches: float) -> float:
    """Logarithm of a step's time over that of the first batch; `batches`: the batch over that."""
    return math.log((launch + batches ** (1 + growth)) / (launch + 1))


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solution of a small system of linear equations, by Gauss's elimination with pivots."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in range(column + 1, size):
            factor = rows[row][column] / rows[column][column]
            for at in range(column, size + 1):
                rows[row][at] -= factor * rows[column][at]
    solution = [0.0] * size
    for row in reversed(range(size)):
        substituted = sum(rows[row][at] * solution[at] for at in range(row + 1, size))
        solution[row] = (rows[row][size] - substituted) / rows[row][row]
    return solution


def _log_student(error: float, scale: float) -> float:
    """Logarithm of Student's density at an error, without its constant factor."""
    freedom = STUDENT_FREEDOM
    return -(freedom + 1) / 2 * math.log1p((error / scale) ** 2 / freedom)


@functools.lru_cache(maxsize=1024)
def _between(pairs: tuple[tuple[int, float], ...], count: float) -> float:
    """Rate at a count, on straight lines between those of `pairs`; beyond them, the outermost."""
    table = dict(pairs)
    below = max((other for other in table if other <= count), default=min(table))
    above = min((other for other in table if other >= count), default=max(table))
    if above <= below:
        return table[below]
    part = (count - below) / (above - below)
    return table[below] + part * (table[above] - table[below])
