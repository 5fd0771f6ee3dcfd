"""Candidates into measured runs: builds the trial, asks history first, keeps every result.

The stages above never see a process, a file or a clock: they ask for a candidate and get a Run or
a Failure. The budget lives here too, because only the runner knows what a process costs.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from advisor import documents
from advisor.documents import argv
from advisor.errors import InterruptedByUserError
from advisor.history import History, trial_key
from advisor.model import (
    Candidate,
    Failure,
    JsonScalar,
    MeasurePlan,
    Purpose,
    Run,
    Trial,
    TrialFile,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from advisor.engines import Engine

COMMAND_LINE = "command line"
HISTORY_MAX_AGE_S = 7 * 24 * 3600.0
LASTING_FAILURES = {
    "gpu-oom",
    "shm",
    "config-rejected",
    "crash-import",
    "crash-start",
    "crash-step",
}
"""Failures that would come again; the others (a time-out, a kill) may have been the machine's."""


class Listener(Protocol):
    """Hears of every trial; the progress display is one."""

    def trial_started(self, number: int, label: str, purpose: str) -> None:
        """A process is about to start."""

    def trial_done(self, trial: Taken) -> None:
        """A result is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One result, as the strategy was told of it."""

    id: str
    candidate: Candidate
    purpose: Purpose
    result: Run | Failure
    whatif: str | None = None
    reused: bool = False

    @property
    def label(self) -> str:
        """The candidate's values, and what was tried on top of them."""
        return labelled(self.candidate, self.whatif)


def labelled(candidate: Candidate, whatif: str | None) -> str:
    """`batch_size=8, what if compile`"""
    return f"{candidate.label}, what if {whatif}" if whatif else candidate.label


class OverBudgetError(Exception):
    """The next process would not fit into what is left of the budget."""


@dataclass(kw_only=True)
class Runner:
    """Runs candidates of one config with one command on one engine."""

    engine: Engine
    history: History
    machine_key: str
    program_key: str
    config: documents.Document
    command_line: documents.Document
    """The user's argv as a document: `argv` format."""
    cwd: Path
    scratch: Path
    unit: str
    budget_s: float
    listener: Listener
    output_paths: tuple[str, ...] = ()
    """Scalars of the config that name output directories: pointed into scratch."""
    output_flags: tuple[str, ...] = ()
    """The same on the command line."""
    env: Mapping[str, str] = field(default_factory=dict)
    memory_cap_gib: float | None = None
    allow_writes: bool = False
    reuse: bool = True
    """Take results of earlier calls from history."""
    limits_s: tuple[float, float, float] = (300.0, 60.0, 600.0)
    """Longest wait for the first step, longest silence after one, longest run."""
    taken: list[Taken] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    reserve_s: float = 0.0
    """Kept back for the confirmation; the search stops before it."""
    on_result: Callable[[Taken], None] | None = None

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    @property
    def spent_s(self) -> float:
        """Wall clock since the start."""
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float:
        """Budget not spent and not reserved."""
        return self.budget_s - self.reserve_s - self.spent_s

    @property
    def processes(self) -> int:
        """Processes this call really started."""
        return sum(not taken.reused for taken in self.taken)

    def measure(
        self,
        candidate: Candidate,
        purpose: Purpose,
        plan: MeasurePlan,
        *,
        fresh: bool = False,
        expected_s: float = 0.0,
        command_line: documents.Document | None = None,
    ) -> Run | Failure:
        """Run `candidate`, or find it in history unless `fresh`.

        Raises OverBudgetError when `expected_s` is more than what is left, and
        InterruptedByUserError on Ctrl-C; both leave everything measured so far in `taken`.
        """
        number = next(self._numbers)
        trial, key = self._build(number, candidate, purpose, plan, command_line)
        if self.reuse and not fresh:
            known = self._recall(key)
            if known is not None:
                return self._tell(
                    Taken(
                        id=trial.id,
                        candidate=candidate,
                        purpose=purpose,
                        result=known,
                        whatif=plan.whatif,
                        reused=True,
                    )
                )
        if expected_s > self.left_s:
            raise OverBudgetError(trial.label)
        self.listener.trial_started(number, trial.label, purpose)
        result = self.engine.run(trial)
        if isinstance(result, Failure) and result.kind == "interrupted":
            msg = "Interrupted; the config is untouched and what was measured is kept."
            raise InterruptedByUserError(msg)
        self.history.append(key, self.machine_key, result)
        return self._tell(
            Taken(
                id=trial.id,
                candidate=candidate,
                purpose=purpose,
                result=result,
                whatif=plan.whatif,
            )
        )

    def forget_history(self) -> None:
        """Trust nothing of earlier calls any more: this machine now runs at another speed."""
        self.reuse = False

    def recall_baseline(self, plan: MeasurePlan) -> Run | None:
        """What an earlier call measured for the original under `plan`, if anything."""
        _, key = self._build(0, Candidate(), "baseline", plan, None)
        known = self._recall(key)
        return known if isinstance(known, Run) else None

    def _recall(self, key: str) -> Run | Failure | None:
        found = self.history.find(key, self.machine_key, max_age_s=HISTORY_MAX_AGE_S)
        for result in found:
            if isinstance(result, Run) or result.kind in LASTING_FAILURES:
                return result
        return None

    def _tell(self, taken: Taken) -> Run | Failure:
        self.taken.append(taken)
        self.listener.trial_done(taken)
        return taken.result

    def content(self, candidate: Candidate, extra: Mapping[str, JsonScalar] | None = None) -> bytes:
        """The config's bytes with `candidate`'s values, verified."""
        values: dict[str, JsonScalar] = {
            c.path: c.new for c in candidate.changes if c.document == self.config.name
        }
        return self.config.with_values({**values, **(extra or {})})

    def argv(
        self, candidate: Candidate, command_line: documents.Document | None = None
    ) -> tuple[str, ...]:
        """The command with `candidate`'s values."""
        document = command_line or self.command_line
        values: dict[str, JsonScalar] = {
            c.path: c.new
            for c in candidate.changes
            if c.document == COMMAND_LINE and c.path in document.scalars
        }
        return argv.split(document.with_values(values))

    def _build(
        self,
        number: int,
        candidate: Candidate,
        purpose: Purpose,
        plan: MeasurePlan,
        command_line: documents.Document | None,
    ) -> tuple[Trial, str]:
        id_ = f"{number:03d}"
        scratch = self.scratch / id_
        outputs = str(scratch / "outputs")
        command = self.argv(candidate, command_line)
        for flag in self.output_flags:
            command = _with_flag(command, flag, outputs)
        plan = replace(plan, memory_cap_gib=self.memory_cap_gib)
        start_s, hang_s, total_s = self.limits_s
        if plan.whatif == "compile":  # no step is finished meanwhile
            hang_s = max(hang_s, start_s)
        trial = Trial(
            id=id_,
            purpose=purpose,
            label=labelled(candidate, plan.whatif),
            candidate=candidate,
            command=command,
            cwd=str(self.cwd),
            scratch=str(scratch),
            files=(
                TrialFile(
                    original=str(self.config.path),
                    content=self.content(candidate, dict.fromkeys(self.output_paths, outputs)),
                ),
            ),
            env=tuple(self.env.items()),
            plan=plan,
            unit=self.unit,
            start_limit_s=start_s,
            hang_limit_s=hang_s,
            total_limit_s=total_s,
            allow_writes=self.allow_writes,
        )
        values = documents.parse(
            self.content(candidate), self.config.format, str(self.config.path)
        ).data
        kept = [token for token in command if outputs not in token]
        return trial, trial_key(self.program_key, tuple(kept), values, plan)


def _with_flag(command: tuple[str, ...], flag: str, value: str) -> tuple[str, ...]:
    """`command` with `flag` pointing to `value`: replaced where it stands, else appended."""
    for index, token in enumerate(command):
        if token == flag and index + 1 < len(command):
            return (*command[: index + 1], value, *command[index + 2 :])
        if token.startswith(flag + "="):
            return (*command[:index], f"{flag}={value}", *command[index + 1 :])
    return (*command, flag, value)
