"""Checks, their rows, and their common verdict. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from advisor import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from advisor.commands.doctor.interpreter import TorchFacts
    from advisor.machine.condition import CardCondition
    from advisor.machine.host_condition import HostCondition
    from advisor.model import Disturbance
    from advisor.sandbox.capabilities import Capability

Of = TypeVar("Of")
Status = Literal["good", "fix", "unknown"]
Costs = Literal["speed", "measuring"]

UNKNOWN_VALUE = "not told here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Readings of a machine at one moment."""

    host: HostCondition
    environ: Mapping[str, str]
    cards: tuple[CardCondition, ...] = ()
    no_cards: str | None = None
    """Why there is no card."""
    nvidia_devices: int | None = None
    """Cards on the bus, whether or not a driver knows them."""
    uvm_missing: bool = False
    """The driver lists a card, but CUDA's own device file is not there."""
    isolation: Capability | str | None = None
    """Or why it could not be found out."""
    crowd: Disturbance | None = None
    swapped_pages: int | None = None
    """Read back from swap between two looks."""
    torch: TorchFacts | str | None = None
    """Or why nobody answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Finding of one check."""

    value: str = UNKNOWN_VALUE
    ok: bool | None = None
    """None where it is unknown."""
    fix: str | None = None
    """Command for a shell, where `ok` is False."""
    good: str | None = None
    """Good state that depends on the reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[Of]):
    """Check of one reading and its importance."""

    name: str
    good: str
    why: str
    look: Callable[[Of], Seen]
    costs: Costs = "speed"
    """Loss where it is not good: speed, or trust in the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One check of one part of this machine."""

    area: str
    """`GPU 0`, `host`, `torch`."""
    name: str
    status: Status
    value: str
    good: str
    why: str
    costs: Costs
    fix: str | None = field(default=None)


def examine(area: str, checks: Sequence[Check[Of]], reading: Of) -> list[Row]:
    """A row of each check."""
    return [_row(area, check, check.look(reading)) for check in checks]


def verdict(rows: Sequence[Row]) -> str:
    """Verdict over all rows, in one sentence.

    `2 things cost you speed here.`, or that nothing does; then what is unknown.
    """
    slow = [row for row in rows if row.status == "fix" and row.costs == "speed"]
    unsure = [row for row in rows if row.status == "fix" and row.costs == "measuring"]
    unknown = sum(row.status == "unknown" for row in rows)
    parts = [
        f"{numbers.many(len(slow), 'thing')} cost{'s' * (len(slow) == 1)} you speed here"
        if slow
        else "Nothing that was looked at costs you speed here"
    ]
    if unsure:
        parts.append(f"{len(unsure)} make{'s' * (len(unsure) == 1)} measuring less safe or sure")
    if unknown:
        parts.append(f"{unknown} of {len(rows)} checks could not be told")
    return "; ".join(parts) + "."


def _row(area: str, check: Check[Of], seen: Seen) -> Row:
    status: Status = "unknown" if seen.ok is None else "good" if seen.ok else "fix"
    return Row(
        area=area,
        name=check.name,
        status=status,
        value=seen.value,
        good=seen.good or check.good,
        why=check.why,
        costs=check.costs,
        fix=seen.fix if status == "fix" else None,
    )
