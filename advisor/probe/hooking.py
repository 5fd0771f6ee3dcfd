"""Shared parts of hooks: keys, muting and step ends."""

from __future__ import annotations

import sys
from typing import Any, Callable

from .session import Session

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
            session.tick(now)

    return step_ended


def listen(module: Any, key: int, hook: Any) -> None:
    """Call `hook(module, args, kwargs, output)` after each call of `module`.

    From torch 2.1 on it is called for one that raised, too.
    """
    module._forward_hooks[key] = hook
    module._forward_hooks_with_kwargs[key] = True
    if ALWAYS in module.__dict__:
        module._forward_hooks_always_called[key] = True


def unlisten(module: Any, key: int) -> None:
    """Take that hook out again."""
    for name in ("_forward_hooks", "_forward_hooks_with_kwargs", ALWAYS):
        module.__dict__.get(name, {}).pop(key, None)


def compiling_of(torch: Any) -> Callable[[], bool]:
    """Make the check for running compilation."""
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def tracing_of(torch: Any) -> Callable[[], object]:
    """Make the check for torch.jit and fx tracing."""
    by_jit = torch._C._get_tracing_state
    fx = sys.modules.get("torch.fx._symbolic_trace")
    return lambda: by_jit() or getattr(fx, "_is_fx_tracing_flag", False)
