"""Head against itself: what this runner can prove, before anyone relies on it."""

from __future__ import annotations

import json
import math
import statistics
from typing import TYPE_CHECKING

from advisor.errors import StateUnusableError
from advisor.files import atomic
from advisor.gate import noise, power
from advisor.gate.entries import ARMS
from advisor.gate.records import CalibrationEntry
from advisor.gate.rule import judge
from advisor.gate.verdict import difference, rule_of
from advisor.state import user_folder

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.gate.entries import ProgramEntry, Statistic
    from advisor.gate.records import Inputs

TRUER = 0.5
"""The median of windows decides instead of the mean if it scatters by less than this share of it:
among a dozen pairs that happens by chance about once in a hundred calibrations."""


def calibrate(program: ProgramEntry, inputs: Inputs) -> CalibrationEntry | None:
    """From pairs in which both arms are head; None with fewer than two pairs that count."""
    pairs = [pair for pair in program.pairs if not pair.discarded]
    keys = {key for pair in pairs for key in pair.head.rates} if len(pairs) > 1 else set()
    spreads = {key: _spreads(program, key) for key in keys}
    if not spreads:
        return None
    worst = max(spreads, key=lambda key: spreads[key]["mean"])
    statistic: Statistic = "mean"
    if spreads[worst].get("median", math.inf) < TRUER * spreads[worst]["mean"]:
        statistic = "median"
    sigma = spreads[worst][statistic]
    rule = rule_of(inputs)
    red = {n: power.red_at(sigma, len(pairs), rule, by=n, workloads=len(keys)) for n in rule.looks}
    needed = {n: power.threshold_for(sigma, len(pairs), rule, by=n) for n in rule.looks}
    relied_on = needed[rule.looks[-1]]
    slots = [
        [getattr(pair, arm).rates[worst].value(statistic) for pair in pairs if pair.order == order]
        for arm in ARMS
        for order in ("base first", "head first")
    ]
    logs = [[math.log(rate) for rate in rates] for rates in slots]
    spread = noise.spread_between_processes(logs)
    groups = noise.modes([value for rates in logs for value in rates])
    return CalibrationEntry(
        workload=program.name if worst == program.name else f"{program.name}: {worst}",
        pairs=len(pairs),
        noise_pct=None if spread is None else 100 * spread,
        provable_pct={n: _pct(shift) for n, shift in red.items() if shift is not None},
        pairs_needed=next((n for n, tau in needed.items() if tau and tau <= rule.tau), None),
        threshold_pct=None if relied_on is None else float(max(1, math.ceil(_pct(relied_on)))),
        statistic=statistic,
        placebo=judge({"self": _differences(program, worst, statistic)}, rule)["self"].outcome,
        two_groups_pct=None if groups is None else _pct(groups[1] - groups[0]),
    )


def _differences(program: ProgramEntry, key: str, statistic: Statistic) -> list[float]:
    pairs = [pair for pair in program.pairs if not pair.discarded]
    return [
        difference(*(getattr(pair, arm).rates[key].value(statistic) for arm in ARMS))
        for pair in pairs
    ]


def _spreads(program: ProgramEntry, key: str) -> dict[Statistic, float]:
    """Standard deviation of the pairs' log ratios, by each statistic that every run has."""
    pairs = [pair for pair in program.pairs if not pair.discarded]
    found: dict[Statistic, float] = {"mean": statistics.stdev(_differences(program, key, "mean"))}
    if all(run.rates[key].median for pair in pairs for run in (pair.base, pair.head)):
        found["median"] = statistics.stdev(_differences(program, key, "median"))
    return found


def _pct(shift: float) -> float:
    return -100 * math.expm1(-shift)


# --- kept for the gates to come -----------------------------------------------------------


def kept_at() -> Path:
    """The file of this user's calibrations: a runner's workspace is cleaned between jobs.

    Raises StateUnusableError for a user without a home.
    """
    return user_folder("XDG_CACHE_HOME", "~/.cache") / "gate-calibration.json"


def keep(path: Path, host: str, definition: str, statistic: Statistic) -> None:
    """Remember which statistic is truer for a program on a host. Raises StateUnusableError."""
    kept = _read(path)
    kept[f"{host}/{definition}"] = statistic
    content = json.dumps(kept, indent=1, sort_keys=True) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.place(path, content.encode(), 0o600)
    except OSError as problem:
        msg = f"What was found here could not be kept in {path}: {problem.strerror}."
        raise StateUnusableError(msg) from problem


def kept_statistic(path: Path, host: str, definition: str) -> Statistic:
    """What calibration found; the mean where there was none."""
    return "median" if _read(path).get(f"{host}/{definition}") == "median" else "mean"


def _read(path: Path) -> dict[str, str]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
