"""Trials on a node, run by an agent there."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Self

from advisor.executor.engines import Engine, EngineSettings, messages
from advisor.executor.engines.connection import Connection
from advisor.executor.engines.local import LocalEngine
from advisor.model import Failure, Run, Trial


class RemoteEngine:
    """Engine at the end of a connection, on one node after another."""

    equal_gpus: tuple[str, ...] = ()

    def __init__(self, settings: EngineSettings) -> None:
        assert settings.connection is not None
        self._settings = settings
        self._connection: Connection = settings.connection
        self._cancel = settings.cancel or threading.Event()
        self._hear = {"progress": settings.on_progress}

    def __enter__(self) -> Self:
        """Hold the card of the node, and a scratch folder there."""
        try:
            self._enter()
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        """End the agent, which gives both back."""
        self._connection.close()

    def clock(self) -> float:
        """Seconds of this machine; they stand still in a queue."""
        return time.monotonic() - self._connection.waited_s

    def scratch(self, trial_id: str) -> Path:
        """Scratch folder of one trial, as a path of the node."""
        return Path(self._ask("scratch", trial_id=trial_id)["folder"])

    def run(self, trial: Trial) -> Run | Failure:
        """Run one trial there. Raises NodeLostError."""
        answer = self._ask("run", trial=trial, files=messages.named_files(trial))
        if "run" in answer:
            return messages.read(Run, answer["run"])
        return messages.read(Failure, answer["failure"])

    def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Answer of the agent, or of the next one where the last was lost."""
        if not self._connection.is_open:
            self._enter()
        return self._connection.ask(do, cancel=self._cancel, hear=self._hear, **fields)

    def _enter(self) -> None:
        if not self._connection.is_open:
            self._connection.open(self._cancel)
        self._connection.ask(
            "enter", gpu_uuid=self._settings.gpu_uuid, silence_s=self._connection.silence_s
        )


def make_engine(settings: EngineSettings) -> Engine:
    """The engine that `settings` name."""
    return RemoteEngine(settings) if settings.connection else LocalEngine(settings)
