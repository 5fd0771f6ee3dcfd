"""Validity of a pair, from GPU and CPU evidence.

A pair counts or falls as a whole: dropping only its slow half would bias the ratio. A pair whose
arms others disturbed alike counts, because the random order favours neither, and the report says
`busy`. Without readings nothing is discarded and the report says `unverified`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from advisor.executor.comparison import loads_alike
from advisor.executor.engines.idle import in_words
from advisor.gate.schema import PairEntry, RunEntry, Variant
from advisor.gate.sequential_test import LOOKS
from advisor.machine.readings import HARMFUL_EVENT_REASONS
from advisor.model import Telemetry

POWER_CAP = "software power cap"
"""Normal under load; an arm that draws more power and is held back by it is really slower."""

REASON_SHARE = 0.01
CLOCK_OFFSET = 0.01
CLOCK_SPREAD_PCT = 5.0
DISCARDS_ALLOWED = 0.25
BUSY_SAMPLES = 30
STEAL_ALIKE = 0.05
"""Largest difference of the stolen share between two arms that were disturbed alike."""


def why_again(runs: Mapping[Variant, RunEntry], *, needs_quiet: bool = False) -> str | None:
    """Reason to measure the pair of `runs` again; None if it counts.

    With `needs_quiet` no pair that others disturbed counts.
    """
    base, head = runs["base"], runs["head"]
    if by_card := why_discard(base.gpu, head.gpu):
        return by_card
    stolen = [run.others.steal_share or 0.0 for run in (base, head)]
    alike = loads_alike([run.others.others_cpus for run in (base, head)])
    alike = alike and abs(stolen[0] - stolen[1]) <= STEAL_ALIKE
    return None if alike and not needs_quiet else why_disturbed(base, head)


def why_discard(base: Telemetry, head: Telemetry) -> str | None:
    """Reason that these readings do not count, or None."""
    for arm, readings in (("base", base), ("head", head)):
        for reason, share in readings.event_reasons:
            if reason in HARMFUL_EVENT_REASONS and share > REASON_SHARE:
                return f"{reason} in {100 * share:.0f} % of the busy samples of {arm}"
        if readings.foreign_pids:
            return f"{readings.foreign_pids} foreign process(es) on the GPU during {arm}"
    return _clock_offset(base, head)


def _clock_offset(base: Telemetry, head: Telemetry) -> str | None:
    """Unexplained offset between the arms' clocks."""
    if not base.sm_clock_mhz or head.sm_clock_mhz is None:
        return None
    if max(dict(r.event_reasons).get(POWER_CAP, 0.0) for r in (base, head)) > REASON_SHARE:
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
    return " and ".join(f"{in_words(run.others)} during {run.arm}" for run in disturbed) or None


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
        worst = max(runs, key=lambda run: run.others.others_cpus or 0.0).others
        which = f"in {busy} of {len(kept)} pairs and in both arms alike"
        return f"busy: {in_words(worst)} at most, {which}"
    on_card = [run.gpu for run in runs if run.on_gpu or run.gpu.busy_samples]
    blind = next((reading for reading in on_card if reading.sm_clock_mhz is None), None)
    if blind:
        return f"unverified: {next(iter(dict(blind.gaps).values()), 'NVML gave no clock readings')}"
    fewest = min((reading.busy_samples or 0 for reading in on_card), default=BUSY_SAMPLES)
    if fewest < BUSY_SAMPLES:
        return f"unverified: only {fewest} busy NVML samples in a run, {BUSY_SAMPLES} are needed"
    if not on_card and any(run.others.disturbed is None for run in runs):
        return "unverified: the load of others on the CPUs was not measured"
    return "verified"
