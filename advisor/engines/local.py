"""Trials in fresh processes on this machine."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.engines.quiet import TOTAL_S, Patience, look_around, wait_until_quiet
from advisor.machine.host import read_machine
from advisor.machine.telemetry import Sampler
from advisor.trials import run_trial

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from advisor.model import Failure, Machine, Run, Trial


class LocalEngine:
    """The engine of a single machine; `cancel` ends the trial that runs and those to come."""

    def __init__(
        self,
        *,
        on_progress: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
        gpu_index: int | None = None,
        on_busy: Callable[[str], None] | None = None,
        patience_s: float = TOTAL_S,
    ) -> None:
        """`on_busy` hears who is at work here; `patience_s`: longest wait for them, all trials
        together."""
        self._on_progress = on_progress
        self._on_busy = on_busy
        self._cancel = cancel
        self._gpu_index = gpu_index
        self._patience = Patience(patience_s)
        self._made: set[str] = set()
        """Files that trials created outside their scratch: later ones may write over them."""

    def run(self, trial: Trial) -> Run | Failure:
        """Run one trial once others leave the machine alone, or will not; see `run_trial`."""
        say = self._on_busy or self._on_progress or (lambda _: None)
        wait = time.sleep if self._cancel is None else self._cancel.wait
        look = partial(look_around, gpu_index=self._gpu_index)
        wait_until_quiet(self._patience, say, look=look, wait=wait)

        def sampler(root: int) -> Sampler:
            return Sampler(self._gpu_index, pids=[root], environ={**os.environ, **dict(trial.env)})

        outcome = run_trial(
            replace(trial, made=(*trial.made, *sorted(self._made))),
            on_progress=self._on_progress,
            cancel=self._cancel,
            sampler=sampler,
        )
        self._made.update(str(Path(trial.cwd, name)) for name in outcome.files_created)
        return outcome

    def machine(self) -> Machine:
        """This machine, read once."""
        return _this_machine()


_this_machine = cache(read_machine)
