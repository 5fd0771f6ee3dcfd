"""Which weights a training began with, so that runs that began alike can be told.

A loss tells of an update only beside that of another run with the same weights. A program may draw
them from the clock, from its data or from a process of its own, whatever seeds it gets.
"""

from __future__ import annotations

import hashlib
from typing import Any

from .own_edits import is_plain
from .session import Session

# By judgement: a few numbers tell networks apart that were drawn anew, and cost next to nothing.
WEIGHTS = 32
"""Weights that are looked at, spread over all of the optimizer's."""
NUMBERS = 4
"""Numbers of each."""


def look(session: Session, optimizer: Any) -> None:
    """Keep some of the weights that the program's first update is about to move."""
    session.first_weights = []
    if session.capture is not None:
        return
    given = (weight for group in optimizer.param_groups for weight in group["params"])
    weights = [each for each in given if is_plain(session.torch, each)]
    with session.unseen():
        for weight in weights[:: max(1, len(weights) // WEIGHTS)]:
            flat = weight.detach().reshape(-1)
            session.first_weights.append(flat[:: max(1, len(flat) // NUMBERS)].clone())


def content(session: Session) -> str:
    """Digest of the first weights, to six digits as cards round otherwise; empty if not seen."""
    parts = [part for part in session.first_weights or () if part.is_floating_point()]
    numbers = [f"{number:.6g}" for part in parts for number in part.tolist()]
    return hashlib.sha256(" ".join(numbers).encode()).hexdigest()[:16] if numbers else ""
