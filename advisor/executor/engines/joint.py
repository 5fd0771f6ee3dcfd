"""Trials as one job over several nodes, on all of which the command runs."""

import contextlib
import threading
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Self

from advisor.executor.engines import Engine, EngineSettings, messages
from advisor.executor.engines.connection import TICK_S
from advisor.executor.engines.local import LocalEngine
from advisor.executor.engines.remote import RemoteEngine
from advisor.model import Failure, Run, Trial
from advisor.runner.measured_run import joined

NODE_RANK = "NODE_RANK"
"""Number of the node, which a trial finds in its environment."""


class JointEngine:
    """Engine of a first node, which has rank 0, and of further ones."""

    equal_gpus: tuple[str, ...] = ()

    def __init__(self, settings: EngineSettings) -> None:
        assert settings.connection is not None
        self._cancel = settings.cancel
        self._off = threading.Event()
        """Ends the trial on all nodes."""
        connections = (settings.connection, *settings.connection.others)
        self._nodes = [
            RemoteEngine(replace(settings, connection=each, cancel=self._off))
            for each in connections
        ]
        self._nodes[0].connection.hear["stop"] = self._pass_on
        self._held = contextlib.ExitStack()
        self.clock = self._nodes[0].clock
        self._scratch: list[Path] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            for node in self._nodes:
                held.enter_context(node)
            self._held = held.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def scratch(self, trial_id: str) -> Path:
        self._scratch = [node.scratch(trial_id) for node in self._nodes]
        return self._scratch[0]

    def run(self, trial: Trial) -> Run | Failure:
        """Run one trial on all nodes; the first end that is no run ends it everywhere.

        Raises NodeLostError.
        """
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            ends = [
                pool.submit(node.run, self._of_node(number, trial))
                for number, node in enumerate(self._nodes)
            ]
            running, first = set(ends), None
            while running:
                ended, running = futures.wait(running, TICK_S, futures.FIRST_COMPLETED)
                no_runs = (e for e in ended if e.exception() or isinstance(e.result(), Failure))
                first = first or next(no_runs, None)
                if self._cancel.is_set() or first:
                    self._off.set()
        self._off.clear()
        if first is not None:
            return first.result()
        return joined([run for end in ends if isinstance(run := end.result(), Run)])

    def _of_node(self, number: int, trial: Trial) -> Trial:
        """The trial with the scratch folder and the number of a node."""
        text = messages.encode(trial=trial).replace(
            trial.scratch.encode(), str(self._scratch[number]).encode()
        )
        found = messages.read(Trial, messages.decode(text)["trial"])
        return replace(found, env=(*found.env, (NODE_RANK, str(number))))

    def _pass_on(self, where: str) -> None:
        """Stop the ranks of all other nodes where those of the first one stop."""
        for node in self._nodes[1:]:
            node.connection.tell(stop=where)


def make_engine(settings: EngineSettings) -> Engine:
    if settings.connection is None:
        return LocalEngine(settings)
    return JointEngine(settings) if settings.connection.others else RemoteEngine(settings)
