"""Shared parts of hooks: keys, muting and step ends."""

from __future__ import annotations

import sys
from typing import Any, Callable

from . import control
from .session import Session

POST = -7005
"""Key in torch's hook dicts; torch's own are counted from 0 up."""
ALWAYS = "_forward_hooks_always_called"
"""Attribute of modules that torch has since 2.1."""


def is_muted(session: Session) -> bool:
    """Return True in a forked DataLoader worker."""
    if session.muted is None:
        worker = sys.modules.get("torch.utils.data._utils.worker")
        session.muted = getattr(worker, "_worker_info", None) is not None
    return session.muted


def step_end(session: Session) -> Callable[[float], None]:
    """Make the fast check called at possible step ends."""

    def step_ended(now: float) -> None:
        if session.capture is not None:
            return
        if session.device is not None:
            session.attempt(session.device.mark, now)
        if now >= session.due:
            control.tick(session, now)

    return step_ended


def listen(module: Any, key: int, hook: Any) -> None:
    """Call `hook(module, args, kwargs, output)` after each call of `module`.

    Where torch can do that (2.1 and later) it is called for one that raised, too.
    """
    module._forward_hooks[key] = hook
    module._forward_hooks_with_kwargs[key] = True
    if ALWAYS in module.__dict__:
        module._forward_hooks_always_called[key] = True


def unlisten(module: Any, key: int) -> None:
    """Take that hook out again."""
    module._forward_hooks.pop(key, None)
    module._forward_hooks_with_kwargs.pop(key, None)
    if ALWAYS in module.__dict__:
        module._forward_hooks_always_called.pop(key, None)


def dress(ours: Any, original: Any) -> None:
    """Copy the signature and documentation of `original`."""
    ours.__doc__ = original.__doc__
    ours.__wrapped__ = original


def compiling_of(torch: Any) -> Callable[[], bool]:
    """Make the check for running compilation."""
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def tracing_of(torch: Any) -> Callable[[], object]:
    """Make the check for torch.jit and fx tracing."""
    by_jit = torch._C._get_tracing_state
    fx = sys.modules.get("torch.fx._symbolic_trace")
    return lambda: by_jit() or getattr(fx, "_is_fx_tracing_flag", False)
