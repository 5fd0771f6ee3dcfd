"""Interleaved rounds: one fresh process of each arm.

The order flips, or is the caller's, with every round that counts: a drift of the machine favours no
arm. A contended round is run again as a whole; dropping one arm alone would favour it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from advisor.errors import NodeLostError

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Generic[R]):
    """One run of every arm, or up to a failed one."""

    number: int
    order: tuple[str, ...]
    runs: Mapping[str, R]
    contended: str | None = None
    """Reason why it does not count as it stands."""
    failed: bool = False
    """An arm failed; there is no later round."""


def interleaved(
    arms: Sequence[str],
    run: Callable[[str, int], R],
    *,
    contended: Callable[[Mapping[str, R]], str | None],
    failed: Callable[[R], bool] = lambda _: False,
    counted: int = 0,
    orders: Iterator[tuple[str, ...]] | None = None,
) -> Iterator[Round[R]]:
    """Run rounds without end, until the caller stops.

    `run` is given the arm and the number of the round, from 1. `contended` gives the reason why a
    whole round does not count, or None. `counted` rounds were taken before. `orders` gives the
    order of each round that counts; without, it flips. A round whose node is lost begins again.
    """
    number, order = counted, _order(arms, counted, orders)
    while True:
        number += 1
        try:
            runs = _runs_of(order, number, run, failed)
        except NodeLostError as lost:
            if lost.again:
                continue
            raise
        if any(map(failed, runs.values())):
            yield Round(number=number, order=order, runs=runs, failed=True)
            return
        reason = contended(runs)
        yield Round(number=number, order=order, runs=runs, contended=reason)
        if reason is None:
            counted += 1
            order = _order(arms, counted, orders)


def _runs_of(
    order: tuple[str, ...],
    number: int,
    run: Callable[[str, int], R],
    failed: Callable[[R], bool],
) -> dict[str, R]:
    """Runs of one round, up to a failed one."""
    runs: dict[str, R] = {}
    for arm in order:
        runs[arm] = run(arm, number)
        if failed(runs[arm]):
            break
    return runs


def _order(
    arms: Sequence[str], counted: int, orders: Iterator[tuple[str, ...]] | None
) -> tuple[str, ...]:
    """Order of the next round."""
    if orders is not None:
        return next(orders)
    return tuple(arms) if counted % 2 == 0 else tuple(reversed(arms))
