"""DataLoader facts: construction and runtime settings."""

from __future__ import annotations

import opcode
import weakref
from typing import Any, Dict, Mapping

from . import batches, call_sites
from .padding import Padding
from .session import Session

NUMBER = "_gpu_advisor_loader"
"""Attribute of loaders and their iterators: process and index into the session's loaders."""
DONE = "_gpu_advisor_done"
"""Attribute of an iterator that came to its end."""
BUILT = ("site", "dataset", "length", "asked_batch", "left_out", "sampler")
"""Facts by which a loader that is built again is known."""
IN_FORCE = (
    "batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory",
    "drop_last", "timeout", "multiprocessing_context", "in_order", "pin_memory_device",
)  # fmt: skip
"""Attributes of a DataLoader that hold its arguments, in the versions that have them."""


def built(session: Session, loader: Any, given: Mapping[str, Any]) -> None:
    """Note a new DataLoader, or recognise a rebuilt one."""
    if NUMBER in loader.__dict__ and loader.__dict__[NUMBER][0] == session.pid:
        return
    batch: Any = getattr(loader, "batch_size", None)
    if batch is None:
        batch = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    known = session.loaders
    facts: Dict[str, Any] = {
        "site": _first_site(loader, known) or call_sites.call_site(),
        "dataset": type(loader.dataset).__name__,
        "length": _length(loader.dataset),
        "asked_batch": batch,
        "left_out": _left_out(loader, batch),
        "sampler": type(getattr(loader, "sampler", None)).__name__,
    }
    for index, other in enumerate(known):
        if _same(facts, other):
            loader.__dict__[NUMBER] = (session.pid, index)
            return
    index = _add(session, facts)
    loader.__dict__[NUMBER] = (session.pid, index)
    known[index]["passed"] = _passed(given)
    known[index]["arguments"] = _in_force(loader, batch)
    try:
        known[index]["data"] = weakref.ref(loader.dataset)
    except TypeError:
        pass
    describe(session, index)


def _in_force(loader: Any, batch: Any) -> Dict[str, Any]:
    """Arguments of a DataLoader, as it holds them."""
    found = {name: getattr(loader, name) for name in IN_FORCE if hasattr(loader, name)}
    found["batch_size"] = batch
    if not found.get("num_workers"):
        found["prefetch_factor"] = None
    return {name: value for name, value in found.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _passed(given: Mapping[str, Any]) -> Dict[str, Any]:
    """Return plain values of forwarded keyword arguments."""
    frame = call_sites.caller()
    if frame is None or frame.f_code.co_code[frame.f_lasti] != opcode.opmap["CALL_FUNCTION_EX"]:
        return {}
    return {name: value for name, value in given.items() if _is_plain(value)}


def _same(facts: Dict[str, Any], other: Dict[str, Any]) -> bool:
    return all(facts.get(key) == other.get(key) for key in BUILT)


def _add(session: Session, facts: Dict[str, Any]) -> int:
    """Add a loader of its own; returns its index."""
    batch = facts["asked_batch"]
    sizes = isinstance(batch, int) and not isinstance(batch, bool)
    counter = batches.Counter(float(batch) if sizes else None)
    entry = {**{key: facts[key] for key in BUILT}, "counter": counter, "padding": Padding()}
    session.loaders.append(entry)
    return len(session.loaders) - 1


def _apart(session: Session, index: int, loader: Any) -> int:
    """Separate two loaders of one line iterated together."""
    facts = session.loaders[index]
    for other in range(index, len(session.loaders)):
        if _same(facts, session.loaders[other]) and not _in_turn(session.loaders[other], loader):
            return other
    return _add(session, facts)


def _in_turn(facts: Dict[str, Any], loader: Any) -> bool:
    """Return True while another loader uses this index."""
    iterator = facts["iterator"]() if facts.get("iterator") else None
    if iterator is None or iterator.__dict__.get(DONE):
        return False
    return bool(facts["by"] != id(loader))


def begins(session: Session, iterator: Any, loader: Any) -> None:
    """Note what a pass really runs with."""
    if session.diagnosis is not None:
        iterator.__dict__[NUMBER] = loader.__dict__.get(NUMBER)
        return
    built(session, loader, {})  # built before the probe came, or before a fork
    index = _apart(session, loader.__dict__[NUMBER][1], loader)
    loader.__dict__[NUMBER] = iterator.__dict__[NUMBER] = (session.pid, index)
    iterator.__dict__.pop(DONE, None)
    facts = session.loaders[index]
    first = not facts.get("iterated")
    workers = int(getattr(iterator, "_num_workers", 0))
    batch = facts["asked_batch"]
    arguments = _in_force(loader, batch)
    arguments.update(
        num_workers=workers,
        prefetch_factor=getattr(loader, "prefetch_factor", None) if workers else None,
        persistent_workers=bool(getattr(iterator, "_persistent_workers", False)),
        pin_memory=bool(getattr(iterator, "_pin_memory", False)),
    )
    facts.update(
        iterated=True,
        iterator=weakref.ref(iterator),
        by=id(loader),
        loader=weakref.ref(loader),
        arguments=arguments,
        pass_items=items_of_a_pass(session.torch, loader),
    )
    if session.plan.get("ceilings_workers") and not arguments["persistent_workers"]:
        facts["loader"] = lambda: loader  # a loader written into the `for` line is gone at once
    describe(session, index)
    if first:
        session.record_everything()


def describe(session: Session, index: int) -> None:
    """Write the facts of a loader to the log."""
    facts = session.loaders[index]
    padding = facts["padding"].summary() if facts["padding"] is not None else None
    names = ("rows", "positions", "padded", "tokens")
    content = {
        "site": facts["site"],
        "arguments": facts.get("arguments") or {},
        "passed": facts.get("passed") or {},
        "pass_items": facts.get("pass_items"),
        "left_out": facts["left_out"],
        "iterated": bool(facts.get("iterated")),
        "other_thread": session.thread not in (None, facts.get("thread", session.thread)),
        "padding": None if padding is None else dict(zip(names, padding)),
    }
    session.add(("loader", index, content))


def describe_all(session: Session) -> None:
    """Write the facts of each loader."""
    for index in range(len(session.loaders)):
        describe(session, index)


def worker_pids(facts: Dict[str, Any]) -> list[int]:
    """Worker processes of a loader that are alive now."""
    held = facts.get("iterator")
    iterator = held() if held is not None else None
    workers = getattr(iterator, "_workers", ())
    return [worker.pid for worker in workers if worker.is_alive()]


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:
        return None


def items_of_a_pass(torch: Any, loader: Any) -> int | None:
    """Items of one pass, over all ranks.

    The whole data set without a sampler length, and None for an endless one.
    """
    held = _length(loader.dataset)
    own = getattr(loader, "batch_sampler", None)
    sampler = getattr(loader if own is None else own, "sampler", None)
    if sampler is None or isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return held
    drawn, ranks = _length(sampler), getattr(sampler, "num_replicas", 1)
    if drawn is None or not isinstance(ranks, int) or ranks < 2:
        return drawn
    return drawn * ranks if held is None else min(drawn * ranks, held)  # some twice, to be equal


def _left_out(loader: Any, batch: Any) -> int | None:
    """Items of one pass dropped with the last batch."""
    own = getattr(loader, "batch_sampler", None)
    if not getattr(loader if own is None else own, "drop_last", False):  # may have no len()
        return 0
    length = _length(loader.dataset if own is None else getattr(own, "sampler", ()))
    return None if length is None or not isinstance(batch, int) else length % batch


def _first_site(loader: Any, known: list[Dict[str, Any]]) -> str | None:
    """Line where the program first used this data."""
    frame = call_sites.caller()
    if frame is None or not call_sites.installed(frame.f_code.co_filename):
        return None
    data = loader.dataset
    sites = (each["site"] for each in known if "data" in each and each["data"]() is data)
    return next(sites, None)
