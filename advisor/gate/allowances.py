"""How much worse each figure of a workload may get: as the base side says, never the request.

A workload's `gate` table in gpu-advisor.toml names figures and the share by which each may
worsen. It is read in the base's checkout: a change that loosens it is judged by the old one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


def _energy_j(run: Run) -> float | None:
    joules = run.telemetry.energy_j
    return joules / run.units if joules and run.units else None


FIGURES = (
    Figure(
        name="memory",
        unit="GiB",
        read=lambda run: run.peak_device_gib or run.peak_mem_gib,
    ),
    Figure(name="energy", unit="J a unit", read=_energy_j),
)
"""Memory is what the device's allocator held at most, freed blocks included; the process tree's
on a CPU."""
UNITS = {figure.name: figure.unit for figure in FIGURES}


def figures(run: Run) -> dict[str, float]:
    """The figures that `run` has, by name."""
    read = {figure.name: figure.read(run) for figure in FIGURES}
    return {name: value for name, value in read.items() if value}


def of_base(base: Checkout, workloads: Iterable[str]) -> dict[str, dict[str, float]]:
    """By workload and figure: the share by which it may worsen, as `base` says.

    Workloads that say nothing are left out. Raises SettingsError.
    """
    known = settings.load(settings.find(base.cwd)).workload
    found = {name: known[name].gate.shares() for name in workloads if name in known}
    return {name: shares for name, shares in found.items() if shares}


def tau(figure: str, share: float) -> float:
    """`share` on the scale of d: a rate may fall by it, any other figure may grow by it."""
    return -math.log1p(-share) if figure == THROUGHPUT else math.log1p(share)


def worse_pct(figure: str, d: float) -> float | None:
    """d in percent of base's figure; negative where head is better; None if unbounded."""
    if math.isinf(d):
        return None
    return -100 * math.expm1(-d) if figure == THROUGHPUT else 100 * math.expm1(d)
