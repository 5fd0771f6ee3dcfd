"""Which optimizers step, and with which learning rates they began."""

from __future__ import annotations

from typing import Any

MOST = 8
"""Optimizers that are looked at."""


class Learning:
    """What the optimizers of a program are, seen at their first steps."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, list[float]]] = {}

    def stepped(self, optimizer: Any) -> None:
        """After a step of `optimizer`; one whose rates are still nought is looked at again."""
        if id(optimizer) in self._seen or len(self._seen) >= MOST:
            return
        rates = sorted({_rate(group) for group in optimizer.param_groups})
        if any(rates):
            self._seen[id(optimizer)] = (_kind(optimizer), rates)

    def told(self) -> dict[str, Any]:
        """Names of optimizers, and all rates that they began with."""
        seen = list(self._seen.values())
        return {
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
