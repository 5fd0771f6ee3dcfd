"""Objective of a search: the metric that decides, and bounds on others (constraints).

Every run is scored here, so that search, proof and report agree on what is better.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from advisor import numbers
from advisor.model import SAMPLER_FORWARDS, Run

GIB_PER_GB = 1e9 / 2**30
"""Gibibytes (2**30 bytes) in a gigabyte (10**9 bytes)."""
WORST = 1e100
"""Score of a run without the figure, where less is better; 1 / WORST where more is better.

No real figure comes near either, and both have a logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Figure of a run that a search may improve or bound, with its words."""

    name: str
    read: Callable[[Run], float | None]
    """None: not measured."""
    unit: str
    """Unit of the figure: `{units}/s`, `J/{unit}`, where the unit of work is filled in."""
    higher_is_better: bool = False
    of_batch: bool = False
    """Time of a whole batch, which each of its units waits for: a smaller batch may be better."""
    from_card: bool = False
    """Only the counters of a GPU tell it; time, rates and memory are known without one."""
    gain_text: str = ""
    """A gain in words: `{ratio} less energy for {one}`; empty: it is only ever bounded."""
    units: Mapping[str, float]
    """Units in which a bound may be written, and the factor of each to the metric's own unit.

    The first is meant where none is written.
    """

    def gain(self, before: float, after: float) -> float:
        """Ratio by which `after` is better than `before`, below 1 if worse; both are positive."""
        return after / before if self.higher_is_better else before / after

    def unit_for(self, unit: str) -> str:
        """Unit of the figure for this unit of work: `tiles/s`."""
        return self.unit.format(unit=unit, units=numbers.plural(unit))

    def gained(self, ratio: str, unit: str) -> str:
        """Gain of `ratio` in words: `1.42x as many tiles a second`."""
        return self.gain_text.format(
            ratio=ratio, one=numbers.one(unit), units=numbers.plural(unit)
        )


def _latency_ms(run: Run) -> float | None:
    """Median time of a batch; where the window holds no whole one, a batch's time by the rate."""
    if run.latency_p50_ms is not None:
        return run.latency_p50_ms
    batch = run.effects.batch
    return 1000.0 * batch / run.units_per_s if batch and run.units_per_s else None


def _latency_p95_ms(run: Run) -> float | None:
    """95th percentile of the time of a batch; of a sampler without a whole batch, `_latency_ms`.

    A sampler's window may lie within one batch, whose whole time is then known by its rate alone.
    """
    is_sampler = (run.effects.forwards_per_unit or 1.0) >= SAMPLER_FORWARDS
    if run.latency_p95_ms is None and is_sampler:
        return _latency_ms(run)
    return run.latency_p95_ms


def _energy_j(run: Run) -> float | None:
    """Joules of the card for each unit of the window."""
    joules = run.telemetry.energy_j
    return joules / run.units if joules and run.units else None


TIMES = {"ms": 1.0, "s": 1000.0}
"""Milliseconds in each unit of time."""
METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            name="throughput",
            read=lambda run: run.units_per_s,
            unit="{units}/s",
            higher_is_better=True,
            gain_text="{ratio} as many {units} a second",
            units={"/s": 1.0},
        ),
        Metric(
            name="latency",
            read=_latency_ms,
            unit="ms/{unit}",
            of_batch=True,
            gain_text="{ratio} shorter latency of {one}",
            units=TIMES,
        ),
        Metric(
            name="latency_p95",
            read=_latency_p95_ms,
            unit="ms/{unit}",
            of_batch=True,
            units=TIMES,
        ),
        Metric(
            name="energy",
            read=_energy_j,
            unit="J/{unit}",
            from_card=True,
            gain_text="{ratio} less energy for {one}",
            units={"J": 1.0, "mJ": 1e-3, "kJ": 1e3, "Wh": 3600.0},
        ),
        Metric(
            name="power",
            read=lambda run: run.telemetry.power_w,
            unit="W",
            from_card=True,
            units={"W": 1.0, "kW": 1e3},
        ),
        Metric(
            name="memory",
            read=lambda run: run.held_gib,
            unit="GiB",
            units={"GiB": 1.0, "MiB": 2.0**-10, "GB": GIB_PER_GB, "MB": GIB_PER_GB / 1e3},
        ),
    )
}
"""All metrics by name; those with words for a gain are OBJECTIVES, the rest can be bounded."""


RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Bound on a metric that a run has to keep, however fast it is."""

    metric: Metric
    relation: str
    """A key of RELATIONS."""
    bound: float
    """In the metric's unit."""
    text: str
    """As written: `latency_p95<=80ms`."""

    def holds(self, run: Run) -> bool:
        """True if `run` keeps the bound; False where the figure was not measured."""
        value = self.metric.read(run)
        return value is not None and RELATIONS[self.relation](value, self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Metric by which runs are compared, and the bounds that they have to keep."""

    metric: Metric
    constraints: tuple[Constraint, ...] = ()

    def score(self, run: Run) -> float:
        """The run's figure of the metric, always positive; the worst where it has none.

        0 counts as not measured: scores are compared by their ratios and logarithms.
        """
        worst = 1 / WORST if self.metric.higher_is_better else WORST
        return self.metric.read(run) or worst

    def log_merit(self, run: Run) -> float:
        """Logarithm of the score, or of its inverse where less is better: more is always better."""
        return math.log(self.metric.gain(1.0, self.score(run)))

    def unmeasured(self, run: Run) -> tuple[str, ...]:
        """Names of the metrics that decide or are bounded, and that `run` lacks."""
        asked = (self.metric, *(constraint.metric for constraint in self.constraints))
        return tuple(dict.fromkeys(metric.name for metric in asked if not metric.read(run)))

    def broken(self, run: Run) -> tuple[Constraint, ...]:
        """Constraints that `run` breaks, or lacks the figure of."""
        return tuple(
            constraint for constraint in self.constraints if not constraint.holds(run)
        )

    def best(self, runs: Sequence[Run]) -> Run:
        return max(runs, key=self.log_merit)

    def better_below(self, run: Run) -> bool:
        """True if a batch smaller than that of `run` may be better.

        A smaller batch takes less time and memory. So it may where the time of a batch decides,
        or where `run` breaks a constraint.
        """
        return self.metric.of_batch or bool(self.broken(run))

    def pace(self, run: Run) -> float:
        """Rate that the search's model is fitted to: units/s, or units/J where energy decides."""
        return 1.0 / self.score(run) if self.metric.from_card else run.units_per_s


THROUGHPUT = Objective(metric=METRICS["throughput"])

OBJECTIVES = {name: metric for name, metric in METRICS.items() if metric.gain_text}
"""Metrics that may decide."""
_BOUND = re.compile(r"\s*([a-z_0-9]+)\s*(<=|>=)\s*(\d+(?:\.\d+)?)\s*([A-Za-z/]*)\s*")


def parse_constraint(text: str) -> Constraint:
    """Read a bound such as `memory<=7GiB`. Raises ValueError with the forms that are allowed."""
    match = _BOUND.fullmatch(text)
    metric = METRICS.get(match[1]) if match else None
    if match is None or metric is None:
        msg = (
            f"{text!r} is no constraint; write a bound such as 'memory<=7GiB', on "
            f"{', '.join(METRICS)}"
        )
        raise ValueError(msg)
    unit = match[4] or next(iter(metric.units))
    if unit not in metric.units:
        msg = f"{text!r}: {metric.name} is no {unit}; write {' or '.join(metric.units)}"
        raise ValueError(msg)
    bound = float(match[3]) * metric.units[unit]
    return Constraint(
        metric=metric, relation=match[2], bound=bound, text=text.replace(" ", "")
    )


def parse(aim: str, constraints: Sequence[str] = ()) -> Objective:
    """Objective of the metric named `aim`, within `constraints` as a user writes them.

    Both were checked where flags and settings were read, so that nothing is refused here.
    """
    return Objective(
        metric=METRICS[aim], constraints=tuple(map(parse_constraint, constraints))
    )
