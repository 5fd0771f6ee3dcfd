"""Arms in turn, in fresh processes: whatever is measured against something else goes through here.

The order flips with every round that counts, so that a drift of the machine favours neither arm. A
round that somebody disturbed is run again as a whole: dropping one arm alone would favour it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Generic[R]):
    """One run of every arm, or of those before one that broke."""

    number: int
    order: tuple[str, ...]
    runs: Mapping[str, R]
    disturbed: str | None = None
    """Why it does not count as it stands."""
    broken: bool = False
    """An arm failed; there is no later round."""


def interleaved(
    arms: Sequence[str],
    run: Callable[[str, int], R],
    *,
    disturbed: Callable[[Mapping[str, R]], str | None],
    broken: Callable[[R], bool] = lambda _: False,
    counted: int = 0,
) -> Iterator[Round[R]]:
    """Rounds without end; who takes them says when there are enough.

    `run` is given the arm and the number of the round, from 1. `disturbed` says why a whole round
    does not count, or None. `counted` rounds were taken before.
    """
    number = counted
    while True:
        number += 1
        order = tuple(arms) if counted % 2 == 0 else tuple(reversed(arms))
        runs: dict[str, R] = {}
        for arm in order:
            runs[arm] = run(arm, number)
            if broken(runs[arm]):
                yield Round(number=number, order=order, runs=runs, broken=True)
                return
        why = disturbed(runs)
        yield Round(number=number, order=order, runs=runs, disturbed=why)
        counted += why is None
