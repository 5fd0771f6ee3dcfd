"""Trials on a node, or one job on several, by agents."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from advisor.errors import StateBusyError
from advisor.executor.engines import Engine, EngineSettings, messages
from advisor.executor.engines.connection import TICK_S, Connection
from advisor.executor.engines.local import LocalEngine
from advisor.model import Failure, Run, Trial
from advisor.runner.measured_run import joined

NODE_RANK = "NODE_RANK"
"""Node number, in a trial's environment."""


class RemoteEngine:
    """Engine at the end of a connection, on one node after another."""

    equal_gpus: tuple[str, ...] = ()

    def __init__(self, settings: EngineSettings) -> None:
        assert settings.connection is not None
        self._settings = settings
        self.connection: Connection = settings.connection
        self.connection.cancel = settings.cancel
        self.connection.listeners = {"progress": settings.on_progress}

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
        """Seconds of this machine; none pass in a queue."""
        return time.monotonic() - self.connection.waited_s

    def scratch(self, trial_id: str) -> Path:
        return Path(self._ask("scratch", trial_id=trial_id)["folder"])

    def run(self, trial: Trial) -> Run | Failure:
        answer = self._ask("run", trial=trial, files=messages.named_files(trial))
        if "run" in answer:
            return messages.read(Run, answer["run"])
        return messages.read(Failure, answer["failure"])

    def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Answer of the agent, or of the next if that was lost."""
        if not self.connection.is_open:
            self._enter()
        return self.connection.ask(do, **fields)

    def _enter(self) -> None:
        if not self.connection.is_open:
            self.connection.open()
        gpu_uuid, silence_s = self._settings.gpu_uuid, self.connection.silence_s
        # The lost agent may still end its trial on the same node.
        deadline = time.monotonic() + (silence_s if self.connection.losses else 0.0)
        while True:
            try:
                self.connection.ask("enter", gpu_uuid=gpu_uuid, silence_s=silence_s)
                return
            except StateBusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(TICK_S)


class JointEngine:
    """Engine of one job on several nodes; the first has rank 0."""

    equal_gpus: tuple[str, ...] = ()

    def __init__(self, settings: EngineSettings) -> None:
        first = settings.connection
        assert first is not None
        self._cancel = settings.cancel
        self._off = threading.Event()
        """Ends the trial on all nodes."""
        settings = replace(settings, cancel=self._off)
        nodes = (first, *first.others)
        self._nodes = [RemoteEngine(replace(settings, connection=node)) for node in nodes]
        self._nodes[0].connection.listeners["stop"] = self._pass_on
        self._held = contextlib.ExitStack()
        self.clock = self._nodes[0].clock
        self._scratch: list[Path] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for node in self._nodes:
                stack.enter_context(node)
            self._held = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def scratch(self, trial_id: str) -> Path:
        self._scratch = [node.scratch(trial_id) for node in self._nodes]
        return self._scratch[0]

    def run(self, trial: Trial) -> Run | Failure:
        """Run a trial on all nodes; a failure ends all. Raises NodeLostError.

        Where one node's ranks are gone, the others wait for them in a collective until their
        own time limit. So the first failure turns all nodes off. It is also the one reported,
        since those that follow come from it.
        """
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            pairs = zip(self._nodes, self._parts(trial), strict=True)
            ends = [pool.submit(node.run, part) for node, part in pairs]
            running, first_failed = set(ends), None
            while running:
                ended, running = futures.wait(running, TICK_S, futures.FIRST_COMPLETED)
                without_run = (
                    end
                    for end in ended
                    if end.exception() or isinstance(end.result(), Failure)
                )
                first_failed = first_failed or next(without_run, None)
                if self._cancel.is_set() or first_failed:
                    self._off.set()
        self._off.clear()
        if first_failed is not None:
            return first_failed.result()
        return joined([run for end in ends if isinstance(run := end.result(), Run)])

    def _parts(self, trial: Trial) -> Iterator[Trial]:
        """Trial for each node, with its scratch folder and number.

        The folder's path stands in several of the trial's fields, and inside words of its
        command. It is replaced in the text of the message, so that no place is missed.
        """
        whole = messages.encode(trial=trial)
        for number, folder in enumerate(self._scratch):
            text = whole.replace(trial.scratch.encode(), str(folder).encode())
            part = messages.read(Trial, messages.decode(text)["trial"])
            yield replace(part, env=(*part.env, (NODE_RANK, str(number))))

    def _pass_on(self, where: str) -> None:
        """Stop all other nodes' ranks where the first one's stop.

        Ranks that leave at different steps would wait for each other in the last one.
        """
        for node in self._nodes[1:]:
            node.connection.tell(stop=where)


def make_engine(settings: EngineSettings) -> Engine:
    if settings.connection is None:
        return LocalEngine(settings)
    return JointEngine(settings) if settings.connection.others else RemoteEngine(settings)
