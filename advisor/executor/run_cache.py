"""What earlier calls measured of the same program on the same machine, while it can be believed."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.history import History, trial_key
from advisor.model import Run
from advisor.stats import noise_band

if TYPE_CHECKING:
    from advisor.executor.program import Program
    from advisor.model import Failure, Trial

MAX_AGE_S = 7 * 24 * 3600.0
LASTING_FAILURES = {
    "gpu-oom",
    "shm",
    "config-rejected",
    "crash-import",
    "crash-start",
    "crash-step",
}
"""Failures that would come again; the others (a time-out, a kill) may have been the machine's."""
HELD_GIB = 0.1
"""Memory of the card that others held: without them a program that ran out of it may fit."""


@dataclass(kw_only=True)
class RunCache:
    """The history of one program on one machine."""

    history: History
    machine_key: str
    program_key: str
    trusted: bool = True
    """Whether earlier calls are believed; this call's own results always are."""
    set_aside: bool = False
    """Earlier calls were, because the original now runs at another speed."""
    since: float = field(default_factory=time.time)

    def key(self, program: Program, trial: Trial, series: str) -> str:
        """Identity of one measurement."""
        kept = tuple(token for token in trial.command if trial.scratch not in token)
        key = trial_key(
            self.program_key, kept, program.values(trial.candidate), trial.plan, dict(trial.env)
        )
        return f"{key} {series}" if series else key

    def find(self, key: str) -> Run | Failure | None:
        """The newest result of `key` that may stand in for a new one."""
        age_s = MAX_AGE_S if self.trusted else time.time() - self.since
        for result in self.history.find(key, self.machine_key, max_age_s=age_s):
            if isinstance(result, Run):
                if result.disturbance.disturbed is not True:
                    return result
            elif _lasts(result):
                return result
        return None

    def append(self, key: str, result: Run | Failure) -> None:
        """Keep `result`."""
        self.history.append(key, self.machine_key, result)

    def host_noise(self) -> float | None:
        """Relative spread between equal processes, as this host showed it before."""
        kept = self.history.host_spreads(self.machine_key)
        bands = [band for rates in kept if (band := noise_band([[rate] for rate in rates]))]
        return statistics.median(bands) if bands else None


def _lasts(failure: Failure) -> bool:
    """Whether it would come again."""
    if failure.kind == "gpu-oom" and (failure.gpu_mem_others_gib or 0.0) > HELD_GIB:
        return False
    return failure.kind in LASTING_FAILURES
