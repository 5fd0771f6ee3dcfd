"""`gpu-advisor` as a process of its own that need not import anything: a server forks one a call.

    python -m tests.warm    reads a JSON request a line, answers with the pid and then the exit code

A call has its own pid, environment, working directory, standard streams and exit code, like any
other; only the imports, half a second of CPU each time, were done before.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from advisor.__main__ import COMMANDS, main

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[1]
AT_START = ("LD_LIBRARY_PATH", "LD_PRELOAD")
"""Read when a process starts: a call that changes one gets an interpreter of its own."""


class Server:
    """Calls `gpu-advisor`, one call at a time."""

    def __init__(self) -> None:
        self._files = tempfile.TemporaryDirectory(prefix="gpu-advisor-test-")
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.warm"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def call(
        self, *argv: str, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """`gpu-advisor ARGV` in `cwd`; `env` is the whole environment.

        Raises TimeoutExpired, after the process was killed.
        """
        stdout, stderr = (Path(self._files.name, name) for name in ("stdout", "stderr"))
        request = {
            "argv": argv,
            "cwd": str(cwd),
            "env": dict(os.environ if env is None else env),
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        pid = self._answer(timeout_s)
        try:
            code = self._answer(timeout_s)
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGKILL)
            self._answer(timeout_s)
            raise
        said, complained = (path.read_text(errors="replace") for path in (stdout, stderr))
        return subprocess.CompletedProcess(["gpu-advisor", *argv], code, said, complained)

    def _answer(self, timeout_s: float) -> int:
        assert self._server.stdout is not None
        if not select.select([self._server.stdout], [], [], timeout_s)[0]:
            msg = "gpu-advisor"
            raise subprocess.TimeoutExpired(msg, timeout_s)
        return int(self._server.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._server:
            assert self._server.stdin is not None
            self._server.stdin.close()
        self._files.cleanup()


def serve() -> None:
    """Fork for each request on stdin; the child leaves through the interpreter's own exit."""
    for module, _ in COMMANDS.values():
        importlib.import_module(module)
    gc.freeze()  # what no call of ours has made need not be looked through by any
    while request := os.read(0, 1 << 20):
        while not request.endswith(b"\n"):
            request += os.read(0, 1 << 20)
        pid = os.fork()
        if not pid:
            become(**json.loads(request))
        os.write(1, f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(1, f"{code}\n".encode())


def become(argv: list[str], cwd: str, env: dict[str, str], stdout: str, stderr: str) -> None:
    """This process goes on as `gpu-advisor ARGV`; never returns."""
    for number, path in enumerate((os.devnull, stdout, stderr)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    if any(env.get(name) != os.environ.get(name) for name in AT_START):
        os.execve(sys.executable, [sys.executable, "-m", "advisor", *argv], env)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["gpu-advisor", *argv]
    main()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # it is for the one who asks
        serve()
