"""Does a pair count? Evidence from the GPU, before anyone looks at who was slower.

A pair counts or falls as a whole: dropping only its slow half would bias the ratio. Where NVML
says nothing, nothing is discarded and the report says `unverified`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from advisor.machine.readings import HARMFUL_EVENT_REASONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.gate.records import GpuReadings, PairEntry

POWER_CAP = "software power cap"
"""Normal under load; an arm that draws more power and is held back by it is really slower."""

REASON_SHARE = 0.01
CLOCK_OFFSET = 0.01
CLOCK_SPREAD_PCT = 5.0
DISCARDS_ALLOWED = 0.25
BUSY_SAMPLES = 30

FIXED = ("uuid", "name", "driver", "power_limit_w")
"""Facts of the device that must not differ between runs of one gate."""


def why_discard(base: GpuReadings, head: GpuReadings, first: GpuReadings | None) -> str | None:
    """Why the pair of these readings does not count; None if it does.

    `first` is the reading of the gate's first run: all others must be of the same device.
    """
    for arm, readings in (("base", base), ("head", head)):
        for reason, share in readings.event_reasons.items():
            if reason in HARMFUL_EVENT_REASONS and share > REASON_SHARE:
                return f"{reason} in {100 * share:.0f} % of the busy samples of {arm}"
        if readings.foreign_pids:
            return f"{readings.foreign_pids} foreign process(es) on the GPU during {arm}"
        for fact in FIXED if first else ():
            now, then = getattr(readings, fact), getattr(first, fact)
            if now is not None and then is not None and now != then:
                return f"{fact} was {then} and is {now} in {arm}: not the same device"
    return _clock_offset(base, head)


def _clock_offset(base: GpuReadings, head: GpuReadings) -> str | None:
    """A clock that differs with no reason in the code; an arm at its power cap is a real effect."""
    if base.sm_clock_mhz is None or head.sm_clock_mhz is None or not base.sm_clock_mhz:
        return None
    capped = max(r.event_reasons.get(POWER_CAP, 0.0) for r in (base, head)) > REASON_SHARE
    if capped:
        return None
    for arm, readings in (("base", base), ("head", head)):
        spread = readings.sm_clock_spread_pct
        if spread is not None and spread > CLOCK_SPREAD_PCT:
            return f"the SM clock moved by {spread:.0f} % during {arm}"
    offset = head.sm_clock_mhz / base.sm_clock_mhz - 1
    if abs(offset) <= CLOCK_OFFSET:
        return None
    return (
        f"the SM clock of head was {100 * offset:+.1f} % off that of base "
        f"({head.sm_clock_mhz:.0f} against {base.sm_clock_mhz:.0f} MHz)"
    )


def too_many_discarded(discarded: int, measured: int, first_look: int) -> bool:
    """Whether so many pairs fell that the runner cannot be measured on."""
    return discarded > math.ceil(DISCARDS_ALLOWED * max(measured, first_look))


def statement(pairs: Sequence[PairEntry]) -> str:
    """`verified`, or `unverified` and the reason, over all pairs that count."""
    readings = [run.gpu for pair in pairs if not pair.discarded for run in (pair.base, pair.head)]
    if not readings:
        return "unverified: nothing was measured"
    for reading in readings:
        if reading.sm_clock_mhz is None:
            reason = next(iter(reading.gaps.values()), "NVML gave no clock readings")
            return f"unverified: {reason}"
    fewest = min(reading.busy_samples or 0 for reading in readings)
    if fewest < BUSY_SAMPLES:
        return f"unverified: only {fewest} busy NVML samples in a run, {BUSY_SAMPLES} are needed"
    return "verified"
