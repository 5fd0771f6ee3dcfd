"""Candidates into measured runs: asks history first, keeps every result.

The stages above never see a process, a file or a clock: they ask for a candidate and get a Run or
a Failure. The budget lives here too, because only the runner knows what a process costs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from advisor.errors import InterruptedByUserError
from advisor.history import History, trial_key
from advisor.model import (
    Candidate,
    Failure,
    MeasurePlan,
    Purpose,
    Run,
    Trial,
)
from advisor.tuning.program import labelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from advisor import documents
    from advisor.engines import Engine
    from advisor.tuning.program import Program

LATE = 3.0
"""A process is stopped when it takes so many times what it was to and the budget is gone."""
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
    whole: bool = False
    """It finished at least one whole item."""
    reused: bool = False

    @property
    def label(self) -> str:
        """The candidate's values, and what was tried on top of them."""
        return labelled(self.candidate, self.whatif)


class OverBudgetError(Exception):
    """The next process would not fit into what is left of the budget."""


@dataclass(kw_only=True)
class Runner:
    """Runs candidates of one program on one engine."""

    engine: Engine
    history: History
    machine_key: str
    program_key: str
    program: Program
    scratch: Path
    budget_s: float
    listener: Listener
    reuse: bool = True
    """Take results of earlier calls from history."""
    taken: list[Taken] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    reserve_s: Callable[[], float] = lambda: 0.0
    """What is kept back for the confirmation, as it stands now; the search stops before it."""

    @property
    def spent_s(self) -> float:
        """Wall clock since the start."""
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float:
        """Budget not spent and not reserved."""
        return self.budget_s - self.reserve_s() - self.spent_s

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
        series: str = "",
        expected_s: float = 0.0,
        command_line: documents.Document | None = None,
    ) -> Run | Failure:
        """Run `candidate`, or find it in history unless `fresh`.

        `series` names a repetition: equal measurements of two series never stand in for each other.

        Raises OverBudgetError when `expected_s` is more than what is left, and
        InterruptedByUserError on Ctrl-C; both leave everything measured so far in `taken`.
        """
        number = len(self.taken) + 1
        trial, key = self._build(number, candidate, purpose, plan, command_line, series)
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
                        whole=plan.whole,
                        reused=True,
                    )
                )
        if expected_s > self.left_s:
            raise OverBudgetError(trial.label)
        # A baseline is needed whatever it takes; what was begun may take as long as it was to.
        most_s = max(self.left_s, LATE * expected_s) if expected_s else trial.total_limit_s
        by_budget = most_s < trial.total_limit_s
        self.listener.trial_started(number, trial.label, purpose)
        result = self.engine.run(replace(trial, total_limit_s=min(trial.total_limit_s, most_s)))
        if isinstance(result, Failure) and result.kind == "interrupted":
            msg = "Interrupted; the config is untouched and what was measured is kept."
            raise InterruptedByUserError(msg)
        self.history.append(key, self.machine_key, result)
        self._tell(
            Taken(
                id=trial.id,
                candidate=candidate,
                purpose=purpose,
                result=result,
                whatif=plan.whatif,
                whole=plan.whole,
            )
        )
        if isinstance(result, Failure) and result.kind == "timeout" and by_budget:
            raise OverBudgetError(trial.label)
        return result

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

    def _build(
        self,
        number: int,
        candidate: Candidate,
        purpose: Purpose,
        plan: MeasurePlan,
        command_line: documents.Document | None,
        series: str = "",
    ) -> tuple[Trial, str]:
        id_ = f"{number:03d}"
        scratch = self.scratch / id_
        trial = self.program.trial(id_, candidate, purpose, plan, scratch, command_line)
        kept = tuple(token for token in trial.command if trial.scratch not in token)
        key = trial_key(
            self.program_key, kept, self.program.values(candidate), trial.plan, self.program.env
        )
        return trial, f"{key} {series}" if series else key
