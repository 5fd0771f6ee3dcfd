"""A file of past sessions, compared with and appended to. Advisory: one machine, other days.

One session is several fresh processes of head on one day. Sessions are the unit here: what differs
from day to day cannot be averaged out within a day. The file is written after the verdict, a red
session is marked and never becomes part of the baseline, so a regression does not heal itself. A
reviewed edit of the file re-bases: `"rebase": true` on a session starts a new baseline with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor import files, stats
from advisor.errors import ReportError
from advisor.gate.records import WorkloadVerdict
from advisor.gate.verdict import PRECEDENCE

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.gate.records import GateRecord, HostEntry, ProgramEntry, Verdict

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
    baseline_units_per_s: float | None = None
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
        baseline_units_per_s=math.exp(mean),
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
    try:
        return History.model_validate_json(files.read_whole(path))
    except FileNotFoundError:
        return History()
    except (OSError, ValueError, ValidationError) as problem:
        first = str(problem).splitlines()[0]
        msg = f"{path} is no history of format {FORMAT}: {first}. Repair or remove it."
        raise ReportError(msg) from problem


def judge(
    past: History, program: ProgramEntry, record: GateRecord
) -> tuple[list[WorkloadVerdict], History]:
    """Verdicts on the new session of `program`, and the history with it appended."""
    runs = [run for pair in program.pairs if not pair.discarded for run in (pair.base, pair.head)]
    verdicts = []
    for key in dict.fromkeys(key for run in runs for key in run.rates):
        rates = [run.rates[key] for run in runs if key in run.rates]
        name = program.name if key == program.name else f"{program.name}: {key}"
        unit = rates[0].unit
        facts = facts_of(record.host, f"{program.definition}/{key}", str(runs[0].source), unit)
        series = past.series.get(key_of(facts), Series(workload=name, unit=unit, facts=facts))
        rate = statistics.geometric_mean(r.value(record.inputs.statistic) for r in rates)
        found = compare(series, rate, record.inputs.threshold)
        session = Session(
            created=record.created,
            sha=record.head.sha,
            units_per_s=rate,
            processes=len(rates),
            red=found.verdict == "regression",
        )
        past = grown(past, series, session)
        verdicts.append(
            WorkloadVerdict(
                name=name,
                verdict=found.verdict,
                reason=found.reason,
                slowdown_pct=found.slowdown_pct,
                mde_pct=found.limit_pct,
                pairs=len(rates) // 2,
                unit=unit,
                source=runs[0].source,
                base_units_per_s=found.baseline_units_per_s,
                head_units_per_s=rate,
            )
        )
    return verdicts, past


def with_verdicts(record: GateRecord, verdicts: list[WorkloadVerdict]) -> GateRecord:
    """`record` with what the history says in place of what its own pairs say."""
    ordered = sorted(verdicts, key=lambda w: (PRECEDENCE.index(w.verdict), -(w.slowdown_pct or 0)))
    if not ordered:
        return record
    leading = ordered[0]
    return record.model_copy(
        update={
            "verdict": leading.verdict,
            "reason": f"{leading.name}: {leading.reason}",
            "slowdown_pct": leading.slowdown_pct,
            "ci_low_pct": None,
            "ci_high_pct": None,
            "mde_pct": leading.mde_pct,
            "pairs": leading.pairs,
            "workloads": ordered,
        }
    )


def grown(past: History, series: Series, session: Session) -> History:
    """`past` with one more session in `series`."""
    longer = series.model_copy(update={"sessions": [*series.sessions, session]})
    return past.model_copy(update={"series": {**past.series, key_of(series.facts): longer}})


def claim(path: Path) -> files.Claim:
    """The place of the file: ours if it holds a history. Raises OutputRefusedError."""
    return files.claim([path], ours=_is_history)


def dump(history: History) -> bytes:
    """`history` as the bytes of the file."""
    return (history.model_dump_json(indent=1) + "\n").encode()


def _is_history(path: Path) -> bool:
    with contextlib.suppress(ReportError):
        read(path)
        return True
    return False
