"""Installation of all hooks in torch.

Every hook appends one event and, when something is due, ticks. Whatever goes wrong in one of ours
is kept in the record and never reaches the program.
"""

from __future__ import annotations

import functools
from typing import Any

from . import (
    autograd_optimizer_hooks,
    cuda_graphs,
    dataloader_hooks,
    module_hooks,
    override_install,
    record,
)
from .session import Session

FLAG = "_gpu_advisor_hooked"
PARTS = (
    dataloader_hooks.built,
    dataloader_hooks.handed_out,
    module_hooks.watch,
    autograd_optimizer_hooks.backwards,
    autograd_optimizer_hooks.asked_for,
    autograd_optimizer_hooks.scaler,
    autograd_optimizer_hooks.optimizers,
    autograd_optimizer_hooks.steps,
    autograd_optimizer_hooks.recomputing,
    cuda_graphs.install,
    override_install.install,
)
"""Parts that are hooked, each by itself: where one cannot be, the others are."""


def install(torch: Any, session: Session) -> None:
    """Install all torch hooks once."""
    if getattr(torch, FLAG, False):
        return
    session.patches.on_undo(functools.partial(record.aside, session))
    session.patches.put(torch, FLAG, True)
    session.torch = torch
    for part in PARTS:
        try:
            part(torch, session)
        except Exception as problem:
            session.fail(problem)
