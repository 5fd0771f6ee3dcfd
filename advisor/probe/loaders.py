"""What DataLoaders are built with, what they really run with, and where."""

from __future__ import annotations

import opcode
import os
import sys
import weakref
from typing import Any, Dict, Mapping

from . import batches
from .padding import Padding
from .session import Session

NUMBER = "_gpu_advisor_loader"
"""Attribute of loaders and their iterators: index into the log's loaders."""
DONE = "_gpu_advisor_done"
"""Attribute of an iterator that came to its end."""
NOTHING: Dict[str, Any] = {}
BUILT = ("site", "dataset", "length", "asked_batch", "left_out", "sampler")
"""What is known of a loader when it is built."""


def built(session: Session, loader: Any, given: Mapping[str, Any] = NOTHING) -> None:
    """Note a new DataLoader, with what it was `given` by name; one rebuilt at the same line for the
    same data is the same one."""
    if NUMBER in loader.__dict__:
        return
    batch: Any = getattr(loader, "batch_size", None)
    if batch is None:
        batch = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    known = session.log.loaders
    facts: dict[str, Any] = {
        "site": _first_site(loader, known) or call_site(),
        "dataset": type(loader.dataset).__name__,
        "length": _length(loader.dataset),
        "asked_batch": batch,
        "left_out": _left_out(loader, batch),
        "sampler": type(getattr(loader, "sampler", None)).__name__,
    }
    for number, other in enumerate(known):
        if _same(facts, other):
            loader.__dict__[NUMBER] = number
            return
    number = loader.__dict__[NUMBER] = _add(session, facts)
    known[number]["passed"] = _passed(given)
    try:
        known[number]["data"] = weakref.ref(loader.dataset)
    except TypeError:
        pass


def _passed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of `given`, where the call of the user's passes a mapping on."""
    frame = _caller()
    if frame is None or frame.f_code.co_code[frame.f_lasti] != opcode.opmap["CALL_FUNCTION_EX"]:
        return {}
    return {
        name: value
        for name, value in given.items()
        if value is None or isinstance(value, (bool, int, float, str))
    }


def _same(facts: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(facts.get(key) == other.get(key) for key in BUILT)


def _add(session: Session, facts: dict[str, Any]) -> int:
    """A loader of its own; returns its number."""
    batch = facts["asked_batch"]
    sizes = isinstance(batch, int) and not isinstance(batch, bool)
    counter = batches.Counter(float(batch) if sizes else None)
    entry = {**{key: facts[key] for key in BUILT}, "counter": counter, "padding": Padding()}
    session.log.loaders.append(entry)
    return len(session.log.loaders) - 1


def _apart(session: Session, number: int, loader: Any) -> int:
    """Two loaders built at one line that are iterated side by side are two."""
    known = session.log.loaders
    facts = known[number]
    for other in range(number, len(known)):
        if _same(facts, known[other]) and not _in_turn(known[other], loader):
            return other
    return _add(session, facts)


def _in_turn(facts: dict[str, Any], loader: Any) -> bool:
    """Whether another loader object is being iterated under this number."""
    iterator = facts["iterator"]() if facts.get("iterator") else None
    if iterator is None or iterator.__dict__.get(DONE):
        return False
    return bool(facts["by"] != id(loader))


def begins(session: Session, iterator: Any, loader: Any) -> None:
    """Note what an epoch really runs with."""
    if loader.__dict__.get(NUMBER, len(session.log.loaders)) >= len(session.log.loaders):
        loader.__dict__.pop(NUMBER, None)  # of the process that this one was forked from
        built(session, loader)
    session.rest.wake(session.log)
    session.entrance.look()  # from now on batches tell when
    number = _apart(session, loader.__dict__[NUMBER], loader)
    loader.__dict__[NUMBER] = iterator.__dict__[NUMBER] = number
    iterator.__dict__.pop(DONE, None)
    facts = session.log.loaders[number]
    workers = int(getattr(iterator, "_num_workers", 0))
    persistent = bool(getattr(iterator, "_persistent_workers", False))
    facts.update(
        iterated=True,
        iterator=weakref.ref(iterator),
        by=id(loader),
        loader=weakref.ref(loader),
        workers=workers,
        prefetch=getattr(loader, "prefetch_factor", None) if workers else None,
        persistent=persistent,
        pass_items=items_of_a_pass(session.torch, loader),
        pin=bool(getattr(iterator, "_pin_memory", False)),
    )
    if session.plan.get("ceilings_workers") and not persistent:
        facts["loader"] = lambda: loader  # a loader written into the `for` line is gone at once


def worker_pids(facts: dict[str, Any]) -> list[int]:
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
    """What its sampler draws in one pass, by all ranks that share it out; all of the data set where
    no sampler tells, and None where it never ends."""
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
    """Items of one pass that are in no batch, because the last one would not be full."""
    own = getattr(loader, "batch_sampler", None)
    if not getattr(loader if own is None else own, "drop_last", False):  # may have no len()
        return 0
    length = _length(loader.dataset if own is None else getattr(own, "sampler", ()))
    return None if length is None or not isinstance(batch, int) else length % batch


# --- call sites ---------------------------------------------------------------------------


def call_site() -> str | None:
    """`file.py:line` of the innermost frame that is the user's own code; else of the innermost
    one outside torch."""
    own = os.path.dirname(os.path.abspath(__file__))
    frame: Any = sys._getframe(1)
    fallback = None
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((own, "<")):
            where = f"{shown(name)}:{frame.f_lineno}"
            if not installed(name):
                return where
            if fallback is None and f"{os.sep}torch{os.sep}" not in name:
                fallback = where
        frame = frame.f_back
    return fallback


def _first_site(loader: Any, known: list[dict[str, Any]]) -> str | None:
    """Where the program built a loader for the same data, if a library builds this one from it."""
    frame = _caller()
    if frame is None or not installed(frame.f_code.co_filename):
        return None
    data = loader.dataset
    sites = (each["site"] for each in known if "data" in each and each["data"]() is data)
    return next(sites, None)


def _caller() -> Any:
    """The innermost frame that is neither ours nor torch's."""
    own = os.path.dirname(os.path.abspath(__file__))
    frame: Any = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(own)
        or f"{os.sep}torch{os.sep}" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return frame


def installed(name: str) -> bool:
    """Whether a file of code belongs to Python or to a library."""
    library = os.path.dirname(os.__file__)
    return "site-packages" in name or "dist-packages" in name or name.startswith(library)


def shown(name: str) -> str:
    """A path as it is told: relative where it lies below the working directory."""
    here = os.getcwd() + os.sep
    full = os.path.abspath(name)
    return full[len(here) :] if full.startswith(here) else full
