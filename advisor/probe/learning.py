"""Which optimizers step, and with which learning rates they began."""

from __future__ import annotations

import bisect
from typing import Any, Sequence

from . import timeline

MOST = 8
"""Optimizers that are looked at."""


class Learning:
    """What the optimizers of a program are, seen at their first steps."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[str, list[float]]] = {}
        """Class and rates by id of the optimizer."""

    def stepped(self, optimizer: Any) -> None:
        """After a step of `optimizer`; one whose rates are still nought is looked at again."""
        if len(self.seen) >= MOST:
            return
        rates = sorted({_rate(group) for group in optimizer.param_groups})
        if any(rates):
            self.seen[id(optimizer)] = (_kind(optimizer), rates)

    def told(
        self, updates: Sequence[tuple[float, float, int]], passes: Sequence[timeline.Span]
    ) -> dict[str, Any]:
        """Names of optimizers, all rates that they began with, and the part of the time between
        the first and the last of their `updates` (begin, end, which) that these take: of one that
        makes `passes` itself what comes after the last."""
        seen = list(self.seen.values())
        between_s = updates[-1][1] - updates[0][1] if len(updates) > 1 else 0.0
        ends = [float("-inf"), *(end for _, end, *_ in passes)]
        own = [
            (max(begin, ends[bisect.bisect_right(ends, end) - 1]), end) for begin, end, _ in updates
        ]
        in_them_s = sum(end - begin for begin, end in timeline.merged(own[1:]))
        return {
            "update_share": in_them_s / between_s if between_s > 0 else None,
            "optimizers": sorted({name for name, _ in seen}),
            "learning_rates": sorted({rate for _, rates in seen for rate in rates}),
        }


def _rate(group: Any) -> float:
    """What schedules count from, where one is at work; 0 where there is none."""
    return float(group.get("initial_lr", group.get("lr", 0.0)))


def _kind(optimizer: Any) -> str:
    """The class of torch's that it is or derives from; else its own."""
    for each in type(optimizer).__mro__:
        if each.__module__.startswith("torch.optim") and each.__name__ != "Optimizer":
            return str(each.__name__)
    return type(optimizer).__name__
