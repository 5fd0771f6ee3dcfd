"""A file of past sessions, compared with and appended to. Advisory: one machine, other days.

One session is several fresh processes of head on one day. Sessions are the unit here: what differs
from day to day cannot be averaged out within a day. A session is red for one of two reasons: it
alone lies far below the sessions before it, or it is the latest of several that lie below a level
that was held once (`trend`), whether they fell at once or crept. The file is written after the
verdict, a red session is marked and never becomes part of the baseline, so a regression does not
heal itself. A reviewed edit of the file re-bases: `"rebase": true` on a session starts a new
baseline with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor import files, stats
from advisor.errors import OutputRefusedError, ReportError
from advisor.gate import scatter, trend
from advisor.gate.records import WorkloadVerdict
from advisor.gate.verdict import PRECEDENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from advisor.gate.entries import ProgramEntry
    from advisor.gate.records import GateRecord, HostEntry, Verdict
    from advisor.gate.scatter import Scatter

FORMAT: Literal[1] = 1
FEWEST_SESSIONS = 10
BASELINE_SESSIONS = 30
SMALLEST_LOSS = 0.02
"""Share of the rate below which a lasting loss is not told, however sure it is."""
ALONE_A_YEAR = 0.2
"""False alarms of single sessions, over all benchmarks together, were nights normal."""
STRAYING = 2.5
"""So many times further than normal ones some nights stray. Less is found on the next."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Session(_Part):
    """One day's rate of one workload."""

    created: str
    sha: str | None
    units_per_s: float = Field(gt=0, allow_inf_nan=False)
    low_units_per_s: float | None = None
    high_units_per_s: float | None = None
    """95 % interval over the processes; null with a single one, or before it was kept."""
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


def compare(
    series: Series | None,
    units_per_s: float,
    threshold: float,
    *,
    smallest_loss: float = SMALLEST_LOSS,
    beside: Sequence[Scatter | None] = (),
) -> Compared:
    """Whether a session of this rate is red against the sessions before it. Pure.

    `beside` is what is known of the other series of this machine (`scatters_beside`). They are
    looked at every night: the more they are, the surer each has to be, so that all of them together
    raise one false alarm a year at most.
    """
    baseline = baseline_of(series)
    if len(baseline) < FEWEST_SESSIONS:
        verdict: Verdict = "inconclusive" if baseline else "no-baseline"
        reason = f"{len(baseline)} of {FEWEST_SESSIONS} sessions that a baseline needs"
        return Compared(verdict=verdict, reason=reason, sessions=len(baseline))
    found = _tonight(baseline, units_per_s, threshold, 1 + len(beside))
    lost = _lost(current(series), units_per_s, smallest_loss, beside)
    if lost and found.verdict == "regression":
        return replace(found, reason=f"{found.reason}. Also {lost}")
    return replace(found, verdict="regression", reason=lost) if lost else found


def _tonight(
    baseline: Sequence[Session], units_per_s: float, threshold: float, benchmarks: int
) -> Compared:
    """Red needs both: below what the sessions' own scatter explains, with nights that stray
    further than others do, and a drop of at least the threshold.
    """
    rates = [math.log(session.units_per_s) for session in baseline]
    n, mean, deviation = len(rates), statistics.fmean(rates), statistics.stdev(rates)
    chance = ALONE_A_YEAR / trend.NIGHTS / benchmarks
    reach = STRAYING * stats.t_quantile(1 - chance, n - 1) * deviation * math.sqrt(1 + 1 / n)
    limit = max(reach, -math.log1p(-threshold))
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


def _lost(
    sessions: Sequence[Session],
    units_per_s: float,
    smallest: float,
    beside: Sequence[Scatter | None],
) -> str | None:
    """What is lost for good with a session of this rate, as a reason; None if nothing is."""
    rates = [math.log(rate) for rate in (*(s.units_per_s for s in sessions), units_per_s)]
    loss = trend.lasting_loss(rates, -math.log1p(-smallest), beside)
    if loss is None:
        return None
    first, last = sessions[loss.held[0]], sessions[loss.held[1] - 1]
    nights = len(rates) - loss.since
    return (
        f"{-100 * math.expm1(-loss.drop):.1f} % lost for {nights} sessions, against what was held "
        f"from {first.created[:10]} to {last.created[:10]}; confirm it with "
        f"`gpu-advisor gate --base-ref {last.sha}`"
    )


def baseline_of(series: Series | None) -> list[Session]:
    """The sessions that count: since the last re-base, not red, the latest ones."""
    return [session for session in current(series) if not session.red][-BASELINE_SESSIONS:]


def current(series: Series | None) -> list[Session]:
    """All sessions since the last re-base."""
    sessions = series.sessions if series else []
    starts = [number for number, session in enumerate(sessions) if session.rebase]
    return sessions[starts[-1] :] if starts else sessions


def scatters_beside(past: History, facts: dict[str, str]) -> list[Scatter | None]:
    """Of every other series of the machine and software of `facts`; None where too little is
    known."""
    apart = {"workload", "source", "unit"}
    here = {key: value for key, value in facts.items() if key not in apart}
    return [
        scatter_of(series)
        for series in past.series.values()
        if here.items() <= series.facts.items() and series.facts != facts
    ]


def scatter_of(series: Series) -> Scatter | None:
    """How far the sessions of `series` scatter, by their own account."""
    return scatter.own([math.log(session.units_per_s) for session in current(series)])


def read(path: Path) -> History:
    """The history in `path`, empty if there is no such file. Raises ReportError if malformed."""
    try:
        return History.model_validate_json(files.read_whole(path))
    except FileNotFoundError:
        return History()
    except (OSError, ValueError, ValidationError) as problem:
        first = getattr(problem, "strerror", None) or str(problem).splitlines()[0]
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
        logs = [math.log(r.value(record.inputs.statistic)) for r in rates]
        spread = stats.t_interval(logs) if len(logs) > 1 else None
        rate = math.exp(statistics.fmean(logs))
        found = compare(
            series,
            rate,
            record.inputs.threshold,
            smallest_loss=record.inputs.smallest_loss,
            beside=scatters_beside(past, facts),
        )
        session = Session(
            created=record.created,
            sha=record.head.sha,
            units_per_s=rate,
            low_units_per_s=math.exp(spread.low) if spread else None,
            high_units_per_s=math.exp(spread.high) if spread else None,
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


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Alone with the history's folder, from reading to writing: sessions may end at once.

    Where a folder cannot be locked the block runs all the same. Raises OutputRefusedError where
    there is none and none can be made.
    """
    folder = path.resolve().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        msg = f"--history {path}: {folder}: {problem.strerror}; name a file that can be written"
        raise OutputRefusedError(msg) from problem
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def dump(history: History) -> bytes:
    """`history` as the bytes of the file."""
    return (history.model_dump_json(indent=1) + "\n").encode()


def _is_history(path: Path) -> bool:
    with contextlib.suppress(ReportError):
        read(path)
        return True
    return False
