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
    tracing = torch._C._get_tracing_state

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not entrance.open:
            return base.__call__(self, *args, **kwargs)
        root = session.roots.get(id(self))
        if (
            root is None
            or root.place is None
            or root.module() is not self
            or session.tally is not None
            or tracing()
        ):
            entrance.look()  # more is to be learnt of this one
            return base.__call__(self, *args, **kwargs)
        entrance.shut()
        session.root_runs = True
        entered = clock()
        output = None
        try:
            output = base.__call__(self, *args, **kwargs)
            return output
        finally:
            end = clock()
            session.root_runs = False
            if session.rota.on:
                entrance.reopen()
            if output is None:  # it raised, or is called for what it does
                session.attempt(roots.leave, session, root, args, kwargs, None, entered, end)
            else:
                items = root.counted(args, kwargs)
                session.log.forwards.append((entered, end, root.number, items, with_gradients()))
            if end >= session.due or session.clock is not None:
                step_ended(end)

    return __call__
