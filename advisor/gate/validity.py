"""Validity of a pair, from GPU and CPU evidence.

A pair counts or falls as a whole: dropping only its slow half would bias the ratio. A pair whose
arms others disturbed alike counts, because the random order favours neither, and the report says
`busy`. Without readings nothing is discarded and the report says `unverified`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from advisor.executor.comparison import loads_alike
from advisor.executor.engines.idle import MOST_NAMED, WORTH_A_NAME
from advisor.gate.sequential_test import LOOKS
from advisor.machine.readings import HARMFUL_EVENT_REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.gate.schema import GpuReadings, PairEntry, RunEntry, Variant

POWER_CAP = "software power cap"
"""Normal under load; an arm that draws more power and is held back by it is really slower."""

REASON_SHARE = 0.01
CLOCK_OFFSET = 0.01
CLOCK_SPREAD_PCT = 5.0
DISCARDS_ALLOWED = 0.25
BUSY_SAMPLES = 30
STEAL_SHARE = 0.01
"""Less than this is not worth a word."""
STEAL_ALIKE = 0.05
"""Largest difference of the stolen share between two arms that were disturbed alike."""

FIXED = ("uuid", "name", "driver", "power_limit_w")
"""Facts of the device that must not differ between runs of one gate."""


def why_again(
    runs: Mapping[Variant, RunEntry], first: GpuReadings | None, *, needs_quiet: bool = False
) -> str | None:
    """Reason to measure the pair of `runs` again; None if it counts.

    `first` is the reading of the gate's first run. With `needs_quiet` no pair that others
    disturbed counts.
    """
    base, head = runs["base"], runs["head"]
    if by_card := why_discard(base.gpu, head.gpu, first):
        return by_card
    stolen = [run.others.steal_share or 0.0 for run in (base, head)]
    alike = loads_alike([run.others.cpus for run in (base, head)])
    alike = alike and abs(stolen[0] - stolen[1]) <= STEAL_ALIKE
    return None if alike and not needs_quiet else why_disturbed(base, head)


def why_discard(base: GpuReadings, head: GpuReadings, first: GpuReadings | None) -> str | None:
    """Reason that these readings do not count, or None."""
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
    """Unexplained offset between the arms' clocks."""
    if not base.sm_clock_mhz or head.sm_clock_mhz is None:
        return None
    if max(r.event_reasons.get(POWER_CAP, 0.0) for r in (base, head)) > REASON_SHARE:
        return None
    for arm, readings in (("base", base), ("head", head)):
        spread = readings.sm_clock_spread_pct or 0.0
        if spread > CLOCK_SPREAD_PCT:
            return f"the SM clock moved by {spread:.0f} % during {arm}"
    offset = head.sm_clock_mhz / base.sm_clock_mhz - 1
    if abs(offset) <= CLOCK_OFFSET:
        return None
    return f"the SM clock of head was {100 * offset:+.1f} % off that of base"


def why_disturbed(base: RunEntry, head: RunEntry) -> str | None:
    """Load of others on the CPUs, or None."""
    disturbed = [run for run in (base, head) if run.others.disturbed]
    return " and ".join(f"{_taken([run])} during {run.arm}" for run in disturbed) or None


def _taken(runs: Sequence[RunEntry]) -> str:
    """Mean load of others over `runs`, as text.

    `others held 1.3 CPUs (firefox 0.8, make 0.4)`
    """
    seen = [run.others for run in runs]
    held = [one.cpus for one in seen if one.cpus is not None]
    stolen = max((one.steal_share or 0.0 for one in seen), default=0.0)
    most: dict[str, float] = {}
    for name, cpus in (item for one in seen for item in one.names.items()):
        most[name] = max(cpus, most.get(name, 0.0))
    busiest = sorted(most, key=lambda name: -most[name])[:MOST_NAMED]
    names = ", ".join(f"{n} {most[n]:.1f}" for n in busiest if most[n] >= WORTH_A_NAME)
    shown = f"others held {sum(held) / max(1, len(held)):.1f} CPUs"
    shown += f" ({names})" if names else ""
    if stolen >= STEAL_SHARE:
        shown += f", the hypervisor gave away {100 * stolen:.0f} % of their time"
    return shown


def too_many_discarded(pairs: Sequence[PairEntry]) -> bool:
    """True if too many pairs were discarded.

    Of those that others on the CPUs disturbed as many may fall as the last look needs: they come
    in bursts, and cost time alone.
    """
    fell = [pair for pair in pairs if pair.discarded]
    by_card = [pair for pair in fell if pair.discarded != why_disturbed(pair.base, pair.head)]
    most = math.ceil(DISCARDS_ALLOWED * max(len(pairs), LOOKS[0]))
    return len(by_card) > most or len(fell) > LOOKS[-1]


def statement(pairs: Sequence[PairEntry]) -> str:
    """State of the counted pairs: `verified`, `busy` or `unverified`, with the reason."""
    kept = [pair for pair in pairs if not pair.discarded]
    runs = [run for pair in kept for run in pair.runs]
    if not runs:
        return "unverified: nothing was measured"
    busy = sum(why_disturbed(*pair.runs) is not None for pair in kept)
    if busy:
        return f"busy: {_taken(runs)}; in {busy} of {len(kept)} pairs, and in both arms alike"
    on_card = [run.gpu for run in runs if run.on_gpu or run.gpu.name is not None]
    blind = next((reading for reading in on_card if reading.sm_clock_mhz is None), None)
    if blind:
        return f"unverified: {next(iter(blind.gaps.values()), 'NVML gave no clock readings')}"
    fewest = min((reading.busy_samples or 0 for reading in on_card), default=BUSY_SAMPLES)
    if fewest < BUSY_SAMPLES:
        return f"unverified: only {fewest} busy NVML samples in a run, {BUSY_SAMPLES} are needed"
    if not on_card and any(run.others.disturbed is None for run in runs):
        return "unverified: the load of others on the CPUs was not measured"
    return "verified"
