"""One process joins the measurement: spec, boot file, hooks that wait for torch and argparse."""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import signal
import sys
import time
from typing import Any, Callable

from . import control, hooks, record
from .session import Session, load_spec

PASSIVE = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helpers of Python's own that run no code of the program's."""

current: Session | None = None


def start(spec_path: str) -> None:
    """Called by sitecustomize, before anything of the program runs."""
    global current
    line = command_line()
    if current is not None or any(name in word for word in line for name in PASSIVE):
        return
    session = Session(load_spec(spec_path))
    current = session
    os.makedirs(session.records, exist_ok=True)
    _note_boot(session, line)
    _stacks(session)
    _chain_excepthook(session)
    atexit.register(control.finish, session)
    _wrap_exit(session)
    os.register_at_fork(after_in_child=lambda: _forked(session))
    when_imported({"torch": lambda torch: _torch(torch, session)})


def command_line() -> list[str]:
    """The interpreter's own arguments; `sys.argv` hides what stands before the script."""
    found = getattr(sys, "orig_argv", None)
    if found is None:
        try:
            with open("/proc/self/cmdline", "rb") as file:
                found = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
        except OSError:
            found = getattr(sys, "argv", [])
    return list(found)


def _note_boot(session: Session, line: list[str]) -> None:
    path = os.path.join(session.records, f"boot-{session.pid}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(
            {
                "pid": session.pid,
                "ppid": os.getppid(),
                "argv": line,
                "time": time.time(),
                "python": sys.version.split()[0],
                "executable": sys.executable,
            },
            file,
        )


def _stacks(session: Session) -> None:
    """SIGUSR1 writes the stack of every thread, also while the interpreter is stuck in C."""
    if not hasattr(signal, "SIGUSR1") or signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL:
        return
    path = os.path.join(session.records, f"stacks-{session.pid}.txt")
    session.stacks = open(path, "w", encoding="utf-8")  # noqa: SIM115  # open for the whole run
    faulthandler.register(signal.SIGUSR1, file=session.stacks, all_threads=True, chain=False)


def _chain_excepthook(session: Session) -> None:
    before = sys.excepthook

    def hook(kind: Any, problem: Any, trace: Any) -> None:
        try:
            if os.getpid() == session.pid and session.exception is None:
                session.note_exception(kind, problem, trace)
                record.beat(session)
        except Exception:
            pass
        before(kind, problem, trace)

    sys.excepthook = hook


def _wrap_exit(session: Session) -> None:
    """Programs that leave by os._exit run no atexit handler."""

    def _exit(status: int) -> None:
        try:
            control.finish(session)
        finally:
            control.exit_now(status)

    os._exit = _exit  # type: ignore[assignment]


def _forked(session: Session) -> None:
    session.reset()
    _stacks(session)


def _torch(torch: Any, session: Session) -> None:
    session.state = "torch"
    hooks.install(torch, session)


# --- waiting for a module -----------------------------------------------------------------


def when_imported(actions: dict[str, Callable[[Any], None]]) -> None:
    """Run each action once its module has been executed, now if it already was."""
    waiting = {}
    for name, action in actions.items():
        if name in sys.modules:
            action(sys.modules[name])
        else:
            waiting[name] = action
    if waiting:
        sys.meta_path.insert(0, _Waiter(waiting))


class _Waiter:
    """A finder that finds nothing itself; it wraps the loader of the modules it waits for."""

    def __init__(self, waiting: dict[str, Callable[[Any], None]]) -> None:
        self._waiting = waiting

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The real spec with its loader's exec_module wrapped; None for every other name."""
        action = self._waiting.pop(name, None)
        if action is None:
            return None
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            try:
                del loader.exec_module  # the instance's; the class's own stands again
            except AttributeError:
                pass
            execute(module)
            try:
                action(module)
            except Exception as problem:
                if current is not None:
                    current.step_aside(problem)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
