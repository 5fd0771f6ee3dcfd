"""Head against itself: what this runner can prove, before anyone relies on it."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import stats
from advisor.gate import noise
from advisor.gate.records import ARMS
from advisor.gate.rule import drop_pct, judge
from advisor.gate.verdict import rule_of

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.gate.records import Inputs, ProgramEntry, Statistic

TRUER = 0.7
"""The median of windows decides instead of the mean if it scatters by less than this of it."""

MOST_PAIRS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What pairs of equal runs say about a runner and a program."""

    program: str
    pairs: int
    noise_pct: float | None
    """Spread (one standard deviation) between equal processes."""
    provable_pct: tuple[tuple[int, float | None], ...]
    """Number of pairs, and the smallest slowdown that they prove nine times in ten."""
    pairs_needed: int | None
    """For the threshold asked; None if even MOST_PAIRS would not do."""
    threshold_pct: float
    """The smallest threshold, in whole percent, that the last look supports."""
    statistic: Statistic
    """What should decide on this runner: mean, unless the median of windows is clearly truer."""
    placebo: str
    """What the rule says of these equal runs: pass, or inconclusive where noise is large."""
    two_groups_pct: float | None
    """Distance of two groups of runs, if they fall into two."""


def calibrate(program: ProgramEntry, inputs: Inputs) -> Calibration | None:
    """From pairs in which both arms are head; None with fewer than two pairs that count."""
    pairs = [pair for pair in program.pairs if not pair.discarded]
    keys = {key for pair in pairs for key in pair.head.rates} if len(pairs) > 1 else set()
    spreads = {key: _spreads(program, key) for key in keys}
    if not spreads:
        return None
    worst = max(spreads, key=lambda key: spreads[key]["mean"])
    statistic: Statistic = "mean"
    if spreads[worst].get("median", float("inf")) < TRUER * spreads[worst]["mean"]:
        statistic = "median"
    sigma = spreads[worst][statistic]
    rule = rule_of(inputs)
    looks = rule.looks_for(len(keys))
    provable = tuple((n, drop_pct(stats.provable_shift(sigma, n, rule.level))) for n in looks)
    needed = next(
        (
            n
            for n in range(looks[0], MOST_PAIRS + 1)
            if stats.provable_shift(sigma, n, rule.level) <= rule.tau
        ),
        None,
    )
    slots = [
        [getattr(pair, arm).rates[worst].value(statistic) for pair in pairs if pair.order == order]
        for arm in ARMS
        for order in ("base first", "head first")
    ]
    logs = [[stats.log_ratios([rate], [1.0])[0] for rate in rates] for rates in slots]
    spread = noise.spread_between_processes(logs)
    groups = noise.modes([value for rates in logs for value in rates])
    return Calibration(
        program=program.name if worst == program.name else f"{program.name}: {worst}",
        pairs=len(pairs),
        noise_pct=None if spread is None else 100 * spread,
        provable_pct=provable,
        pairs_needed=needed,
        threshold_pct=_whole_percent(provable[-1][1]),
        statistic=statistic,
        placebo=judge({"self": _differences(program, worst, statistic)}, rule)["self"].outcome,
        two_groups_pct=None if groups is None else drop_pct(groups[1] - groups[0]),
    )


def _differences(program: ProgramEntry, key: str, statistic: Statistic) -> list[float]:
    pairs = [pair for pair in program.pairs if not pair.discarded]
    return stats.log_ratios(
        [pair.base.rates[key].value(statistic) for pair in pairs],
        [pair.head.rates[key].value(statistic) for pair in pairs],
    )


def _spreads(program: ProgramEntry, key: str) -> dict[Statistic, float]:
    """Standard deviation of the pairs' log ratios, by each statistic that every run has."""
    pairs = [pair for pair in program.pairs if not pair.discarded]
    found: dict[Statistic, float] = {"mean": statistics.stdev(_differences(program, key, "mean"))}
    if all(run.rates[key].median for pair in pairs for run in (pair.base, pair.head)):
        found["median"] = statistics.stdev(_differences(program, key, "median"))
    return found


def _whole_percent(pct: float | None) -> float:
    return 1.0 if pct is None else float(max(1, -int(-pct // 1)))


# --- kept for the gates to come -----------------------------------------------------------


def keep(path: Path, key: str, statistic: Statistic) -> None:
    """Remember which statistic is truer for the program and runner of `key`."""
    kept = _read(path)
    kept[key] = statistic
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def kept_statistic(path: Path, key: str) -> Statistic:
    """What calibration found for `key`; the mean where there was none."""
    return "median" if _read(path).get(key) == "median" else "mean"


def _read(path: Path) -> dict[str, str]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
