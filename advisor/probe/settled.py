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
from .hooking import step_end, tracing_of
from .session import Session

clock = time.perf_counter


class _Usual:
    """The calls of an update in a rest, of one training without a loader: each must be as in those
    before."""

    def __init__(self, torch: Any, session: Session) -> None:
        self._session = session
        self._with_gradients = torch.is_grad_enabled
        self.known: List[Any] = []
        """Of the calls of the rest's first update: (id of the module, shape of what is handed to it
        first, graded); None where something else tells their items."""

    def is_next(self, args: Any, kwargs: Any) -> bool:
        """Whether a call is as usual; if it is not, the rest ends. Of a call within a root's
        nothing is known, nor asked."""
        session, rest = self._session, self._session.rest
        root, graded, at = _root(session, args[0]), self._with_gradients(), rest.called
        if root is None and graded:
            return True
        rest.called = at + 1
        if root and rest.calls[at : at + 1] == (
            (root.number, root.counted(args[1:], kwargs), graded),
        ):
            if at == len(self.known):
                by_first = root.place and root.place[:2] == (True, 0)
                self.known.append((id(args[0]), args[1].shape, graded) if by_first else None)
            return True
        session.attempt(rest.wake, session.log, not graded)
        return False


class KnobVerdict:
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
    entrance, rest = session.entrance, session.rest
    torch_module, plain = torch.nn.Module, torch.nn.Module.__call__
    step_ended, with_gradients = step_end(session), torch.is_grad_enabled
    tracing = tracing_of(torch)
    guarded = False
    """In a rest that other calls than the usual ones end, those without gradients among them."""

    usual = _Usual(torch, session)
    known, as_usual = usual.known, usual.is_next

    def give_way() -> None:
        session.settled.release()
        rest.wake(session.log)
        entrance.look()

    def __call__(*args: Any, **kwargs: Any) -> Any:  # the module is the first of them
        if torch_module.__call__ is not plain:  # another's: torch.fx's while it traces, or to stay
            if not tracing():
                session.attempt(give_way)
            return torch_module.__call__(*args, **kwargs)
        if guarded:
            try:
                same = known[rest.called] == (id(args[0]), args[1].shape, with_gradients())
            except Exception:
                same = False
            if same:
                rest.called += 1
            if same or as_usual(args, kwargs):
                return plain(*args, **kwargs)
        if not entrance.open:
            return plain(*args, **kwargs)
        root = _root(session, args[0])
        if root is None or tracing():
            entrance.look()  # more is to be learnt of this one
            return plain(*args, **kwargs)
        entrance.shut()
        session.root_runs = True
        entered = clock()
        try:
            output = plain(*args, **kwargs)
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
        guarded = not (rest.last.batches or session.compilations)
        rest.called, rest.calls = 0, rest.last.calls if guarded else ()
        known.clear()
        session.rota.on = False
        entrance.shut()

    def back() -> None:
        nonlocal guarded
        guarded, session.rota.on = False, True
        known.clear()
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
