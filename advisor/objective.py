"""Objective: the deciding metric, and its constraints."""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from advisor import numbers
from advisor.model import SAMPLER_FORWARDS, Run

GIB_PER_GB = 1e9 / 2**30
"""Gigabytes are decimal, gibibytes binary."""
WORST = 1e100
"""Score of what was not measured: worse than any that can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Figure of a run that a search may improve or bound, with its words."""

    name: str
    read: Callable[[Run], float | None]
    """None: not measured."""
    unit: str
    """`{units}/s`, `J/{unit}`: the unit of work is filled in."""
    higher_is_better: bool = False
    of_batch: bool = False
    """Time of a batch, for which each unit waits: larger is worse."""
    from_card: bool = False
    """Only a card's counters tell it, unlike time, rates and memory."""
    gain_text: str = ""
    """`{ratio} less energy for {one}`; empty: to be bounded only."""
    units: Mapping[str, float]
    """Units of a bound on it, each in terms of its own unit."""

    def gain(self, before: float, after: float) -> float:
        """Ratio by which `after` is better; both are positive."""
        return after / before if self.higher_is_better else before / after

    def unit_for(self, unit: str) -> str:
        """`tiles/s`, given the unit of work."""
        return self.unit.format(unit=unit, units=numbers.plural(unit))

    def gained(self, ratio: str, unit: str) -> str:
        """`1.42x as many tiles a second`."""
        return self.gain_text.format(
            ratio=ratio, one=numbers.one(unit), units=numbers.plural(unit)
        )


def _latency_ms(run: Run) -> float | None:
    if run.latency_p50_ms is not None:
        return run.latency_p50_ms
    batch = run.effects.batch
    return 1000.0 * batch / run.units_per_s if batch and run.units_per_s else None


def _latency_p95_ms(run: Run) -> float | None:
    """Latency at the 95th percentile; with many forwards an item, that of their mean."""
    if (
        run.latency_p95_ms is None
        and (run.effects.forwards_per_unit or 1.0) >= SAMPLER_FORWARDS
    ):
        return _latency_ms(run)
    return run.latency_p95_ms


def _energy_j(run: Run) -> float | None:
    joules = run.telemetry.energy_j
    return joules / run.units if joules and run.units else None


TIMES = {"ms": 1.0, "s": 1000.0}
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


RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    metric: Metric
    relation: str
    bound: float
    """In the metric's unit."""
    text: str
    """As written: `latency_p95<=80ms`."""

    def holds(self, run: Run) -> bool:
        """True if `run` has the figure, inside the bound."""
        value = self.metric.read(run)
        return value is not None and RELATIONS[self.relation](value, self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Deciding metric, with its constraints."""

    metric: Metric
    constraints: tuple[Constraint, ...] = ()

    def score(self, run: Run) -> float:
        """Positive score of `run`, worst where unmeasured."""
        return self.metric.read(run) or (
            1 / WORST if self.metric.higher_is_better else WORST
        )

    def log_merit(self, run: Run) -> float:
        """Log of the score, turned so that more is better."""
        return math.log(self.metric.gain(1.0, self.score(run)))

    def unmeasured(self, run: Run) -> tuple[str, ...]:
        """Names of the requested figures that `run` lacks."""
        asked = (self.metric, *(constraint.metric for constraint in self.constraints))
        return tuple(dict.fromkeys(metric.name for metric in asked if not metric.read(run)))

    def broken(self, run: Run) -> tuple[Constraint, ...]:
        """Constraints that `run` breaks."""
        return tuple(
            constraint for constraint in self.constraints if not constraint.holds(run)
        )

    def best(self, runs: Sequence[Run]) -> Run:
        return max(runs, key=self.log_merit)

    def better_below(self, run: Run) -> bool:
        """True if a smaller batch may be wanted."""
        return self.metric.of_batch or bool(self.broken(run))

    def pace(self, run: Run) -> float:
        """Units per joule where energy decides, else units/s."""
        return 1.0 / self.score(run) if self.metric.from_card else run.units_per_s


THROUGHPUT = Objective(metric=METRICS["throughput"])

OBJECTIVES = {name: metric for name, metric in METRICS.items() if metric.gain_text}
_BOUND = re.compile(r"\s*([a-z_0-9]+)\s*(<=|>=)\s*(\d+(?:\.\d+)?)\s*([A-Za-z/]*)\s*")


def parse_constraint(text: str) -> Constraint:
    """Parse a bound such as `memory<=7GiB`. Raises ValueError."""
    match = _BOUND.fullmatch(text)
    metric = METRICS.get(match[1]) if match else None
    if match is None or metric is None:
        msg = (
            f"{text!r} is no constraint; write a bound such as 'memory<=7GiB', on "
            f"{', '.join(METRICS)}"
        )
        raise ValueError(msg)
    written = match[4] or next(iter(metric.units))
    if written not in metric.units:
        msg = f"{text!r}: {metric.name} is no {written}; write {' or '.join(metric.units)}"
        raise ValueError(msg)
    bound = float(match[3]) * metric.units[written]
    return Constraint(
        metric=metric, relation=match[2], bound=bound, text=text.replace(" ", "")
    )


def parse(aim: str, constraints: Sequence[str] = ()) -> Objective:
    """Objective of that name, from bounds checked when read."""
    return Objective(
        metric=METRICS[aim], constraints=tuple(map(parse_constraint, constraints))
    )
