"""One process of one arm, to its rates.

Sources, best first: a `throughput: 123.4` line; a suite's JSON; the probe; the run's time. What
the program says of itself comes first, since only its author knows what it is to be fast at. The
first source that a run has is taken, and arms of different sources are never compared.

Both arms are foreign code here: each runs behind all walls, with caches of its own. A shared cache
would let the first arm compile for both.
"""

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from advisor.analysis import trend
from advisor.errors import UsageError
from advisor.executor.engines import Engine
from advisor.executor.engines.scratch_dir import require_room
from advisor.files import reading
from advisor.gate import setup_step
from advisor.gate.checkout import Checkout, Difference, left_file, loaded
from advisor.gate.comparison import figures
from advisor.gate.config import GateProgram
from advisor.gate.schema import (
    LARGEST,
    SMALLEST,
    Arm,
    Better,
    Rate,
    RateSource,
    RunEntry,
)
from advisor.model import Candidate, Failure, MeasurePlan, OutputPattern, Run, Trial
from advisor.runner.trial import not_judged
from advisor.sandbox.layers import remove_tree
from advisor.sandbox.path_policy import is_within

BENCHMARK_JSON = "GPU_ADVISOR_BENCHMARK_JSON"
"""Variable: path for the JSON of a benchmark suite."""
THROUGHPUT_LINE = r"^[ \t]*throughput:[ \t]*(\S+)"
"""Output line with the program's own rate, in units per second."""
NOT_RECOGNISED = ("no-steps", "probe-not-loaded")
"""Failures of a run that ended well without steps for the probe."""
THROUGHPUT = "throughput"
"""Name of that figure among those of a run."""
BENCHMARK_BYTES = 64 << 20
"""Largest file of benchmarks that is read, as its run is not trusted."""
MOST_BENCHMARKS = 2000
"""Benchmarks of one suite: after each pair all are judged, at 0.2 ms each."""
NAME_CHARS = 1000
"""Longest name of a benchmark or unit."""
RUN_LIMIT_S = 1800.0
"""Longest run of a program, where gpu-advisor.toml gives no run-limit.

Judgement: shorter ends an honest long benchmark, longer waits for a first run that hangs."""
WHOLE = MeasurePlan(mode="whole")
"""To the program's own end."""
WINDOW = MeasurePlan(mode="window")
"""A few seconds of its steps, for a program whose end no budget can wait for."""
WHOLE_RUN_UNIT = "run"
"""Unit of a rate from the time of the whole run alone."""


@dataclass(kw_only=True)
class ProcessRunner:
    """Runs processes of both arms, and keeps what the probe saw of them."""

    engine: Engine
    arms: Mapping[Arm, Checkout]
    scratch: Path
    allow_writes: bool = False
    keep_network: bool = False
    shown: tuple[str, ...] = ()
    """Paths in hidden folders that both arms see."""
    between: Difference | None = None
    """Files that differ; None where both arms are one folder."""
    started: int = field(default=0, init=False)
    seen: dict[Arm, list[Run]] = field(
        default_factory=lambda: {"base": [], "head": []}, init=False
    )
    """What the probe saw of each arm's sound runs, in order."""

    def run(
        self, program: GateProgram, arm: Arm, plan: MeasurePlan, limit_s: float
    ) -> RunEntry:
        """Run one fresh process for `limit_s` at most; record its failure.

        What a program writes raises nothing here: a broken arm is a verdict, not the gate's end.
        """
        checkout = self.arms[arm]
        caches = self.scratch / "caches" / arm
        entry, limits = program.workload, program.limits
        cwd = folder_of(program, checkout)
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
            cwd=str(cwd),
            scratch=str(scratch),
            env=tuple(environment(program, arm, benchmark_json).items()),
            plan=dataclasses.replace(
                plan, unit_regex=entry.unit_regex, figures=(rate_of(program),)
            ),
            unit=entry.unit,
            # without limits of its own the last is reached first: a plain `timeout`
            start_limit_s=limits.start_s or 2 * limit_s,
            hang_limit_s=limits.hang_s or 2 * limit_s,
            total_limit_s=limit_s,
            allow_writes=self.allow_writes,
            spared=(str(checkout.top / ".git"),),
            caches=str(caches),
            origins=self.between.asked if self.between else None,
            foreign=True,
            hidden=setup_step.hidden_folders(),
            shown=setup_step.shown_paths(
                checkout,
                entry.command,
                self.shown,
                tops=[each.top for each in self.arms.values()],
            ),
            network=self.keep_network,
        )
        caches.parent.mkdir(exist_ok=True)
        result = self.engine.run(trial)
        require_room(self.scratch)  # else its records may not be whole
        if isinstance(result, Run):
            self.seen[arm].append(result)
        try:
            files = loaded(scratch, checkout.top, self.between) if self.between else None
            return entry_of(result, program, arm, scratch).model_copy(
                update={"loaded": files}
            )
        except Exception as problem:
            outcome = not_judged(problem)
            return RunEntry(arm=arm, wall_s=result.wall_s, problem=outcome)
        finally:
            remove_tree(str(scratch))


def folder_of(program: GateProgram, checkout: Checkout) -> Path:
    """Return where `program` runs. Raises UsageError outside of its checkout.

    A setup may leave a link there, and where a program may write its folder it writes for real.
    """
    cwd = program.cwd(checkout)
    if not is_within(os.path.realpath(cwd), os.path.realpath(checkout.top)):
        msg = (
            f"The folder {program.folder} leads out of its checkout, to {os.path.realpath(cwd)}. "
            "Let it be a folder of the repository."
        )
        raise UsageError(msg)
    return cwd


def rate_of(program: GateProgram) -> OutputPattern:
    """Rate that `program` prints; its last line with one counts."""
    pattern = program.workload.metric_regex or THROUGHPUT_LINE
    return OutputPattern(name=THROUGHPUT, pattern=pattern, matches="line")


def environment(program: GateProgram, arm: Arm, benchmark_json: Path) -> dict[str, str]:
    ours = {"GPU_ADVISOR_ARM": arm, BENCHMARK_JSON: str(benchmark_json)}
    env = program.workload.env | ours
    command = program.workload.command
    if "--benchmark-" in command and "--benchmark-json" not in command:
        given = f"{os.environ.get('PYTEST_ADDOPTS', '')} --benchmark-json={benchmark_json}"
        env["PYTEST_ADDOPTS"] = given.strip()
    return env


class NoRateError(Exception):
    """Process without a believable rate."""

    def __init__(self, evidence: str, kind: str = "no-rate") -> None:
        super().__init__(evidence)
        self.problem = Failure(kind=kind, evidence=evidence, next_step="")


def entry_of(
    result: Run | Failure, program: GateProgram, arm: Arm, scratch: Path
) -> RunEntry:
    """Record of one process, from what it left in `scratch`."""
    record = RunEntry(arm=arm, wall_s=result.wall_s, cut_lines=result.cut_lines)
    if isinstance(result, Run):
        seen = {
            "gpu": result.telemetry,
            "others": result.disturbance,
            "on_gpu": result.on_gpu,
        }
        record = record.model_copy(update={**seen, "figures": figures(result)})
    elif not (result.kind in NOT_RECOGNISED and result.exit_code == 0):
        return record.model_copy(
            update={"problem": dataclasses.replace(result, effects=None, figures={})}
        )
    try:
        source, rates = _rates(result, program, scratch)
    except NoRateError as problem:
        return record.model_copy(update={"problem": problem.problem})
    return record.model_copy(update={"source": source, "rates": rates})


def _rates(
    result: Run | Failure, program: GateProgram, scratch: Path
) -> tuple[RateSource, dict[str, Rate]]:
    """Rates of one process by name, from the best source that it has. Raises NoRateError."""
    work = (
        result.whole_units or None
        if isinstance(result, Run) and result.to_its_end
        else None
    )
    for line in result.figures.get(THROUGHPUT, ()):
        rate = checked(line, f"the output says `throughput: {line}`")
        unit = program.workload.unit
        return "throughput line", {program.name: Rate(mean=rate, unit=unit, work=work)}
    suite = left_file(scratch, "benchmark.json", BENCHMARK_BYTES)
    if suite is not None:
        return read_suite(suite)
    if isinstance(result, Run) and result.unit != WHOLE_RUN_UNIT:  # units were counted
        rate = result.units_per_s
        rate = checked(str(rate), f"the probe counted {rate} units a second")
        seen = Rate(
            mean=rate,
            unit=result.unit,
            counted=result.way,
            slope=trend.slope(result),
            middle=trend.middle(result),
            work=work,
        )
        return "probe", {program.name: seen}
    rate = checked(str(1 / max(result.wall_s, SMALLEST)), "the time of the whole run")
    whole = Rate(mean=rate, unit=WHOLE_RUN_UNIT, work=1)
    return "whole-run time", {program.name: whole}


def checked(text: str, source: str) -> float:
    """Parse a rate from `source`, in words. Raises NoRateError."""
    try:
        value = float(text.rstrip(",;"))
    except ValueError as problem:
        evidence = f"{source}, which is no number; write 1234.5"
        raise NoRateError(evidence) from problem
    if not math.isfinite(value):
        evidence = f"{source}, which is not finite"
        raise NoRateError(evidence, "non-finite")
    if value <= 0:
        evidence = f"{source}: no work was done"
        raise NoRateError(evidence, "work-not-done")
    if not SMALLEST <= value <= LARGEST:
        evidence = f"{source}, which is no rate between {SMALLEST:g} and {LARGEST:g}"
        raise NoRateError(evidence)
    return value


class _Named(BaseModel):
    name: str = Field(max_length=NAME_CHARS)
    value: float
    unit: str = Field("unit", max_length=NAME_CHARS)
    better: Better = "higher"


_NAMED = TypeAdapter(list[_Named])


def read_suite(raw: bytes) -> tuple[RateSource, dict[str, Rate]]:
    """Rates of pytest-benchmark's JSON or a list, read as untrusted."""
    source: RateSource = "benchmark JSON"
    try:
        content = reading.from_json(raw)
        if not isinstance(content, list):
            source = "pytest-benchmark"
            times = [
                (benchmark["fullname"], benchmark["stats"]["mean"])
                for benchmark in content["benchmarks"]
            ]
            content = [
                {"name": name, "value": 1 / mean_s if mean_s else 0, "unit": "call"}
                for name, mean_s in times
            ]
        named = _NAMED.validate_python(content)
    except (ValueError, KeyError, TypeError, ArithmeticError) as problem:
        reason = str(problem).splitlines()[0]
        if isinstance(problem, ValidationError):
            first = problem.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        evidence = (
            f"the benchmark JSON cannot be read: {reason}. Write pytest-benchmark's JSON, or a "
            'list of {"name": ..., "value": ..., "unit": ..., "better": "higher"}'
        )
        raise NoRateError(evidence) from problem
    if len(named) > MOST_BENCHMARKS:
        evidence = (
            f"the benchmark JSON holds {len(named)} benchmarks, and at most {MOST_BENCHMARKS} are "
            "compared: select fewer in the command"
        )
        raise NoRateError(evidence)
    rates: dict[str, Rate] = {}
    for benchmark in named:
        name = benchmark.name
        if name in rates:
            evidence = f"the benchmark JSON holds {name!r} twice"
            raise NoRateError(evidence)
        value = checked(str(benchmark.value), f"{name}: its value is {benchmark.value}")
        rates[name] = Rate(mean=value, unit=benchmark.unit, better=benchmark.better)
    if not rates:
        evidence = "the benchmark JSON holds no benchmark"
        raise NoRateError(evidence, "work-not-done")
    return source, rates
