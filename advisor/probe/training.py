"""The ledger of a training: a step is an optimizer step, or an update of the program's own.

Units are the items of the train loaders' batches, or of the root forwards where there is no
loader. Batches that the program loaded and skipped are no units.
"""

from __future__ import annotations

import bisect
from typing import Tuple

from .averages import median, most_common
from .ledger import OPTIMIZER, UPDATE, Ledger, dominant_root
from .log import EXHAUSTED, Log

Fed = list[tuple[float, float]]
"""(time, items) of each batch that was trained on."""

OWN_SHARE, ALL_SHARE = 0.5, 0.1
"""A second train loader is trained on with half of its batches, and a tenth of all steps."""
FED_SHARE = 0.02
"""A loader whose batches come in fewer of the updates feeds no training, nor one that few of whose
batches are followed by a pass, where half of the updates come without."""
BESIDE_SHARE = 0.5
"""A loader is drawn beside another if so many of that one's batches come right after its own."""
RARE_SHARE = 0.05
"""So few batches with fewer backwards than the others say nothing."""
SKIPPED_SHARE = 0.02
"""Fewer batches without a backward are those loaded ahead."""
EVALUATIONS_SHARE = 0.2
"""Calls without gradients in more of the steps belong to the steps."""
NEVER_FRESH = 200
"""After so many backwards nobody is waited for who drops or zeroes gradients."""


def read(log: Log, ended: bool = False) -> Ledger | None:
    """The ledger of a program that trains; None before its first update.

    `ended`: the program came to its own end, so that its last gradients were taken up.
    """
    updates = _updates(log, ended)
    if not updates:
        return None
    updates = _as_one(updates)
    main = _main_optimizer(updates)
    ledger = Ledger(OPTIMIZER if log.opts else UPDATE, "")
    ledger.bounds = [end for _, end, optimizer in updates if optimizer == main]
    ledger.root = dominant_root(log)
    ledger.loader, also, ledger.beside = train_loaders(log)
    clusters = _passes_of_steps(log, updates, main)
    counts = [float(len(cluster)) for cluster in clusters[1:] if cluster]
    ledger.accumulation = median(counts) if counts else None
    fed = _from_loaders(log, ledger.loader, also)
    middle = ledger.bounds[len(ledger.bounds) // 2]
    if ledger.loader is not None and (len(ledger.bounds) < 4 or (fed and fed[-1][0] >= middle)):
        ledger.source = f"items of the train loader's batches, at {ledger.kind}s"
        first = [n[3] for n in log.nexts if n[2] == ledger.loader and n[3] != EXHAUSTED]
        ledger.batch = most_common(first)
    else:
        ledger.loader, ledger.beside = None, set()
        unit, fed = _from_forwards(log, ledger.root, clusters)
        ledger.of_forwards(unit, [items for _, items in fed])
        ledger.source += f", at {ledger.kind}s"
    ledger.finished_batches = bisect.bisect_right([end for end, _ in fed], ledger.bounds[-1])
    ledger.whole_units = sum(items for _, items in fed[: ledger.finished_batches])
    ledger.units = _between(ledger.bounds, fed)
    steps_fed = _between(ledger.bounds, [(end, 1.0) for end, _ in fed])
    ledger.batches_per_step = sum(steps_fed) / len(steps_fed) if steps_fed else 1.0
    own = _interruptions(log, ledger) if ledger.loader is not None else None
    ledger.marks = own if own is not None else _holding(ledger, evaluations(log, ledger.root))
    return ledger


Update = Tuple[float, float, int]
"""(enter, exit, optimizer) of a step; optimizers are numbered by their first ones."""


def _updates(log: Log, ended: bool) -> list[Update]:
    """The steps of torch's optimizers; of a program that steps by itself, what came before each
    backward that found its gradients taken up."""
    if log.opts:
        return log.opts
    passes = log.passes
    ends = [a[1] for a, b in zip(passes, passes[1:]) if b[2]]
    if not ends and len(passes) > NEVER_FRESH:  # whoever takes them up leaves them as they are
        ends = [each[1] for each in passes[:-1]]
    if ended and passes:
        ends.append(passes[-1][1])
    return [(end, end, 0) for end in ends]


def _as_one(updates: list[Update]) -> list[Update]:
    """With one optimizer for those that followed each other: made anew for each epoch or phase."""
    spans: dict[int, list[int]] = {}
    for at, (_, _, optimizer) in enumerate(updates):
        spans.setdefault(optimizer, [at, at])[1] = at
    instead: dict[int, int] = {}
    last: dict[int, int] = {}
    for optimizer, (first, end) in spans.items():  # in the order of their first updates
        free = (lead for lead, until in last.items() if until < first)
        lead = next(free, optimizer)
        instead[optimizer], last[lead] = lead, end
    return [(enter, end, instead[which]) for enter, end, which in updates]


def _main_optimizer(updates: list[Update]) -> int:
    """The one of most updates; where several take turns, the one that ends each round."""
    counts: dict[int, int] = {}
    for _, _, optimizer in updates:
        counts[optimizer] = counts.get(optimizer, 0) + 1
    most = max(counts.values())
    return max(key for key in counts if counts[key] >= most - 1)


def _between(bounds: list[float], moments: Fed) -> list[float]:
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
    """Steps that hold the end of an epoch, or batches of a foreign loader (validation)."""
    own = {ledger.loader, *ledger.beside}
    times = [
        end
        for _, end, loader, items, _ in log.nexts
        if loader not in own or (loader == ledger.loader and items == EXHAUSTED)
    ]
    return _holding(ledger, [(time, time) for time in times])


def _holding(ledger: Ledger, spans: list[tuple[float, float]]) -> list[int]:
    """Steps in which the spans begin."""
    steps = {bisect.bisect_left(ledger.bounds, start) - 1 for start, _ in spans}
    return sorted(step for step in steps if 0 <= step < ledger.steps)


def evaluations(log: Log, root: int | None) -> list[tuple[float, float]]:
    """Spans in which the trained network was called without gradients, now and then: a validation
    in a program without a loader. What each step does so belongs to the steps."""
    found: list[tuple[float, float]] = []
    steps = open_ = 0
    for enter, end, which, _, graded in log.forwards:
        if which != root:
            continue
        if graded:
            steps += 1
            open_ = 0
        elif open_:
            found[-1] = (found[-1][0], end)
        else:
            found.append((enter, end))
            open_ = 1
    return found if len(found) < EVALUATIONS_SHARE * steps else []


# --- train loaders ------------------------------------------------------------------------


def train_loaders(log: Log) -> tuple[int | None, set[int], set[int]]:
    """The leading train loader, others whose batches are trained on in turn with its own, and
    all others that belong to the steps: those in turn, and those drawn beside (`zip`)."""
    credit = _credit(log)
    if not credit:
        return None, set(), set()
    own: dict[int, int] = {}
    for _, _, loader, items, _ in log.nexts:
        own[loader] = own.get(loader, 0) + (items != EXHAUSTED)
    main = max(credit, key=lambda key: credit[key])
    fed = credit[main] / len(log.opts or log.passes)
    if fed < FED_SHARE or max(fed, credit[main] / own[main]) < OWN_SHARE:
        return None, set(), set()  # the last batch of each validation
    site = log.loaders[main].get("site")
    total = sum(credit.values())
    work = [end for _, end, _ in log.passes]
    others = {
        loader
        for loader, times in credit.items()
        if loader != main
        and times >= OWN_SHARE * own[loader]
        and (times >= ALL_SHARE * total or (site and log.loaders[loader].get("site") == site))
    }
    chain = drawn_beside(log, main, work)
    lead = chain[0] if chain else main
    also = {other for other in others - set(chain) if not _drawn_after(log, other, work)}
    beside = (others | set(chain) | {main}) - {lead}
    return lead, also, beside


def _drawn_after(log: Log, loader: int, work: list[float]) -> bool:
    """Whether its batches come right after another loader's, with no work in between: a second
    source for the same steps, now and then or always."""
    served = [entry for entry in log.nexts if entry[3] != EXHAUSTED]
    pairs = [(a, b) for a, b in zip(served, served[1:]) if b[2] == loader]
    close = sum(
        a[2] != loader and bisect.bisect_left(work, a[1]) == bisect.bisect_left(work, b[1])
        for a, b in pairs
    )
    return close >= BESIDE_SHARE * len(pairs) > 0


def _credit(log: Log) -> dict[int, int]:
    """By loader: batches that were followed by a backward."""
    served = [entry for entry in log.nexts if entry[3] != EXHAUSTED]
    exits = [entry[1] for entry in served]
    credited: dict[int, set[int]] = {}
    for _, end, _ in log.passes:
        at = bisect.bisect_right(exits, end) - 1
        if at >= 0:
            credited.setdefault(served[at][2], set()).add(at)
    return {loader: len(batches) for loader, batches in credited.items()}


def drawn_beside(log: Log, main: int, work: list[float]) -> list[int]:
    """Loaders whose batches come right before those of `main`, in order, as from `zip`; `work`:
    times at which a batch was worked on."""
    served = [entry for entry in log.nexts if entry[3] != EXHAUSTED]
    found: dict[tuple[int, ...], int] = {}
    batches = 0
    chain: list[int] = []
    before = float("-inf")
    for _, end, loader, _, _ in served:
        if bisect.bisect_left(work, end) != bisect.bisect_left(work, before):
            chain = []
        before = end
        if loader == main:
            batches += 1
            key = tuple(dict.fromkeys(other for other in chain if other != main))
            found[key] = found.get(key, 0) + 1
            chain = []
        else:
            chain.append(loader)
    if not found:
        return []
    common = max(found, key=lambda key: found[key])
    return list(common) if found[common] >= BESIDE_SHARE * batches else []


# --- batches that were trained on ----------------------------------------------------------


def _from_loaders(log: Log, lead: int | None, also: set[int]) -> Fed:
    own = {lead, *also}
    mine = [entry for entry in log.nexts if entry[2] in own and entry[3] != EXHAUSTED]
    if lead is not None and log.is_read_aside(lead):
        return _in_turn(mine, log.passes)
    epochs = sum(entry[2] in own and entry[3] == EXHAUSTED for entry in log.nexts)
    return [(end, items) for _, end, _, items, _ in _used(log, mine, epochs)]


def _in_turn(batches: list[Next], passes: list[tuple[float, float, bool]]) -> Fed:
    """What a thread of its own has loaded ahead is trained on in its turn, not when it came; which
    of it was skipped cannot be told."""
    many = max(1, round(len(batches) / max(1, len(passes))))
    turns = (end for _, end, _ in passes for _ in range(many))
    return [(end, entry[3]) for end, entry in zip(turns, batches)]


Next = tuple[float, float, int, float, bool]


class _Run:
    """Batches loaded in a row, with the backwards after the last of them."""

    def __init__(self, batches: list[Next], backwards: int, until: float) -> None:
        self.batches = batches
        self.backwards = backwards
        self.until = until

    def forwards(self, log: Log, enters: list[float]) -> list[float] | None:
        """Items of each root forward with gradients; None where not all were watched, and no one
        that was took more than a batch."""
        if not self.batches[-1][4]:
            return None
        low = bisect.bisect_left(enters, self.batches[0][1])
        high = bisect.bisect_left(enters, self.until)
        inside = log.forwards[low:high]
        items = [e[3] for e in inside if e[4] and log.roots[e[2]].parameters]
        known = all(entry[4] for entry in self.batches) or self.joined(items)
        return items if known else None

    def joined(self, items: list[float]) -> bool:
        """Whether a forward took several of them at once."""
        return max(items, default=0.0) > max(entry[3] for entry in self.batches)


def _used(log: Log, mine: list[Next], epochs: int) -> list[Next]:
    """The batches that were trained on; one that was loaded and skipped has no backward.

    Batches loaded ahead, and several gathered for one backward, are told from skipped ones by
    the balance of all, and by the root forwards of those batches that were watched.
    """
    starts = [start for start, *_ in log.passes]
    runs: list[_Run] = []
    pending: list[Next] = []
    for position, entry in enumerate(mine):
        pending.append(entry)
        until = mine[position + 1][0] if position + 1 < len(mine) else float("inf")
        done = bisect.bisect_left(starts, until) - bisect.bisect_left(starts, entry[1])
        if done:
            runs.append(_Run(pending, done, until))
            pending = []
    alone = [run.backwards for run in runs if len(run.batches) == 1]
    usual = min((n for n in set(alone) if alone.count(n) > RARE_SHARE * len(alone)), default=1)
    later = runs[len(runs) // 2 :]  # a queue is full by then
    loaded = sum(len(run.batches) for run in later)
    missing = loaded - sum(run.backwards for run in later) / usual
    if missing <= max(2 + epochs, SKIPPED_SHARE * loaded):
        return mine
    enters = [entry[0] for entry in log.forwards]
    seen = [(run, run.forwards(log, enters)) for run in runs]
    each = most_common([len(f) for run, f in seen if f and len(run.batches) == 1]) or 1
    kept: dict[int, list[float]] = {}
    for run, forwards in seen:
        if forwards:
            kept.setdefault(len(run.batches), []).append(_kept(run, forwards, each))
    used: list[Next] = []
    for run in runs:
        many = len(run.batches)
        known = most_common(kept.get(many, []))
        count = known if known is not None else max(1, min(many, round(run.backwards / usual)))
        used.extend(run.batches[many - int(count) :])
    return used + pending


def _kept(run: _Run, forwards: list[float], each: float) -> float:
    """How many of the run's batches went through the root's forwards."""
    many = len(run.batches)
    if run.joined(forwards) or len(forwards) >= many * each:
        return many
    return max(1, round(len(forwards) / each))


# --- without a loader ----------------------------------------------------------------------


def _passes_of_steps(log: Log, updates: list[Update], main: int) -> list[list[int]]:
    """For each step of the main optimizer, the backwards that it applied, as indices.

    Those of another optimizer's step in between (two networks trained on the same batch) are not
    its own, and a closure that is called again and again goes through one batch.
    """
    enters = [enter for enter, *_ in log.passes]
    found: list[list[int]] = []
    cluster: list[int] = []
    position = 0
    for enter, end, optimizer in updates:
        before, after = bisect.bisect_left(enters, enter), bisect.bisect_left(enters, end)
        fresh = [*range(position, before), *range(max(position, before), after)[-1:]]
        cluster = fresh or cluster
        position = max(position, after)
        if optimizer == main:
            found.append(cluster)
            cluster = []
    return found


def _from_forwards(log: Log, root: int | None, clusters: list[list[int]]) -> tuple[str, Fed]:
    """(unit, what was trained on): one root forward for each backward, the others saw the same
    batch. Without any forward each pass is a step of an unknown number of samples."""
    heavy = [e for e in log.forwards if log.roots[e[2]].parameters] or log.forwards
    mine = [e for e in heavy if e[4]] or heavy
    passes = log.passes
    exits = [entry[1] for entry in mine]
    fed: Fed = []
    unit = log.roots[root].unit if root is not None else "sample"
    for index in (index for cluster in clusters for index in cluster):
        enter, end, _ = passes[index]
        since = passes[index - 1][1] if index else float("-inf")
        inside = mine[bisect.bisect_left(exits, since) : bisect.bisect_right(exits, enter)]
        own = [entry for entry in inside if entry[2] == root] or inside
        if own:
            fed.append((end, own[-1][3]))
    fed = fed or [(end, batch) for _, end, which, batch, _ in mine if which == root]
    if fed:
        return unit, fed
    return "step", [(passes[cluster[-1]][1], 1.0) for cluster in clusters if cluster]
