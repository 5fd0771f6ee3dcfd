"""Validity of a pair, from GPU and CPU evidence.

A pair counts or falls as a whole: dropping only its slow half would bias the ratio. Where the
machine stays busy, pairs whose arms were disturbed alike stand in, and the report says `busy`.
Without readings nothing is discarded and the report says `unverified`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from advisor.executor.comparison import busiest, loads_alike
from advisor.executor.engines.idle import MOST_NAMED, WORTH_A_NAME
from advisor.machine.readings import HARMFUL_EVENT_REASONS
from advisor.model import Neighbour

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.gate.schema import GpuReadings, PairEntry, ProgramEntry, RunEntry

POWER_CAP = "software power cap"
"""Normal under load; an arm that draws more power and is held back by it is really slower."""

REASON_SHARE = 0.01
CLOCK_OFFSET = 0.01
CLOCK_SPREAD_PCT = 5.0
DISCARDS_ALLOWED = 0.25
BUSY_SAMPLES = 30
STEAL_SHARE = 0.01
"""Less than this is not worth a word."""

FIXED = ("uuid", "name", "driver", "power_limit_w")
"""Facts of the device that must not differ between runs of one gate."""


def why_again(
    runs: Mapping[str, RunEntry], program: ProgramEntry, first_look: int, *, may_match: bool
) -> str | None:
    """Reason to measure the pair of `runs` again.

    None if it counts. Once more discarded pairs would be too many, one whose arms others disturbed
    alike counts.
    """
    base, head = runs["base"], runs["head"]
    first = program.warm_ups[0].gpu if program.warm_ups else None
    by_card = why_discard(base.gpu, head.gpu, first)
    by_others = why_disturbed(base, head)
    if by_card or not by_others or not may_match:
        return by_card or by_others
    discarded = sum(pair.discarded is not None for pair in program.pairs)
    stays_busy = too_many(discarded + 1, len(program.pairs) + 1, first_look)
    alike = loads_alike([run.disturbance.others_cpus for run in (base, head)])
    return None if stays_busy and alike else by_others


def why_discard(base: GpuReadings, head: GpuReadings, first: GpuReadings | None) -> str | None:
    """Reason that these readings do not count, or None.

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
    """Unexplained offset between the arms' clocks.

    An arm at its power cap is a real effect.
    """
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


def why_disturbed(base: RunEntry, head: RunEntry) -> str | None:
    """Load of others on the CPUs, or None."""
    found = [
        f"{_taken([run])} during {run.arm}" for run in (base, head) if run.disturbance.disturbed
    ]
    return " and ".join(found) or None


def contention_matched(pair: PairEntry) -> str | None:
    """Note on a pair with equally disturbed arms."""
    why = None if pair.discarded else why_disturbed(pair.base, pair.head)
    return f"stands in: {why}" if why else None


def _taken(runs: Sequence[RunEntry]) -> str:
    """Mean load of others over `runs`, as text.

    `others held 1.3 CPUs (firefox 0.8, make 0.4)`
    """
    seen = [run.disturbance for run in runs]
    held, stolen = (
        [value for one in seen if (value := getattr(one, name)) is not None]
        for name in ("others_cpus", "steal_share")
    )
    who = busiest(Neighbour(name=o.name, cpus=o.cpus) for one in seen for o in one.who)
    shown = f"others held {sum(held) / len(held):.1f} CPUs" if held else "others were at work"
    names = [f"{o.name} {o.cpus:.1f}" for o in who[:MOST_NAMED] if o.cpus >= WORTH_A_NAME]
    if names:
        shown += f" ({', '.join(names)})"
    if stolen and (share := sum(stolen) / len(stolen)) >= STEAL_SHARE:
        shown += f", the hypervisor gave away {100 * share:.0f} % of their time"
    return shown


def too_many_discarded(pairs: Sequence[PairEntry], looks: Sequence[int]) -> bool:
    """True if too many pairs were discarded.

    Of those that others on the CPUs disturbed as many may fall as the last look needs: they come
    in bursts, and cost time alone.
    """
    fell = [pair for pair in pairs if pair.discarded]
    by_card = [pair for pair in fell if pair.discarded != why_disturbed(pair.base, pair.head)]
    return too_many(len(by_card), len(pairs), looks[0]) or len(fell) > looks[-1]


def too_many(discarded: int, measured: int, first_look: int) -> bool:
    """`discarded` of `measured` pairs are more than may fall."""
    return discarded > math.ceil(DISCARDS_ALLOWED * max(measured, first_look))


def statement(pairs: Sequence[PairEntry]) -> str:
    """State of the counted pairs, with the reason.

    `verified`, `busy` or `unverified`.
    """
    kept = [pair for pair in pairs if not pair.discarded]
    runs = [run for pair in kept for run in (pair.base, pair.head)]
    if not runs:
        return "unverified: nothing was measured"
    standing_in = sum(contention_matched(pair) is not None for pair in kept)
    if standing_in:
        return (
            f"busy: {_taken(runs)}; {standing_in} of {len(kept)} pairs that count stand in, their "
            "arms disturbed alike"
        )
    on_card = [run.gpu for run in runs if _on_card(run)]
    for reading in on_card:
        if reading.sm_clock_mhz is None:
            reason = next(iter(reading.gaps.values()), "NVML gave no clock readings")
            return f"unverified: {reason}"
    if on_card:
        fewest = min(reading.busy_samples or 0 for reading in on_card)
        if fewest < BUSY_SAMPLES:
            return (
                f"unverified: only {fewest} busy NVML samples in a run, {BUSY_SAMPLES} are needed"
            )
    elif any(run.disturbance.disturbed is None for run in runs):
        return "unverified: it cannot be told whether others were at work on the CPUs"
    return "verified"


def _on_card(run: RunEntry) -> bool:
    """True if a card was read or computed on."""
    device = str(run.effects.get("device") or "cpu")
    return run.gpu.uuid is not None or run.gpu.name is not None or not device.startswith("cpu")
