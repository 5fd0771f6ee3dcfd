"""Start of the probe in one process.

It comes before the program's first line, by `site/sitecustomize.py`. What has to be there from
the first line on (stacks, the guard of files, how the process ended) is put in at once. All
else waits until the program itself imports the library that it hooks: a program that never
imports torch pays for no import of it, and none of its imports comes in another order.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import json
import os
import signal
import sys
from typing import Any, Callable

from . import env_propagation, one_seed, own_threads
from .guard import SAVER_MODULES, Guard
from .recorder import VERSION, write_whole
from .session import Session

PASSIVE = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Python's helpers that run no code of the program."""

Action = Callable[[Any], None]

current: Session | None = None


def start(spec_path: str) -> None:
    """Called by sitecustomize, before the program runs."""
    global current
    line = getattr(sys, "orig_argv", ())  # of Python 3.10 and later
    if current is not None or any(name in word for word in line for name in PASSIVE):
        return
    with open(spec_path, encoding="utf-8") as file:
        session = current = Session(json.load(file))
    os.makedirs(session.records, exist_ok=True)
    booted = {"version": VERSION, "boot_time": session.boot_time}
    path = os.path.join(session.records, f"{session.pid}.json")
    write_whole(path, json.dumps(booted), os.O_TRUNC)
    _stacks(session)
    _chain_excepthook(session)
    atexit.register(_finish, session)
    _wrap_exit(session)
    os.register_at_fork(after_in_child=session.reset)
    os.register_at_fork(after_in_child=lambda: _stacks(session))
    guard = Guard(session, spec_path)
    if guard.listens:
        sys.addaudithook(guard.audit)
    if session.spec.get("layered"):
        _part("renames").install()
    if session.spec.get("origins"):
        sys.addaudithook(_part("origins").OriginListener(session).hear)
    compiler = "torch._dynamo.eval_frame"
    seeds = one_seed.actions(session)
    actions: dict[str, Action] = {
        **seeds,
        **dict.fromkeys(SAVER_MODULES, guard.wrap_savers),
        "argparse": lambda module: _part("arguments").install(module, session),
        "subprocess": lambda module: env_propagation.popen(module, session),
        "torch": lambda module: _torch(module, session, guard, seeds.get("torch")),
        "transformers.generation.utils": lambda module: _part("module_hooks").generations(
            module, session
        ),
        compiler: lambda module: _part("module_hooks").shield_compiled(module, session),
        **own_threads.actions(session),
    }
    when_imported(actions)


def _part(name: str) -> Any:
    """Import a module of the probe once the program needs it."""
    return importlib.import_module(f".{name}", __package__)


def _torch(torch: Any, session: Session, guard: Guard, seed: Action | None) -> None:
    session.state = "torch"
    if seed is not None:
        session.attempt(seed, torch)
    _part("control").install(torch, session)
    guard.wrap_savers(torch)


def _stacks(session: Session) -> None:
    """Write all thread stacks on SIGUSR1."""
    if not hasattr(signal, "SIGUSR1") or signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL:
        return
    path = os.path.join(session.records, f"stacks-{session.pid}.txt")
    session.stacks = open(path, "w", encoding="utf-8")  # noqa: SIM115  # for the whole run
    faulthandler.register(
        signal.SIGUSR1, file=session.stacks, all_threads=True, chain=False
    )


def _chain_excepthook(session: Session) -> None:
    """Note the exception that ends the process, then call the hook that stood there."""
    before = sys.excepthook

    def hook(kind: Any, problem: Any, trace: Any) -> None:
        try:
            if session.diagnosis is not None:  # the window is kept anyway
                session.note(f"after its window it raised {kind.__name__}: {problem}")
                _finish(session)
            if os.getpid() == session.pid and session.exception is None:
                session.note_exception(problem)
                _part("record").beat(session)
        except Exception:
            pass
        before(kind, problem, trace)

    sys.excepthook = hook


def _wrap_exit(session: Session) -> None:
    """Programs that leave by os._exit run no atexit handler."""

    def _exit(status: int) -> None:
        try:
            _finish(session)
        finally:
            session.leave(status)

    os._exit = _exit  # type: ignore[assignment]


def _note_unhooked(session: Session) -> None:
    """Note the exception of a program that put a hook of its own over ours.

    Logging libraries do. Python keeps the exception that ended the program all the same.
    """
    problem = getattr(sys, "last_value", None)
    if problem is not None and session.exception is None and session.diagnosis is None:
        session.note_exception(problem)


def _finish(session: Session) -> None:
    """Finish the record of a process worth one."""
    if os.getpid() == session.pid:
        session.attempt(_note_unhooked, session)
    written = session.writes or session.altered
    if session.torch is not None or session.exception is not None or written:
        _part("control").finish(session)


def when_imported(actions: dict[str, Action]) -> None:
    """Run each action once its module was executed, or now where it was already."""
    for name in [name for name in actions if name in sys.modules]:
        _act(sys.modules[name], actions.pop(name))
    sys.meta_path.insert(0, _Waiter(actions))


def _act(module: Any, action: Action) -> None:
    try:
        action(module)
    except Exception as problem:
        if current is not None:
            current.fail(problem)


class _Waiter:
    """Import finder that wraps loaders of awaited modules."""

    def __init__(self, waiting: dict[str, Action]) -> None:
        self._waiting = waiting

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the real spec with its loader wrapped."""
        action = self._waiting.get(name)
        if action is None:
            return None
        del self._waiting[name]  # else the search below comes back here
        finders = [
            getattr(finder, "find_spec", None)
            for finder in sys.meta_path
            if finder is not self
        ]
        specs = (find(name, path, target) for find in finders if find is not None)
        spec = next((spec for spec in specs if spec is not None), None)
        self._waiting[name] = action  # many only look whether it is there
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)  # the class's own stands again
            execute(module)
            self._waiting.pop(name, None)
            _act(module, action)

        loader.exec_module = exec_module
        return spec
