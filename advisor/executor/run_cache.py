"""Cache of runs of one program on one machine.

A run of an earlier call may stand for one of this call if it was not disturbed, is younger than
MAX_AGE_S, and the original runs as fast as it did then. The last is only known after the first
baseline, so those of earlier calls are compared with it before any other run is taken: a
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
"""Failures that would recur; others (a time-out, a kill) may be the machine's."""
OF_THE_DAY = {"gpu-oom", "shm"}
"""Failures that a later call tries again: memory and /dev/shm may have been made room in."""
HELD_GIB = 0.1
"""GPU memory of others; without it a program that ran out may fit."""
MOVED = 0.15
"""Change of the original's rate beyond which kept runs are set aside."""


@dataclass(kw_only=True)
class RunCache:
    """History of one program on one machine."""

    history: History
    machine_key: str
    program_key: str
    trusted: bool = True
    """True if earlier calls' runs may be used; this call's always are."""
    since: float = field(default_factory=clock.now)
    """Epoch seconds of this call's start."""
    set_aside: str = ""
    """Reason why earlier calls' runs are not used; empty while they are."""
    _earlier: list[float] = field(default_factory=list)
    """Rates of the original in earlier calls, until compared with this one's."""

    def key(self, program: Program, trial: Trial, series: str) -> str:
        """Identity of one measurement: what decides its rate, and nothing that does not.

        Words with the scratch folder are left out, which is another for each process.
        """
        kept = tuple(token for token in trial.command if trial.scratch not in token)
        values = program.values(trial.candidate)
        key = trial_key(self.program_key, kept, values, trial.plan, dict(trial.env))
        return f"{key} {series}".rstrip()

    def find(self, key: str, *, earlier_calls: bool = True) -> Run | Failure | None:
        """Find the newest result of `key` that may replace a run."""
        call_s = clock.now() - self.since
        of_this_call = self.history.find(key, self.machine_key, max_age_s=call_s)
        newest = next(filter(_usable, of_this_call), None)
        if newest is not None or not (
            earlier_calls and self.trusted and not self.set_aside
        ):
            return newest
        kept = self.history.find(
            key, self.machine_key, max_age_s=MAX_AGE_S, min_age_s=call_s
        )
        return next(
            (each for each in kept if _usable(each) and not _is_of_the_day(each)), None
        )

    def append(self, key: str, result: Run | Failure) -> None:
        self.history.append(key, self.machine_key, result)

    def note_earlier(self, key: str) -> None:
        """Remember how fast the original was in earlier calls, before this one's run is kept."""
        call_s = clock.now() - self.since
        kept = self.history.find(
            key, self.machine_key, max_age_s=MAX_AGE_S, min_age_s=call_s
        )
        runs = [result for result in kept if isinstance(result, Run)]
        self._earlier = [run.units_per_s for run in runs if not contended(run)]

    def check_speed(self, rates: Sequence[float]) -> None:
        """Set earlier runs aside if the original's speed changed."""
        earlier, self._earlier = self._earlier, []
        if not self.trusted or not earlier or not rates:
            return
        before, after = statistics.median(earlier), statistics.median(rates)
        if abs(after / before - 1) > MOVED:
            self.set_aside = (
                "Runs of earlier calls were set aside: the original ran at "
                f"{numbers.number(before)} units/s then and runs at {numbers.number(after)} "
                "units/s today."
            )


def _is_of_the_day(result: Run | Failure) -> bool:
    return isinstance(result, Failure) and result.kind in OF_THE_DAY


def _usable(result: Run | Failure) -> bool:
    """True for an undisturbed run, or a failure that would recur."""
    if isinstance(result, Run):
        return not contended(result)
    beside_others = (result.gpu_mem_others_gib or 0.0) > HELD_GIB
    return result.kind in LASTING and not (result.kind == "gpu-oom" and beside_others)
