"""Start of the probe in one process.

What only a program with torch needs is imported when torch is.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import signal
import sys
import time
from typing import Any, Callable

from . import env_propagation
from .guard import Guard
from .origins import Origins
from .session import Session, load_spec

PASSIVE = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helpers of Python's own that run no code of the program's."""

Action = Callable[[Any], None]

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
    _note_boot(session)
    _stacks(session)
    _chain_excepthook(session)
    atexit.register(_finish, session)
    _wrap_exit(session)
    os.register_at_fork(after_in_child=lambda: _forked(session))
    guard = Guard(session, spec_path)
    guard.watch()
    Origins(session).watch()
    env_propagation.watch(session, spec_path)
    actions: dict[str, list[Action]] = {
        "argparse": [lambda module: _argparse(module, session)],
        "subprocess": [lambda module: env_propagation.popen(module, session, spec_path)],
        "torch": [lambda module: _torch(module, session)],
        "torch._dynamo.eval_frame": [lambda module: _dynamo(module, session)],
    }
    for name, action in guard.savers().items():
        actions.setdefault(name, []).append(action)
    when_imported(actions)


def command_line() -> list[str]:
    """Return the interpreter's full command line."""
    found = getattr(sys, "orig_argv", None)
    if found is None:
        try:
            with open("/proc/self/cmdline", "rb") as file:
                found = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
        except OSError:
            found = getattr(sys, "argv", [])
    return list(found)


def _note_boot(session: Session) -> None:
    path = os.path.join(session.records, f"boot-{session.pid}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"time": time.time()}, file)


def _stacks(session: Session) -> None:
    """Write all thread stacks on SIGUSR1."""
    if not hasattr(signal, "SIGUSR1") or signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL:
        return
    path = os.path.join(session.records, f"stacks-{session.pid}.txt")
    session.stacks = open(path, "w", encoding="utf-8")  # noqa: SIM115  # open for the whole run
    faulthandler.register(signal.SIGUSR1, file=session.stacks, all_threads=True, chain=False)


def _chain_excepthook(session: Session) -> None:
    before = sys.excepthook

    def hook(kind: Any, problem: Any, trace: Any) -> None:
        try:
            if session.diagnosis is not None:  # the window is kept in any case
                session.note(f"after its window it raised {kind.__name__}: {problem}")
                _finish(session)
            if os.getpid() == session.pid and session.exception is None:
                from . import record

                session.note_exception(kind, problem, trace)
                record.beat(session)
        except Exception:
            pass
        before(kind, problem, trace)

    sys.excepthook = hook


def _wrap_exit(session: Session) -> None:
    """Programs that leave by os._exit run no atexit handler."""
    leave = os._exit

    def _exit(status: int) -> None:
        try:
            _finish(session)
        finally:
            leave(status)

    session.leave = leave
    os._exit = _exit  # type: ignore[assignment]


def _finish(session: Session) -> None:
    """Finish the record of a process worth one."""
    if session.torch is not None or session.exception is not None or session.writes:
        from . import control

        control.finish(session)


def _forked(session: Session) -> None:
    session.reset()
    _stacks(session)


def _argparse(argparse: Any, session: Session) -> None:
    from . import arguments

    arguments.install(argparse, session)


def _dynamo(eval_frame: Any, session: Session) -> None:
    from . import module_hooks

    module_hooks.shield_compiled(eval_frame, session)


def _torch(torch: Any, session: Session) -> None:
    from . import hooks

    session.state = "torch"
    hooks.install(torch, session)


# --- waiting for a module -----------------------------------------------------------------


def when_imported(actions: dict[str, list[Action]]) -> None:
    """Run the actions once each module is executed."""
    waiting = {}
    for name, todo in actions.items():
        if name in sys.modules:
            _act(sys.modules[name], todo)
        else:
            waiting[name] = todo
    sys.meta_path.insert(0, _Waiter(waiting))


def _act(module: Any, todo: list[Action]) -> None:
    for action in todo:
        try:
            action(module)
        except Exception as problem:
            if current is not None:
                current.fail(problem)


class _Waiter:
    """Import finder that wraps loaders of awaited modules."""

    def __init__(self, waiting: dict[str, list[Action]]) -> None:
        self._waiting = waiting

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the real spec with its loader wrapped."""
        todo = self._waiting.get(name)
        if todo is None:
            return None
        del self._waiting[name]  # else the search below would come back here
        spec = None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                break
        self._waiting[name] = todo  # many a library only looks whether the module is there
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)  # the class's own stands again
            execute(module)
            self._waiting.pop(name, None)
            _act(module, todo)

        loader.exec_module = exec_module
        return spec
