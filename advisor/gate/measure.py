"""One process of one arm, to the rates it showed.

Where a rate comes from, best first: the program's own `throughput: 123.4` line; the JSON that a
suite of benchmarks left; the probe; the time of the whole run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import shutil
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from advisor.executor.engines.scratch_dir import require_room
from advisor.executor.executor import WAIT_S
from advisor.files import within
from advisor.gate import allowances, origins, suites
from advisor.gate.entries import (
    DisturbanceEntry,
    GpuReadings,
    NeighbourEntry,
    Problem,
    Rate,
    RunEntry,
)
from advisor.gate.suites import NoRateError, checked
from advisor.model import Candidate, Failure, MeasurePlan, Run, Telemetry, Trial
from advisor.runner.limits import Limits
from advisor.runner.output import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from advisor.executor.engines import Engine
    from advisor.gate.base import Checkout
    from advisor.gate.entries import Source, Variant
    from advisor.gate.origins import Difference
    from advisor.gate.program import Program
    from advisor.gate.records import Metric, OwnFigure
    from advisor.model import Gpu

BENCHMARK_JSON = "GPU_ADVISOR_BENCHMARK_JSON"
"""Environment variable: where a suite of benchmarks may leave its JSON."""

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Compiler caches: one folder an arm, or the first arm would pay for both."""

NOT_RECOGNISED = ("no-steps", "probe-not-loaded")
"""Failures of a run that ended well, but in which the probe saw no steps."""

LINE_CHARS = 4096
"""Of a line of output this much may tell a rate."""

OUTPUT_BYTES = 8 << 20
BENCHMARK_BYTES = 64 << 20

RUN_LIMIT_S = 1800.0

WHOLE = MeasurePlan(mode="whole")

WHOLE_RUN_UNIT = "run"
"""Unit of a rate that is nothing but the time of the whole run."""


@dataclass(kw_only=True)
class Bench:
    """Runs programs in the two arms, one process at a time."""

    engine: Engine
    builds: Mapping[Variant, Sequence[Checkout]]
    """The checkouts of each arm: one, or as many as each was built anew."""
    scratch: Path
    device: Callable[[], Gpu | None]
    """Asked before every run: the card and its stable facts must not change on the way."""
    window: MeasurePlan = field(default_factory=MeasurePlan)
    metric: Metric = "throughput"
    allow_writes: bool = False
    limits: Limits = field(default_factory=Limits)
    """Those that were asked for on the command line."""
    own_figures: Mapping[str, Mapping[str, OwnFigure]] = field(default_factory=dict)
    """By program: what else its output is asked for."""
    between: Difference | None = None
    """What tells the arms apart; None where both are the same folder."""
    started: int = 0

    def run(
        self, program: Program, arm: Variant, plan: MeasurePlan, limit_s: float, build: int = 0
    ) -> RunEntry:
        """One fresh process of `program` in a build of `arm`. A failure is in the record, never
        raised."""
        checkout = self.builds[arm][build]
        caches = self.caches(arm, build)
        limits = self.limits.or_else(program.limits)
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
            # where nothing was asked for the last is reached first: a plain `timeout`
            start_limit_s=limits.start_s or 2 * limit_s,
            hang_limit_s=limits.hang_s or 2 * limit_s,
            total_limit_s=limit_s,
            allow_writes=self.allow_writes,
            spared=(str(checkout.top / ".git"),),
            caches=str(caches),
            origins=self.between.asked if self.between else None,
        )
        caches.parent.mkdir(exist_ok=True)
        self.engine.wait_until_quiet(WAIT_S)
        gpu = self.device()
        started, clock = time.time(), time.monotonic()
        result = self.engine.run(trial)
        wall_s = time.monotonic() - clock
        require_room(self.scratch)  # or what the run told may not be whole
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
                metric=self.metric,
                own_figures=self.own_figures.get(program.name, {}),
            )
            if len(self.builds[arm]) > 1:
                found = found.model_copy(update={"build": build})
            if self.between is None:
                return found
            told = origins.loaded(scratch, checkout.top, self.between)
            return found.model_copy(update={"loaded": told})
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def caches(self, arm: Variant, build: int = 0) -> Path:
        """Folder of what the runs of a build compile and download: no other can write there, and
        each pays for its own."""
        return self.scratch / "caches" / (f"{arm}-{build}" if build else arm)

    def environment(
        self, program: Program, arm: Variant, benchmark_json: Path, kept: Path
    ) -> dict[str, str]:
        """What a run of `arm` sees on top of the caller's environment; `kept` are its caches."""
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
    metric: Metric = "throughput",
    own_figures: Mapping[str, OwnFigure] | None = None,
) -> RunEntry:
    """The record of one process, from what the engine and the program said of it."""
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
        source, rates = _rates(
            result, program, output, benchmark_json, wall_s, whole=whole, metric=metric
        )
    except NoRateError as problem:
        return record.model_copy(update={"problem": problem.problem})
    own = allowances.own_figures(own_figures or {}, lambda asked: last_told(output, asked))
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
    metric: Metric,
) -> tuple[Source, dict[str, Rate]]:
    """Rates from the best source that `metric` allows."""
    line = last_told(output, program.metric_regex)
    if metric == "throughput" and line is not None:
        rate = checked(line, "the output says `throughput: %s`")
        work = result.whole_units or None if isinstance(result, Run) and whole else None
        unit = "unit" if program.in_shell else program.unit  # nobody said what it counts
        return "throughput line", {program.name: Rate(mean=rate, unit=unit, work=work)}
    suite = _left(benchmark_json.parent, benchmark_json.name, BENCHMARK_BYTES)
    if metric == "throughput" and suite is not None:
        found = suites.read(suite)
        return found.source, found.rates
    if metric != "run-time" and isinstance(result, Run) and _counted(result):
        return "probe", {program.name: probe_rate(result, whole=whole)}
    if metric == "probe":
        evidence = "the probe recognised no steps, and --metric probe asks for its count"
        raise NoRateError(Problem(kind="no-steps", evidence=evidence))
    time_s = result.wall_s or wall_s
    return "whole-run time", {program.name: Rate(mean=1 / time_s, unit=WHOLE_RUN_UNIT, work=1)}


def _counted(result: Run) -> bool:
    """Whether units were counted: by the probe, or by the program's declared pattern."""
    return result.unit != WHOLE_RUN_UNIT


# --- the program's own line ---------------------------------------------------------------


def last_told(output: str, pattern: str) -> str | None:
    """Group 1 of the last line that matches `pattern`; None if there is none.

    Of each line only the beginning is looked at, so that no output makes this slow.
    """
    wanted = re.compile(pattern)
    for line in reversed(output.split("\n")):
        if found := wanted.search(line[:LINE_CHARS]):
            return found[1]
    return None


# --- the probe ----------------------------------------------------------------------------


def probe_rate(run: Run, *, whole: bool) -> Rate:
    """Mean of the measured window; median and fast quantile of parts that span the loader's queue.

    A part shorter than the queue of prefetched batches can be fast although the loader stalls:
    neighbours are joined until each holds at least one full queue.
    """
    effects = run.effects
    queue = (effects.workers or 0) * (effects.prefetch_factor or 2) * (effects.batch or 1)
    others = run.disturbance
    counted = run.units * ((others.clean_share or 1.0) if others.disturbed is False else 1.0)
    per_window = counted / len(run.windows) if run.windows else 0.0
    joined = max(1, math.ceil(queue / per_window)) if per_window else 1
    windows = [
        statistics.harmonic_mean(run.windows[at : at + joined])
        for at in range(0, len(run.windows) - joined + 1, joined)
    ]
    windows = [rate for rate in windows if rate > 0]
    enough = len(windows) >= 4
    return Rate(
        mean=checked(str(run.units_per_s), "the probe counted %s units a second"),
        median=statistics.median(windows) if enough else None,
        fast=statistics.quantiles(windows, n=10)[-1] if enough else None,
        windows=windows,
        unit=run.unit,
        work=run.whole_units or None if whole else None,
    )


# --- what else was seen -------------------------------------------------------------------


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
        "figures": allowances.figures(run),
        "wait_share": run.wait_share,
        "notes": list(run.notes),
    }


def _readings(telemetry: Telemetry, gpu: Gpu | None) -> GpuReadings:
    return GpuReadings(
        uuid=gpu.uuid if gpu else None,
        name=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
        power_limit_w=gpu.power_limit_w if gpu else None,
        util_pct=telemetry.gpu_util_pct,
        sm_clock_mhz=telemetry.sm_clock_mhz,
        sm_clock_spread_pct=telemetry.sm_clock_spread_pct,
        mem_clock_mhz=telemetry.mem_clock_mhz,
        temperature_c=telemetry.temperature_c,
        power_w=telemetry.power_w,
        energy_j=telemetry.energy_j,
        event_reasons=dict(telemetry.event_reasons),
        foreign_pids=telemetry.foreign_pids,
        busy_samples=telemetry.busy_samples,
        gaps=dict(telemetry.gaps),
    )


def _output(scratch: Path) -> str:
    """What the program wrote, as the engine kept it, without terminal codes."""
    return "\n".join(
        plain(content)
        for name in ("stdout.log", "stderr.log")
        if (content := _left(scratch, f"logs/{name}", OUTPUT_BYTES)) is not None
    )


def _left(scratch: Path, name: str, limit_bytes: int) -> bytes | None:
    """A file that a run left; None if there is none, or something else in its place."""
    with contextlib.suppress(OSError):
        return within.read(scratch, name, limit_bytes)
    return None
