"""Processes that need not import anything: a server has done that, and forks one a call.

    python -m tests.warm advisor|torch|compiler    reads a JSON request a line, answers with the
                                                   pid and then the exit code

`advisor` calls are `gpu-advisor`, or `-m` and a module of it, `torch` calls are programs that
import torch, `compiler` calls those that compile, too. A call has its own pid, environment, working
directory, standard streams and exit code, like any other; only the imports, from half a second of
CPU to four each time, were done before.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import IO, ClassVar, NoReturn, Self

ROOT = Path(__file__).resolve().parents[1]
AT_START = ("LD_LIBRARY_PATH", "LD_PRELOAD")
"""Read when a process starts: a call that changes one gets an interpreter of its own."""


class Call:
    """A process that a server began, as `subprocess.Popen` would show it."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers = answers
        self.returncode: int | None = None
        self.pid = self._answer(60.0)

    def wait(self, timeout: float) -> int:
        """Its exit code, minus the number of the signal that ended it. Raises TimeoutExpired."""
        if self.returncode is None:
            self.returncode = self._answer(timeout)
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code where it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def _answer(self, timeout_s: float) -> int:
        if not select.select([self._answers], [], [], timeout_s)[0]:
            msg = "a call of a server"
            raise subprocess.TimeoutExpired(msg, timeout_s)
        return int(self._answers.readline())


class Server:
    """Calls `gpu-advisor`, or Python programs, one call at a time."""

    def __init__(self, kind: str = "advisor", env: Mapping[str, str] | None = None) -> None:
        """`env` is the whole environment of the one that imports."""
        self._files = tempfile.TemporaryDirectory(prefix="gpu-advisor-test-")
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", kind],
            cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            bufsize=0,  # what was read ahead would not be waited for
        )  # fmt: skip

    def call(
        self, *argv: str, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """`gpu-advisor ARGV` in `cwd`; `env` is the whole environment.

        Raises TimeoutExpired, after the process was killed.
        """
        stdout, stderr = (Path(self._files.name, name) for name in ("stdout", "stderr"))
        started = self.start(
            argv, cwd=cwd, env=os.environ if env is None else env, stdout=stdout, stderr=stderr
        )
        try:
            code = started.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.kill(started.pid, signal.SIGKILL)
            started.wait(timeout_s)
            raise
        output, errors = (path.read_text(errors="replace") for path in (stdout, stderr))
        return subprocess.CompletedProcess(["gpu-advisor", *argv], code, output, errors)

    def start(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: Path, stderr: Path
    ) -> Call:
        """Begin a call whose output goes into the files; the one before must have ended."""
        request = {
            "argv": argv,
            "cwd": str(cwd),
            "env": dict(env),
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        self._server.stdin.write(f"{json.dumps(request)}\n".encode())
        return Call(self._server.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """No more calls."""
        with self._server:
            self._server.stdin.close()
        self._files.cleanup()


def advisor() -> Callable[..., NoReturn]:
    """What makes a fork go on as `gpu-advisor ARGV`, or as `python -m` a module of ours.

    The use cases are imported, and what is read from the package's own data was read.
    """
    from advisor.__main__ import COMMANDS, main, module_of
    from advisor.knobs import catalogue, vocabulary

    for name in COMMANDS:
        module_of(name)
    importlib.import_module("matplotlib.figure")  # by what draws
    importlib.import_module("matplotlib.backends.backend_svg")
    catalogue.rules_for("batch_size")
    vocabulary.speaks("batch_size")

    def become(argv: list[str], env: dict[str, str]) -> NoReturn:
        module = argv[:1] == ["-m"]
        if any(env.get(name) != os.environ.get(name) for name in AT_START):
            words = argv if module else ["-m", "advisor", *argv]
            os.execve(sys.executable, [sys.executable, *words], env)
        entered(env)
        if module:
            sys.argv = argv[1:]
            sys.modules.pop(argv[1], None)  # what was imported is run anew, under another name
            runpy.run_module(argv[1], run_name="__main__")
            sys.exit()
        sys.argv = ["gpu-advisor", *argv]
        main()

    return become


def torch(*, compiles: bool = False) -> Callable[..., NoReturn]:
    """What makes a fork go on as `python ARGV` in a session of its own, torch's import done."""
    searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [path for path in sys.path if path not in {"", str(ROOT), *searched}]
    before = set(sys.modules)
    importlib.import_module("torch")
    if compiles:
        _compile()
    done = {name: module for name, module in sys.modules.items() if name not in before}

    def become(argv: list[str], env: dict[str, str]) -> NoReturn:
        os.setsid()
        entered(env)
        for name in done:
            del sys.modules[name]
        sys.meta_path.insert(0, Imported(done))
        script = os.path.abspath(argv[0])  # noqa: PTH100  links stay, as in Python's own
        there = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
        # What our own path holds was found before torch was imported; that of others comes now.
        there = [path for path in there if path not in searched]
        sys.path[:] = [os.path.dirname(os.path.realpath(script)), *there, *own]  # noqa: PTH120
        sys.argv, sys.orig_argv = list(argv), [sys.executable, *argv]
        sys.modules.pop("sitecustomize", None)
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("sitecustomize")
        program = types.ModuleType("__main__")
        program.__file__ = script
        sys.modules["__main__"] = program
        exec(compile(Path(script).read_bytes(), script, "exec"), program.__dict__)
        sys.exit()

    return become


def _compile() -> None:
    """Import what is imported while something compiles; nothing of it is remembered."""
    whole = importlib.import_module("torch")
    whole.compile(whole.nn.Linear(1, 1), backend="eager")(whole.zeros(1, 1)).sum().backward()
    sys.modules["torch._dynamo"].reset()
    sys.modules["torch._dynamo.utils"].counters.clear()


class Imported:
    """A finder of modules whose code has run: whoever waits for their import sees one.

    A package of `AT_ONCE` brings back all of its own, first those that somebody waits for by name.
    """

    AT_ONCE: ClassVar = {
        "torch._dynamo": ("torch._dynamo.eval_frame",),
        "torch": ("torch.cuda",),
        "concurrent.futures": ("concurrent.futures.thread",),
        "multiprocessing": ("multiprocessing.process",),
    }
    """The inner ones first."""

    def __init__(self, done: dict[str, types.ModuleType]) -> None:
        self._done = done
        self._packages = {
            package: waited_for
            for package, waited_for in self.AT_ONCE.items()
            if all(name in done for name in waited_for)
        }
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in self._done:
            return None
        self._specs[name] = self._done[name].__spec__
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self._done[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._specs[module.__name__]
        for name in self._packages.get(module.__name__, ()):
            importlib.import_module(name)
        if module.__name__ in self._packages:
            for name in [name for name in self._done if self._package(name) == module.__name__]:
                sys.modules.setdefault(name, self._done.pop(name))

    def _package(self, name: str) -> str:
        inside = (package for package in self._packages if f"{name}.".startswith(f"{package}."))
        return next(inside, "torch")


KINDS = {"advisor": advisor, "torch": torch, "compiler": functools.partial(torch, compiles=True)}


def serve(kind: str) -> None:
    """Fork for each request on stdin; the child comes to its end as a program does."""
    atexit.register(leave)  # the first to be registered is the last to run
    become = KINDS[kind]()
    gc.freeze()  # what no call of ours has made need not be looked through by any
    while request := os.read(0, 1 << 20):
        while not request.endswith(b"\n"):
            request += os.read(0, 1 << 20)
        pid = os.fork()
        if not pid:
            child(become, **json.loads(request))
        os.write(1, f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(1, f"{code}\n".encode())


def child(
    become: Callable[..., NoReturn],
    argv: list[str],
    cwd: str,
    env: dict[str, str],
    stdout: str,
    stderr: str,
) -> NoReturn:
    """This process goes on as the call."""
    for number, path in enumerate((os.devnull, stdout, stderr)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    global exit_code
    try:
        become(argv, env)
    except SystemExit as asked:
        exit_code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
        raise
    except Exception:
        exit_code = 1
        raise


EXIT, OPEN = os._exit, (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
exit_code: int | None = None
"""Of a call that has come to its end, and not by a signal."""


def leave() -> None:
    """All that happens at a process' end has happened but for its modules, which are taken down
    one by one: that takes as long as many a call."""
    if exit_code is None:
        return
    try:
        for file in (sys.stdout, sys.stderr, *(o for o in gc.get_objects() if type(o) in OPEN)):
            if not file.closed:
                file.flush()
    except Exception:  # the interpreter has its own words and exit code for that
        return
    EXIT(exit_code & 0xFF)


def entered(env: Mapping[str, str]) -> None:
    """The environment is `env`."""
    os.environ.clear()
    os.environ.update(env)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # it is for the one who asks
        serve(sys.argv[1])
