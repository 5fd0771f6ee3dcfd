"""Beginnings of a sampler's items, where no DataLoader marks them.

Two signs: a number among the arguments that runs one way and jumps back (the timestep), or another
network that is called in between (an encoder, a decoder).
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.analysis.events import EventLog

SHORTEST = 4
"""Fewest forwards of a cycle."""
ONE_WAY = 0.8
MOVING = 0.25
"""Least share of the calls that move the number: guidance repeats each timestep."""
JUMP = 0.5


def cycle_starts(log: EventLog, module: int, calls: list[int]) -> list[int] | None:
    """Positions in `calls` where new items begin.

    An empty list: a number runs one way and has not jumped back yet. None: no sign of a cycle.
    """
    by_number = None
    for values in _arguments(log, module):
        found = jumps(values)
        if found:
            return found
        by_number = found if by_number is None else by_number
    runs = _runs(log, calls)
    return runs if runs is not None else by_number


def jumps(values: Sequence[float]) -> list[int] | None:
    """Positions where monotonic `values` jump back."""
    if len(values) < 2 * SHORTEST:
        return None
    steps = [b - a for a, b in pairwise(values)]
    moves = [step for step in steps if step]
    up = sum(step > 0 for step in moves)
    way = 1 if 2 * up >= len(moves) else -1
    along = max(up, len(moves) - up)
    if len(moves) < max(SHORTEST, MOVING * len(steps)) or along < ONE_WAY * len(moves):
        return None
    reach = JUMP * (max(values) - min(values))
    found = [position for position, step in enumerate(steps, 1) if step * way < -reach]
    lengths = [b - a for a, b in pairwise([0, *found])]
    return None if lengths and median(lengths) < SHORTEST else found


def _arguments(log: EventLog, module: int) -> list[list[float]]:
    """Numeric arguments that every call has, one list each."""
    calls = log.numbers.get(module, [])
    names = [name for name in calls[0] if all(name in call for call in calls)] if calls else []
    return [[call[name] for call in calls] for name in names]


def _runs(log: EventLog, calls: list[int]) -> list[int] | None:
    """Positions after which another network with parameters was called."""
    if not calls:
        return None
    found = []
    for position, (before, call) in enumerate(pairwise(calls), 1):
        between = log.calls[before + 1 : call]
        if any(log.module(entry.module).parameters for entry in between):
            found.append(position)
    lengths = [b - a for a, b in pairwise([0, *found])]
    return found if len(found) >= 2 and median(lengths) >= SHORTEST else None
