"""DataLoader hooks: construction, iteration and batches."""

from __future__ import annotations

import time
from threading import get_ident
from typing import Any

from . import loader_facts
from .hooking import dress, is_muted, step_end
from .loader_facts import DONE, NUMBER
from .recorder import PASS_ENDED
from .session import Session

clock = time.perf_counter
OPENED = "_gpu_advisor_opened"
"""Attribute of an iterator: start and end of its construction, until its first batch."""
AT_ONCE_S = 0.01
"""A first batch asked for so soon begins with the construction, which starts the workers."""


def built(torch: Any, session: Session) -> None:
    """Hook where DataLoaders are built, and iterated."""
    loader = torch.utils.data.DataLoader
    build, begin = loader.__init__, loader._get_iterator

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        if not is_muted(session):
            session.attempt(loader_facts.built, session, self, kwargs)

    def _get_iterator(self: Any) -> Any:
        enter = clock()
        begun = begin(self)
        begun.__dict__[OPENED] = (enter, clock())
        if not is_muted(session):
            session.attempt(loader_facts.begins, session, begun, self)
        return begun

    dress(__init__, build)
    dress(_get_iterator, begin)
    session.patches.put(loader, "__init__", __init__)
    session.patches.put(loader, "_get_iterator", _get_iterator)


def handed_out(torch: Any, session: Session) -> None:
    """Hook each batch and its loading time."""
    step_ended = step_end(session)
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    fetch = iterator.__next__

    def __next__(self: Any) -> Any:
        enter, number = clock(), self.__dict__.get(NUMBER)
        if number is None or session.muted or number[0] != session.pid:
            return fetch(self)
        index = number[1]
        if session.diagnosis is not None:
            return session.diagnosis.fetch(self, fetch, index)
        if enter >= session.due or session.device is not None:
            step_ended(enter)
        entrance = session.entrance
        if entrance.open and session.thread in (None, get_ident()):  # else work goes on
            entrance.shut()  # transforms are modules too
        session.fetching = True
        try:
            batch = fetch(self)
        except BaseException as problem:
            session.attempt(_ended, session, self, index, enter, problem)
            raise
        end = clock()
        session.fetching = False
        opened = self.__dict__.pop(OPENED, None)
        if opened is not None and enter - opened[1] < AT_ONCE_S:
            enter = opened[0]
        try:
            _came(session, index, batch, enter, end)
        except Exception as problem:
            session.step_aside(problem)
        return batch

    dress(__next__, fetch)
    session.patches.put(iterator, "__next__", __next__)


def _came(session: Session, index: int, batch: Any, enter: float, end: float) -> None:
    """Record a batch."""
    facts = session.loaders[index]
    if not session.counting:
        thread = facts["thread"] = get_ident()
        if not session.in_call or session.thread == thread:
            session.entrance.reopen()
        padding = facts["padding"]
        if padding is not None and not padding.note(batch):
            facts["padding"] = None
    elif not session.in_call:
        session.entrance.reopen()
    items = session.latest_batch = facts["counter"].count(batch)
    session.add(("batch", enter, end, index, items))


def _ended(
    session: Session, iterator: Any, index: int, enter: float, problem: BaseException
) -> None:
    """Handle the end of a pass or an error."""
    session.fetching = False
    if isinstance(problem, StopIteration):
        session.add(("batch", enter, clock(), index, PASS_ENDED))
        iterator.__dict__[DONE] = True
    session.entrance.reopen()
