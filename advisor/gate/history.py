"""A file of past sessions, compared with and appended to. Advisory: one machine, other days.

One session is several fresh processes of head on one day. Sessions are the unit here: what differs
from day to day cannot be averaged out within a day. The file is written after the verdict, a red
session is marked and never becomes part of the baseline, so a regression does not heal itself. A
reviewed edit of the file re-bases: `"rebase": true` on a session starts a new baseline with it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor import stats
from advisor.errors import ReportError

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.gate.records import HostEntry, Verdict

FORMAT: Literal[1] = 1
FEWEST_SESSIONS = 10
BASELINE_SESSIONS = 30
CONFIDENCE = 0.99


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Session(_Part):
    """One day's rate of one workload."""

    created: str
    sha: str | None
    units_per_s: float = Field(gt=0, allow_inf_nan=False)
    processes: int
    red: bool = False
    rebase: bool = False


class Series(_Part):
    """Sessions that may be compared: same machine, software, workload and source of the rate."""

    workload: str
    unit: str
    facts: dict[str, str]
    sessions: list[Session] = Field(default_factory=list)


class History(_Part):
    """The file."""

    format: Literal[1] = FORMAT
    series: dict[str, Series] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What the baseline says of a new session."""

    verdict: Verdict
    reason: str
    slowdown_pct: float | None = None
    limit_pct: float | None = None
    """Drop beyond which a session is called red."""
    sessions: int = 0
    last_good: str | None = None
    """Commit of the last session that was not red."""


def key_of(facts: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def facts_of(host: HostEntry, definition: str, source: str, unit: str) -> dict[str, str]:
    """The stable facts that sessions must share; no reading that changes from boot to boot."""
    return {
        "gpus": ", ".join(host.gpus),
        "driver": host.driver or "",
        "power_limit_w": "" if host.power_limit_w is None else f"{host.power_limit_w:.0f}",
        "cpu": f"{host.cpus} x {host.cpu}",
        "torch": host.torch or "",
        "workload": definition,
        "source": source,
        "unit": unit,
    }


def compare(series: Series | None, units_per_s: float, threshold: float) -> Compared:
    """Whether a session of this rate is red against the baseline. Pure.

    Red needs both: below what the sessions' own scatter explains (one-sided prediction bound), and
    a drop of at least the threshold and of twice that scatter.
    """
    baseline = baseline_of(series)
    if len(baseline) < FEWEST_SESSIONS:
        verdict: Verdict = "inconclusive" if baseline else "no-baseline"
        reason = f"{len(baseline)} of {FEWEST_SESSIONS} sessions that a baseline needs"
        return Compared(verdict=verdict, reason=reason, sessions=len(baseline))
    rates = [math.log(session.units_per_s) for session in baseline]
    n, mean, scatter = len(rates), statistics.fmean(rates), statistics.stdev(rates)
    reach = stats.t_quantile(CONFIDENCE, n - 1) * scatter * math.sqrt(1 + 1 / n)
    limit = max(reach, -math.log1p(-threshold), 2 * scatter)
    drop = mean - math.log(units_per_s)
    red = drop > limit
    last_good = baseline[-1].sha
    return Compared(
        verdict="regression" if red else "pass",
        reason=(
            f"slower than {n} sessions explain; confirm it with "
            f"`gpu-advisor gate --base-ref {last_good}`"
            if red
            else f"within what {n} sessions explain"
        ),
        slowdown_pct=-100 * math.expm1(-drop),
        limit_pct=-100 * math.expm1(-limit),
        sessions=n,
        last_good=last_good,
    )


def baseline_of(series: Series | None) -> list[Session]:
    """The sessions that count: since the last re-base, not red, the latest ones."""
    sessions = series.sessions if series else []
    starts = [number for number, session in enumerate(sessions) if session.rebase]
    current = sessions[starts[-1] :] if starts else sessions
    return [session for session in current if not session.red][-BASELINE_SESSIONS:]


def read(path: Path) -> History:
    """The history in `path`, empty if there is no such file. Raises ReportError if malformed."""
    if not path.exists():
        return History()
    try:
        return History.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError) as problem:
        first = str(problem).splitlines()[0]
        msg = f"{path} is no history of format {FORMAT}: {first}. Repair or remove it."
        raise ReportError(msg) from problem


def append(path: Path, history: History, series: Series, session: Session) -> None:
    """Write `history` with one more session, whole or not at all."""
    key = key_of(series.facts)
    known = history.series.get(key, series)
    grown = known.model_copy(update={"sessions": [*known.sessions, session]})
    changed = history.model_copy(update={"series": {**history.series, key: grown}})
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(changed.model_dump_json(indent=1) + "\n", encoding="utf-8")
    draft.replace(path)
