"""Connection to an agent over the pipe of a carrier: ssh, srun, or any command."""

from __future__ import annotations

import collections
import contextlib
import math
import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from advisor import __version__, errors
from advisor.executor.engines import messages
from advisor.model import Machine
from advisor.settings import EngineTable

LOCAL = "local"
AGENT = ("-P", "-m", "advisor.executor.engines.agent")
"""Arguments of a node's Python; with `-P` the user's folder hides no module of ours."""
KNOWN = {"slurm": EngineTable(command="srun"), "ray": EngineTable(command="ray")}
"""Engines that gpu-advisor.toml need not define."""
SHEBANG = re.compile(
    r"#!(?:/bin/sh\n'''exec' \"?)?\s*(?P<env>/\S+/env\s+(?:-S\s+)?)?"
    r"(?P<python>(?:/[^\n\"]*/)?(?:python|pypy)[\d.]*)[\s\"]"
)
"""First line of a script; the long form is pip's, for long paths and blanks."""
RAY_PIPE = str(Path(__file__).with_name("ray_pipe.py"))
"""Script that holds a worker of a Ray cluster, as `ssh` holds a login, and carries its pipe."""
ADDED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("srun",): ("--unbuffered", "--nodes=1", "--ntasks=1", "--cpu-bind=none"),
    ("ssh",): ("-T", "-o", "BatchMode=yes"),
    ("docker", "exec"): ("-i",),
    ("podman", "exec"): ("-i",),
    ("kubectl", "exec"): ("-i",),
}
"""Words that a command of these first words needs to carry a pipe; the user's follow and win."""


class Ending(NamedTuple):
    """Reason for a carrier's end, by what it said."""

    pattern: str
    what: str
    next_step: str = ""
    again: bool = False
    """Another node may do: a loss that nobody asked for."""


ENDINGS = (
    Ending(
        r"DUE TO TIME LIMIT",
        "the time limit of the allocation was reached",
        "Ask for more with --time, or for less with a smaller --budget.",
    ),
    Ending(r"DUE TO PREEMPTION", "another job took its place (preemption)", again=True),
    Ending(r"DUE TO NODE FAILURE|[Nn]ode failure|NODE_FAIL", "the node failed", again=True),
    Ending(
        r"CANCELLED AT|[Jj]ob (?:\d+ )?(?:has been )?(?:cancelled|revoked)",
        "the job was cancelled (scancel)",
        "Call again when it may run; finished runs are kept.",
    ),
    Ending(
        r"Unable to contact slurm controller|Zero Bytes were transmitted|Communication connection",
        "the SLURM controller does not answer",
        "Ask `scontrol ping`, and call again once it is up.",
    ),
    Ending(
        r"Unable to (?:allocate resources|create step for job \d+): (.*)|ray: (no node has .*)",
        "the cluster refused the request",
        "Correct its command in gpu-advisor.toml, table [engine.NAME].",
    ),
    Ending(
        r"ray: (no cluster answers .*)",
        "Ray is not there",
        "Start it, or name its address: --engine ray://HOST:PORT.",
    ),
    Ending(r"ray: the worker was lost: (.*)", "the Ray worker was lost", again=True),
    Ending(
        r"(Could not resolve hostname.*|Permission denied.*|Connection (?:refused|timed out).*)",
        "ssh could not log in",
        "Log in by hand first; keys must do without a password.",
    ),
    Ending(
        r"(?i)(no such container.*|container \S+ is not running|pods \S+ not found)",
        "the container is not there",
        "Start it first, and name it as `podman ps` or `kubectl get pods` does.",
    ),
    Ending(
        r"(No module named '?advisor.*)",
        "that Python has no gpu-advisor",
        "Install it there, or name a Python that has it: `python` in [engine.NAME].",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """Command that starts an agent and carries its pipe."""

    words: tuple[str, ...]
    python: str = sys.executable
    """The node's, at the same path unless gpu-advisor.toml names another."""
    others: tuple[Carrier, ...] = ()
    """Further nodes of the same job."""

    @property
    def quoted(self) -> str:
        """Command as the user wrote it, for a sentence."""
        return f"`{shlex.join(self.words)}`"

    def command(self, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        """Agent's whole command, started under `environ`."""
        first, *arguments = self.words
        program = os.path.basename(first)  # noqa: PTH119  a word of a command
        if program == "ray":
            script = shutil.which(first)
            if script is None:
                msg = f"There is no `{first}` on PATH. Name it in gpu-advisor.toml, [engine.ray]."
                raise errors.EngineError(msg)
            python = interpreter_of(script) or "python3"
            return (python, RAY_PIPE, *arguments, "--", self.python, *AGENT)
        begins = next(
            (b for b in ADDED if (program, *arguments)[: len(b)] == b), (program,)
        )
        added = ADDED.get(begins, ())
        if program == "srun" and "SLURM_JOB_ID" in environ:
            added = (*added, "--overlap")  # the step that we are holds all CPUs
        first_free = len(begins) - 1  # behind `exec`, which is no option of the user's
        before, after = arguments[:first_free], arguments[first_free:]
        return (first, *before, *added, *after, self.python, *AGENT)


def interpreter_of(script: str, path: str | None = None) -> str | None:
    """Python that a script's first line names; None if no Python."""
    with open(script, "rb") as file:  # noqa: PTH123  a program may be gigabytes
        line = SHEBANG.match(file.read(500).decode(errors="replace"))
    if line is None:
        return None
    return (
        line["python"] if line["env"] is None else shutil.which(line["python"], path=path)
    )


def carrier_of(name: str, tables: Mapping[str, EngineTable]) -> Carrier | None:
    """Carrier of engine `name`; None: this machine. Raises SettingsError."""
    if name == LOCAL:
        return None
    address = (f"--address={name}",) if name.startswith("ray://") else ()
    name = "ray" if address else name
    tables = {**KNOWN, **tables}
    if name not in tables:
        names = ", ".join(sorted({LOCAL, *tables}))
        msg = (
            f"There is no engine {name!r} (known: {names}). Add a table [engine.{name}] with a "
            "command to gpu-advisor.toml: see docs/engines.md."
        )
        raise errors.SettingsError(msg)
    table = tables[name]
    python = table.python or sys.executable
    words = (*shlex.split(table.command), *address)
    others = tuple(
        Carrier(words=tuple(shlex.split(node)), python=python) for node in table.more_nodes
    )
    return Carrier(words=words, python=python, others=others)


def why_ended(said: str, code: int | None) -> Ending:
    """Reason for the end of a carrier, by the last lines that it `said` and its exit code.

    Where no pattern knows it, its last line is the reason: another node may do.
    """
    for ending in ENDINGS:
        if match := re.search(ending.pattern, said):
            detail = next((text for text in match.groups() if text), "")
            return ending._replace(
                what=f"{ending.what}: {detail}" if detail else ending.what
            )
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    what = last.strip() or f"its command ended with exit code {code}"
    return Ending("", what, again=True)


# By judgement: a slow node is waited for, and a lost one is told before the user wonders.
TICK_S = 0.2
"""Longest time until a wait for the agent notices an interruption."""
CLOSE_S = 20.0
"""Longest wait for an agent's end, which removes its files."""
SIGNAL_S = 5.0
"""Longest wait, in seconds, for a carrier's end after each signal.

Judgement: shorter kills an srun that still cancels its job, longer holds up an interrupted call."""
START_S = 120.0
"""Longest wait, in seconds, for an agent outside a queue: a dead controller tells nobody.

Judgement: shorter gives up a slow node that still starts, longer waits for a dead controller."""
QUEUED = "queued and waiting"
"""Words of srun while it waits for an allocation."""
LINES_KEPT = 50
"""Last lines of a carrier that are kept, as they tell why it ended.

Judgement: fewer loses the cause behind the lines of a traceback. More keeps old lines, in which a
pattern of `ENDINGS` may find what was not the cause."""
MOST_LOSSES = 3
"""Lost nodes after which no further one is asked for.

Judgement: fewer gives up for a chance loss, more spends the budget where every node is lost."""
OF_THE_NODE = (
    "SLURM", "SRUN_", "SSH_", "RAY_", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_",
    "HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR", "GPU_ADVISOR_RUNTIME_DIR", "GPU_DEVICE_ORDINAL",
)  # fmt: skip
"""Prefixes of variables that belong to a node; all others are the caller's."""
CONTAINERS = {first for first, *rest in ADDED if rest == ["exec"]}
"""Commands into a container, whose files are not the caller's."""
OF_A_CONTAINER = {
    "PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX",
}  # fmt: skip
"""Variables that name places in it; the caller's would name places that are not there."""


class Connection:
    """Agent on one node after another.

    Three threads serve one agent: one reads its messages, one tells it that we live, and one keeps
    what the carrier prints. `say` is given that until the agent is there: a queue's place, or why
    a login fails. Several threads send messages, so a lock keeps each one whole.
    """

    def __init__(
        self,
        carrier: Carrier,
        cwd: str,
        environ: Mapping[str, str],
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._carrier, self._cwd, self._say = carrier, cwd, say
        into_container = Path(carrier.words[0]).name in CONTAINERS
        withheld = OF_A_CONTAINER if into_container else set()
        self._environ = {
            name: value
            for name, value in environ.items()
            if not name.startswith(OF_THE_NODE) and name not in withheld
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._overhearer = threading.Thread()
        """Thread that keeps the carrier's words; one that never ran, before the first start."""
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._said: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
        """Last lines of the carrier of the present node."""
        self._writing = threading.Lock()
        self._said_at = 0.0
        self._greeted = False
        """True once the agent of the present node has sent its first message."""
        self.losses = 0
        """Nodes that were lost so far, in a row or not."""
        self._machine: Machine | None = None
        self.others = tuple(
            Connection(other, cwd, environ, say) for other in carrier.others
        )
        """Further nodes that run the same job at once."""
        self.cancel = threading.Event()
        """Ends the running trial, or the wait for a node, once set."""
        self.listeners: dict[str, Callable[[str], None]] = {}
        """Functions that are given messages which are no answers, by message name."""
        self.silence_s = messages.SILENCE_S
        """Longest time without a message, in seconds, after which a node is lost."""
        self.host = ""
        """The node's own name, once its agent is there."""
        self.warnings: tuple[str, ...] = ()
        self.waited_s = 0.0
        """Time spent waiting for nodes, none of the budget's."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """True while an agent answers."""
        return self._process is not None

    @property
    def machine(self) -> Machine:
        assert self._machine is not None
        return self._machine

    def open(self) -> None:
        """Start an agent and wait for it, as long as a queue takes.

        Raises EngineError, and NodeLostError for another kind of machine.
        """
        begun = time.monotonic()
        try:
            self._start()
            hello = self._await("hello", silence_s=None)["hello"]
            self.host, self._greeted = hello["host"], True
            if hello["version"] != __version__:
                msg = (
                    f"{self.host} has gpu-advisor {hello['version']}, and this is {__version__}. "
                    f"Install the same there, for {self._carrier.python}."
                )
                raise errors.EngineError(msg)
            self.waited_s += time.monotonic() - begun
            self._look()
        except BaseException:
            self.close()
            raise

    def _look(self) -> None:
        """Give the node our variables; take what it offers a trial."""
        offer = self.ask("look", cwd=self._cwd, env=self._environ)
        before, self._machine = self._machine, messages.read(Machine, offer["machine"])
        self.warnings = tuple(offer["warnings"])
        if before is not None and before.key != self._machine.key:
            msg = (
                f"A node was lost, and {self.host} in its place is another kind of machine. Name "
                "one kind in the engine's command, and call again."
            )
            raise errors.NodeLostError(msg, again=False)

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Agent's answer to a request. Raises its refusal, and NodeLostError."""
        self.tell(do=do, **fields)
        answer: dict[str, Any] = self._await("answer", self.silence_s)["answer"]
        if "problem" in answer:
            raise self._refusal(answer)
        return answer

    def close(self, limit_s: float = CLOSE_S) -> None:
        """End the agent; it removes what it made.

        It is asked first, by the end of its input, and then told by signals, ever harder.
        """
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        for wait_s, insist in ((limit_s, process.terminate), (SIGNAL_S, process.kill)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)
                return
            insist()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SIGNAL_S)

    def _start(self) -> None:
        self._lines, pipe = queue.SimpleQueue(), subprocess.PIPE
        self._said.clear()
        self._greeted = False
        command = self._carrier.command()
        try:
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as problem:
            msg = f"{self._carrier.quoted} cannot run: {problem.strerror}. Correct its command."
            raise errors.EngineError(msg) from problem
        self._process = process
        for work in (self._read, self._beat):
            threading.Thread(target=work, args=(process,), daemon=True).start()
        self._overhearer = threading.Thread(
            target=self._overhear, args=(process,), daemon=True
        )
        self._overhearer.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on the agent's messages, and an empty one at its end."""
        lines = self._lines
        with (
            contextlib.suppress(ValueError),
            process.stdout or contextlib.nullcontext(()) as out,
        ):
            for line in out:
                lines.put(line)
        lines.put(b"")

    def _overhear(self, process: subprocess.Popen[bytes]) -> None:
        """Keep what the carrier says, and pass it on until the agent is there."""
        with process.stderr or contextlib.nullcontext(()) as words:
            for line in words:
                text = os.fsdecode(line).rstrip()
                self._said.append(text)
                self._said_at = time.monotonic()
                if not self._greeted:
                    self._say(text)

    def _beat(self, process: subprocess.Popen[bytes]) -> None:
        """Tell the agent that we live, until another process takes this one's place."""
        while self._process is process:
            self.tell(beat=True)
            time.sleep(messages.BEAT_S)

    def tell(self, **fields: Any) -> None:
        """Send one message. That the pipe has ended is noticed by `_await`."""
        process = self._process
        with self._writing, contextlib.suppress(OSError, ValueError):
            if process is not None and process.stdin is not None:
                process.stdin.write(messages.encode(**fields))
                process.stdin.flush()

    def _await(self, key: str, silence_s: float | None) -> dict[str, Any]:
        """Wait for the message with `key`. Raises NodeLostError.

        Whatever comes is a sign of life, and other messages are passed on to their listeners. A
        cancellation is told once; the answer then comes as soon as the trial has ended.
        `silence_s`: longest time without a message; None before the first one, when the words of
        the carrier are signs of life, too, and a queue may take days.
        """
        heard, cancelled = time.monotonic(), False
        while True:
            if self.cancel.is_set() and not cancelled:
                if not self._greeted:
                    msg = "Interrupted while a node was waited for; finished runs are kept."
                    raise errors.InterruptedByUserError(msg)
                cancelled = True
                self.tell(cancel=True)
            try:
                line = self._lines.get(timeout=TICK_S)
            except queue.Empty:
                limit_s = silence_s or self._start_limit_s()
                since = heard if silence_s else max(heard, self._said_at)
                if time.monotonic() - since > limit_s:
                    silence = f"no sign of life for {limit_s:.0f} s"
                    raise self._lost(silence) from None
                continue
            if not line:
                raise self._lost()
            heard, message = time.monotonic(), messages.decode(line)
            if key in message:
                return message
            for kind, text in message.items():
                if kind in self.listeners:
                    self.listeners[kind](str(text))

    def _start_limit_s(self) -> float:
        """Longest silence before the first word, in seconds; no limit in a queue.

        A queue may take days, and says nothing meanwhile. Of srun alone it is known by its words
        whether it waits in one.
        """
        program = os.path.basename(self._carrier.words[0])  # noqa: PTH119  a word of a command
        waits = any(QUEUED in text for text in list(self._said)[-1:])
        return START_S if program == "srun" and not waits else math.inf

    def _lost(self, silence: str = "") -> errors.AdvisorError:
        """Close what is left, and tell why: no node came, or it was lost.

        `silence`: that nothing was heard for too long; empty where the carrier ended by itself. A
        silent one has no time to clear up: it is signalled soon.
        """
        process = self._process
        self.close(SIGNAL_S if silence else CLOSE_S)
        self._overhearer.join(SIGNAL_S)
        self.losses += 1
        ended = why_ended("\n".join(self._said), process.returncode if process else None)
        next_step = ended.next_step
        if silence and not self._greeted and not next_step:
            by_hand = shlex.join((*self._carrier.words, "hostname"))
            next_step = f"Run `{by_hand}` by hand."
        why = f"{(silence or ended.what).rstrip('.')}. {next_step}".rstrip()
        if not self._greeted:
            return errors.EngineError(
                f"No agent came up through {self._carrier.quoted}: {why}"
            )
        again = ended.again and self.losses < MOST_LOSSES
        return errors.NodeLostError(f"The node {self.host} was lost: {why}", again=again)

    def _refusal(self, answer: Mapping[str, Any]) -> errors.AdvisorError:
        """The node's refusal as an error of its own class here, with the node's name."""
        kind = getattr(errors, str(answer["problem"]), errors.AdvisorError)
        text = f"On {self.host}: {answer['text']}"
        if issubclass(kind, errors.TrialFailedError):
            return kind(str(answer["kind"]), text)
        refusal: errors.AdvisorError = kind(text)
        return refusal
