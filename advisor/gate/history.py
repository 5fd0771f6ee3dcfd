"""History of sessions of one machine, over days.

One session is several fresh processes of head on one day, and the unit of this comparison. A
session is red if it lies below the prediction interval of the window before it, or if the latest
sessions together lie below the first half of the window (drift). A red session never becomes part
of the window, so a regression does not heal itself. `"rebase": true` on a session starts anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import statistics
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor import files, stats
from advisor.errors import OutputRefusedError, ReportError
from advisor.gate.comparison import Workload
from advisor.gate.schema import WorkloadVerdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from advisor.gate.schema import GateRecord, HostEntry, ProgramEntry, Verdict

FORMAT: Literal[2] = 2
WINDOW = 30
"""Sessions of the window."""
FEWEST_SESSIONS = 10
LATEST = 5
"""Sessions, the new one among them, that the drift test takes together."""
ALPHA = 0.001
"""Chance of a false alarm a session, shared by all series of the machine."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Session(_Part):
    """One day's rate of one workload."""

    created: str
    sha: str | None
    value: float = Field(gt=0, allow_inf_nan=False)
    processes: int
    red: bool = False
    rebase: bool = False


class Series(_Part):
    """Comparable sessions of one workload.

    They share the machine, the software and the source of the rate.
    """

    program: str
    benchmark: str | None
    definition: str
    unit: str
    better: Literal["lower", "higher"] = "higher"
    facts: dict[str, str]
    sessions: list[Session] = Field(default_factory=list)

    @property
    def window(self) -> list[Session]:
        """Latest sessions since the re-base, without red ones."""
        starts = [number for number, session in enumerate(self.sessions) if session.rebase]
        current = self.sessions[starts[-1] :] if starts else self.sessions
        return [session for session in current if not session.red][-WINDOW:]


class History(_Part):
    """The file."""

    format: Literal[2] = FORMAT
    series: dict[str, Series] = Field(default_factory=dict)


class Prediction(NamedTuple):
    """Comparison of a new session with the window."""

    verdict: Verdict
    reason: str
    slowdown_pct: float | None = None
    limit_pct: float | None = None
    """Drop at the lower end of the prediction interval."""


def predict(series: Series, value: float, threshold: float, beside: int = 0) -> Prediction:
    """Predict the verdict on a session's value. Pure.

    `beside` counts the machine's other series.
    """
    sign = 1 if series.better == "higher" else -1
    past = [sign * math.log(session.value) for session in series.window]
    if len(past) < FEWEST_SESSIONS:
        reason = f"{len(past)} of {FEWEST_SESSIONS} sessions that a baseline needs"
        return Prediction("inconclusive" if past else "no-baseline", reason)
    new = sign * math.log(value)
    alpha, tau = ALPHA / (1 + beside), -math.log1p(-threshold)
    last_good = series.window[-1].sha
    confirm = f"confirm it with `gpu-advisor gate --base-ref {last_good}`"
    drop, reach = _drop(past, [new], alpha)
    limit = max(reach, tau)
    slowdown, limit_pct = -100 * math.expm1(-drop), -100 * math.expm1(-limit)
    if drop > limit:
        reason = f"below the prediction interval of {len(past)} sessions; {confirm}"
        return Prediction("regression", reason, slowdown, limit_pct)
    older, latest = past[: len(past) // 2], [*past[1 - LATEST :], new]
    lost, apart = _drop(older, latest, alpha)
    if lost > max(apart, tau / 2):
        reason = (
            f"drift: the latest {len(latest)} sessions lie {-100 * math.expm1(-lost):.1f} % below "
            f"the first {len(older)} of the window; {confirm}"
        )
        return Prediction("regression", reason, slowdown, limit_pct)
    reason = f"within the prediction interval of {len(past)} sessions"
    return Prediction("pass", reason, slowdown, limit_pct)


def _drop(before: Sequence[float], after: Sequence[float], alpha: float) -> tuple[float, float]:
    """Fall of the mean, and the reach of chance.

    From `before` to `after`, by Student's t.
    """
    n = len(before)
    spread = statistics.stdev(before) * math.sqrt(1 / len(after) + 1 / n)
    reach = stats.t_quantile(1 - alpha, n - 1) * spread
    return statistics.fmean(before) - statistics.fmean(after), reach


def judge(
    past: History, program: ProgramEntry, record: GateRecord
) -> tuple[list[WorkloadVerdict], History]:
    """Judge the new session of `program` and append it."""
    runs = [run for pair in program.pairs if not pair.discarded for run in (pair.base, pair.head)]
    verdicts = []
    for key in dict.fromkeys(key for run in runs for key in run.rates):
        rates = [run.rates[key] for run in runs if key in run.rates]
        workload = Workload(program.name, None if key == program.name else key)
        facts = facts_of(record.host, str(runs[0].source))
        new = Series(
            program=program.name,
            benchmark=workload.benchmark,
            definition=program.definition,
            unit=rates[0].unit,
            better=rates[0].better,
            facts=facts,
        )
        series = past.series.get(_key(new), new)
        value = math.exp(statistics.fmean(math.log(rate.mean) for rate in rates))
        beside = sum(each.facts == facts for each in past.series.values()) - (series is not new)
        found = predict(series, value, record.inputs.threshold, beside)
        session = Session(
            created=record.created,
            sha=record.head.sha,
            value=value,
            processes=len(rates),
            red=found.verdict == "regression",
        )
        longer = series.model_copy(update={"sessions": [*series.sessions, session]})
        past = past.model_copy(update={"series": {**past.series, _key(new): longer}})
        verdicts.append(
            WorkloadVerdict(
                name=workload.name,
                program=workload.program,
                benchmark=workload.benchmark,
                better=rates[0].better,
                threshold=record.inputs.threshold,
                verdict=found.verdict,
                reason=found.reason,
                slowdown_pct=found.slowdown_pct,
                pairs=len(rates) // 2,
                unit=rates[0].unit,
                source=runs[0].source,
                head_units_per_s=value,
                notes=(
                    []
                    if found.limit_pct is None
                    else [f"a drop of {found.limit_pct:.1f} % or more is red"]
                ),
            )
        )
    return verdicts, past


def facts_of(host: HostEntry, source: str) -> dict[str, str]:
    """Stable facts that sessions must share."""
    return {
        "gpus": ", ".join(host.gpus),
        "driver": host.driver or "",
        "power_limit_w": "" if host.power_limit_w is None else f"{host.power_limit_w:.0f}",
        "cpu": f"{host.cpus} x {host.cpu}",
        "torch": host.torch or "",
        "source": source,
    }


def _key(series: Series) -> str:
    facts = series.model_dump(exclude={"sessions"})
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


# --- the file -----------------------------------------------------------------------------


def read(path: Path) -> History:
    """Read the history; empty without a file.

    Raises ReportError if malformed.
    """
    try:
        return History.model_validate_json(files.read_whole(path))
    except FileNotFoundError:
        return History()
    except (OSError, ValueError, ValidationError) as problem:
        first = getattr(problem, "strerror", None) or str(problem).splitlines()[0]
        msg = f"{path} is no history of format {FORMAT}: {first}. Repair or remove it."
        raise ReportError(msg) from problem


def dump(history: History) -> bytes:
    """`history` as the bytes of the file."""
    return (history.model_dump_json(indent=1) + "\n").encode()


def claim(path: Path) -> files.Claim:
    """Claim the history's place.

    Raises OutputRefusedError if the file holds no history.
    """
    return files.claim([path], ours=_is_history)


def _is_history(path: Path) -> bool:
    with contextlib.suppress(ReportError):
        read(path)
        return True
    return False


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock the history's folder, where folders can be locked.

    Raises OutputRefusedError where there is no folder and none can be made.
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


def export(record: GateRecord) -> list[dict[str, object]]:
    """Rates of head for github-action-benchmark (`customBiggerIsBetter`) and Bencher's adapter."""
    return [
        {
            "name": w.name,
            "value": w.head_units_per_s,
            "unit": f"{w.unit}/s",
            "better": w.better,
            "written_by": "gpu-advisor",
        }
        for w in record.workloads
        if w.head_units_per_s is not None
    ]
