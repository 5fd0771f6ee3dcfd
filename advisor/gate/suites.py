"""What suites of benchmarks leave behind, to a rate for each benchmark of one process.

The JSON of pytest-benchmark, Google Benchmark and asv, told apart by their own keys. It was written
by the measured program: it is read as untrusted text, and what cannot be a time is named.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from advisor.gate.entries import Problem, Rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.gate.entries import Source

ANY = "a suite of benchmarks"
UNIT = "call"
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
TIMED = ("time_", "timeraw_")
"""How asv's functions that measure time begin; others measure something else."""


class NoRateError(Exception):
    """A process told no rate that can be believed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.evidence)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One process of a suite."""

    source: Source
    rates: dict[str, Rate]
    started: float
    """Epoch seconds; 0 where it does not tell."""


def read(raw: bytes) -> Suite:
    """The suite whose JSON is `raw`. Raises NoRateError if it holds no time, or what is none."""
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise _unreadable(ANY, problem) from problem
    known: tuple[tuple[str, Source, Callable[[Any], Suite]], ...] = (
        ("result_columns", "asv", _asv),
        ("context", "Google Benchmark", _google),
        ("benchmarks", "pytest-benchmark", _pytest),
    )
    for key, source, parse in known:
        if isinstance(told, dict) and key in told:
            try:
                found = parse(told)
            except ValidationError as problem:
                raise _unreadable(source, problem) from problem
            if not found.rates:
                evidence = f"{source} ran no benchmark that measures time"
                raise NoRateError(Problem(kind="work-not-done", evidence=evidence))
            return found
    msg = "it is no JSON of pytest-benchmark, Google Benchmark or asv"
    raise _unreadable(ANY, ValueError(msg))


def checked(text: str, where: str) -> float:
    """A rate that was told as `text`; `where` says by whom, with %s for it."""
    said = where % text
    plain_text = text.rstrip(",;")
    try:
        if re.search(r"\d[,_]\d", plain_text):
            evidence = f"{said}: write the number without separators of thousands, as 1234.5"
            raise NoRateError(Problem(kind="no-rate", evidence=evidence))
        value = float(plain_text)
    except ValueError as problem:
        evidence = f"{said}, which is no number"
        raise NoRateError(Problem(kind="no-rate", evidence=evidence)) from problem
    if not math.isfinite(value):
        evidence = f"{said}, which is not finite"
        raise NoRateError(Problem(kind="non-finite", evidence=evidence))
    if value <= 0:
        evidence = f"{said}: no work was done"
        raise NoRateError(Problem(kind="work-not-done", evidence=evidence))
    return value


def _unreadable(source: str, problem: Exception) -> NoRateError:
    said = str(problem).splitlines()[0]
    if isinstance(problem, ValidationError):
        first = problem.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    evidence = f"what {source} wrote cannot be read: {said}"
    return NoRateError(Problem(kind="no-rate", evidence=evidence))


def _calls_per_s(name: str, time_s: float) -> float:
    told = str(1 / time_s if time_s else 0.0)
    return checked(told, f"{name}: its time makes %s calls a second")


def _failed(name: str, why: str) -> NoRateError:
    evidence = f"{name} failed{f': {why}' if why else ''}"
    return NoRateError(Problem(kind="benchmark-failed", evidence=evidence))


def _epoch_s(text: str | None) -> float:
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except (ValueError, OverflowError):
        return 0.0


class _Told(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


# --- pytest-benchmark ---------------------------------------------------------------------


class _PytestStats(_Told):
    mean: float
    median: float | None = None
    q1: float | None = None


class _PytestBenchmark(_Told):
    fullname: str
    stats: _PytestStats


class _Pytest(_Told):
    benchmarks: list[_PytestBenchmark]
    datetime: str | None = None


def _pytest(told: Any) -> Suite:
    found = _Pytest.model_validate(told)
    rates = {}
    for each in found.benchmarks:
        stats, name = each.stats, each.fullname
        rates[name] = Rate(
            mean=_calls_per_s(name, stats.mean),
            median=_calls_per_s(name, stats.median) if stats.median else None,
            fast=_calls_per_s(name, stats.q1) if stats.q1 else None,
            unit=UNIT,
        )
    return Suite(source="pytest-benchmark", rates=rates, started=_epoch_s(found.datetime))


# --- Google Benchmark ---------------------------------------------------------------------


class _GoogleRun(_Told):
    name: str
    run_name: str | None = None
    run_type: Literal["iteration", "aggregate"] = "iteration"
    aggregate_name: str | None = None
    real_time: float | None = None
    time_unit: str = "ns"
    error_occurred: bool = False
    error_message: str = ""
    skipped: bool = False


class _GoogleContext(_Told):
    date: str | None = None


class _Google(_Told):
    context: _GoogleContext
    benchmarks: list[_GoogleRun]


def _google(told: Any) -> Suite:
    """The wall time of an iteration, over all repetitions: they are of one process, and one
    sample. Where only aggregates were written, their mean."""
    found = _Google.model_validate(told)
    times_s: dict[str, list[float]] = {}
    means_s: dict[str, float] = {}
    for run in found.benchmarks:
        name = run.run_name or run.name
        if run.error_occurred:
            raise _failed(name, run.error_message)
        scale = SECONDS.get(run.time_unit)
        if run.skipped or run.real_time is None:
            continue
        if scale is None:
            raise _failed(name, f"its time is in {run.time_unit!r}, not in {', '.join(SECONDS)}")
        if run.run_type == "iteration":
            times_s.setdefault(name, []).append(scale * run.real_time)
        elif run.aggregate_name == "mean":
            means_s[name] = scale * run.real_time
    means_s |= {name: sum(times) / len(times) for name, times in times_s.items()}
    rates = {name: Rate(mean=_calls_per_s(name, s), unit=UNIT) for name, s in means_s.items()}
    return Suite(source="Google Benchmark", rates=rates, started=_epoch_s(found.context.date))


# --- asv ----------------------------------------------------------------------------------


def _as_columns(value: Any) -> Any:
    """A result that is a single number stands for a row of nothing but it."""
    return value if isinstance(value, list) else [value]


class _Asv(_Told):
    result_columns: list[str]
    results: dict[str, Annotated[list[Any], BeforeValidator(_as_columns)]]
    date: float | None = None


class _AsvValues(_Told):
    """One benchmark: its values, for every combination of its parameters the last varies first."""

    result: list[Annotated[float | None, Field(strict=True)]] | None = None
    params: list[list[str]] = Field(default_factory=list)


def _asv(told: Any) -> Suite:
    """Seconds of those functions that measure time; null is a failure, NaN was skipped."""
    found = _Asv.model_validate(told)
    rates = {}
    for name, row in found.results.items():
        if not name.rpartition(".")[2].startswith(TIMED):
            continue
        columns = dict(zip(found.result_columns, row, strict=False))
        if isinstance(columns.get("result"), (int, float)):
            columns["result"] = [columns["result"]]
        entry = _AsvValues.model_validate({k: v for k, v in columns.items() if v is not None})
        if entry.result is None:
            raise _failed(name, "")
        for of, time_s in zip(itertools.product(*entry.params), entry.result, strict=False):
            own = f"{name}({', '.join(of)})" if of else name
            if time_s is None:
                raise _failed(own, "")
            if not math.isnan(time_s):
                rates[own] = Rate(mean=_calls_per_s(own, time_s), unit=UNIT)
    return Suite(source="asv", rates=rates, started=(found.date or 0.0) / 1000)
