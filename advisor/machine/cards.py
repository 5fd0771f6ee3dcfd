"""Cards of a program, with readings combined."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor.model import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.model import Card


class Watched(NamedTuple):
    """A card that was watched, as NVML names it."""

    uuid: str | None
    name: str | None


def positions(watched: Sequence[Watched], used: Sequence[Card]) -> list[int]:
    """Return positions of the cards a program used.

    CUDA and NVML may number cards differently, so UUIDs decide; where torch is too old to tell
    them, a name that only one card has, and only then the number.
    """
    found = [_position(watched, card) for card in used]
    return list(dict.fromkeys(each for each in found if each is not None))


def same_uuid(one: str | None, other: str | None) -> bool:
    """Return True if two UUID spellings match."""
    return one is not None and other is not None and _bare(one) == _bare(other)


def _position(watched: Sequence[Watched], card: Card) -> int | None:
    for number, each in enumerate(watched):
        if same_uuid(each.uuid, card.uuid):
            return number
    if card.uuid is not None and all(each.uuid is not None for each in watched):
        return None  # it was hidden from us
    named = [number for number, each in enumerate(watched) if each.name == card.name]
    if len(named) == 1:
        return named[0]
    return card.index if card.index < len(watched) else None


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


HOW: dict[str, Callable[[list[Any]], Any]] = {
    "gpu_util_pct": statistics.fmean,
    "gpu_mem_used_gib": max,
    "gpu_mem_others_gib": max,
    "power_w": sum,
    "energy_j": sum,
    "sm_clock_mhz": statistics.fmean,
    "sm_clock_spread_pct": max,
    "busy_samples": min,
    "foreign_pids": sum,
}
"""Way in which the figures of several cards become one."""


def merged(each: Sequence[Telemetry]) -> Telemetry:
    """Merge cards; a figure that one of them withholds is None."""
    if len(each) == 1:
        return each[0]
    figures = {name: [getattr(telemetry, name) for telemetry in each] for name in HOW}
    reasons: dict[str, float] = {}
    for name, share in (reason for telemetry in each for reason in telemetry.event_reasons):
        reasons[name] = max(share, reasons.get(name, 0.0))
    whole: dict[str, Any] = {
        name: None if None in of else HOW[name](of) for name, of in figures.items()
    }
    return Telemetry(
        **whole,
        event_reasons=tuple(reasons.items()),
        gaps=tuple(sorted({gap for telemetry in each for gap in telemetry.gaps})),
    )
