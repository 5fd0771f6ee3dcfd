"""Program and executor of a call that measures."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.engines import EngineSettings, make_engine
from advisor.executor.engines.scratch_dir import cancellable
from advisor.executor.executor import WAIT_SHARE, Budget, Executor
from advisor.executor.program import Program
from advisor.executor.run_cache import RunCache
from advisor.history import History, program_key
from advisor.report.build import trial_entry
from advisor.runner import limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from advisor.commands.invocation import Invocation
    from advisor.executor.requests import TrialResult
    from advisor.machine.target import Target
    from advisor.model import Machine
    from advisor.report.progress import Progress
    from advisor.runner.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressListener:
    """Listener that passes events to the progress display."""

    progress: Progress

    def trial_started(self, number: int, label: str) -> None:
        """A process is about to start."""
        self.progress.trial_started(number, label)

    def trial_done(self, attempt: TrialResult) -> None:
        """A result is there."""
        self.progress.trial_done(trial_entry(attempt))

    def trial_stopped(self, label: str, why: str) -> None:
        """A limit of ours ended a process."""
        self.progress.note(f"{label}: stopped by gpu-advisor, {why}")


def program_of(
    asked: Invocation,
    target: Target,
    *,
    allow_writes: bool = False,
    limits_: Limits | None = None,
    seed: int | None = None,
) -> Program:
    """Program of an invocation, for trials on `target`."""
    return Program(
        configs=asked.configs,
        command_line=asked.command_line,
        cwd=asked.cwd,
        unit=asked.workload.unit,
        output_paths=tuple(
            (config.name, path) for config in asked.configs for path in knobs.find(config).outputs
        ),
        output_flags=(*asked.workload.output_flags, *knobs.find(asked.command_line).outputs),
        env={**dict(target.environment), **asked.workload.env},
        seed=seed,
        memory_cap_gib=target.memory_cap_gib,
        allow_writes=allow_writes,
        limits=limits_ or limits.of_settings(asked.workload, asked.settings.defaults),
    )


@contextlib.contextmanager
def opened(
    asked: Invocation,
    program: Program,
    *,
    target: Target,
    machine: Machine,
    state: Path,
    budget_s: float,
    started: float,
    progress: Progress,
    earlier_calls: bool = True,
) -> Iterator[Executor]:
    """Open the executor of a call, whose budget began at `started`."""
    with (
        progress,
        cancellable() as off,
        make_engine(
            EngineSettings(
                gpu_uuid=target.gpu.uuid if target.gpu else None,
                cancel=off,
                on_progress=progress.status,
                on_busy=progress.busy,
                max_wait_s=WAIT_SHARE * budget_s,
            )
        ) as engine,
    ):
        yield Executor(
            engine=engine,
            program=program,
            commands=asked.quality_commands(),
            run_cache=RunCache(
                history=History(state / "history.sqlite", progress.note),
                machine_key=machine.key,
                program_key=program_key(asked.cwd, asked.argv),
                trusted=earlier_calls,
            ),
            budget=Budget(total_s=budget_s, clock=engine.clock, started=started),
            listener=ProgressListener(progress=progress),
        )
