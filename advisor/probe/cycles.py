"""Where an iterative sampler begins its next item, when no loader marks it.

Two signs, both blind to what the program is: a number that runs one way through the calls and
jumps back (the timestep), or another network that is called in between (an encoder, a decoder).
"""

from __future__ import annotations

from .averages import median
from .log import Log

SHORTEST = 4
"""Fewer forwards than this are no cycle."""
ONE_WAY = 0.8
MOVING = 0.25
"""At least this share of the calls must move the number: guidance repeats each timestep."""
JUMP = 0.5


def starts(log: Log, root: int, calls: list[int]) -> list[int] | None:
    """Positions in `calls` at which a new item begins, the first call left out.

    An empty list: a number runs one way and has not jumped back yet. None: no sign of a cycle.
    """
    by_number = None
    for values in _numbers(log, root):
        found = jumps(values)
        if found:
            return found
        by_number = found if by_number is None else by_number
    runs = _runs(log, root, calls)
    return runs if runs is not None else by_number


def gone_on(found: list[int], forgotten: int, held: int) -> list[int]:
    """Positions among the calls that are `held`, where the first so many are `forgotten`: `found`
    is of the first calls of all, and what came later went on like that."""
    each = round(median([b - a for a, b in zip([0, *found], found)]))
    later = range(found[-1] + each, forgotten + held, each)
    return [at - forgotten for at in (*found, *later) if at > forgotten]


def jumps(values: list[float | None]) -> list[int] | None:
    """Positions at which `values` jump back; None if they do not run one way."""
    known = [value for value in values if value is not None]
    if len(known) < 2 * SHORTEST:
        return None
    steps = [(b - a) for a, b in zip(known, known[1:])]
    moves = [step for step in steps if step]
    up = sum(step > 0 for step in moves)
    way = 1 if 2 * up >= len(moves) else -1
    along = up if way > 0 else len(moves) - up
    if len(moves) < max(SHORTEST, MOVING * len(steps)) or along < ONE_WAY * len(moves):
        return None
    reach = JUMP * (max(known) - min(known))
    found, before = [], None
    for position, value in enumerate(values):
        if before is not None and value is not None and (value - before) * way < -reach:
            found.append(position)
        before = value if value is not None else before
    lengths = [b - a for a, b in zip([0, *found], found)]
    return None if lengths and median(lengths) < SHORTEST else found


def _numbers(log: Log, root: int) -> list[list[float | None]]:
    """The numbers among the root's arguments, call by call, one list for each argument."""
    scalars = log.roots[root].scalars
    names = dict.fromkeys(name for call in scalars[:16] for name in call)
    return [[_read(call, name) for call in scalars] for name in names]


def _read(call: dict[str, object], name: str) -> float | None:
    """The number itself; a tensor is read once, which waits for the device."""
    value = call.get(name)
    item = getattr(value, "item", None)
    if item is not None:
        call[name] = value = item()
    return float(value) if isinstance(value, (int, float)) else None


def _runs(log: Log, root: int, calls: list[int]) -> list[int] | None:
    """Positions after which another network with parameters had its turn."""
    if not calls:
        return None
    found = []
    for position, (before, call) in enumerate(zip(calls, calls[1:]), 1):
        between = log.forwards[before + 1 : call]
        if any(log.roots[entry[2]].parameters for entry in between):
            found.append(position)
    lengths = [b - a for a, b in zip([0, *found], found)]
    return found if len(found) >= 2 and median(lengths) >= SHORTEST else None
