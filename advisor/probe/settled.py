"""Calls of roots of which no more is to be learnt than their time and their items.

Their class is given a `__call__` of ours, so that torch need not look for hooks in each call; where
something is compiled, and torch would trace into it, it is taken back for good.
"""

from __future__ import annotations

import time
from typing import Any, Callable, List

from . import roots
from .hooking import step_end
from .session import Session

clock = time.perf_counter


class Settled:
    """The classes that tell by themselves."""

    def __init__(self, torch: Any, session: Session) -> None:
        self._base = torch.nn.Module
        self._plain = torch.nn.Module.__call__
        self._session = session
        self._call = _call(torch, session)
        self._classes: List[type] = []
        session.patches.on_undo(self.release)

    def take(self, module: Any) -> None:
        """Have the class of a settled root tell of its calls, if it is called as torch's are."""
        kind: Any = type(module)
        if not self._session.compilations and kind.__call__ is self._plain:
            kind.__call__ = self._call
            self._classes.append(kind)

    def release(self) -> None:
        """Back to what they were."""
        while self._classes:
            kind = self._classes.pop()
            if vars(kind).get("__call__") is self._call:
                del kind.__call__


def _call(torch: Any, session: Session) -> Callable[..., Any]:
    base, entrance = torch.nn.Module, session.entrance
    step_ended, with_gradients = step_end(session), torch.is_grad_enabled
    tracing, rest = torch._C._get_tracing_state, session.rest
    known: Any = None
    known_id = 0
    noted: Any = None
    noted_id = at = axis = number = 0
    note: Any = None
    """While the probe rests: the root whose calls are only noted, where the items are counted, and
    what takes the note."""

    def __call__(*args: Any, **kwargs: Any) -> Any:  # the module is the first of them
        if not entrance.open:
            return base.__call__(*args, **kwargs)
        if entrance.hooked or id(args[0]) != noted_id or tracing():
            return in_full(*args, **kwargs)
        entrance.open = False
        entered = clock()
        try:
            output = base.__call__(*args, **kwargs)
        except BaseException:
            _failed(session, noted, args[1:], kwargs, entered)
            raise
        end = clock()
        if noted_id:
            entrance.open = True
        else:  # the rest ended meanwhile
            _ended(session)
        try:
            items = args[at].shape[axis]
        except Exception:  # it is called in another way now
            items = noted.counted(args[1:], kwargs)
        note((entered, end, number, items, with_gradients()))
        if end >= rest.calm_until:
            step_ended(end)
        return output

    def in_full(*args: Any, **kwargs: Any) -> Any:
        nonlocal known, known_id
        root = _root(session, args[0])
        if root is None or tracing():
            entrance.look()  # more is to be learnt of this one
            return base.__call__(*args, **kwargs)
        known, known_id = root, id(args[0])
        entrance.shut()
        session.root_runs = True
        entered = clock()
        try:
            output = base.__call__(*args, **kwargs)
        except BaseException:
            _failed(session, root, args[1:], kwargs, entered)
            raise
        end = clock()
        _ended(session)
        items = root.counted(args[1:], kwargs)
        session.log.forwards.append((entered, end, root.number, items, with_gradients()))
        step_ended(end)
        return output

    def note_only() -> None:
        nonlocal noted, noted_id, at, axis, number, note
        where = None if known is None else known.by_position
        if where is not None:
            noted, noted_id, number, note = (
                known,
                known_id,
                known.number,
                session.log.forwards.append,
            )
            at, axis = where[0] + 1, where[1]

    def see_all() -> None:
        nonlocal noted_id
        noted_id = 0

    rest.part(note_only, see_all)
    return __call__


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


def _failed(session: Session, root: Any, args: Any, kwargs: Any, entered: float) -> None:
    _ended(session)
    session.attempt(roots.leave, session, root, args, kwargs, None, entered, clock())
