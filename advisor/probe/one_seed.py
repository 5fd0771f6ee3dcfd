"""Random generators that begin at one seed in each run, where the plan asks for it.

Many programs build their network before they seed, or draw the seed itself. Their runs begin with
other weights, and then losses tell nothing of the work. So Python's, numpy's and torch's generators
begin at one seed before the program's first draw. A seed of its own replaces it.

Each process has another one, by its rank or by its place among those that began: workers that a
program starts would all draw the same otherwise, where each draws something else.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from .session import Session

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables in which launchers tell the rank: ranks begin in any order."""
OF_RANKS = 2**16
"""First seed of ranks, above those of other processes.

Judgement: more than the processes that a host starts in a run. With fewer a rank could share its
seed with one of those."""


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
    rank = next((os.environ[name] for name in RANKS if name in os.environ), "")
    if rank.isdigit():
        return OF_RANKS + int(rank)
    number = 0
    while True:
        path = os.path.join(records, f"seed-{number}")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            number += 1
        else:
            return number
