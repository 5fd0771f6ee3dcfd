"""Cards of a program, with readings combined."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from advisor.model import Card, Telemetry


def positions(uuids: Sequence[str | None], used: Sequence[Card]) -> list[int]:
    """Return positions of the cards a program used, among those watched.

    CUDA and NVML may number cards differently, so UUIDs decide; the number does where either does
    not tell them.
    """
    found: dict[int, None] = {}
    for card in used:
        same = [n for n, uuid in enumerate(uuids) if same_uuid(uuid, card.uuid)]
        untold = card.uuid is None or None in uuids
        by_number = [card.index] if untold and card.index < len(uuids) else []
        found |= dict.fromkeys(same or by_number)
    return list(found)


def same_uuid(one: str | None, other: str | None) -> bool:
    """Return True if two UUID spellings match."""
    return one is not None and other is not None and _bare(one) == _bare(other)


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
    whole: dict[str, Any] = {}
    for name, how in HOW.items():
        figures = [getattr(telemetry, name) for telemetry in each]
        whole[name] = None if None in figures else how(figures)
    reasons: dict[str, float] = {}
    for name, share in (reason for telemetry in each for reason in telemetry.event_reasons):
        reasons[name] = max(share, reasons.get(name, 0.0))
    return Telemetry(
        **whole,
        event_reasons=tuple(reasons.items()),
        gaps=tuple(sorted({gap for telemetry in each for gap in telemetry.gaps})),
    )
