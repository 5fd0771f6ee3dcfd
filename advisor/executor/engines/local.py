"""Trials in fresh processes on this machine."""

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Self

from advisor.errors import StateBusyError
from advisor.executor.engines import EngineSettings
from advisor.executor.engines.scratch_dir import scratch_folder
from advisor.machine.lock import gpu_lock
from advisor.model import Failure, Run, Trial
from advisor.runner.trial import run_trial


class LocalEngine:
    """Engine of one machine.

    While entered it holds the lock of its card, or of the host. Further equal cards are held where
    nobody else measures on them; without them trials run one after another.
    """

    def __init__(self, settings: EngineSettings | None = None) -> None:
        self._settings = settings or EngineSettings()
        self._held = contextlib.ExitStack()
        self._folder = Path()
        self.equal_gpus: tuple[str, ...] = ()
        self._made: set[str] = set()
        """Files that trials created outside scratch: later ones may overwrite them."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(gpu_lock(self._settings.gpu_uuid))
            for uuid in self._settings.equal_gpus:
                with contextlib.suppress(StateBusyError):
                    stack.enter_context(gpu_lock(uuid))
                    self.equal_gpus += (uuid,)
            self._folder = stack.enter_context(scratch_folder())
            self._held = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def clock(self) -> float:
        return time.monotonic()

    def scratch(self, trial_id: str) -> Path:
        return self._folder / trial_id

    def run(self, trial: Trial) -> Run | Failure:
        trial = replace(trial, made=(*trial.made, *sorted(self._made)))
        say, cancel = self._settings.on_progress, self._settings.cancel
        outcome = run_trial(trial, on_progress=say, cancel=cancel)
        self._made.update(str(Path(trial.cwd, name)) for name in outcome.files_created)
        return outcome
