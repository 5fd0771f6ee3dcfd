"""One process of one arm, to its rates.

Sources of a rate, best first: the program's own `throughput: 123.4` line; the JSON that a suite
of benchmarks left; the probe; the time of the whole run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from advisor.executor.engines.scratch_dir import require_room
from advisor.executor.executor import WAIT_S
from advisor.files import within
from advisor.gate import code_identity, setup_step, thresholds
from advisor.gate.schema import (
    DisturbanceEntry,
    GpuReadings,
    NeighbourEntry,
    Problem,
    Rate,
    RunEntry,
)
from advisor.model import Candidate, Failure, MeasurePlan, Run, Telemetry, Trial
from advisor.runner.output import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from advisor.executor.engines import Engine
    from advisor.gate.checkout import Checkout
    from advisor.gate.code_identity import Difference
    from advisor.gate.config import Program
    from advisor.gate.schema import OwnFigure, Source, Variant
    from advisor.model import Gpu

BENCHMARK_JSON = "GPU_ADVISOR_BENCHMARK_JSON"
"""Environment variable: path for the JSON of a suite of benchmarks."""

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Compiler caches: one folder an arm, or the first arm would pay for both."""

NOT_RECOGNISED = ("no-steps", "probe-not-loaded")
"""Failures of a run that ended well, but in which the probe saw no steps."""

LINE_CHARS = 4096
"""Longest prefix of a line that is searched for a rate."""

OUTPUT_BYTES = 8 << 20
BENCHMARK_BYTES = 64 << 20

RUN_LIMIT_S = 1800.0

WHOLE = MeasurePlan(mode="whole")

WHOLE_RUN_UNIT = "run"
"""Unit of a rate that is nothing but the time of the whole run."""

SUITE_UNIT = "call"


@dataclass(kw_only=True)
class ProcessRunner:
    """Runner of programs in both arms, one by one."""

    engine: Engine
    arms: Mapping[Variant, Checkout]
    scratch: Path
    device: Callable[[], Gpu | None]
    """Asked before every run: the card and its stable facts must not change on the way."""
    window: MeasurePlan = field(default_factory=MeasurePlan)
    allow_writes: bool = False
    keep_network: bool = False
    shown: tuple[str, ...] = ()
    """Paths in hidden folders that base and head see."""
    own_figures: Mapping[str, Mapping[str, OwnFigure]] = field(default_factory=dict)
    """By program: figures to be read from its output."""
    between: Difference | None = None
    """Files that differ; None where both arms are one folder."""
    started: int = 0

    def run(self, program: Program, arm: Variant, plan: MeasurePlan, limit_s: float) -> RunEntry:
        """Run one fresh process; record its failure."""
        checkout = self.arms[arm]
        caches = self.scratch / "caches" / arm
        limits = program.limits
        limit_s = min(limit_s, limits.run_s or RUN_LIMIT_S)
        self.started += 1
        scratch = self.scratch / f"{self.started:03d}-{arm}"
        benchmark_json = scratch / "benchmark.json"
        trial = Trial(
            id=scratch.name,
            purpose="gate",
            label=arm,
            candidate=Candidate(),
            command=program.argv(checkout),
            cwd=str(program.cwd(checkout)),
            scratch=str(scratch),
            env=tuple(self.environment(program, arm, benchmark_json, caches).items()),
            plan=dataclasses.replace(plan, unit_regex=program.unit_regex),
            unit=program.unit,
            # without limits of its own the last is reached first: a plain `timeout`
            start_limit_s=limits.start_s or 2 * limit_s,
            hang_limit_s=limits.hang_s or 2 * limit_s,
            total_limit_s=limit_s,
            allow_writes=self.allow_writes,
            spared=(str(checkout.top / ".git"),),
            caches=str(caches),
            origins=self.between.asked if self.between else None,
            hidden=setup_step.hidden_folders(),
            shown=setup_step.shown_paths(checkout, program.command, self.shown),
            network=self.keep_network,
        )
        caches.parent.mkdir(exist_ok=True)
        self.engine.wait_until_quiet(WAIT_S)
        gpu = self.device()
        started, clock = time.time(), time.monotonic()
        result = self.engine.run(trial)
        wall_s = time.monotonic() - clock
        require_room(self.scratch)  # else its records may not be whole
        try:
            found = entry(
                result,
                program,
                arm=arm,
                started=started,
                wall_s=wall_s,
                output=_output(scratch),
                benchmark_json=benchmark_json,
                gpu=gpu,
                whole=plan.mode == "whole",
                own_figures=self.own_figures.get(program.name, {}),
            )
            if self.between is None:
                return found
            loaded = code_identity.loaded(scratch, checkout.top, self.between)
            return found.model_copy(update={"loaded": loaded})
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def environment(
        self, program: Program, arm: Variant, benchmark_json: Path, kept: Path
    ) -> dict[str, str]:
        """Variables of a run of `arm`.

        They are set on top of the caller's; `kept` holds its caches.
        """
        caches = {name: str(kept / name.lower()) for name in CACHES}
        env = {**caches, **dict(program.env), "GPU_ADVISOR_ARM": arm}
        env[BENCHMARK_JSON] = str(benchmark_json)
        words = program.command
        if "--benchmark-" in words and "--benchmark-json" not in words:
            given = f"{os.environ.get('PYTEST_ADDOPTS', '')} --benchmark-json={benchmark_json}"
            env["PYTEST_ADDOPTS"] = given.strip()
        return env


def entry(
    result: Run | Failure,
    program: Program,
    *,
    arm: Variant,
    started: float,
    wall_s: float,
    output: str,
    benchmark_json: Path,
    gpu: Gpu | None,
    whole: bool,
    own_figures: Mapping[str, OwnFigure] | None = None,
) -> RunEntry:
    """Record of one process."""
    telemetry = result.telemetry if isinstance(result, Run) else Telemetry()
    record = RunEntry(
        arm=arm,
        started=started,
        wall_s=wall_s,
        exit_code=result.exit_code,
        gpu=_readings(telemetry, gpu),
    )
    if isinstance(result, Run):
        record = record.model_copy(update=_observed(result))
    elif not (result.kind in NOT_RECOGNISED and result.exit_code == 0):
        problem = Problem(kind=result.kind, evidence=result.evidence, next_step=result.next_step)
        return record.model_copy(update={"problem": problem})
    try:
        source, rates = _rates(result, program, output, benchmark_json, wall_s, whole=whole)
    except NoRateError as problem:
        return record.model_copy(update={"problem": problem.problem})
    own = thresholds.own_figures(own_figures or {}, lambda asked: last_match(output, asked))
    return record.model_copy(
        update={"source": source, "rates": rates, "figures": {**record.figures, **own}}
    )


def _rates(
    result: Run | Failure,
    program: Program,
    output: str,
    benchmark_json: Path,
    wall_s: float,
    *,
    whole: bool,
) -> tuple[Source, dict[str, Rate]]:
    """Rates from the best source."""
    line = last_match(output, program.metric_regex)
    if line is not None:
        rate = checked(line, "the output says `throughput: %s`")
        work = result.whole_units or None if isinstance(result, Run) and whole else None
        unit = "unit" if program.in_shell else program.unit  # its unit is not declared
        return "throughput line", {program.name: Rate(mean=rate, unit=unit, work=work)}
    suite = _left(benchmark_json.parent, benchmark_json.name, BENCHMARK_BYTES)
    if suite is not None:
        return read_suite(suite)
    if isinstance(result, Run) and result.unit != WHOLE_RUN_UNIT:  # units were counted
        rate = checked(str(result.units_per_s), "the probe counted %s units a second")
        work = result.whole_units or None if whole else None
        return "probe", {program.name: Rate(mean=rate, unit=result.unit, work=work)}
    time_s = result.wall_s or wall_s
    return "whole-run time", {program.name: Rate(mean=1 / time_s, unit=WHOLE_RUN_UNIT, work=1)}


# --- the program's own line ---------------------------------------------------------------


def last_match(output: str, pattern: str) -> str | None:
    """Group 1 of the last match of `pattern`.

    None if there is none. Only the beginning of each line is searched, so that no output makes this
    slow.
    """
    wanted = re.compile(pattern)
    for line in reversed(output.split("\n")):
        if found := wanted.search(line[:LINE_CHARS]):
            return found[1]
    return None


def checked(text: str, where: str) -> float:
    """Parse a rate.

    `where` names its source, with %s for the text. Raises NoRateError.
    """
    source = where % text
    plain_text = text.rstrip(",;")
    try:
        if re.search(r"\d[,_]\d", plain_text):
            evidence = f"{source}: write the number without separators of thousands, as 1234.5"
            raise NoRateError(Problem(kind="no-rate", evidence=evidence))
        value = float(plain_text)
    except ValueError as problem:
        evidence = f"{source}, which is no number"
        raise NoRateError(Problem(kind="no-rate", evidence=evidence)) from problem
    if not math.isfinite(value):
        evidence = f"{source}, which is not finite"
        raise NoRateError(Problem(kind="non-finite", evidence=evidence))
    if value <= 0:
        evidence = f"{source}: no work was done"
        raise NoRateError(Problem(kind="work-not-done", evidence=evidence))
    return value


# --- suites of benchmarks -----------------------------------------------------------------


class NoRateError(Exception):
    """A process gave no rate that can be believed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.evidence)
        self.problem = problem


class _Entry(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _PytestStats(_Entry):
    mean: float


class _PytestBenchmark(_Entry):
    fullname: str
    stats: _PytestStats


class _Pytest(_Entry):
    benchmarks: list[_PytestBenchmark]


class _Named(_Entry):
    name: str
    value: float
    unit: str = "unit"
    better: Literal["lower", "higher"] = "higher"


_NAMED = TypeAdapter(list[_Named])


def read_suite(raw: bytes) -> tuple[Source, dict[str, Rate]]:
    """Read rates from pytest-benchmark's JSON or a list.

    Items of a list hold `name`, `value`, `unit` and `better`. The measured program wrote it, so it
    is read as untrusted. Raises NoRateError.
    """
    rates: dict[str, Rate] = {}
    try:
        content = json.loads(raw)
        if isinstance(content, list):
            source: Source = "benchmark JSON"
            for each in _NAMED.validate_python(content):
                value = checked(str(each.value), f"{each.name}: its value is %s")
                _add(rates, each.name, Rate(mean=value, unit=each.unit, better=each.better))
        else:
            source = "pytest-benchmark"
            for found in _Pytest.model_validate(content).benchmarks:
                mean_s = found.stats.mean
                calls = str(1 / mean_s if mean_s else 0.0)
                value = checked(calls, f"{found.fullname}: its time makes %s calls a second")
                _add(rates, found.fullname, Rate(mean=value, unit=SUITE_UNIT))
    except (ValueError, RecursionError) as problem:
        reason = str(problem).splitlines()[0]
        if isinstance(problem, ValidationError):
            first = problem.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        evidence = (
            f"the benchmark JSON cannot be read: {reason}. Write pytest-benchmark's JSON, or a "
            'list of {"name": ..., "value": ..., "unit": ..., "better": "higher"}'
        )
        raise NoRateError(Problem(kind="no-rate", evidence=evidence)) from problem
    if not rates:
        evidence = "the benchmark JSON holds no benchmark"
        raise NoRateError(Problem(kind="work-not-done", evidence=evidence))
    return source, rates


def _add(rates: dict[str, Rate], name: str, rate: Rate) -> None:
    if name in rates:
        evidence = f"the benchmark JSON holds {name!r} twice"
        raise NoRateError(Problem(kind="no-rate", evidence=evidence))
    rates[name] = rate


# --- other observations -------------------------------------------------------------------


def _observed(run: Run) -> dict[str, Any]:
    effects = {
        key: value
        for key, value in dataclasses.asdict(run.effects).items()
        if isinstance(value, (str, int, float, bool)) and key != "fingerprint"
    }
    shares = {k: v for k, v in dataclasses.asdict(run.shares).items() if v is not None}
    others = run.disturbance
    return {
        "disturbance": DisturbanceEntry(
            disturbed=others.disturbed,
            others_cpus=others.others_cpus,
            waited_cpus=others.waited_cpus,
            steal_share=others.steal_share,
            clean_share=others.clean_share,
            who=[NeighbourEntry(name=each.name, cpus=each.cpus) for each in others.who],
        ),
        "effects": effects,
        "shares": shares,
        "peak_mem_gib": run.peak_mem_gib,
        "figures": thresholds.figures(run),
        "wait_share": run.wait_share,
        "notes": list(run.notes),
    }


def _readings(telemetry: Telemetry, gpu: Gpu | None) -> GpuReadings:
    return GpuReadings(
        uuid=gpu.uuid if gpu else None,
        name=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
        power_limit_w=gpu.power_limit_w if gpu else None,
        sm_clock_mhz=telemetry.sm_clock_mhz,
        sm_clock_spread_pct=telemetry.sm_clock_spread_pct,
        event_reasons=dict(telemetry.event_reasons),
        foreign_pids=telemetry.foreign_pids,
        busy_samples=telemetry.busy_samples,
        gaps=dict(telemetry.gaps),
    )


def _output(scratch: Path) -> str:
    """Output of the program without terminal codes."""
    return "\n".join(
        plain(content)
        for name in ("stdout.log", "stderr.log")
        if (content := _left(scratch, f"logs/{name}", OUTPUT_BYTES)) is not None
    )


def _left(scratch: Path, name: str, limit_bytes: int) -> bytes | None:
    """Read a file that a run left; else None."""
    with contextlib.suppress(OSError):
        return within.read(scratch, name, limit_bytes)
    return None
