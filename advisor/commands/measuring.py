"""What calls measure: program, machine, engine and executor."""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from advisor import knobs
from advisor.commands.invocation import Invocation, require_program
from advisor.executor.engines import Engine, EngineSettings
from advisor.executor.engines.connection import Connection, carrier_of
from advisor.executor.engines.joint import make_engine
from advisor.executor.engines.scratch_dir import cancellable
from advisor.executor.engines.turn import taken
from advisor.executor.executor import Budget, Executor
from advisor.executor.requests import Program, TrialRequest, TrialResult, Variant
from advisor.executor.run_cache import RunCache
from advisor.history import History, program_key
from advisor.machine import target as targets
from advisor.machine.host import read_machine
from advisor.machine.target import Target
from advisor.model import Candidate, Failure, Machine, MeasurePlan, Run
from advisor.report.progress import Progress
from advisor.runner import resources
from advisor.sandbox.capabilities import detect_isolation


def program_of(
    asked: Invocation,
    target: Target,
    *,
    allow_writes: bool = False,
    seed: int | None = None,
) -> Program:
    """Program that a call runs. Output folders that it names lead into each trial's scratch."""
    return Program(
        configs=asked.configs,
        command_line=asked.command_line,
        commands=asked.quality_commands(),
        cwd=asked.cwd,
        unit=asked.workload.unit,
        output_paths=tuple(
            (config.name, path)
            for config in asked.configs
            for path in knobs.find(config).outputs
        ),
        output_flags=(
            *asked.workload.output_flags,
            *knobs.find(asked.command_line).outputs,
        ),
        env={**dict(target.environment), **asked.workload.env},
        seed=seed,
        memory_cap_gib=target.memory_cap_gib,
        allow_writes=allow_writes,
        limits=resources.of_settings(asked.workload, asked.settings.defaults),
    )


RunTrial = Callable[[MeasurePlan, Candidate], Run | Failure]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringCall:
    """Program of a call, on a machine and for a target."""

    asked: Invocation
    machine: Machine
    target: Target
    program: Program
    budget_s: float
    progress: Progress
    node: Connection | None = None
    """Node that runs the trials; None: this machine."""
    wait_s: float = 0.0
    """Longest wait for another call that measures there."""

    @contextlib.contextmanager
    def engine(self, *, several: bool = False) -> Iterator[tuple[Engine, float]]:
        """Engine on the target's card and `several` equal idle ones; Ctrl-C cancels it.

        Beside it the seconds that were waited for others: no part of the budget.
        """
        with self.progress, cancellable() as cancel:
            settings = EngineSettings(
                connection=self.node,
                gpu_uuid=self.target.gpu.uuid if self.target.gpu else None,
                equal_gpus=targets.equal_gpus(self.target, self.machine) if several else (),
                cancel=cancel,
                on_progress=self.progress.status,
            )
            engine = make_engine(settings)
            with taken(engine, self.wait_s, cancel, self.progress.note) as waited_s:
                yield engine, waited_s

    @contextlib.contextmanager
    def trials(self) -> Iterator[RunTrial]:
        """Open an engine for single trials, not kept."""
        numbers = itertools.count(1)
        with self.engine() as (engine, _):
            self.progress.stage("profile")

            def run(plan: MeasurePlan, candidate: Candidate) -> Run | Failure:
                number = next(numbers)
                id_ = f"{number:03d}"
                variant = Variant(candidate=candidate)
                request = TrialRequest(variant=variant, purpose="profile", plan=plan)
                trial = self.program.trial(id_, request, engine.scratch(id_))
                self.progress.trial_started(number, trial.label)
                result = engine.run(trial)
                done = TrialResult(id=id_, request=request, result=result, remaining_s=0.0)
                self.progress.trial_done(done)
                return result

            yield run

    @contextlib.contextmanager
    def executor(
        self, started: float, *, earlier_calls: bool, several: bool = False
    ) -> Iterator[Executor]:
        """Open a call's executor, its budget begun at `started`."""
        history = History(self.asked.state() / "history.sqlite", self.progress.note)
        with self.engine(several=several) as (engine, waited_s):
            begun = started + waited_s
            yield Executor(
                engine=engine,
                program=self.program,
                run_cache=RunCache(
                    history=history,
                    machine_key=self.machine.key,
                    program_key=program_key(self.asked.cwd, self.asked.argv),
                    trusted=earlier_calls,
                ),
                budget=Budget(total_s=self.budget_s, clock=engine.clock, started=begun),
                listener=self.progress,
            )


@contextlib.contextmanager
def node_of(engine: str, asked: Invocation) -> Iterator[Connection | None]:
    """Connection to an engine's node; None: this machine."""
    carrier = carrier_of(engine, asked.settings.engine)
    if carrier is None:
        yield None
        return

    def say(text: str) -> None:
        sys.stderr.write(f"gpu-advisor: {text}\n")

    say(f"waiting for a node through {carrier.quoted}")
    with contextlib.ExitStack() as stack:
        node = Connection(carrier, str(asked.cwd.resolve()), asked.environ, say)
        for connection in (node, *node.others):
            stack.enter_context(connection)
        hosts = [connection.host for connection in (node, *node.others)]
        say(f"trials run on {' and '.join(hosts)}")
        yield node


def measuring_of(
    asked: Invocation,
    *,
    node: Connection | None = None,
    target: str = "auto",
    budget_s: float | None = None,
    allow_writes: bool = False,
    seed: int | None = None,
    wait_s: float = 0.0,
) -> MeasuringCall:
    """What a call measures, with its warnings on stderr."""
    require_program(asked.argv, asked.cwd, asked.environ)
    machine = node.machine if node else read_machine()
    aimed = targets.resolve(target, machine)
    absent = () if aimed.present else (aimed.note,)
    warnings = (
        node.warnings if node else detect_isolation(str(asked.cwd), asked.environ).notes
    )
    program = program_of(asked, aimed, allow_writes=allow_writes, seed=seed)
    progress = Progress(unit=asked.workload.unit, budget_s=budget_s)
    for note in (*asked.notes, *absent, *warnings):
        progress.note(note)
    return MeasuringCall(
        asked=asked,
        machine=machine,
        target=aimed,
        program=program,
        budget_s=budget_s or asked.settings.defaults.budget,
        progress=progress,
        node=node,
        wait_s=wait_s,
    )
