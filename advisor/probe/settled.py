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

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not entrance.open:
            return base.__call__(self, *args, **kwargs)
        if not rest.left or entrance.hooked or id(self) != known_id or tracing():
            if not may_tell(self):
                entrance.look()  # more is to be learnt of this one
                return base.__call__(self, *args, **kwargs)
            entrance.shut()
            session.root_runs = True
        entrance.open = False
        entered = clock()
        try:
            output = base.__call__(self, *args, **kwargs)
        except BaseException:
            ended()
            session.attempt(roots.leave, session, known, args, kwargs, None, entered, clock())
            raise
        end = clock()
        if rest.left and entrance.rests:
            entrance.open = True
        else:
            ended()
        root = known
        items = root.counted(args, kwargs)
        session.log.forwards.append((entered, end, root.number, items, with_gradients()))
        if end >= rest.calm_until:
            step_ended(end)
        return output

    def may_tell(module: Any) -> bool:
        nonlocal known, known_id
        root = session.roots.get(id(module))
        if root is None or root.place is None or root.module() is not module:
            return False
        known, known_id = root, id(module)
        return session.tally is None and not tracing()

    def ended() -> None:
        session.root_runs = False
        if session.rota.on:
            entrance.reopen()

    return __call__
