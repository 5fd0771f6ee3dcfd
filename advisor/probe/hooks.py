"""Hooks in torch: each appends an event; errors of ours stay here."""

from __future__ import annotations

import functools
from typing import Any

from . import (
    control,
    cuda_events,
    cuda_stand_in,
    dataloader_hooks,
    module_hooks,
    overrides,
    record,
    training_hooks,
)
from .session import Session

PARTS = (
    cuda_stand_in.install, dataloader_hooks.install, module_hooks.install,
    training_hooks.backwards, training_hooks.asked_for, training_hooks.scaler,
    training_hooks.optimizers, training_hooks.recomputing, cuda_events.install, overrides.install,
)  # fmt: skip
"""Parts that are hooked, each by itself: where one cannot be, the others are."""


def install(torch: Any, session: Session) -> None:
    """Install all torch hooks."""
    session.patches.on_undo(functools.partial(record.aside, session))
    session.torch = torch
    session.tick = functools.partial(control.tick, session)
    for part in PARTS:
        session.attempt(part, torch, session)
