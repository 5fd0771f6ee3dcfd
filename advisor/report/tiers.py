"""How far results may change, against what that gains: safe, balanced, fastest.

A tier is a point that was proven, or it says that it was not; nothing is told from a search.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model import TIERS

if TYPE_CHECKING:
    from advisor.model import Tier
    from advisor.report.model import ComparisonEntry, Gain, Report

RISKS: dict[Tier, str] = {
    "safe": "results do not change",
    "balanced": "rounding changes, inside the declared tolerance",
    "fastest": "the product changes, inside the declared tolerance",
}


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


def tiers(report: Report) -> list[Point]:
    """The three tiers; none where the program has but one, as it is free to change nothing else."""
    proven = _chain(report)
    found = [(_tier_of(each, report), each, gain) for each, gain in proven]
    if not found or (len(found) == 1 and report.tier == "fastest"):
        return []
    return [_point(tier, found, report) for tier in TIERS]


def _chain(report: Report) -> list[tuple[ComparisonEntry, Gain]]:
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
    gains = [report.gain if each.settings == wanted else each.gain for each in chain]
    return [(each, gain) for each, gain in zip(chain, gains, strict=True) if gain is not None]


def _tier_of(proof: ComparisonEntry, report: Report) -> Tier:
    classes = {each.class_ for each in report.changes if each.path in (proof.settings or {})}
    return next((tier for tier, allowed in TIERS.items() if classes <= allowed), "fastest")


def _point(tier: Tier, found: list[tuple[Tier, ComparisonEntry, Gain]], report: Report) -> Point:
    order = list(TIERS)
    inside = [each for each in found if order.index(each[0]) <= order.index(tier)]
    if order.index(tier) > order.index(report.tier):
        note = f"not searched: `gpu-advisor optimize --tier {tier}` does"
        return Point(tier=tier, risk=RISKS[tier], label="", note=note)
    if not inside:
        note = "nothing was proven that changes no more than this"
        return Point(tier=tier, risk=RISKS[tier], label="", note=note)
    own, proof, gain = inside[-1]
    if own != tier:
        rest = {each.class_ for each in report.changes} & TIERS[tier] - TIERS[own]
        note = f"not proven apart: `--tier {tier}` does" if rest else f"the same as {own}"
        return Point(tier=tier, risk=RISKS[tier], label="", note=note)
    memory = [t.peak_mem_gib for t in report.trials if t.label == proof.after and t.peak_mem_gib]
    peak = max(memory, default=None)
    limit = report.target.memory_limit_gib if report.target else None
    return Point(
        tier=tier,
        risk=RISKS[tier],
        label=proof.after,
        gain=gain,
        units_per_s=statistics.fmean(rates)
        if (rates := [each.after for each in proof.rounds if each.counted])
        else None,
        peak_mem_gib=peak,
        margin=1 - peak / limit if peak and limit and peak <= limit else None,
        note="written" if report.written and proof is found[-1][1] else "proven",
    )
