"""Batches that were worked on, of those that a loader gave."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, NamedTuple

from advisor.analysis.averages import most_common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.analysis.events import BatchFetch, ForwardCall

SKIPPED_SHARE = 0.02
"""Fewer items without a forward are those of batches loaded ahead."""


class _Run(NamedTuple):
    """Batches loaded in a row, and items of the forwards that followed."""

    batches: list[BatchFetch]
    forwarded: float

    @property
    def loaded(self) -> float:
        """Items of all batches."""
        return sum(fetch.items for fetch in self.batches)

    def used(self, forwards_each: float) -> list[BatchFetch]:
        """Latest batches whose items the forwards took."""
        left = self.forwarded / forwards_each
        count = 0
        for fetch in reversed(self.batches):
            if count and left < fetch.items:
                break
            left -= fetch.items
            count += 1
        return self.batches[len(self.batches) - count :]


def used_batches(
    batches: Sequence[BatchFetch],
    work: Sequence[float],
    calls: Sequence[ForwardCall],
    passes_ended: int,
) -> list[BatchFetch]:
    """Batches whose items went through a forward.

    `work`: times at which batches were worked on. Where forwards took all items but a few, the
    others were loaded ahead.
    """
    runs, pending = _runs(batches, work, calls)
    ratios = [run.forwarded / run.loaded for run in runs if len(run.batches) == 1 and run.loaded]
    each = max(1.0, most_common([round(ratio, 2) for ratio in ratios]) or 1.0)
    later = runs[len(runs) // 2 :]  # a queue is full by then
    loaded = sum(run.loaded for run in later)
    forwarded = sum(run.forwarded for run in later) / each
    ahead = (2 + passes_ended) * max((fetch.items for fetch in batches), default=0.0)
    if not forwarded or loaded - forwarded <= max(ahead, SKIPPED_SHARE * loaded):
        return list(batches)
    found: list[BatchFetch] = []
    for run in runs:
        found += run.used(each)
    return found + pending


def _runs(
    batches: Sequence[BatchFetch], work: Sequence[float], calls: Sequence[ForwardCall]
) -> tuple[list[_Run], list[BatchFetch]]:
    """Runs of batches that were worked on, and the batches after the last."""
    starts = [call.start for call in calls]
    runs: list[_Run] = []
    pending: list[BatchFetch] = []
    for position, fetch in enumerate(batches):
        pending.append(fetch)
        until = batches[position + 1].start if position + 1 < len(batches) else float("inf")
        if bisect.bisect_left(work, until) > bisect.bisect_left(work, fetch.end):
            low, high = (
                bisect.bisect_left(starts, pending[0].end),
                bisect.bisect_left(starts, until),
            )
            runs.append(_Run(pending, sum(call.items for call in calls[low:high])))
            pending = []
    return runs, pending
