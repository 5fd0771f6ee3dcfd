"""Thresholds of each figure, from base's gpu-advisor.toml.

A workload's `gate` table names figures and benchmarks, and the share by which each may worsen.
It is read in base's checkout: a change that loosens it is judged by the old one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import settings
from advisor.gate.schema import Inputs, Limits, OwnFigure
from advisor.objective import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from advisor.gate.checkout import Checkout
    from advisor.model import Run

THROUGHPUT = "throughput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Figure of a run where lower is better."""

    name: str
    """As in gpu-advisor.toml."""
    unit: str
    read: Callable[[Run], float | None]
    """None: not measured."""


FIGURES = (
    Figure(name="memory", unit="GiB", read=lambda run: run.peak_device_gib or run.peak_mem_gib),
    Figure(name="energy", unit="J a unit", read=METRICS["energy"].read),
    Figure(name="latency_p95", unit="ms", read=METRICS["latency_p95"].read),
)
"""Memory is the most that the device's allocator held; of the process tree on a CPU."""
UNITS = {figure.name: figure.unit for figure in FIGURES}


def figures(run: Run) -> dict[str, float]:
    """Figures that `run` has, by name."""
    read = {figure.name: figure.read(run) for figure in FIGURES}
    return {name: value for name, value in read.items() if value}


def own_figures(
    patterns: Mapping[str, OwnFigure], find: Callable[[str], str | None]
) -> dict[str, float]:
    """Figures in the program's output.

    `find` returns the text for a pattern.
    """
    found = {}
    for name, figure in patterns.items():
        try:
            value = float(find(figure.pattern) or "nan")
        except ValueError:
            continue
        if 0 < value < math.inf:
            found[name] = value
    return found


def with_base_limits(inputs: Inputs, base: Checkout, workloads: Iterable[str]) -> Inputs:
    """`inputs` with the limits that `base` declares. Raises SettingsError."""
    declared = settings.load(settings.find(base.cwd)).workload
    gates = {name: declared[name].gate for name in workloads if name in declared}
    own = {
        name: {
            figure: OwnFigure(pattern=metric.pattern, better=metric.better)
            for figure, metric in gate.metrics.items()
        }
        for name, gate in gates.items()
        if gate.metrics
    }
    limits = {
        name: Limits(figures=gate.shares(), benchmarks=dict(gate.benchmarks))
        for name, gate in gates.items()
    }
    return inputs.model_copy(update={"limits": limits, "own_figures": own})


def tau(share: float, *, higher: bool) -> float:
    """Threshold `share` on the scale of d.

    A rate may fall by it, a lower-is-better figure may grow.
    """
    return -math.log1p(-share) if higher else math.log1p(share)


def worse_pct(d: float, *, higher: bool) -> float | None:
    """Worsening d in percent of base's figure.

    Negative where head is better; None if unbounded.
    """
    if math.isinf(d):
        return None
    return -100 * math.expm1(-d) if higher else 100 * math.expm1(d)
