"""DataLoader hooks: construction, iteration and batches.

Built tells the arguments and the line, iterated the settings in force for this pass, and each
batch its items and the time that the program waited for it. A program that makes its loader anew
for every epoch has one loader here: those of equal facts are the same.
"""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import Any

from . import batches, call_sites, work_facts
from .batches import note_padding
from .clocks import clock
from .recorder import PASS_ENDED
from .session import Session

NUMBER = "_gpu_advisor_loader"
"""Attribute of loaders and iterators: process, index of the session's loader."""
DESCRIBED = ("site", "arguments", "pass_items", "left_out", "iterated", "guessed")
IN_FORCE = (
    "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "drop_last", "timeout",
    "multiprocessing_context", "in_order", "pin_memory_device",
)  # fmt: skip
"""Attributes of a DataLoader for its arguments, in versions that have them."""

Facts = dict[str, Any]

OPENED = "_gpu_advisor_opened"
"""Attribute of an iterator until its first batch: start and end of construction."""
SHAPED = 64
"""Batches of a loader whose shapes are kept: the first calls of a network settle their axis.

Judgement: fewer end before a program calls its network, as where it reads ahead. More cost batches
that show nothing new."""
AT_ONCE_S = 0.01
"""Seconds after a loader is opened in which a first batch begins with building workers.

Judgement: shorter leaves the start of workers out of a pass on a busy host. Longer counts the
program's own work as waiting."""


def install(torch: Any, session: Session) -> None:
    """Hook where DataLoaders are built, iterated, and give batches."""
    loader = torch.utils.data.DataLoader
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter

    @session.patches.wrap(loader, "__init__")
    def __init__(build: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        if not session.is_muted():
            session.attempt(built, session, self)

    @session.patches.wrap(loader, "_get_iterator")
    def _get_iterator(iterate: Any, self: Any) -> Any:
        enter = clock()
        begun = iterate(self)
        opened = clock()
        begun.__dict__[OPENED] = (enter, opened)
        if not session.is_muted():
            session.attempt(begins, session, begun, self)
            session.spent_s += clock() - opened
        return begun

    @session.patches.wrap(iterator, "__next__")
    def __next__(fetch: Any, self: Any) -> Any:
        enter, (pid, index) = clock(), self.__dict__.get(NUMBER, (None, 0))
        if pid != session.pid or session.muted:
            return fetch(self)
        if session.diagnosis is not None:
            return _diagnosed(session, index, fetch, self)
        session.step_ended(enter, ("fetch", index))
        session.attempt(work_facts.asked_next, session, self)
        works = session.thread in (None, get_ident())  # else work goes on
        outermost = works and session.entrance.occupy()  # transforms are modules too
        begun = clock()
        try:
            batch = fetch(self)
        except StopIteration:
            session.recorder.add(("pass_end", enter, clock(), index, PASS_ENDED))
            session.attempt(work_facts.ended, session, self)
            raise
        except Exception as problem:
            session.attempt(session.record_exception, problem, "loading")
            raise
        finally:
            if outermost:
                session.entrance.vacate()
        end = clock()
        try:
            opened = self.__dict__.pop(OPENED, None)
            at_once = opened is not None and enter - opened[1] < AT_ONCE_S
            items = _came(session, index, batch, opened[0] if at_once else enter, end)
            session.attempt(work_facts.came, session, self, batch, items)
        except Exception as problem:
            session.step_aside(problem)
        session.spent_s += clock() - end + begun - enter
        return batch


def _diagnosed(session: Session, index: int, fetch: Any, iterator: Any) -> Any:
    if index == session.diagnosis.loader:
        session.diagnosis.at("batch")
    session.fetching = True
    try:
        return fetch(iterator)
    finally:
        session.fetching = False


def _came(session: Session, index: int, batch: Any, enter: float, end: float) -> float:
    facts = session.loaders[index]
    with session.unseen():
        counter = facts["counter"]
        items = counter.count(batch)
        session.recorder.add(("batch", enter, end, index, items))
        guessed = counter.guessed and facts["exact"]
        if guessed is not facts["guessed"]:
            facts["guessed"] = guessed
            describe(session, index)
        session.fed = None  # what an earlier batch was tells nothing of this one
        if not session.counting:
            facts["thread"] = get_ident()
            if facts["shaped"] < SHAPED:
                session.attempt(_shaped, session, facts, items, batch)
            padding = facts["padding"]
            if padding is not None and not note_padding(padding, batch):
                facts["padding"] = None
    return float(items)


def _shaped(session: Session, facts: Facts, items: float, batch: Any) -> None:
    """Keep the shapes of the latest batch, until layers show which axis is the batch's."""
    facts["shaped"] += 1
    shapes = [shape for shape in batches.shapes_in(batch) if len(shape[1]) > 1]
    facts["latest"], session.fed = (items, shapes), facts


def built(session: Session, loader: Any) -> None:
    """Note a new DataLoader, or recognise a rebuilt one."""
    if loader.__dict__.get(NUMBER, (None,))[0] == session.pid:
        return
    batch: Any = loader.batch_size
    if batch is None:
        batch = getattr(loader.batch_sampler, "batch_size", None)
    facts: Facts = {
        "site": _first_site(loader, session.loaders) or call_sites.call_site(),
        "dataset": type(loader.dataset).__name__,
        "length": _length(loader.dataset),
        "asked_batch": batch,
        "left_out": _left_out(loader, batch),
        "sampler": type(loader.sampler).__name__,
    }
    for index, other in enumerate(session.loaders):
        if all(facts[key] == other[key] for key in facts):
            loader.__dict__[NUMBER] = (session.pid, index)
            return
    facts.update(
        counter=batches.ItemCount(_expected(batch, facts["length"])),
        shaped=0,
        padding={"rows": 0, "positions": 0, "padded": 0},
        arguments=_arguments(loader, batch),
        pass_items=None,
        guessed=False,
        exact=loader.batch_size is not None,  # a sampler of the program's may mean the most
        iterated=False,
        thread=None,
        data=id(loader.dataset),
    )
    work_facts.built(facts, session.torch, loader)
    session.loaders.append(facts)
    loader.__dict__[NUMBER] = (session.pid, len(session.loaders) - 1)
    describe(session, len(session.loaders) - 1)


def _expected(batch: Any, length: int | None) -> float | None:
    """Items of a full batch, of as many as there are; None unless a number was asked for."""
    if not isinstance(batch, int):
        return None
    return float(batch if length is None else max(1, min(batch, length)))


def _arguments(loader: Any, batch: Any, **seen: Any) -> Facts:
    """Arguments of a DataLoader, as it holds them or as `seen`."""
    arguments = {name: getattr(loader, name) for name in IN_FORCE if hasattr(loader, name)}
    arguments.update(batch_size=batch, **seen)
    if not arguments.get("num_workers"):
        arguments["prefetch_factor"] = None
    kinds = (bool, int, float, str, type(None))
    return {name: value for name, value in arguments.items() if isinstance(value, kinds)}


def begins(session: Session, iterator: Any, loader: Any) -> None:
    """Note the settings a pass really runs with."""
    built(session, loader)  # built before the probe came, or before a fork
    index = loader.__dict__[NUMBER][1]
    iterator.__dict__[NUMBER] = (session.pid, index)
    facts = session.loaders[index]
    if not facts["iterated"]:
        session.switch(counting=False)
    arguments = _arguments(
        loader,
        facts["asked_batch"],
        num_workers=iterator._num_workers,
        persistent_workers=iterator._persistent_workers,
        pin_memory=bool(iterator._pin_memory),
    )
    facts.update(
        iterated=True,
        iterator=weakref.ref(iterator),
        loader=weakref.ref(loader),
        arguments=arguments,
        pass_items=items_of_a_pass(session.torch, loader),
    )
    if session.plan.get("ceilings_workers") and not arguments["persistent_workers"]:
        facts["loader"] = lambda: loader  # one in the `for` line is gone at once
    session.attempt(work_facts.begins, session, facts, iterator, loader)
    describe(session, index)


def describe(session: Session, index: int, at_end: bool = False) -> None:
    facts = session.loaders[index]
    content = {name: facts[name] for name in DESCRIBED}
    content["other_thread"] = len({session.thread, facts["thread"]} - {None}) > 1
    content.update(facts["padding"] or {})
    if at_end:
        if session.diagnosis is None:
            session.attempt(work_facts.look_again, session, facts)
        content["work"] = facts["work"].content(session)
    session.recorder.add(("loader", index, content))


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:
        return None


def items_of_a_pass(torch: Any, loader: Any) -> int | None:
    """Items of one pass, over all ranks; None for an endless one."""
    dataset_items = _length(loader.dataset)
    batch_sampler = loader.batch_sampler
    sampler = getattr(loader if batch_sampler is None else batch_sampler, "sampler", None)
    if sampler is None or isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return dataset_items
    drawn, ranks = _length(sampler), getattr(sampler, "num_replicas", 1)
    if drawn is None or not isinstance(ranks, int) or ranks < 2:
        return drawn
    # a distributed sampler draws some items twice, so that each rank has as many
    return drawn * ranks if dataset_items is None else min(drawn * ranks, dataset_items)


def _left_out(loader: Any, batch: Any) -> int | None:
    """Items of one pass dropped with the last batch."""
    batch_sampler = loader.batch_sampler
    if not getattr(batch_sampler, "drop_last", False):  # without batches nothing is dropped
        return 0
    length = _length(getattr(batch_sampler, "sampler", ()))
    return None if length is None or not isinstance(batch, int) else length % batch


def _first_site(loader: Any, known: list[Facts]) -> str | None:
    """Line of the program's loader of this data, where a library builds another.

    Lightning and accelerate replace the user's loader by one of their own. The line that the
    user can change is that of the first one over the same data.
    """
    frame = call_sites.caller()
    if frame is None or not call_sites.installed(frame.f_code.co_filename):
        return None
    sites = (facts["site"] for facts in known if facts["data"] == id(loader.dataset))
    return next(sites, None)
