"""What runs of a training begin with: random generators at one seed, and so equal weights.

Many programs build their network before they seed, or draw the seed itself. Their runs begin with
other weights, and then losses tell nothing of the work. So, where the plan asks for it, Python's,
numpy's and torch's generators begin at one seed before the program's first draw. A seed of its own
replaces it. What the weights then were is recorded, as a program may draw them from the clock.

Each process has another one, by its rank or by its place among those that began: workers that a
program starts would all draw the same otherwise, where each draws something else.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import Any, Callable

from .session import Session

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables in which launchers tell the rank: ranks begin in any order."""
OF_RANKS = 2**16
"""First seed of ranks, above those of other processes."""

# By judgement: a few numbers tell networks apart that were drawn anew, and cost next to nothing.
WEIGHTS = 32
"""Weights that are looked at, spread over all of the optimizer's."""
NUMBERS = 4
"""Numbers of each."""


def actions(session: Session) -> dict[str, Callable[[Any], None]]:
    """What seeds each module as it is imported; nothing without the plan's wish."""
    if not session.plan.get("one_seed"):
        return {}
    number = seed(session.records)
    return {
        "random": lambda module: module.seed(number),
        "numpy.random": lambda module: module.seed(number),
        "torch": lambda module: module.manual_seed(number),
    }


def seed(records: str) -> int:
    """Seed of this process; a file in `records` says that it is taken."""
    told = next((os.environ[name] for name in RANKS if name in os.environ), "")
    if told.isdigit():
        return OF_RANKS + int(told)
    for number in itertools.count():
        path = os.path.join(records, f"seed-{number}")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            continue
        return number
    raise AssertionError


def look(session: Session, optimizer: Any) -> None:
    """Keep some of the weights that the program's first update is about to move."""
    session.first_weights = []
    if session.capture is not None:
        return
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    with session.unseen():
        for weight in weights[:: max(1, len(weights) // WEIGHTS)]:
            flat = weight.detach().reshape(-1)
            session.first_weights.append(flat[:: max(1, len(flat) // NUMBERS)].clone())


def content(session: Session) -> str:
    """Digest of the first weights, to six digits as cards round otherwise; empty if not seen."""
    numbers = [f"{x:.6g}" for part in session.first_weights or () for x in part.tolist()]
    return hashlib.sha256(" ".join(numbers).encode()).hexdigest()[:16] if numbers else ""
