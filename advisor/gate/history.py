"""History of one machine's sessions over days; docs/gate.md says which are red.

A session, several fresh processes of head on one day, is the unit compared. Processes of one day
share its temperature, its neighbours and its driver, and so differ less than days do: with each of
them as a sample, nights would be red by chance.

Two questions are asked of each session. Does it lie below what the window predicts? And do the
latest few lie below the first half of the window, as after a slow decline of which no single
night was red? A red session never joins the window, or the window would learn the slowdown.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from advisor import stats
from advisor.gate.comparison import CAUSES, ComparisonKey
from advisor.gate.schema import Better, GateRecord, Positive, ProgramEntry, Rate, RateSource
from advisor.gate.verdict import led
from advisor.model import digest_of
from advisor.report import writing
from advisor.report.schema import Part

# By judgement: enough sessions for a spread, and few enough to follow a machine that changes.
WINDOW = 30
"""Latest sessions of a series that predict the next one."""
FEWEST_SESSIONS = 10
"""Sessions that a baseline needs."""
LATEST = 5
"""Sessions in one drift test, with the new one.

Judgement: fewer sees no slow drift through the noise of a day, more blurs a recent one."""
ALPHA = 0.001
"""Chance of a false alarm a session, over all the machine's series.

Judgement. Each of two tests may spend it, and it is divided by the number of series."""


class DailyRate(Part):
    """One day's rate of one workload."""

    series: str
    """Name of the workload, and a digest of all that must be equal."""
    machine: str
    created: str
    sha: str | None
    value: Positive
    red: bool = False


class RateHistory(Part):
    format: Literal[3] = 3
    sessions: list[DailyRate] = Field(default_factory=list)

    def window(self, series: str) -> list[DailyRate]:
        """Latest sessions of a series, without red ones."""
        of_series = [
            session
            for session in self.sessions
            if session.series == series and not session.red
        ]
        return of_series[-WINDOW:]


def predict(
    window: Sequence[DailyRate],
    value: float,
    threshold: float,
    better: Better,
    series: int = 1,
) -> dict[str, Any]:
    """Verdict on a session's value, with its reason and figures. Pure."""
    sign = 1 if better == "higher" else -1
    past = [sign * math.log(session.value) for session in window]
    if len(past) < FEWEST_SESSIONS:
        reason = f"{len(past)} of {FEWEST_SESSIONS} sessions that a baseline needs"
        return {"verdict": "inconclusive" if past else "no-baseline", "reason": reason}
    new, tau = sign * math.log(value), -math.log1p(-threshold)
    older, latest = past[: len(past) // 2], [*past[1 - LATEST :], new]
    drop, reach = _drop(past, [new], ALPHA / series)
    lost, apart = _drop(older, latest, ALPHA / series)
    limit = max(reach, tau)
    verdict, reason = "regression", f"below the prediction interval of {len(past)} sessions"
    if lost > max(apart, tau / 2) and drop <= limit:
        reason = (
            f"drift: the latest {len(latest)} sessions lie {-100 * math.expm1(-lost):.1f} % below "
            f"the first {len(older)} of the window"
        )
    elif drop <= limit:
        verdict, reason = "pass", f"within the prediction interval of {len(past)} sessions"
    if verdict == "regression":
        reason += f"; confirm it with `gpu-advisor gate --base-ref {window[-1].sha}`"
    return {
        "verdict": verdict,
        "reason": reason,
        "slowdown_pct": -100 * math.expm1(-drop),
        "notes": [f"a drop of {-100 * math.expm1(-limit):.1f} % or more is red"],
    }


def _drop(
    before: Sequence[float], after: Sequence[float], alpha: float
) -> tuple[float, float]:
    """Fall of the mean from `before` to `after`, and how far chance alone would reach.

    The reach is Student's prediction interval: the mean of `after` scatters, and so does the mean
    of `before` that it is held against.
    """
    n = len(before)
    spread = statistics.stdev(before) * math.sqrt(1 / len(after) + 1 / n)
    reach = stats.t_quantile(1 - alpha, n - 1) * spread
    return statistics.fmean(before) - statistics.fmean(after), reach


def judge(past: RateHistory, record: GateRecord) -> tuple[GateRecord, RateHistory]:
    """Judge the new sessions of `record` and append them."""
    threshold, sessions, verdicts = record.inputs.threshold, [], []
    machine = record.host.key if record.host else ""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    day: dict[str, Any] = {"machine": machine, "created": created, "sha": record.head.sha}
    for program in record.programs:
        for workload, source, rates in _rates(program):
            rate, value = (
                rates[0],
                math.exp(statistics.fmean(math.log(r.mean) for r in rates)),
            )
            same = [machine, program.definition, source, rate.unit, rate.better]
            same += [rate.counted] * (rate.counted is not None)
            series = f"{workload.name} {digest_of(same)}"
            beside = {
                session.series for session in past.sessions if session.machine == machine
            } | {series}
            entry = predict(past.window(series), value, threshold, rate.better, len(beside))
            red = entry["verdict"] == "regression"
            sessions.append(DailyRate(series=series, value=value, red=red, **day))
            entry["cause"] = CAUSES.get(entry["verdict"], "base-lacks-it")
            entry |= {"better": rate.better, "unit": rate.unit, "source": source}
            entry |= {"threshold": threshold, "head_units_per_s": value}
            verdicts.append(workload.verdict(**entry, pairs=len(rates) // 2))
    longer = past.model_copy(update={"sessions": [*past.sessions, *sessions]})
    return led(record, verdicts), longer


def _rates(
    program: ProgramEntry,
) -> Iterator[tuple[ComparisonKey, RateSource | None, list[Rate]]]:
    """Rates of each workload that the session measured."""
    runs = [run for pair in program.kept for run in pair.runs]
    for key in dict.fromkeys(key for run in runs for key in run.rates):
        workload = ComparisonKey(program.name, None if key == program.name else key)
        yield workload, runs[0].source, [run.rates[key] for run in runs if key in run.rates]


def read(path: Path) -> RateHistory:
    """Read the history; empty without a file. Raises ReportError if malformed."""
    return writing.read(path, RateHistory, "history") if path.exists() else RateHistory()
