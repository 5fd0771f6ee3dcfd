"""`gpu-advisor inspect --run`: knobs by experiment.

One run as it is, and at most two with moved suspects. Nothing is timed or written.

One run as it is, and at most two in which suspects are moved; nothing is timed, nothing written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from advisor import knobs
from advisor.commands import invocation
from advisor.errors import InterruptedByUserError, TrialFailedError
from advisor.executor.engines import EngineSettings, make_engine
from advisor.executor.engines.scratch_dir import cancellable
from advisor.executor.program import Program
from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.knobs.discovery import ASPECTS
from advisor.machine import target
from advisor.machine.host import read_machine
from advisor.model import Failure, MeasurePlan
from advisor.objective import THROUGHPUT
from advisor.report.build import trial_entry
from advisor.report.progress import Progress
from advisor.runner import limits
from advisor.tuner.baseline import find_batch
from advisor.tuner.context import Source, TuningContext
from advisor.tuner.discovery import (
    Discovery,
    experiment,
    phase_of,
    phases,
)
from advisor.tuner.state import FEW_STEPS, SHORT_S, TunerState

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator
    from pathlib import Path

    from advisor.executor.engines import Engine
    from advisor.model import Effects, Phase
    from advisor.tuner.state import Result, SearchStep

T = TypeVar("T")

NO_BUDGET_S = 1e9
"""The experiment is bounded by its processes."""
EVERY_KIND = tuple(aspect.kind for aspect in ASPECTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Observations of the runs."""

    argv: tuple[str, ...]
    unit: str
    seen: Effects
    phase: Phase
    phases: tuple[Phase, ...]
    """Whose knobs the run can have used."""
    discovery: Discovery
    processes: int
    """All that were run, the one as it is among them."""


def show(config: Path | None, command: list[str] | None, args: argparse.Namespace) -> Shown:
    """Run the program of `config`, then with moved suspects.

    Raises TrialFailedError where it does not run as it is, and InterruptedByUserError.
    """
    asked = invocation.resolve(config, command, use_case="inspect --run")
    machine = read_machine()
    aim = target.resolve("auto", machine)
    flags = asked.command_line
    sources = tuple(
        Source(document=document, findings=knobs.find(document, phase=asked.phase))
        for document in (asked.config, flags)
        if document is not None
    )
    program = Program(
        config=asked.config,
        command_line=flags,
        cwd=asked.cwd,
        unit=asked.workload.unit,
        output_paths=sources[0].findings.outputs if asked.config else (),
        output_flags=(*asked.workload.output_flags, *sources[-1].findings.outputs),
        env={**dict(aim.environment), **asked.workload.env},
        allow_writes=args.allow_writes,
        limits=limits.asked(args, asked.workload, asked.settings.defaults),
    )
    facts = TuningContext(
        sources=sources,
        workload=asked.workload,
        objective=THROUGHPUT,
        cpus=machine.cpus,
        memory_limit_gib=machine.ram_limit_gib,
        precisions=aim.precisions,
        cards=len(machine.gpus),
        smallest_gain=asked.settings.defaults.smallest_gain,
        budget_s=NO_BUDGET_S,
    )
    with (
        Progress(unit=program.unit) as progress,
        cancellable() as off,
        make_engine(
            EngineSettings(
                gpu_uuid=aim.gpu.uuid if aim.gpu else None, on_progress=progress.note, cancel=off
            )
        ) as engine,
    ):
        bench = _Bench(engine=engine, program=program, progress=progress)
        return experimented(facts, bench, asked.argv)


@dataclass(kw_only=True)
class _Bench:
    """Answers asks with fresh processes, and tells of them."""

    engine: Engine
    program: Program
    progress: Progress
    processes: int = 0

    def answer(self, request: TrialRequest) -> TrialResult:
        """Raises InterruptedByUserError."""
        self.processes += 1
        id_ = f"{self.processes:03d}"
        trial = self.program.trial(id_, request, self.engine.scratch(id_))
        self.progress.trial_started(self.processes, trial.label, trial.purpose)
        result = self.engine.run(trial)
        if isinstance(result, Failure) and result.kind == "interrupted":
            msg = "Interrupted; nothing was changed."
            raise InterruptedByUserError(msg)
        attempt = TrialResult(id=id_, request=request, result=result, remaining_s=NO_BUDGET_S)
        self.progress.trial_done(trial_entry(attempt))
        return attempt


def experimented(facts: TuningContext, bench: _Bench, argv: tuple[str, ...]) -> Shown:
    """Run the original, then experiment on every kind.

    Raises TrialFailedError.
    """
    plan = MeasurePlan(
        measure_s=SHORT_S,
        min_steps=FEW_STEPS,
        whole_batches=1,
        unit_regex=facts.workload.unit_regex,
    )
    result = bench.answer(TrialRequest(variant=Variant(), purpose="baseline", plan=plan)).result
    if isinstance(result, Failure):
        msg = (
            f"The original command failed ({result.kind}): {result.evidence.rstrip('.')}.\n"
            f"{result.next_step}\n{result.log_tail}".rstrip()
        )
        raise TrialFailedError(result.kind, msg)
    now = TunerState(context=facts, clock_s=NO_BUDGET_S, originals=(result,))
    if place := drive(find_batch(now), bench):
        again = bench.answer(
            TrialRequest(variant=Variant(), purpose="baseline", plan=replace(plan, batch_at=place))
        )
        result = again.run or result
        now = replace(now, originals=(result,))
    found = drive(experiment(now, EVERY_KIND), bench)
    return Shown(
        argv=argv,
        unit=bench.program.unit,
        seen=result.effects,
        phase=phase_of(now),
        phases=phases(now),
        discovery=found,
        processes=bench.processes,
    )


def drive(steps: Generator[SearchStep, Result, tuple[TunerState, T]], bench: _Bench) -> T:
    """Run an experiment, answering its requests one by one."""
    try:
        turn = next(steps)
        while True:
            assert isinstance(turn.request, TrialRequest), "it compares nothing"
            turn = steps.send(bench.answer(turn.request))
    except StopIteration as end:
        found: T = end.value[1]
        return found
