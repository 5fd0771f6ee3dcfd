"""Cards of a program, with readings combined."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from advisor.model import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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


def merged(each: Sequence[Telemetry]) -> Telemetry:
    """Merge cards: power sums and utilisation means."""
    if len(each) == 1:
        return each[0]
    reasons: dict[str, float] = {}
    for telemetry in each:
        for name, share in telemetry.event_reasons:
            reasons[name] = max(share, reasons.get(name, 0.0))
    return Telemetry(
        gpu_util_pct=_of(each, lambda t: t.gpu_util_pct, statistics.fmean),
        gpu_mem_used_gib=_of(each, lambda t: t.gpu_mem_used_gib, max),
        gpu_mem_others_gib=_of(each, lambda t: t.gpu_mem_others_gib, max),
        power_w=_of(each, lambda t: t.power_w, sum),
        energy_j=_of(each, lambda t: t.energy_j, sum),
        sm_clock_mhz=_of(each, lambda t: t.sm_clock_mhz, statistics.fmean),
        sm_clock_spread_pct=_of(each, lambda t: t.sm_clock_spread_pct, max),
        mem_clock_mhz=_of(each, lambda t: t.mem_clock_mhz, statistics.fmean),
        temperature_c=_of(each, lambda t: t.temperature_c, max),
        event_reasons=tuple(reasons.items()),
        busy_samples=_whole(each, lambda t: t.busy_samples, min),
        foreign_pids=_whole(each, lambda t: t.foreign_pids, sum),
        pcie_tx_mb_per_s=_of(each, lambda t: t.pcie_tx_mb_per_s, sum),
        pcie_rx_mb_per_s=_of(each, lambda t: t.pcie_rx_mb_per_s, sum),
        samples=min(telemetry.samples for telemetry in each),
        cpu_util_pct=each[0].cpu_util_pct,
        gaps=tuple(sorted({gap for telemetry in each for gap in telemetry.gaps})),
    )


def _of(
    each: Sequence[Telemetry],
    get: Callable[[Telemetry], float | None],
    how: Callable[[Iterable[float]], float],
) -> float | None:
    """Reduce a figure of all cards, or None."""
    values = [value for telemetry in each if (value := get(telemetry)) is not None]
    return how(values) if len(values) == len(each) else None


def _whole(
    each: Sequence[Telemetry],
    get: Callable[[Telemetry], int | None],
    how: Callable[[Iterable[int]], int],
) -> int | None:
    values = [value for telemetry in each if (value := get(telemetry)) is not None]
    return how(values) if len(values) == len(each) else None
