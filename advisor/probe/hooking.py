"""What the hooks share: keys, who is muted, and what they call where a step may have ended."""

from __future__ import annotations

import sys
from typing import Any, Callable

from . import control
from .session import Session

POST = -7005
"""Key in torch's hook dicts; torch's own are counted from 0 up."""


def is_muted(session: Session) -> bool:
    """DataLoader workers inherit the hooks by fork; they are no ranks."""
    if session.muted is None:
        worker = sys.modules.get("torch.utils.data._utils.worker")
        session.muted = getattr(worker, "_worker_info", None) is not None
    return session.muted


def step_end(session: Session) -> Callable[[float], None]:
    """What the hooks call where a step may have ended, as cheap as it can be."""

    def step_ended(now: float) -> None:
        if session.capture is not None:
            return
        if session.clock is not None:
            session.attempt(session.clock.mark, now)
        if now >= session.due:
            control.tick(session, now)

    return step_ended


def dress(ours: Any, original: Any) -> None:
    """For inspect.signature and help()."""
    ours.__doc__ = original.__doc__
    ours.__wrapped__ = original


def compiling_of(torch: Any) -> Callable[[], bool]:
    """What tells whether torch is compiling right now."""
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def tracing_of(torch: Any) -> Callable[[], object]:
    """What tells whether a call is only followed into a graph, by torch.jit or torch.fx."""
    by_jit = torch._C._get_tracing_state
    fx = sys.modules.get("torch.fx._symbolic_trace")
    return lambda: by_jit() or getattr(fx, "_is_fx_tracing_flag", False)
