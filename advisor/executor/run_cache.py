"""Cache of runs of one program on one machine.

A run of an earlier call may stand for one of this call if it was not disturbed, is younger than
MAX_AGE_S, and the original runs as fast as it did then. That is known once this call has a
baseline. The baselines of earlier calls are compared with it before any other run is taken: a
machine that got slower overnight would else make every kept candidate look better.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from advisor import clock, numbers
from advisor.executor.requests import Program, contended
from advisor.history import History, trial_key
from advisor.model import Failure, Run, Trial

# By judgement: a kept run that no longer holds misleads, one that is set aside costs a process.
MAX_AGE_S = 7 * 24 * 3600.0
"""Oldest run of an earlier call that is taken: a week."""
LASTING = {"gpu-oom", "shm", "config-rejected", "crash-import", "crash-start", "crash-step"}
"""Kinds of failures that would recur; others (a time-out, a kill) may be the machine's."""
OF_THE_DAY = {"gpu-oom", "shm"}
"""Lasting kinds that a later call tries all the same: the card or /dev/shm may have more room."""
HELD_GIB = 0.1
"""Others' GPU memory in GiB beyond which a program that ran out may fit without them.

Judgement: smaller repeats failures that others had no part in, larger keeps those they caused."""
MOVED = 0.15
"""Relative change of the original's rate beyond which runs of earlier calls are set aside.

Judgement: smaller sets them aside for the noise of a busy host. Larger holds candidates against
runs of a host that was faster or slower."""


@dataclass(kw_only=True)
class RunCache:
    """Kept results of one program on one machine, and whether one may stand for a new run."""

    history: History
    machine_key: str
    program_key: str
    trusted: bool = True
    """True if runs of earlier calls may be used; those of this call always may."""
    since: float = field(default_factory=clock.now)
    """Epoch seconds of this call's start."""
    set_aside: str = ""
    """Sentence on why runs of earlier calls are used no longer; empty while they are."""
    _earlier: list[float] = field(default_factory=list)
    """Units/s of the original in earlier calls, until they are compared with this call's."""

    def key(self, program: Program, trial: Trial, series: str) -> str:
        """Identity of one measurement: what decides its rate, and nothing that does not.

        Words of the command that name the scratch folder are left out: each process has its own.
        Repetitions with another `series` are other measurements.
        """
        words = tuple(word for word in trial.command if trial.scratch not in word)
        values = program.values(trial.candidate)
        key = trial_key(self.program_key, words, values, trial.plan, dict(trial.env))
        return f"{key} {series}".rstrip()

    def find(self, key: str, *, earlier_calls: bool = True) -> Run | Failure | None:
        """Newest result of `key` that may stand for a run; None if it has to run.

        Runs of earlier calls are the second choice, and none without `earlier_calls`: what is
        compared in rounds must have run on one day.
        """
        of_this_call = self.history.find(key, self.machine_key, max_age_s=self._call_s())
        newest = next(filter(_usable, of_this_call), None)
        may_be_earlier = earlier_calls and self.trusted and not self.set_aside
        if newest is not None or not may_be_earlier:
            return newest
        lasting = (
            result
            for result in self._of_earlier_calls(key)
            if _usable(result) and not _is_of_the_day(result)
        )
        return next(lasting, None)

    def _call_s(self) -> float:
        """Seconds since this call began."""
        return clock.now() - self.since

    def _of_earlier_calls(self, key: str) -> list[Run | Failure]:
        """Results of `key` that are older than this call, and not too old; newest first."""
        return self.history.find(
            key, self.machine_key, max_age_s=MAX_AGE_S, min_age_s=self._call_s()
        )

    def append(self, key: str, result: Run | Failure) -> None:
        self.history.append(key, self.machine_key, result)

    def note_earlier(self, key: str) -> None:
        """Remember how fast the original was in earlier calls; `key` is that of a baseline.

        Each baseline of a call has a key of its own, and one may have no earlier run.
        """
        results = self._of_earlier_calls(key)
        runs = [result for result in results if isinstance(result, Run)]
        self._earlier += [run.units_per_s for run in runs if not contended(run)]

    def check_speed(self, rates: Sequence[float]) -> None:
        """Set runs of earlier calls aside if the original's speed has changed since.

        `rates`: units/s of this call's baselines. They are compared with what `note_earlier`
        remembered, once: then that is forgotten.
        """
        earlier, self._earlier = self._earlier, []
        if not self.trusted or not earlier or not rates:
            return
        before, after = statistics.median(earlier), statistics.median(rates)
        if abs(after / before - 1) > MOVED:
            self.set_aside = (
                "Runs of earlier calls were set aside. The original's rate "
                f"was {numbers.number(before)} a second then and is {numbers.number(after)} now."
            )


def _is_of_the_day(result: Run | Failure) -> bool:
    """True for a failure that says nothing of another day."""
    return isinstance(result, Failure) and result.kind in OF_THE_DAY


def _usable(result: Run | Failure) -> bool:
    """True for a run that others did not disturb, or a failure that would recur."""
    if isinstance(result, Run):
        return not contended(result)
    others_gib = result.gpu_mem_others_gib or 0.0
    may_fit_alone = result.kind == "gpu-oom" and others_gib > HELD_GIB
    return result.kind in LASTING and not may_fit_alone
