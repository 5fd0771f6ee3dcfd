"""Logs of the probe, written by hand: a loop as its hooks would have seen it."""

from __future__ import annotations

from typing import Any

import torch

from advisor.probe import steps, window
from advisor.probe.log import Log, Root


def log_with(loaders: int = 1, workers: int = 0, prefetch: int | None = None) -> Log:
    """An empty log of one root and so many loaders."""
    log = Log()
    log.loaders = [{"workers": workers, "prefetch": prefetch} for _ in range(loaders)]
    log.roots = [Root(torch.nn.Linear(1, 1), 0, 2)]
    return log


def train(
    log: Log,
    steps_made: int,
    *,
    start: float = 0.0,
    load: float = 0.002,
    work: float = 0.008,
    batch: float = 4.0,
    accumulate: int = 1,
    loader: int = 0,
) -> float:
    """Append training steps to `log`; returns when they ended."""
    now = start
    for _ in range(steps_made):
        for number in range(accumulate):
            log.nexts.append((now, now + load, loader, batch, True))
            now += load
            log.forwards.append((now, now + work / 2, 0, batch, True))
            log.backwards.append((now + work / 2, now + work, number == 0))
            now += work
        log.opts.append((now, now, 1))
    return now


PLAN: dict[str, Any] = {"measure_s": 0.5, "min_steps": 10}


def measured(log: Log, plan: dict[str, Any] = PLAN, *, ended: bool = False) -> window.Window:
    """The window that `plan` finds in `log`, of a program that `ended` by itself or runs on."""
    ledger = steps.read(log, plan, ended)
    assert ledger is not None
    found, need = window.find(log, ledger, plan, whole=ended)
    assert found is not None, need and need.why
    return found
