"""Roles of DataLoaders: training, paired and validation."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from advisor.analysis.events import EventLog

OWN_SHARE = 0.5
"""A train loader is trained on with so many of its batches."""
FED_SHARE = 0.02
"""Least share of the updates that the batches of a train loader come in."""
BESIDE_SHARE = 0.5
"""Least share of a loader's batches that come right after those of one drawn beside it."""


class TrainLoaders(NamedTuple):
    """Loaders that feed a training."""

    lead: int | None
    """Loader whose batches are counted."""
    also: set[int]
    """Others whose batches are trained on in turn with its own."""
    beside: set[int]
    """All others that belong to the steps: those in turn, and those drawn beside (`zip`)."""


def train_loaders(log: EventLog) -> TrainLoaders:
    """Loaders whose batches are followed by gradients."""
    nothing = TrainLoaders(None, set(), set())
    credit = _credit(log)
    if not credit:
        return nothing
    own: dict[int, int] = {}
    for fetch in log.fetches:
        own[fetch.loader] = own.get(fetch.loader, 0) + (not fetch.ended_pass)
    main = max(credit, key=lambda key: credit[key])
    fed = credit[main] / len(log.updates or log.passes)
    if fed < FED_SHARE or max(fed, credit[main] / own[main]) < OWN_SHARE:
        return nothing  # the last batch of each validation
    work = [each.end for each in log.passes]
    others = {each for each, times in credit.items() if times >= OWN_SHARE * own[each]} - {main}
    chain = drawn_beside(log, main, work)
    lead = chain[0] if chain else main
    beside = (others | set(chain) | {main}) - {lead}
    return TrainLoaders(lead, others - set(chain), beside)


def _credit(log: EventLog) -> dict[int, int]:
    """Batches that were followed by gradients, by loader."""
    served = [fetch for fetch in log.fetches if not fetch.ended_pass]
    ends = [fetch.end for fetch in served]
    credited: dict[int, set[int]] = {}
    for each in log.passes:
        at = bisect.bisect_right(ends, each.end) - 1
        if at >= 0:
            credited.setdefault(served[at].loader, set()).add(at)
    return {loader: len(batches) for loader, batches in credited.items()}


def drawn_beside(log: EventLog, main: int, work: list[float]) -> list[int]:
    """Loaders drawn together with `main`, in order.

    `work`: times at which a batch was worked on.
    """
    served = [fetch for fetch in log.fetches if not fetch.ended_pass]
    found: dict[tuple[int, ...], int] = {}
    batches = 0
    chain: list[int] = []
    before = float("-inf")
    for fetch in served:
        if bisect.bisect_left(work, fetch.end) != bisect.bisect_left(work, before):
            chain = []
        before = fetch.end
        if fetch.loader == main:
            batches += 1
            key = tuple(dict.fromkeys(other for other in chain if other != main))
            found[key] = found.get(key, 0) + 1
            chain = []
        else:
            chain.append(fetch.loader)
    if not found:
        return []
    common = max(found, key=lambda key: found[key])
    return list(common) if found[common] >= BESIDE_SHARE * batches else []
