"""What loaders gave and trained steps did, in a form that two runs are compared by.

Indices that the main process draws tell items and order of a map-style dataset exactly.
Numbers of the rows that arrive tell them of any. Both are kept for the first items of the
first passes only, the rows while steps are identified and none while they are counted:
workers repeat each other from the first batches on, and later steps must cost nothing.
"""

from __future__ import annotations

import functools
import gc
import inspect
import json
import multiprocessing
import os
import random
import statistics
import sys
import zlib
from collections import deque
from typing import Any, Iterator

from . import (
    batch_counts,
    batch_limits,
    batches,
    by_batches,
    copied_weights,
    dataset_state,
    dataset_walk,
    digests,
    first_weights,
    item_making,
    loop_code,
    mixed_losses,
    own_edits,
    set_in_loops,
    worker_number,
)
from .recorder import write_whole
from .session import Session

# By judgement: enough to compare two runs by, in a record that stays small.
PASSES = 3
"""Passes of a loader that are kept."""
ITEMS = 2048
"""Items of a pass that are kept, of at most BATCHES."""
BATCHES = 128
"""Batches of a pass whose items are kept.

Judgement: fewer end before a worker comes to its second turn, more cost steps and lengthen the
record."""
FIRST = 32
"""Items that are told one by one, to compare their order.

Judgement: fewer hide a difference beyond the first batch, more lengthen the record."""
PARTS_OF_SPREAD = 4
"""Parts of the items by which it is known how alike those of one are.

Judgement: the mean of fewer is of chance. More tell nothing of batches as large as a quarter of
what was seen."""
FETCHES = 4
"""Fetches of one process around which the dataset's state is read.

Judgement: of fewer, no change is seen to repeat. Each more costs two readings of the state."""
ITERATORS = 16
"""Iterators, one in another, whose variables are read.

Judgement: fewer miss a generator below several wrappers, more slow each watched fetch."""
LOSSES = 16
"""Updates whose losses are told.

Judgement: fewer leave the error of their mean wide, more are of weights that have moved apart."""
DRAWS = 3
"""Batches between which the process's random generators are looked at.

Judgement: fewer miss a draw that not each batch makes, more cost steps a reading of all generators.
"""
SEEDS_FROM = 100_000
"""Numbers from here on may be seeds, of which a worker that stays needs one only. Judgement."""
PARTED = {"size", "order", "array"}
"""Kinds of change by which a worker's init function leaves it a part of the dataset."""
OF_PROCESS = ("random", "numpy.random", "torch")
"""Random generators of a process, by their paths."""
COUNTED_KINDS = ("value", "count", "start", "size", "kept", "order")
"""Kinds of change that tell nothing where the program never reads them."""
LATER_KINDS = ("weights", "array", "value")
"""Kinds of change that are looked for once more at the end."""
FIRSTS = ("value", "generator")
"""Kinds of change that tell something in the first fetch of a pass."""
UPDATES = 256
"""Updates whose learning rate is kept.

Judgement: fewer end before a slow schedule has moved by `policy.RATE_TIE`, more lengthen the
record."""
GROUPS = 4
"""Parameter groups of an optimizer whose rates are kept.

Judgement: fewer miss a group with its own schedule, more lengthen the record where each layer has
one."""
CURRENT = "_gpu_advisor_pass"
"""Attribute of a loader's iterator."""
FETCHED = "_gpu_advisor_fetches"
"""Attribute of torch's fetcher: fetches so far."""
LEFT = "_gpu_advisor_left"
"""Attribute of torch's fetcher: the dataset's state as the latest fetch left it."""
LOCAL = ("id", "num_workers", "seed", "dataset", "rng", "worker_method")
"""Fields of torch's WorkerInfo, in versions that have them."""


class Pass:
    """Items of one pass, as drawn and as they came."""

    def __init__(self) -> None:
        self.drawn: list[Any] = []
        self.came: list[int] = []
        self.batches = 0
        self.whole = False
        self.generators: Any = None
        """State of the process's own random generators as the latest batch came."""
        self.updates = 0
        """Updates before it, and once it ended, inside it."""
        self.start: dataset_state.State = {}
        self.end: dataset_state.State = {}

    def content(self) -> dict[str, Any]:
        return {
            "drawn": {**_told(self.drawn), "spread": _spread(self.drawn)},
            "came": _told(self.came),
            "whole": self.whole,
            "updates": self.updates if self.whole else None,
        }


LATER = Pass()
"""Every pass after the kept ones: it is full from the start, so its steps cost nothing."""
LATER.drawn, LATER.batches = [0] * ITEMS, BATCHES


def _told(items: list[Any]) -> dict[str, Any]:
    """Number of items, the first of them, and how many differ in the first 2, 4, 8, ..."""
    distinct, size = [], 2
    while size <= len(items):
        distinct.append(len(set(items[:size])))
        size *= 2
    return {"count": len(items), "first": items[:FIRST], "distinct": distinct}


def _spread(items: list[Any]) -> list[float]:
    """Deviation of indices among each 2, 4, 8, ... in turn.

    Batches of alike items, which often lie side by side, have a small one. It is no share of that
    among all that were drawn: a faster run draws more of them, and in order they lie further apart.
    """
    deviations, size = [], 2
    while size * PARTS_OF_SPREAD <= len(items):
        starts = range(0, len(items) - size + 1, size)
        parts = [statistics.pstdev(items[low : low + size]) for low in starts]
        deviations.append(statistics.fmean(parts))
        size *= 2
    return deviations


class LoaderWatch:
    """What is known of one loader's work in this process."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        self.by_items: dict[str, str] = {}
        """State that making an item changed, with its kind."""
        self.grown: dict[str, list[tuple[int, float]]] = {}
        """Fetch of a pass, and by how much it made each plain value grow."""
        self.by_loop: dict[str, str] = {}
        """State that changed between two fetches of a pass."""
        self.by_program: dict[str, str] = {}
        """State that changed between two passes."""
        self.set_inside: list[str] = []
        """Attributes that the loop over the batches sets."""
        self.first_fetch: dict[str, str] = {}
        """The process's own random generators after the first fetch in the main process."""
        self.unread: set[str] = set()
        """Attributes that no code which makes items reads, so that it may count in them."""
        self.sets = False
        """Code that makes items sets something outside of its own variables."""
        self.set_around: list[str] = []
        """Attributes that the loops around a pass set, and methods that do it."""
        self.name = ""
        self.iterable = False
        self.endless = False
        self.each_worker = ""
        """Code that ends a stream in each worker for itself."""
        self.draws: bool | None = None
        """What is done with a batch draws random numbers."""
        self.limits: batch_limits.Limits = {}
        """Code that ends the loop over the batches."""
        self.steps: int | None = None
        """Batches of a pass, as `len` tells the program."""

    def fetched(
        self, number: int, changed: dict[str, str], before: Any, after: Any
    ) -> None:
        """Note what the fetch of that `number` in its pass changed."""
        for path, kind in changed.items():
            self.by_items[path] = kind
            if kind in ("value", "size"):
                more = dataset_state.growth(path, before, after)
                self.grown.setdefault(path, []).append((number, more))

    def kind_of(self, path: str, kind: str) -> str:
        """A count grows in each fetch; one that starts, in a pass's first only.

        Any other value may be that of the latest item, as of a file that stays open. A container
        of a stream that grows by as much in each fetch keeps its items; one to shuffle them in is
        filled and emptied.
        """
        grown = self.grown.get(path, [])
        if kind == "size":
            sizes = [more for _, more in grown]
            keeps = (
                self.iterable and len(sizes) > 1 and len(set(sizes)) == 1 and sizes[0] > 0
            )
            return "kept" if keeps else kind
        if not grown or min(more for _, more in grown) <= 0:
            return kind
        later = [more for number, more in grown if number > 1]
        if not later:
            return "start"
        return "count" if len(later) > 1 else kind

    def content(self, session: Session) -> dict[str, Any]:
        return {
            "iterable": self.iterable,
            "endless": self.endless,
            "each_worker": self.each_worker,
            "steps": self.steps,
            "draws": self.draws,
            "limits": batch_limits.content(self.limits),
            "passes": [pass_.content() for pass_ in self.passes],
            "by_items": self._read(self.changed()),
            "by_loop": {
                path: kind
                for path, kind in self.by_loop.items()
                if path not in self.by_items
            },
            "set_inside": self.set_inside,
            "by_program": dict(self.by_program),
            "set_around": self.set_around,
            "generators": dataset_state.generators(self.passes[0].start)
            if self.passes
            else {},
            "first_fetch": self.first_fetch,
            "workers": [
                {**facts, "changed": self._read(facts.get("changed", {}))}
                for facts in _of_workers(session, self.name)
            ],
        }

    def changed(self) -> dict[str, str]:
        """State that making an item changed, with its kind."""
        return {path: self.kind_of(path, kind) for path, kind in self.by_items.items()}

    def _read(self, changed: dict[str, str]) -> dict[str, str]:
        """The part of a state that the program reads."""
        return {
            path: kind
            for path, kind in changed.items()
            if kind not in COUNTED_KINDS
            or path.rpartition(".")[-1].removesuffix("[]") not in self.unread
        }


def install(torch: Any, session: Session) -> None:
    """Hook draws of indices, fetches of items, and questions for the worker's number."""
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter

    @session.patches.wrap(iterator, "_next_index")
    def _next_index(draw: Any, self: Any) -> Any:
        index = draw(self)
        held = self.__dict__
        drawn = (held.get(CURRENT) or held.setdefault(CURRENT, Pass())).drawn
        if len(drawn) < ITEMS:  # workers draw ahead, before the iterator is known
            several = index if isinstance(index, (list, tuple)) else (index,)
            drawn.extend(index for index in several if isinstance(index, int))
        return index

    @session.patches.wrap(iterator, "_reset")
    def _reset(reset: Any, self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:  # persistent workers begin another pass
            self.__dict__[CURRENT] = Pass()
            if not session.is_muted() and session.diagnosis is None:
                session.attempt(begins_again, session, self, loader)
        reset(self, loader, first_iter)

    fetchers: Any = sys.modules[f"{torch.__name__}.utils.data._utils.fetch"]
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        kind = getattr(fetchers, name, None)
        if kind is not None:
            session.patches.wrap(kind, "fetch")(_fetching(session))
    _questions(torch, session)
    _initialising(torch, session)


def _fetching(session: Session) -> Any:
    """Stand-in for a fetch that reads the dataset's state before and after the first few.

    In whatever process makes items: the state is another in each worker's copy, and only there
    is it seen to change.
    """

    def fetch(original: Any, self: Any, index: Any) -> Any:
        number = self.__dict__.get(FETCHED, 0) + 1
        watched = session.passes_begun <= PASSES and session.diagnosis is None
        if number > FETCHES or not watched:
            return original(self, index)
        self.__dict__[FETCHED] = number
        before: dataset_state.State = {}
        try:
            before = _state_of_fetcher(session, self)
        except Exception as problem:
            session.fail(problem)
        if number > 1 and not session.is_muted():
            session.attempt(_left_alone, session, self, before)
        try:
            return original(self, index)
        finally:
            session.attempt(_fetched, session, self, number, before)

    return fetch


def state_of(session: Session, dataset: Any, collate: Any) -> dataset_state.State:
    """State of what makes items, and of the process's own random generators."""
    random = sys.modules.get("random")
    numpy: Any = sys.modules.get("numpy.random.mtrand")
    return dataset_state.read(
        {
            "dataset": dataset,
            "collate_fn": collate,
            "random": getattr(random, "_inst", None),
            "numpy.random": getattr(numpy, "_rand", None),
            "torch": getattr(session.torch, "default_generator", None),
        }
    )


def _state_of_fetcher(session: Session, fetcher: Any) -> dataset_state.State:
    """State of a fetcher's data, and random generators that lie in a stream's running code."""
    state = state_of(session, fetcher.dataset, fetcher.collate_fn)
    iterator = getattr(fetcher, "dataset_iter", None)
    if iterator is not None:
        running = dataset_state.read(_running(iterator, fetcher.dataset))
        state.update(dataset_state.of_generators(running))
    return state


def _running(iterator: Any, dataset: Any) -> dict[str, Any]:
    """Variables of the generators that an iterator goes through, by their names."""
    found: dict[str, Any] = {}
    here, seen = deque([iterator]), set[int]()
    while here and len(seen) < ITERATORS:
        part = here.popleft()
        if id(part) in seen or part is dataset:
            continue
        seen.add(id(part))
        frame = getattr(part, "gi_frame", None)
        if frame is not None:
            variables = copied_weights.variables_of(frame)
            variables.pop("self", None)
            for name, value in variables.items():
                found.setdefault(f"iterator.{name}", value)
        here += [each for each in gc.get_referents(part) if hasattr(type(each), "__next__")]
    return found


def _left_alone(session: Session, fetcher: Any, before: Any) -> None:
    """Note what the loop over the batches did to the dataset since the latest fetch."""
    changed = dataset_state.changes(fetcher.__dict__.get(LEFT, {}), before)
    own = {
        p: kind for p, kind in changed.items() if p.startswith(("dataset", "collate_fn"))
    }
    name = type(fetcher.dataset).__name__
    for facts in session.loaders if own else ():
        if facts["dataset"] == name:
            facts["work"].by_loop.update(own)


def look_again(session: Session, facts: dict[str, Any]) -> None:
    """Note what the loop over the batches changed since the first of them, as the trial ends.

    An update may come after many batches. What items changed since then is no loop's doing: a
    number that the code for items sets is left out where they are made in the same process.
    """
    iterator = facts["iterator"]() if "iterator" in facts else None
    if iterator is None:
        return
    work, fetcher = facts["work"], getattr(iterator, "_dataset_fetcher", None)
    current = iterator.__dict__.get(CURRENT) or LATER
    before = current.start if fetcher is None else fetcher.__dict__.get(LEFT, {})
    kinds = LATER_KINDS if fetcher is None or not work.sets else LATER_KINDS[:-1]
    after = state_of(session, iterator._dataset, iterator._collate_fn)
    for path, kind in dataset_state.changes(before, after).items():
        if kind in kinds and path.startswith(("dataset", "collate_fn")):
            work.by_loop.setdefault(path, kind)


def _fetched(session: Session, fetcher: Any, number: int, before: Any) -> None:
    after = _state_of_fetcher(session, fetcher)
    if not session.is_muted():
        fetcher.__dict__[LEFT] = after
    changed = dataset_state.changes(before, after)
    if number == 1:  # files are opened, and nothing was kept before
        changed = {path: kind for path, kind in changed.items() if kind in FIRSTS}
    name = type(fetcher.dataset).__name__
    if session.is_muted():
        _report(session, name, number, changed, before, after)
        return
    for facts in session.loaders:
        if facts["dataset"] == name:
            work = facts["work"]
            work.fetched(number, changed, before, after)
            work.first_fetch = work.first_fetch or {
                path: digest
                for path, digest in dataset_state.generators(after).items()
                if path in OF_PROCESS
            }


# In a worker


def _initialising(torch: Any, session: Session) -> None:
    """Look at what a worker's init function does to its copy of the dataset."""
    worker: Any = sys.modules[f"{torch.__name__}.utils.data._utils.worker"]
    signature = inspect.signature(worker._worker_loop)

    @session.patches.wrap(worker, "_worker_loop")
    def _worker_loop(original: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        named = given.arguments
        if named.get("init_fn") is not None:
            parts = (named["init_fn"], named["dataset"], named["num_workers"])
            named["init_fn"] = functools.partial(_initialised, session, *parts)
        return original(*given.args, **given.kwargs)


def _initialised(
    session: Session, init: Any, dataset: Any, workers: int, number: int
) -> None:
    before: dataset_state.State = {}
    try:
        before = state_of(session, dataset, None)
    except Exception as problem:
        session.fail(problem)
    session.questions.add("id")  # it gets its number without a question
    init(number)
    session.attempt(_parted, session, dataset, workers, before)


def _parted(session: Session, dataset: Any, workers: int, before: Any) -> None:
    """Tell the part of the dataset that is this worker's own now, by a number for it.

    A part is what is left of a container, or a place among as many as there are workers. A
    plain number alone may be a seed. The process's own generators that were set are told, too.
    """
    after = state_of(session, dataset, None)
    own = dataset_state.changes(dataset_state.of_generators(before), after)
    session.worker_facts["seeded"] = sorted(path for path in own if path in OF_PROCESS)
    changed = {
        path: after[path]
        for path, kind in dataset_state.changes(before, after, opened=True).items()
        if path.startswith("dataset") and kind != "generator"
    }
    session.worker_facts["set"] = {
        path: digests.digest(value)
        for path, (kind, value) in changed.items()
        if kind == "order" or (kind == "value" and abs(value) < SEEDS_FROM)
    }
    kinds = {kind for kind, _ in changed.values()}
    if kinds & PARTED or ("value", workers) in changed.values():
        session.worker_facts["part"] = f"{zlib.crc32(repr(changed).encode()):08x}"


def _questions(torch: Any, session: Session) -> None:
    """Note what the program asks of its worker: sharding takes the number of workers."""
    worker: Any = sys.modules[f"{torch.__name__}.utils.data._utils.worker"]
    data = torch.utils.data
    watched: dict[int, Any] = {}

    def get_worker_info(original: Any) -> Any:
        info = original()
        asker = sys._getframe(2).f_code.co_filename
        if info is None or f"{os.sep}torch{os.sep}" in asker:
            return info
        if id(info) not in watched:
            session.attempt(_asked, session, "info")
            watched.clear()
            try:
                watched[id(info)] = (info, _watched(session, info))
            except Exception as problem:
                session.fail(problem)
                return info
        return watched[id(info)][1]

    for owner in (worker, data, sys.modules[f"{torch.__name__}.utils.data.dataloader"]):
        if hasattr(owner, "get_worker_info"):
            session.patches.wrap(owner, "get_worker_info")(get_worker_info)

    @session.patches.wrap(torch, "initial_seed")
    def initial_seed(original: Any) -> Any:
        if session.is_muted():  # a worker's, which differs from pass to pass
            session.attempt(_asked, session, "initial_seed")
        return original()


def _watched(session: Session, info: Any) -> Any:
    """Worker info that notes which of its fields are read."""

    class WorkerInfo(type(info)):  # type: ignore[misc]
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            if name in LOCAL:
                session.attempt(_asked, session, name, sys._getframe(1))
            return object.__getattribute__(self, name)

    watched = object.__new__(WorkerInfo)
    for name in LOCAL:
        if hasattr(info, name):
            object.__setattr__(watched, name, getattr(info, name))
    return watched


def _asked(session: Session, name: str, frame: Any = None) -> None:
    if name == "num_workers" and name not in session.questions:
        place = (frame.f_code.co_filename, frame.f_lineno)
        name = "seeds" if worker_number.only_seeds(*place, name) else name
    if name not in session.questions:
        session.questions.add(name)
        if session.worker_facts:
            _write(session)


def _report(
    session: Session,
    name: str,
    number: int,
    changed: dict[str, str],
    before: Any,
    after: Any,
) -> None:
    """Tell the main process of this worker's dataset."""
    facts = session.worker_facts
    worker: Any = sys.modules["torch.utils.data._utils.worker"]
    if number == 1:
        facts.update(
            dataset=name,
            worker=worker._worker_info.id,
            before=dataset_state.generators(before),
            after=dataset_state.generators(after),
        )
        session.worker_watch = LoaderWatch()
    watch = session.worker_watch
    if watch is not None:
        watch.fetched(number, changed, before, after)
        facts["changed"] = watch.changed()
    _write(session)


def _write(session: Session) -> None:
    parent = multiprocessing.parent_process()
    owner = os.getppid() if parent is None else parent.pid
    path = os.path.join(session.records, f"worker-{owner}-{os.getpid()}")
    content = {**session.worker_facts, "asked": sorted(session.questions)}
    write_whole(f"{path}.tmp", json.dumps(content, default=str), os.O_TRUNC)
    os.replace(f"{path}.tmp", f"{path}.facts")


def _of_workers(session: Session, name: str) -> Iterator[dict[str, Any]]:
    """What workers over a dataset of this name told, the first ones first."""
    start = f"worker-{session.pid}-"
    files = [entry for entry in os.listdir(session.records) if entry.startswith(start)]
    told: list[tuple[float, str, dict[str, Any]]] = []
    for entry in files:
        if entry.endswith(".facts") and len(told) < 64:
            try:
                path = os.path.join(session.records, entry)
                with open(path, encoding="utf-8") as file:
                    told.append((os.stat(path).st_mtime, entry, json.load(file)))
            except (OSError, ValueError):
                continue
    told.sort(key=lambda one: one[:2])
    for _, _, facts in told:
        if facts.pop("dataset", None) == name:
            yield facts


# In the main process


def built(facts: dict[str, Any], torch: Any, loader: Any) -> None:
    work = facts["work"] = LoaderWatch()
    work.name = facts["dataset"]
    work.iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    work.endless = work.iterable and _never_returns(type(loader.dataset))
    if work.iterable:
        making = dataset_walk.methods_of(type(loader.dataset))
        work.each_worker = worker_number.ends_for_itself(making)


def _never_returns(kind: type) -> bool:
    """Return True for a stream that no code path ends: its generator cannot return.

    It has no pass that several workers could each repeat, as they do of other streams.
    """
    import dis

    code = getattr(getattr(kind, "__iter__", None), "__code__", None)
    generator = 0x20
    if code is None or not code.co_flags & generator:
        return False
    names = {instruction.opname for instruction in dis.get_instructions(code)}
    return not names & {"RETURN_VALUE", "RETURN_CONST"}


def begins(session: Session, facts: dict[str, Any], iterator: Any, loader: Any) -> None:
    """A pass begins; its first draws may have been made."""
    work = facts["work"]
    session.passes_begun += 1
    if len(work.passes) >= PASSES:
        iterator.__dict__[CURRENT] = LATER
        return
    current = iterator.__dict__.setdefault(CURRENT, Pass())
    current.updates = session.updates
    current.start = state_of(session, loader.dataset, loader.collate_fn)
    if work.passes:
        before = work.passes[-1]
        changed = dataset_state.changes(before.end or before.start, current.start)
        alone = not iterator._num_workers and not before.end
        for path, kind in {} if alone else changed.items():
            if path.startswith(("dataset", "collate_fn")) and path not in work.by_items:
                work.by_program.setdefault(path, kind)
    try:
        work.steps = None if work.iterable else len(loader)
    except Exception:  # no length
        work.steps = None
    if not work.passes:
        session.attempt(_look_around, work, loader)
    work.passes.append(current)


def _look_around(work: LoaderWatch, loader: Any) -> None:
    """Note what the loops around the first pass, and the one over it, set of its dataset."""
    roots = {"dataset": loader.dataset, "collate_fn": loader.collate_fn}
    state = item_making.settable(roots)
    set_around, named = set_in_loops.around(state)
    by_hooks = loop_code.by_hooks(named, state.attributes | state.methods)
    work.set_around = sorted(set_around | by_hooks)
    work.set_inside = sorted(set_in_loops.inside(state))
    work.unread = item_making.unread(roots)
    work.sets = state.sets


def begins_again(session: Session, iterator: Any, loader: Any) -> None:
    pid, index = iterator.__dict__.get("_gpu_advisor_loader", (None, 0))
    if pid == session.pid:
        begins(session, session.loaders[index], iterator, loader)


def came(session: Session, iterator: Any, batch: Any, items: float) -> None:
    """Keep numbers for the rows of a batch."""
    current = iterator.__dict__.get(CURRENT)
    full = current is None or current.batches >= BATCHES or len(current.came) >= ITEMS
    if full or session.counting:
        return
    current.batches += 1
    if current.batches <= batch_limits.LOOKS:
        work = session.loaders[iterator.__dict__["_gpu_advisor_loader"][1]]["work"]
        batch_limits.look(work.limits, len(work.passes), fetched=True)
    with session.unseen():
        current.came.extend(batches.rows(batch, items))
        if current.batches <= DRAWS:
            current.generators = _generators(session)


def asked_next(session: Session, iterator: Any) -> None:
    """Note whether the work on the latest batch drew random numbers.

    Where it did, two runs differ in the results of equal items, which are then not compared.
    """
    current = iterator.__dict__.get(CURRENT)
    if current is None or current.generators is None:
        return
    before, current.generators = current.generators, None
    work = session.loaders[iterator.__dict__["_gpu_advisor_loader"][1]]["work"]
    work.draws = bool(work.draws) or _generators(session) != before


def _generators(session: Session) -> Any:
    """States of the generators that a loop may draw from; a card's waits for nothing.

    Mixing of pictures draws from numpy's or Python's own more often than from torch's.
    """
    torch, numpy = session.torch, sys.modules.get("numpy")
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    states = [zlib.crc32(bytes(generator.get_state().tolist())) for generator in generators]
    states.append(hash(random.getstate()))
    if numpy is not None and hasattr(numpy, "random"):
        _, numbers, *place = numpy.random.get_state()
        states += [zlib.crc32(numbers.tobytes()), *place[:2]]
    return states


def ended(session: Session, iterator: Any) -> None:
    """The pass ended by itself."""
    current = iterator.__dict__.get(CURRENT)
    if current not in (None, LATER):
        current.whole, current.updates = True, session.updates - current.updates
        current.end = state_of(session, iterator._dataset, iterator._collate_fn)


# Of updates


def updated(session: Session, optimizer: Any, number: int) -> None:
    """Keep the learning rate of an update, and the scheduler's steps since the last one."""
    kept = session.rates.setdefault(number, [])
    if len(kept) >= UPDATES:
        return
    rate, *others = [_plain_rate(group) for group in optimizer.param_groups[:GROUPS]]
    seen = (session.schedule_steps, session.average_steps, session.losses_seen)
    kept.append((rate, *seen, tuple(others)))


def _plain_rate(group: dict[str, Any]) -> float | None:
    """Learning rate of a parameter group; None where it lies on a card, or is none."""
    rate = group.get("lr")
    on_host = getattr(getattr(rate, "device", None), "type", "") == "cpu"
    return float(rate) if isinstance(rate, (int, float)) or on_host else None  # type: ignore[arg-type]


def _other_rates(session: Session, kept: Any) -> dict[str, list[float | None]]:
    """Rates by update of the further groups, and of the optimizers that step less."""
    found: dict[str, list[float | None]] = {}
    for at, updates in enumerate(session.rates.values(), 1):
        name = f"optimizer {at}"
        if updates is not kept:
            found[name] = [update[0] for update in updates]
        for group, rates in enumerate(zip(*(update[-1] for update in updates)), 2):
            found[f"group {group} of {name}"] = list(rates)
    return found


def schedules(torch: Any, session: Session) -> None:
    """Count steps of torch's schedulers."""
    module: Any = sys.modules.get(f"{torch.__name__}.optim.lr_scheduler")
    for name in ("LRScheduler", "_LRScheduler", "ReduceLROnPlateau"):
        kind = getattr(module, name, None)
        if kind is None or "step" not in vars(kind):
            continue

        @session.patches.wrap(kind, "step")
        def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            session.schedule_steps += 1
            return original(self, *args, **kwargs)


def averages(torch: Any, session: Session) -> None:
    """Count steps of torch's running averages of weights."""
    module: Any = sys.modules.get(f"{torch.__name__}.optim.swa_utils")
    kind = getattr(module, "AveragedModel", None)
    if kind is not None:

        @session.patches.wrap(kind, "update_parameters")
        def update_parameters(original: Any, *args: Any, **kwargs: Any) -> Any:
            session.average_steps += 1
            return original(*args, **kwargs)


def settings_of(optimizer: Any) -> dict[str, float]:
    """Numbers of the first parameter group: momentum, betas, weight decay."""
    settings: dict[str, float] = {}
    for name, value in optimizer.param_groups[0].items():
        several = value if isinstance(value, (list, tuple)) else (value,)
        for at, part in enumerate(several if name not in ("params", "lr") else ()):
            if isinstance(part, (int, float)) and not isinstance(part, bool):
                settings[f"{name}[{at}]" if several is value else name] = float(part)
    return settings


def batch_statistics(session: Session) -> bool:
    """Return True if a called network normalises by the batch it trains on."""
    for entry in session.modules:
        module = entry.module()
        for part in module.modules() if hasattr(module, "modules") else ():
            names = "".join(base.__name__ for base in type(part).__mro__)
            # What another class keeps is seen to move, or not: it may be a frozen one.
            shown = part._buffers and not copied_weights.is_torchs_norm(part)
            if "BatchNorm" in names and part.training and not shown:
                return True
    return False


def content(session: Session) -> dict[str, Any]:
    """Facts of updates, by the optimizer that steps most."""
    kept = max(session.rates.values(), key=len, default=[])
    rates, schedule, averaged, losses, _ = zip(*kept) if kept else ((), (), (), (), ())
    known = session.batch_statistics
    copies, beside = copied_weights.content(session)
    distances = {
        copy.name: copy.distances() for copy in session.copies if copy.name in copies
    }
    counts, at_updates = batch_counts.content(session)
    return {
        "rates": rates,
        "other_rates": _other_rates(session, kept),
        "schedule": schedule,
        "averages": averaged,
        "copies": copies,
        "copies_moved": distances,
        "beside": beside,
        "counts": counts,
        "counts_at_updates": at_updates,
        "once_a_batch": by_batches.content(session),
        "edits": own_edits.content(session),
        **own_edits.gradients(session),
        "mixes": mixed_losses.content(session),
        "first_weights": first_weights.content(session),
        "losses": list(_losses_of_updates(session, losses)),
        "settings": session.optimizer_settings,
        "batch_statistics": batch_statistics(session) if known is None else known,
    }


def _losses_of_updates(session: Session, seen: Any) -> Iterator[float]:
    """Sum of the losses of each of the first updates."""
    values = session.facts.get("losses") or []
    low = 0
    for high in seen[:LOSSES]:
        if high > min(len(values), 256) or high <= low:
            return
        yield sum(values[low:high])
        low = high
