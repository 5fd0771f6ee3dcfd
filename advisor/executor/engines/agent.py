"""Agent on a node: runs trials for the engine behind a pipe.

Requests on stdin, answers on stdout; `messages.py` has the protocol. The agent ends with its
trial when the pipe closes, the other side is silent, or a signal comes.

The main thread answers requests, and so is busy for as long as a trial runs. What must not wait
for that has threads: one listens for the word that ends the trial, one beats, and one passes on
where a trial of several nodes stops.
"""

import contextlib
import os
import platform
import queue
import select
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advisor import __version__
from advisor.errors import AdvisorError, EngineError
from advisor.executor.engines import EngineSettings, messages
from advisor.executor.engines.local import LocalEngine
from advisor.files import reading
from advisor.machine.host import read_machine
from advisor.model import Run, Trial
from advisor.runner.measuring import STOP_FILE
from advisor.sandbox.capabilities import detect_isolation

STDIN, STDOUT, STDERR = 0, 1, 2
STOP_LOOK_S = 0.05
"""Seconds between looks for the file that says where all ranks stop.

Judgement: shorter takes CPU time on the node that is measured. Longer eats into the second
(`OTHER_NODES_S`) in which the word has to reach the ranks of other nodes."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Agent:
    """Agent that serves one engine."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._silence_s = messages.SILENCE_S
        self._requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._cancel = threading.Event()
        """Set by the engine's word, or with `_over`."""
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._held = contextlib.ExitStack()
        self._engine = LocalEngine()
        self._scratch = Path(os.devnull)
        """The running trial's."""

    def serve(self) -> None:
        """Answer requests until the end; then leave nothing."""
        for number in SIGNALS:
            signal.signal(number, lambda *_: self._end())
        for work in (self._listen, self._beat):
            threading.Thread(target=work, daemon=True).start()
        self._tell(hello={"version": __version__, "host": platform.node()})
        with self._held:
            while (request := self._requests.get()) is not None:
                answer = self._answer(request)
                if not self._over.is_set():
                    self._tell(answer=answer)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        answers: dict[str, Callable[..., dict[str, Any]]] = {
            "look": self._look,
            "enter": self._enter,
            "scratch": lambda trial_id: {"folder": str(self._engine.scratch(trial_id))},
            "run": self._run,
        }
        try:
            return answers[request.pop("do")](**request)
        except AdvisorError as problem:
            kind = getattr(problem, "kind", None)
            return {"problem": type(problem).__name__, "text": str(problem), "kind": kind}

    def _look(self, cwd: str, env: dict[str, str]) -> dict[str, Any]:
        """Take the caller's variables; tell what this machine offers."""
        os.environ.update(env)
        if not os.path.isdir(cwd):  # noqa: PTH112  any bytes
            msg = (
                f"There is no folder {cwd} there. Trials need the program at the same path."
            )
            raise EngineError(msg)
        return {"machine": read_machine(), "warnings": detect_isolation(cwd).notes}

    def _enter(self, gpu_uuid: str | None, silence_s: float) -> dict[str, Any]:
        self._silence_s = silence_s
        settings = EngineSettings(
            gpu_uuid=gpu_uuid,
            cancel=self._cancel,
            on_progress=lambda text: self._tell(progress=text),
        )
        self._engine = self._held.enter_context(LocalEngine(settings))
        return {}

    def _run(self, trial: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
        """Run a trial, if the files that it names are here what they are for the engine.

        A node may hold another version of the program at the same path: it would be measured, and
        nothing in its rates would tell.
        """
        asked = messages.read(Trial, trial)
        here = messages.named_files(asked)
        other = [name for name, text in files.items() if here.get(name) != text]
        if other:
            msg = (
                f"{' and '.join(other)} in {asked.cwd} is another file there, or none. Share that "
                "folder with the node, or copy it to the same path."
            )
            raise EngineError(msg)
        self._scratch, done = Path(asked.scratch), threading.Event()
        threading.Thread(target=self._pass_on, args=(done,), daemon=True).start()
        try:
            outcome = self._engine.run(asked)
        finally:
            done.set()
            if not self._over.is_set():
                self._cancel.clear()  # it ended this trial
        return {"run" if isinstance(outcome, Run) else "failure": outcome}

    def _pass_on(self, done: threading.Event) -> None:
        """Tell where all ranks stop, for those of other nodes."""
        while not done.wait(STOP_LOOK_S):
            with contextlib.suppress(OSError):
                where = reading.read(self._scratch, STOP_FILE, messages.LARGEST_BYTES)
                self._tell(stop=where.decode(errors="replace"))
                break

    def _tell(self, **fields: Any) -> None:
        """Send one message; without a reader all is over."""
        line = messages.encode(**fields)
        with self._writing:
            try:
                while line:
                    line = line[os.write(self._sink, line) :]
            except OSError:
                self._end()

    def _beat(self) -> None:
        while not self._over.wait(messages.BEAT_S):
            self._tell(beat=True)

    def _listen(self) -> None:
        """Hear requests until the pipe closes, or nothing comes."""
        pending = b""
        while select.select([STDIN], [], [], self._silence_s)[0]:
            data = os.read(STDIN, 1 << 16)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for request in map(messages.decode, lines):
                if "cancel" in request:
                    self._cancel.set()
                elif "stop" in request:
                    with contextlib.suppress(OSError):
                        reading.put(self._scratch, STOP_FILE, request["stop"].encode())
                elif "do" in request:
                    self._requests.put(request)
        self._end()

    def _end(self) -> None:
        self._over.set()
        self._cancel.set()
        self._requests.put(None)


def main() -> None:
    """Serve on stdin and stdout, which no print may disturb.

    What any library prints on standard output goes to standard error, where the engine hears it as
    words of the carrier; messages have a copy of the descriptor to themselves.
    """
    sink = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    Agent(sink).serve()


if __name__ == "__main__":
    main()
