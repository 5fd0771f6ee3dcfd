"""How much worse each figure of a workload may get: as the base side says, never the request.

A workload's `gate` table in gpu-advisor.toml names figures and the share by which each may
worsen; figures of its own with the pattern that finds them and the way that is better. It is read
in the base's checkout: a change that loosens it is judged by the old one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import settings
from advisor.gate.records import Inputs, OwnFigure
from advisor.objective import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from advisor.gate.base import Checkout
    from advisor.model import Run

THROUGHPUT = "throughput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a run beside its rate; of all of them lower is better."""

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
"""Memory is what the device's allocator held at most, freed blocks included; the process tree's
on a CPU."""
UNITS = {figure.name: figure.unit for figure in FIGURES}


def figures(run: Run) -> dict[str, float]:
    """The figures that `run` has, by name."""
    read = {figure.name: figure.read(run) for figure in FIGURES}
    return {name: value for name, value in read.items() if value}


def own_figures(
    patterns: Mapping[str, OwnFigure], told: Callable[[str], str | None]
) -> dict[str, float]:
    """The figures that the program's output has; `told` gives what it says for a pattern."""
    found = {}
    for name, figure in patterns.items():
        try:
            value = float(told(figure.pattern) or "nan")
        except ValueError:
            continue
        if 0 < value < math.inf:
            found[name] = value
    return found


def of_base(inputs: Inputs, base: Checkout, workloads: Iterable[str]) -> Inputs:
    """`inputs` with what `base` says of each figure of `workloads`. Raises SettingsError."""
    known = settings.load(settings.find(base.cwd)).workload
    said = {name: known[name].gate for name in workloads if name in known}
    own = {
        name: {
            figure: OwnFigure(pattern=metric.pattern, better=metric.better)
            for figure, metric in gate.metrics.items()
        }
        for name, gate in said.items()
        if gate.metrics
    }
    limits = {name: shares for name, gate in said.items() if (shares := gate.shares())}
    return inputs.model_copy(update={"limits": limits, "own_figures": own})


def higher_is_better(figure: str, own: Mapping[str, OwnFigure]) -> bool:
    """Whether a figure of a program is better the higher it is; `own` are the program's own."""
    return own[figure].better == "higher" if figure in own else figure == THROUGHPUT


def tau(share: float, *, higher: bool) -> float:
    """`share` on the scale of d: a rate may fall by it, what is better lower may grow by it."""
    return -math.log1p(-share) if higher else math.log1p(share)


def worse_pct(d: float, *, higher: bool) -> float | None:
    """d in percent of base's figure; negative where head is better; None if unbounded."""
    if math.isinf(d):
        return None
    return -100 * math.expm1(-d) if higher else 100 * math.expm1(d)
