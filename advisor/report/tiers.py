"""How far results may change and how much memory is taken, against the gain: safe, balanced,
fastest.

A tier is a point that was proven, or it says that it was not; nothing is told from a search.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model import TIERS
from advisor.report import numbers
from advisor.report.view import MADE_UP_FOR

if TYPE_CHECKING:
    from advisor.model import Tier
    from advisor.report.model import ComparisonEntry, Gain, Report

CHANGES: dict[Tier, str] = {
    "safe": "results do not change",
    "balanced": "rounding changes, inside the declared tolerance",
    "fastest": "the product changes, inside the declared tolerance",
}
ROOM = 2.0
"""Times its memory that must be there for larger inputs to be no worry."""
PLENTY = 10.0
"""Times its memory from which on no number tells more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One tier: what was proven for it over the original, or why nothing stands here."""

    tier: Tier
    risk: str
    label: str
    """What it sets; empty where nothing was proven."""
    gain: Gain | None = None
    units_per_s: float | None = None
    peak_mem_gib: float | None = None
    margin: float | None = None
    """Share of the memory limit that stays free."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A proof over the original, with the gain of everything that its point sets."""

    tier: Tier
    entry: ComparisonEntry
    gain: Gain


def tiers(report: Report) -> list[Point]:
    """The three tiers; none where the program has but one: no results to change, no batch that
    costs memory."""
    chain = _chain(report)
    if not chain:
        return []
    if len(chain) == 1 and report.tier == "fastest" and not report.lower_tiers:
        return []
    return [_point(tier, chain, report) for tier in TIERS]


def _chain(report: Report) -> list[Proven]:
    """The proofs from the original to what is written, each with its gain over the original."""
    if report.verdict != "improved" or report.gain is None:
        return []
    wanted = {change.path: change.to for change in report.changes}
    chain = [
        each
        for each in report.comparisons
        if each.purpose == "confirm"
        and each.settings
        and each.gain is not None
        and each.gain.low > 1
        and all(wanted.get(path) == value for path, value in each.settings.items())
    ]
    found = []
    for each in chain:
        gain = report.gain if each.settings == wanted else each.gain
        if gain is not None:
            found.append(Proven(tier=_tier_of(each, report), entry=each, gain=gain))
    return found


def _tier_of(proof: ComparisonEntry, report: Report) -> Tier:
    classes = {each.class_ for each in report.changes if each.path in (proof.settings or {})}
    return next((tier for tier, allowed in TIERS.items() if classes <= allowed), "fastest")


def _point(tier: Tier, chain: list[Proven], report: Report) -> Point:
    order = list(TIERS)
    if order.index(tier) > order.index(report.tier):
        return _nothing(tier, f"not searched: `gpu-advisor optimize --tier {tier}` does")
    if tier == report.tier:
        inside = chain[-1]
        if inside.tier == tier or report.lower_tiers:
            return _measured(tier, inside, report, written=True)
    if tier in report.lower_tiers:
        return _lower(tier, report)
    below = [each for each in chain if order.index(each.tier) <= order.index(tier)]
    if not below:
        return _nothing(tier, "nothing was proven that changes no more than this")
    inside = below[-1]
    if inside.tier == tier:
        return _measured(tier, inside, report, written=inside is chain[-1])
    rest = {each.class_ for each in report.changes} & TIERS[tier] - TIERS[inside.tier]
    if rest:
        return _nothing(tier, f"not proven apart: `--tier {tier}` does")
    same = next((t for t in reversed(order[: order.index(tier)]) if t in report.lower_tiers), None)
    return _nothing(tier, f"the same as {same or inside.tier}")


def _lower(tier: Tier, report: Report) -> Point:
    """A smaller batch than what is written, from pairs of its own."""
    label = report.lower_tiers[tier]
    entry = next((c for c in report.comparisons if c.purpose == "tier" and c.tier == tier), None)
    if entry is None or entry.gain is None or entry.gain.low <= 1 + report.smallest_gain:
        tried = "not proven to gain here" if entry is not None else "not proven in this budget"
        return Point(
            tier=tier, risk="", label=label, note=f"{tried}: `--tier {tier}` searches for it"
        )
    return _measured(tier, Proven(tier=tier, entry=entry, gain=entry.gain), report, written=False)


def _nothing(tier: Tier, note: str) -> Point:
    return Point(tier=tier, risk="", label="", note=note)


def _measured(tier: Tier, proof: Proven, report: Report, *, written: bool) -> Point:
    label, entry = proof.entry.after, proof.entry
    trials = [t for t in report.trials if t.label == label]
    peak = max((t.peak_mem_gib for t in trials if t.peak_mem_gib), default=None)
    limit = report.target.memory_limit_gib if report.target else None
    rates = [each.after for each in entry.rounds if each.counted]
    if report.objective != "throughput":  # the rounds hold what decided
        rates = [t.units_per_s for t in trials if t.units_per_s and t.purpose == entry.purpose]
    proven = "written" if report.written and written else "proven"
    return Point(
        tier=tier,
        risk=_risk(entry, report, peak, limit),
        label=label,
        gain=proof.gain,
        units_per_s=statistics.fmean(rates) if rates else None,
        peak_mem_gib=peak,
        margin=1 - peak / limit if peak and limit and peak <= limit else None,
        note=proven if written else f"proven; `--tier {tier}` writes it",
    )


def _risk(entry: ComparisonEntry, report: Report, peak: float | None, limit: float | None) -> str:
    """What may be other than before, and how much larger inputs may become."""
    tier = _tier_of(entry, report)
    made_up = any(
        c.class_ == "training" for c in report.changes if c.path in (entry.settings or {})
    )
    changes = MADE_UP_FOR if tier == "safe" and made_up else CHANGES[tier]
    if not peak or not limit:
        return changes
    times = limit / peak
    if times < ROOM:
        return f"{changes}; larger inputs may run out of memory"
    if times >= PLENTY:
        return f"{changes}; memory to spare"
    return f"{changes}; memory for inputs {numbers.number(times, 2)} times as large"
