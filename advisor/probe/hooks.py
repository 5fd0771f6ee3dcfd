"""What torch tells us: batches, root forwards, backwards, optimizer steps.

Every hook appends one tuple and, when something is due, ticks. Whatever goes wrong in one of ours
is kept in the record and never reaches the program.
"""

from __future__ import annotations

import functools
from typing import Any

from . import applying, fetches, forwards, graphs, recomputing, record, updates
from .session import Session

FLAG = "_gpu_advisor_hooked"
PARTS = (
    fetches.built,
    fetches.handed_out,
    forwards.watch,
    updates.backwards,
    updates.asked_for,
    updates.scaler,
    updates.optimizers,
    updates.steps,
    graphs.install,
    recomputing.watch,
    applying.install,
)
"""What is hooked, each by itself: where one part cannot be, the others are."""


def install(torch: Any, session: Session) -> None:
    """Hook torch, once, whoever asks. `session.patches.undo()` takes every hook back."""
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
