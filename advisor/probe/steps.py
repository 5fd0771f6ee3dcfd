"""From what the hooks saw to a ledger: what one step is here, and how many units it finished.

Pure functions over a Log. Nothing of any workload is known here, only four shapes of loop:

    optimizer step   training; units are the items of the train loader's batches, or of the
                     root forwards where there is no loader
    loader batch     inference over a DataLoader, a few forwards a batch
    root forward     an iterative sampler (many forwards a batch), or no loader at all
"""

from __future__ import annotations

import bisect
from typing import Any

from . import cycles
from .averages import median, most_common
from .log import EXHAUSTED, Log

SAMPLER_FORWARDS = 4
"""From this many forwards of one module a batch, the loop is taken for an iterative sampler."""

CYCLE_PATIENCE_S = 60.0
"""Without a loader, how long a first item is waited for before forwards are taken for units."""

OPTIMIZER, LOADER, FORWARD = "optimizer step", "loader batch", "root forward"


class Ledger:
    """Step k runs from bounds[k] to bounds[k + 1] and finished units[k]."""

    def __init__(self, kind: str, source: str) -> None:
        self.kind = kind
        self.source = source
        """How the units were counted, in words."""
        self.bounds: list[float] = []
        self.units: list[float] = []
        self.marks: list[int] = []
        """Steps in which a new epoch, a foreign loader or a sampler's next batch begins."""
        self.loader: int | None = None
        self.root: int | None = None
        self.batch: float | None = None
        """Items of one loader batch, or of one root forward where there is no loader."""
        self.batches_per_step = 1.0
        self.forwards_per_unit: float | None = None
        self.forwards_per_batch: float | None = None
        self.finished_batches = 0
        self.whole_units = 0.0
        self.gap_s: float | None = None
        """Sampler only: time between two batches that no forward fills."""
        self.iterative = False
        """Many forwards make one unit, and bounds lie between forwards."""
        self.from_plan = False
        """Forwards per unit came from the plan, not from this process."""

    @property
    def steps(self) -> int:
        """Finished steps."""
        return max(0, len(self.bounds) - 1)


def read(log: Log, plan: dict[str, Any], ended: bool = False) -> Ledger | None:
    """The ledger of `log`; None while nothing can be recognised as a step.

    `ended`: the program came to its own end, so that the last batch is a finished one.
    """
    if log.opts:
        return _training(log)
    loader = _busiest_loader(log)
    root = dominant_root(log)
    if loader is None:
        return None if root is None else _without_loader(log, root, plan, ended)
    groups = _forwards_by_batch(log, loader, root)
    whole = [len(group) for _, group, closed in groups if (closed or ended) and group]
    many = median(whole) if whole else max((len(g) for _, g, _ in groups), default=0)
    if root is not None and many >= SAMPLER_FORWARDS:
        return _sampler(log, loader, root, groups, plan, ended)
    return _loader_batches(log, loader, root, whole, ended)


def dominant_root(log: Log) -> int | None:
    """The root module that took most time; loss functions and the like hold no parameters."""
    spent: dict[int, float] = {}
    for enter, end, root, *_ in log.forwards:
        spent[root] = spent.get(root, 0.0) + end - enter
    heavy = {r: s for r, s in spent.items() if log.roots[r].parameters}
    pool = heavy or spent
    return max(pool, key=lambda r: pool[r]) if pool else None


# --- training -----------------------------------------------------------------------------


def train_loader(log: Log) -> int | None:
    """The loader whose `next` is followed by a backward."""
    exits = [entry[1] for entry in log.nexts]
    credit: dict[int, int] = {}
    for _, end in log.backwards:
        at = bisect.bisect_right(exits, end) - 1
        while at >= 0 and log.nexts[at][3] == EXHAUSTED:
            at -= 1
        if at >= 0:
            loader = log.nexts[at][2]
            credit[loader] = credit.get(loader, 0) + 1
    return max(credit, key=lambda key: credit[key]) if credit else None


def _training(log: Log) -> Ledger:
    counts: dict[int, int] = {}
    for _, _, optimizer in log.opts:
        counts[optimizer] = counts.get(optimizer, 0) + 1
    last = log.opts[-1][2]
    main = max(counts, key=lambda key: (counts[key], key == last))
    ledger = Ledger(OPTIMIZER, "")
    ledger.bounds = [end for _, end, optimizer in log.opts if optimizer == main]
    ledger.root = dominant_root(log)
    ledger.loader = train_loader(log)
    fed = [
        (end, items)
        for _, end, loader, items, _ in log.nexts
        if loader == ledger.loader and items != EXHAUSTED
    ]
    middle = ledger.bounds[len(ledger.bounds) // 2]
    if ledger.loader is not None and (len(ledger.bounds) < 4 or (fed and fed[-1][0] >= middle)):
        ledger.source = "items of the train loader's batches, at optimizer steps"
        ledger.finished_batches = bisect.bisect_right([end for end, _ in fed], ledger.bounds[-1])
        ledger.whole_units = sum(items for _, items in fed[: ledger.finished_batches])
    else:
        ledger.loader = None
        ledger.source = "batch dimension of the root forwards, at optimizer steps"
        mine = [entry for entry in log.forwards if entry[2] == ledger.root]
        graded = [entry for entry in mine if entry[4]] or mine
        fed = [(end, batch) for _, end, _, batch, _ in graded]
        ledger.whole_units = sum(batch for end, batch in fed if end <= ledger.bounds[-1])
    ledger.batch = most_common([items for _, items in fed])
    ledger.units = _between(ledger.bounds, fed)
    steps_fed = _between(ledger.bounds, [(end, 1.0) for end, _ in fed])
    ledger.batches_per_step = sum(steps_fed) / len(steps_fed) if steps_fed else 1.0
    if ledger.loader is not None:
        ledger.marks = _interruptions(log, ledger)
    return ledger


def _between(bounds: list[float], moments: list[tuple[float, float]]) -> list[float]:
    """Sum of the values whose time lies in each (bounds[k], bounds[k + 1]]."""
    sums = [0.0] * max(0, len(bounds) - 1)
    step = 0
    for time, value in moments:
        while step < len(sums) and time > bounds[step + 1]:
            step += 1
        if step == len(sums):
            break
        if time > bounds[step]:
            sums[step] += value
    return sums


def _interruptions(log: Log, ledger: Ledger) -> list[int]:
    """Steps that hold the end of an epoch, or batches of another loader (validation)."""
    times = [
        end
        for _, end, loader, items, _ in log.nexts
        if loader != ledger.loader or items == EXHAUSTED
    ]
    steps = {bisect.bisect_left(ledger.bounds, time) - 1 for time in times}
    return sorted(step for step in steps if 0 <= step < ledger.steps)


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


Group = tuple[float, list[int], bool]
"""Items of one loader batch, indices of its root forwards, and whether it was finished."""


def _forwards_by_batch(log: Log, loader: int, root: int | None) -> list[Group]:
    indices = [i for i, entry in enumerate(log.forwards) if entry[2] == root]
    enters = [log.forwards[i][0] for i in indices]
    mine = [entry for entry in log.nexts if entry[2] == loader]
    groups: list[Group] = []
    for position, (_, end, _, items, watched) in enumerate(mine):
        if items == EXHAUSTED or not watched:
            continue
        low = bisect.bisect_left(enters, end)
        closed = position + 1 < len(mine)
        high = bisect.bisect_left(enters, mine[position + 1][0]) if closed else len(enters)
        groups.append((items, indices[low:high], closed))
    return groups


def _loader_batches(
    log: Log, loader: int, root: int | None, whole: list[int], ended: bool
) -> Ledger | None:
    ledger = Ledger(LOADER, "items of the loader's batches")
    ledger.loader, ledger.root = loader, root
    mine = [entry for entry in log.nexts if entry[2] == loader]
    held: float | None = None
    for enter, _, _, items, _ in mine:
        if held is not None:
            ledger.bounds.append(enter)
            ledger.units.append(held)
            ledger.finished_batches += 1
            ledger.whole_units += held
        elif not ledger.bounds:
            ledger.bounds.append(enter)
        else:  # a new epoch: the pause before it belongs to its first batch
            ledger.marks.append(len(ledger.units))
        held = None if items == EXHAUSTED else items
    last = log.last_time()
    if ended and held is not None and last is not None and last > ledger.bounds[-1]:
        ledger.bounds.append(last)
        ledger.units.append(held)
        ledger.finished_batches += 1
        ledger.whole_units += held
    ledger.batch = most_common([entry[3] for entry in mine if entry[3] != EXHAUSTED])
    if whole:
        ledger.forwards_per_batch = median(whole)
        ledger.forwards_per_unit = ledger.forwards_per_batch
    return ledger if ledger.bounds else None


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
            per_item.append(len(group) * _joint(log, group, items) / items)
        if position and len(group) > 1:
            gaps.append(log.forwards[group[0]][1] - log.forwards[groups[position - 1][1][-1]][1])
    known = plan.get("forwards_per_unit")
    ledger.forwards_per_unit = median(per_item) if per_item else known
    ledger.from_plan = not per_item and known is not None
    ledger.gap_s = median(gaps) if gaps else None
    for items, group, closed in groups:
        joint = _joint(log, group, items)
        whole = items / len(group) if closed or (ended and group is groups[-1][1]) else None
        per_forward = whole or joint / (ledger.forwards_per_unit or 1.0)
        if ledger.bounds:
            ledger.marks.append(len(ledger.units))
        for index in group:
            if ledger.bounds:
                ledger.units.append(per_forward)
            ledger.bounds.append(log.forwards[index][1])
    if ledger.forwards_per_unit and groups:
        items, group, _ = groups[-1]
        ledger.forwards_per_batch = ledger.forwards_per_unit * items / _joint(log, group, items)
    ledger.batches_per_step = 1.0 / (ledger.forwards_per_batch or 1.0)
    seen = f"{len(per_item)} whole batches" if len(per_item) > 1 else "one whole batch"
    where = "the plan" if ledger.from_plan else seen
    ledger.source = (
        f"root forwards / {ledger.forwards_per_unit:g} forwards per unit (known from {where})"
        if ledger.forwards_per_unit
        else "root forwards; no batch was finished yet"
    )
    return ledger


def _joint(log: Log, group: list[int], items: float) -> float:
    """Items that go through one forward together: a loader batch may be split by the program,
    and a forward may hold more than the batch (guidance, patches)."""
    batch = most_common([log.forwards[index][3] for index in group])
    return min(batch or items, items) or 1.0


# --- no loader ----------------------------------------------------------------------------


def _without_loader(log: Log, root: int, plan: dict[str, Any], ended: bool) -> Ledger:
    """An iterative sampler, if there is a sign of one; else every forward is a step."""
    calls = [index for index, entry in enumerate(log.forwards) if entry[2] == root]
    found = cycles.starts(log, root, calls)
    known = plan.get("forwards_per_unit")
    if found is None and not known:
        return _forwards(log, root, calls)
    watched_s = log.forwards[calls[-1]][1] - log.forwards[calls[0]][0]
    unsure = not found and not known and not ended
    if unsure and (not log.roots[root].same_shape or watched_s > CYCLE_PATIENCE_S):
        return _forwards(log, root, calls)
    bounds = [0, *(found or ()), len(calls)]
    batch = most_common([log.forwards[index][3] for index in calls]) or 1.0
    beside = [
        entry[3] for entry in log.forwards if entry[2] != root and log.roots[entry[2]].parameters
    ]
    items = min([batch, *beside])  # guidance doubles the batch of the dominant network only
    groups = [(items, calls[low:high], high < len(calls)) for low, high in zip(bounds, bounds[1:])]
    return _sampler(log, None, root, groups, plan, ended)


def _forwards(log: Log, root: int, calls: list[int]) -> Ledger:
    ledger = Ledger(FORWARD, "batch dimension of the root forwards")
    ledger.root = root
    mine = [log.forwards[index] for index in calls]
    ledger.batch = most_common([entry[3] for entry in mine])
    ledger.bounds = [entry[1] for entry in mine]
    ledger.units = [entry[3] for entry in mine[1:]]
    ledger.whole_units = sum(entry[3] for entry in mine)
    ledger.finished_batches = len(mine)
    ledger.forwards_per_unit = 1.0
    return ledger
