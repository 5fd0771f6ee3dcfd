"""Trials on a node, run by an agent there."""

import time
from pathlib import Path
from typing import Any, Self

from advisor.errors import StateBusyError
from advisor.executor.engines import EngineSettings, messages
from advisor.executor.engines.connection import TICK_S, Connection
from advisor.model import Failure, Run, Trial


class RemoteEngine:
    """Engine at the end of a connection, on one node after another."""

    equal_gpus: tuple[str, ...] = ()

    def __init__(self, settings: EngineSettings) -> None:
        assert settings.connection is not None
        self._settings = settings
        self.connection: Connection = settings.connection
        self.connection.cancel = settings.cancel
        self.connection.hear = {"progress": settings.on_progress}

    def __enter__(self) -> Self:
        try:
            self._enter()
        except BaseException:
            self.connection.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.connection.close()

    def clock(self) -> float:
        """Seconds of this machine; they stand still in a queue."""
        return time.monotonic() - self.connection.waited_s

    def scratch(self, trial_id: str) -> Path:
        return Path(self._ask("scratch", trial_id=trial_id)["folder"])

    def run(self, trial: Trial) -> Run | Failure:
        answer = self._ask("run", trial=trial, files=messages.named_files(trial))
        if "run" in answer:
            return messages.read(Run, answer["run"])
        return messages.read(Failure, answer["failure"])

    def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Answer of the agent, or of the next one where the last was lost."""
        if not self.connection.is_open:
            self._enter()
        return self.connection.ask(do, **fields)

    def _enter(self) -> None:
        if not self.connection.is_open:
            self.connection.open()
        gpu_uuid, silence_s = self._settings.gpu_uuid, self.connection.silence_s
        # The lost agent may still be ending its trial on the same node.
        deadline = time.monotonic() + (silence_s if self.connection.losses else 0.0)
        while True:
            try:
                self.connection.ask("enter", gpu_uuid=gpu_uuid, silence_s=silence_s)
                return
            except StateBusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(TICK_S)
