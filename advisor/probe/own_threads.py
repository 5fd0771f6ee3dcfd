"""Threads, processes and pools of the program's own, which may load batches ahead of its steps.

A DataLoader tells how many batches its workers may have ready. Nothing tells it of a queue that
the program fills by itself. So what it starts beside itself, or what runs its own functions, is
noted as it begins. Work that the program waits for before its first step (it joins the thread, or
shuts the pool down) has prepared something. Any other may have loaded ahead of the steps.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Callable

from . import call_sites
from .clocks import clock
from .session import Patches, Session

KEPT = 64
"""Threads and pools that are noted: a program starts few of them before its steps.

Judgement: fewer may be full before one that loads data, more let a thread for each item grow the
list."""

Actions = dict[str, Callable[[Any], None]]


def actions(session: Session) -> Actions:
    """Hooks by the module of Python's that they belong to."""
    started = functools.partial(_started, session)
    asked = functools.partial(_asked, session)
    return {
        "threading": lambda module: started(module.Thread),
        "multiprocessing.process": lambda module: started(module.BaseProcess),
        "multiprocessing.pool": lambda module: asked(
            module.Pool,
            "apply_async",
            "map_async",
            "starmap_async",
            "imap",
            "imap_unordered",
        ),
        "concurrent.futures.thread": lambda module: asked(
            module.ThreadPoolExecutor, "submit"
        ),
        "concurrent.futures.process": lambda module: asked(
            module.ProcessPoolExecutor, "submit"
        ),
    }


def look(session: Session) -> None:
    """Before a network's first call, and as steps have begun: record since when one was at work."""
    held, session.own_work = session.own_work, None if session.state == "stepping" else []
    mine = threading.current_thread()  # which may be one that trains
    since = [
        begun
        for begun, worker in held or ()
        if not (worker() is mine or _is_shut(worker()))
    ]
    if since:
        session.recorder.add(("ahead", min(since)))


def _is_shut(worker: Any) -> bool:
    """True for a pool that takes no more work, or is gone."""
    if worker is None:
        return True
    shut = any(
        getattr(worker, name, False) is True for name in ("_shutdown", "_shutdown_thread")
    )
    return shut or getattr(worker, "_state", "RUN") != "RUN"


def _started(session: Session, kind: Any) -> None:
    patches = Patches()

    @patches.wrap(kind, "start")
    def start(original: Any, self: Any) -> None:
        begun = clock()
        given = [self.run, *vars(self).values()]  # a start forgets its target
        if isinstance(
            self, threading.Thread
        ):  # a DataLoader's worker has own functions, too
            given += getattr(self, "_args", None) or ()
        original(self)
        session.attempt(
            _note, session, begun, lambda: self, given
        )  # it may end, and be ahead

    @patches.wrap(kind, "join")
    def join(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if session.own_work and not self.is_alive():
            session.own_work = [each for each in session.own_work if each[1]() is not self]


def _asked(session: Session, pool: Any, *names: str) -> None:
    for name in names:

        @Patches().wrap(pool, name)
        def ask(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            begun = clock()
            answer = original(self, *args, **kwargs)
            work = args[0] if args else kwargs.get("func")
            session.attempt(_note, session, begun, weakref.ref(self), [work])
            return answer


def _note(
    session: Session, begun: float, worker: Callable[[], Any], given: list[Any]
) -> None:
    """Note a worker that the program starts, or that is given a function of the program's own."""
    held = session.own_work
    if held is None or len(held) == KEPT:
        return
    if not (call_sites.by_program() or any(map(_is_own, given))):
        return
    if not held or held[-1][1]() is not worker():  # a pool is asked many times
        held.append((begun, worker))


def _is_own(work: Any) -> bool:
    """True if a function or a generator is the program's own, or is held by one that is called."""
    if isinstance(work, functools.partial):  # of asyncio's, the function is an argument
        return any(map(_is_own, (work.func, *work.args)))
    code = getattr(getattr(work, "__func__", work), "__code__", None)
    code = code or getattr(work, "gi_code", None)
    if code is None:  # an object that is called as a function
        code = getattr(getattr(type(work), "__call__", None), "__code__", None)  # noqa: B004
    return code is not None and not call_sites.is_foreign(code.co_filename)
