"""From what the hooks saw to a ledger: what one step is here, and how many units it finished.

Pure functions over a Log. Nothing of any workload is known here, only four shapes of loop:

    optimizer step   training, or training step where no optimizer of torch's steps: `training`
    loader batch     inference over a DataLoader, a few forwards a batch
    root forward     an iterative sampler (many forwards a batch, or many forwards of a network
                     within a root's own), or no loader at all
"""

from __future__ import annotations

import bisect
from typing import Any

from . import cycles, training
from .averages import median, most_common
from .ledger import FORWARD, LOADER, TRAINING, Ledger, dominant_root
from .log import EXHAUSTED, Log

__all__ = ["FORWARD", "LOADER", "TRAINING", "Ledger", "dominant_root", "read"]

SAMPLER_FORWARDS = 4
"""From this many forwards of one module a batch, the loop is taken for an iterative sampler."""

CYCLE_PATIENCE_S = 60.0
"""Without a loader, how long a first item is waited for before forwards are taken for units."""
FEWEST_ITEMS, MARKED_SHARE = 3, 0.8
"""A network marks items if it had so many calls, nearly each followed by the dominant one's."""
SKIPPED_SHARE = 0.02
"""Fewer batches without a forward are those loaded ahead."""

Call = tuple[float, float, int, float, bool]
"""(enter, exit, root, batch, graded)"""
Group = tuple[float, list[Call], bool]
"""Items of one batch, its forwards, and whether it was finished."""


def read(log: Log, plan: dict[str, Any], ended: bool = False) -> Ledger | None:
    """The ledger of `log`; None while nothing can be recognised as a step.

    `ended`: the program came to its own end, so that the last batch is a finished one.
    """
    if log.opts or log.passes:
        return training.read(log, ended)
    loader = _busiest_loader(log)
    outer = dominant_root(log)
    root, calls = _loop_of(log, outer)
    if loader is None:
        if root is None or outer is None:
            return None
        if root != outer:
            return _sampler(log, None, root, _by_outer(log, outer, calls), plan, ended)
        return _without_loader(log, root, calls, plan, ended)
    groups = _forwards_by_batch(log, loader, calls)
    whole = [len(group) for _, group, closed in groups if (closed or ended) and group]
    many = median(whole) if whole else max((len(g) for _, g, _ in groups), default=0)
    ledger: Ledger | None
    if root is not None and many >= SAMPLER_FORWARDS:
        ledger = _sampler(log, loader, root, groups, plan, ended)
    else:
        ledger = _loader_batches(log, loader, root, whole, ended)
    if ledger is not None:
        enters = [entry[0] for entry in log.forwards]
        ledger.beside = set(training.drawn_beside(log, loader, enters))
    return ledger


def _loop_of(log: Log, root: int | None) -> tuple[int | None, list[Call]]:
    """The network whose calls are counted: the root, or the one that it calls many times."""
    if root is None:
        return None, []
    for inner in log.roots[root].inners:
        calls = [entry for entry in log.inners if entry[2] == inner.number]
        if calls:
            return inner.number, calls
    return root, [entry for entry in log.forwards if entry[2] == root]


def _by_outer(log: Log, outer: int, calls: list[Call]) -> list[Group]:
    """The calls within each forward of the root, the running one included."""
    enters = [entry[0] for entry in calls]
    groups: list[Group] = []
    high = 0
    for enter, end, root, items, _ in log.forwards:
        if root == outer:
            low, high = bisect.bisect_left(enters, enter), bisect.bisect_left(enters, end)
            groups.append((items, calls[low:high], True))
    if high < len(calls):
        batch = most_common([group[0] for group in groups])
        groups.append((batch or calls[-1][3], calls[high:], False))
    return groups


# --- inference ----------------------------------------------------------------------------


def _busiest_loader(log: Log) -> int | None:
    """The loader that was in turn for most of the time."""
    held: dict[int, float] = {}
    for index, (enter, end, loader, items, _) in enumerate(log.nexts):
        later = log.nexts[index + 1][0] if index + 1 < len(log.nexts) else log.last_time()
        spent = (end - enter) if items == EXHAUSTED else (later or end) - enter
        held[loader] = held.get(loader, 0.0) + spent
    served = {entry[2] for entry in log.nexts if entry[3] != EXHAUSTED}
    held = {loader: spent for loader, spent in held.items() if loader in served}
    return max(held, key=lambda key: held[key]) if held else None


def _forwards_by_batch(log: Log, loader: int, calls: list[Call]) -> list[Group]:
    enters = [entry[0] for entry in calls]
    mine = [entry for entry in log.nexts if entry[2] == loader]
    groups: list[Group] = []
    for position, (_, end, _, items, watched) in enumerate(mine):
        if items == EXHAUSTED or not watched:
            continue
        low = bisect.bisect_left(enters, end)
        closed = position + 1 < len(mine)
        high = bisect.bisect_left(enters, mine[position + 1][0]) if closed else len(enters)
        groups.append((items, calls[low:high], closed))
    return groups


def _loader_batches(
    log: Log,
    loader: int,
    root: int | None,
    whole: list[int],
    ended: bool,
) -> Ledger | None:
    ledger = Ledger(LOADER, "items of the loader's batches")
    ledger.loader, ledger.root = loader, root
    mine = [entry for entry in log.nexts if entry[2] == loader]
    skipped = _skipped(log, mine)
    held: float | None = None
    for enter, end, _, items, _ in mine:
        if held is not None:
            ledger.bounds.append(enter)
            ledger.units.append(held)
            ledger.finished_batches += held > 0
            ledger.whole_units += held
        elif not ledger.bounds:
            ledger.bounds.append(enter)
        else:  # a new epoch: the pause before it belongs to its first batch
            ledger.marks.append(len(ledger.units))
        held = None if items == EXHAUSTED else 0.0 if end in skipped else items
    last = log.last_time()
    if ended and held is not None and last is not None and last > ledger.bounds[-1]:
        ledger.bounds.append(last)
        ledger.units.append(held)
        ledger.finished_batches += held > 0
        ledger.whole_units += held
    ledger.batch = most_common([entry[3] for entry in mine if entry[3] != EXHAUSTED])
    if whole:
        ledger.forwards_per_batch = median(whole)
        quick = log.roots[root].looped if root is not None else None
        ledger.forwards_per_unit = ledger.forwards_per_batch * (quick or 1.0)
    return ledger if ledger.bounds else None


def _skipped(log: Log, mine: list[Any]) -> set[float]:
    """Exits of the `next`s whose batches went through no forward: the program skipped them.

    Batches loaded ahead, or gathered for one forward, are no skipped ones.
    """
    enters = [entry[0] for entry in log.forwards]
    done = [
        (entry, bisect.bisect_left(enters, later[0]) - bisect.bisect_left(enters, entry[1]))
        for entry, later in zip(mine, mine[1:])
        if entry[4] and entry[3] != EXHAUSTED
    ]
    later = done[len(done) // 2 :]  # a queue is full by then
    forwards = sum(count for _, count in later)
    epochs = sum(entry[3] == EXHAUSTED for entry in mine)
    if not forwards or len(later) - forwards <= max(2 + epochs, SKIPPED_SHARE * len(later)):
        return set()
    if max(entry[3] for entry in log.forwards) > max(entry[3] for entry, _ in done):
        return set()
    return {entry[1] for entry, count in done if not count}


def _sampler(
    log: Log,
    loader: int | None,
    root: int,
    groups: list[Group],
    plan: dict[str, Any],
    ended: bool,
) -> Ledger:
    ledger = Ledger(FORWARD, "")
    ledger.loader, ledger.root, ledger.iterative = loader, root, True
    groups = [group for group in groups if group[1]]
    ledger.batch = most_common([items for items, _, _ in groups])
    per_item = []
    gaps = []
    for position, (items, group, closed) in enumerate(groups):
        if closed or (ended and position == len(groups) - 1):
            ledger.finished_batches += 1
            ledger.whole_units += items
            per_item.append(len(group) * _joint(group, items) / items)
        if position and len(group) > 1:
            gaps.append(group[0][1] - groups[position - 1][1][-1][1])
    known = plan.get("forwards_per_unit")
    ledger.forwards_per_unit = median(per_item) if per_item else known
    ledger.from_plan = not per_item and known is not None
    ledger.gap_s = median(gaps) if gaps else None
    for items, group, closed in groups:
        joint = _joint(group, items)
        whole = items / len(group) if closed or (ended and group is groups[-1][1]) else None
        per_forward = whole or joint / (ledger.forwards_per_unit or 1.0)
        if ledger.bounds:
            ledger.marks.append(len(ledger.units))
        for call in group:
            if ledger.bounds:
                ledger.units.append(per_forward)
            ledger.bounds.append(call[1])
    if ledger.forwards_per_unit and groups:
        items, group, _ = groups[-1]
        ledger.forwards_per_batch = ledger.forwards_per_unit * items / _joint(group, items)
    ledger.batches_per_step = 1.0 / (ledger.forwards_per_batch or 1.0)
    seen = f"{len(per_item)} whole batches" if len(per_item) > 1 else "one whole batch"
    where = "the plan" if ledger.from_plan else seen
    ledger.source = (
        f"root forwards / {ledger.forwards_per_unit:g} forwards per unit (known from {where})"
        if ledger.forwards_per_unit
        else "root forwards; no batch was finished yet"
    )
    return ledger


def _joint(group: list[Call], items: float) -> float:
    """Items that go through one forward together: a loader batch may be split by the program,
    and a forward may hold more than the batch (guidance, patches)."""
    batch = most_common([call[3] for call in group])
    return min(batch or items, items) or 1.0


# --- no loader ----------------------------------------------------------------------------


def _without_loader(
    log: Log, root: int, calls: list[Call], plan: dict[str, Any], ended: bool
) -> Ledger:
    """An iterative sampler, if there is a sign of one; else every forward is a step."""
    positions = [index for index, entry in enumerate(log.forwards) if entry[2] == root]
    found = cycles.starts(log, root, positions)
    if found and log.roots[root].forgotten:
        found = cycles.gone_on(found, log.roots[root].forgotten, len(calls))
    known = plan.get("forwards_per_unit")
    if found is None and not known:
        return _forwards(log, root, _items(log, calls), calls)
    watched_s = calls[-1][1] - calls[0][0]
    unsure = not found and not known and not ended
    if unsure and (not log.roots[root].same_shape or watched_s > CYCLE_PATIENCE_S):
        return _forwards(log, root, calls, calls)
    bounds = [0, *(found or ()), len(calls)]
    batch = most_common([call[3] for call in calls]) or 1.0
    beside = [
        entry[3] for entry in log.forwards if entry[2] != root and log.roots[entry[2]].parameters
    ]
    items = min([batch, *beside])  # guidance doubles the batch of the dominant network only
    groups = [(items, calls[low:high], high < len(calls)) for low, high in zip(bounds, bounds[1:])]
    return _sampler(log, None, root, groups, plan, ended)


def _items(log: Log, calls: list[Call]) -> list[Call]:
    """The calls that tell items apart: where another network is called once for an item and the
    dominant one a few times (a detector, then a classifier of what it found), the other's."""
    by_root: dict[int, list[Call]] = {}
    for entry in log.forwards:
        if log.roots[entry[2]].parameters:
            by_root.setdefault(entry[2], []).append(entry)
    enters = [call[0] for call in calls]
    for others in by_root.values():  # in the order of their first calls
        if not FEWEST_ITEMS <= len(others) < len(calls) or others[0][0] > enters[0]:
            continue
        gaps = [
            bisect.bisect_left(enters, later[0]) - bisect.bisect_left(enters, call[0])
            for call, later in zip(others, others[1:])
        ]
        if sum(map(bool, gaps)) >= MARKED_SHARE * len(gaps):
            return others
    return calls


def _forwards(log: Log, root: int, items: list[Call], calls: list[Call]) -> Ledger:
    ledger = Ledger(FORWARD, "")
    ledger.root = root
    ledger.of_forwards(log.roots[items[0][2]].unit, [call[3] for call in items])
    ledger.bounds = [call[1] for call in items]
    ledger.units = [call[3] for call in items[1:]]
    ledger.whole_units = sum(call[3] for call in items)
    ledger.finished_batches = len(items)
    ledger.forwards_per_unit = (log.roots[root].looped or 1.0) * round(len(calls) / len(items), 1)
    return ledger
