"""Calls of roots of which no more is to be learnt than their time and their items.

Their class is given a `__call__` of ours, so that torch need not look for hooks in each call; where
something is compiled, and torch would trace into it, it is taken back for good.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Any, Callable, List

from . import roots
from .hooking import step_end
from .session import Session

clock = time.perf_counter


class Settled:
    """The classes that tell by themselves."""

    def __init__(self, torch: Any, session: Session) -> None:
        self._plain = torch.nn.Module.__call__
        self._session = session
        self._call = _call(torch, session)
        self._classes: List[type] = []
        session.patches.on_undo(self.release)
        session.rest.inside = functools.partial(_is_inside, torch.nn.Module._call_impl.__code__)

    def take(self, module: Any) -> None:
        """Have the class of a settled root tell of its calls, if it is called as torch's are."""
        kind: Any = type(module)
        if not self._session.compilations and kind.__call__ is self._plain:
            kind.__call__ = self._call
            self._classes.append(kind)

    def release(self) -> None:
        """Back to what they were."""
        while self._classes:
            kind: Any = self._classes.pop()
            if vars(kind).get("__call__") is self._call:
                del kind.__call__


def _call(torch: Any, session: Session) -> Callable[..., Any]:
    call, entrance, rest = torch.nn.Module.__call__, session.entrance, session.rest
    step_ended, with_gradients = step_end(session), torch.is_grad_enabled
    tracing = torch._C._get_tracing_state
    guarded = False
    """In a rest in which a call without gradients is an evaluation, and ends it."""

    def __call__(*args: Any, **kwargs: Any) -> Any:  # the module is the first of them
        if guarded:
            if with_gradients():
                return call(*args, **kwargs)
            session.attempt(rest.wake, session.log)
        if not entrance.open:
            return call(*args, **kwargs)
        root = _root(session, args[0])
        if root is None or tracing():
            entrance.look()  # more is to be learnt of this one
            return call(*args, **kwargs)
        entrance.shut()
        session.root_runs = True
        entered = clock()
        try:
            output = call(*args, **kwargs)
        except BaseException:
            _ended(session)
            session.attempt(roots.leave, session, root, args[1:], kwargs, None, entered, clock())
            raise
        end = clock()
        _ended(session)
        items = root.counted(args[1:], kwargs)
        session.log.forwards.append((entered, end, root.number, items, with_gradients()))
        step_ended(end)
        return output

    def out() -> None:
        nonlocal guarded
        guarded = not (rest.last.batches or rest.last.ungraded)
        session.rota.on = False
        entrance.shut()

    def back() -> None:
        nonlocal guarded
        guarded, session.rota.on = False, True
        entrance.rests = 0
        entrance.reopen()

    rest.part(out, back)
    return __call__


def _is_inside(call: Any) -> bool:
    """Whether `call`, the code by which torch calls a module, is running in this thread."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not call:
        frame = frame.f_back
    return frame is not None


def _root(session: Session, module: Any) -> Any:
    """The root that is settled; None where more is to be seen of its calls than is noted here."""
    root = session.roots.get(id(module))
    if root is None or root.place is None or root.module() is not module:
        return None
    return root if session.tally is None else None


def _ended(session: Session) -> None:
    session.root_runs = False
    if session.rota.on:
        session.entrance.reopen()
