"""What DataLoaders hand out: when each batch was asked for, came, and how much it held."""

from __future__ import annotations

import time
from threading import get_ident
from typing import Any

from . import batches, control, loaders
from .hooking import dress, is_muted, step_end
from .loaders import DONE, NUMBER
from .log import EXHAUSTED
from .session import Session

KEEP_EVERY = 4
"""A batch to be replayed is kept this often, and only where ceilings are asked for."""

clock = time.perf_counter


def built(torch: Any, session: Session) -> None:
    """Where DataLoaders are built, and iterated."""
    loader = torch.utils.data.DataLoader
    build, begin = loader.__init__, loader._get_iterator

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        if not is_muted(session):
            session.attempt(loaders.built, session, self, kwargs)

    def _get_iterator(self: Any) -> Any:
        begun = begin(self)
        if not is_muted(session):
            session.attempt(loaders.begins, session, begun, self)
        return begun

    dress(__init__, build)
    dress(_get_iterator, begin)
    session.patches.put(loader, "__init__", __init__)
    session.patches.put(loader, "_get_iterator", _get_iterator)


def handed_out(torch: Any, session: Session) -> None:
    """Each batch, and the time that it took to come."""
    step_ended = step_end(session)
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    fetch = iterator.__next__
    rest = session.rest

    def __next__(self: Any) -> Any:
        enter, number = clock(), self.__dict__.get(NUMBER)
        seen = not rest.left or enter >= rest.calm_until
        if number is None or (seen and session.muted):
            return fetch(self)
        if seen:
            if session.replay is not None and session.replay.covers(number):
                return control.replayed(session)
            if enter >= session.due or session.clock is not None:
                step_ended(enter)
            entrance, working = session.entrance, session.log.thread
            if entrance.open and working in (None, get_ident()):  # else work goes on
                entrance.shut()  # transforms are modules too, and no roots
        session.fetching = True
        try:
            batch = fetch(self)
        except BaseException as problem:
            session.attempt(_ended, session, self, enter, problem)
            raise
        end = clock()
        session.fetching = False
        if not seen:
            log = session.log
            items = log.loaders[number]["counter"].count(batch)
            log.nexts.append((enter, end, number, items, False))
            return batch
        try:
            _came(session, number, batch, enter, end)
        except Exception as problem:
            session.step_aside(problem)
        return batch

    dress(__next__, fetch)
    session.patches.put(iterator, "__next__", __next__)


def _came(session: Session, number: int, batch: Any, enter: float, end: float) -> None:
    """Note a batch, and have its forwards watched if it is its turn."""
    log, entrance, thread = session.log, session.entrance, get_ident()
    watched = not session.rest.left and session.rota.turn(number, log, session.rest.samples)
    facts = log.loaders[number]
    facts["thread"] = thread
    if watched and (not session.root_runs or log.thread == thread):
        entrance.reopen()
    padding = facts["padding"]
    if padding is not None and not padding.note(batch):
        facts["padding"] = None
    items = facts["counter"].count(batch)
    log.nexts.append((enter, end, number, items, watched))
    if session.plan.get("ceilings_workers") and not len(log.nexts) % KEEP_EVERY:
        session.kept_batch = (number, batches.copied(batch), items)


def _ended(session: Session, iterator: Any, enter: float, problem: BaseException) -> None:
    """No batch came: the pass is over, or something was raised."""
    session.fetching = False
    number = iterator.__dict__.get(NUMBER)
    if isinstance(problem, StopIteration) and number is not None:
        session.log.nexts.append((enter, clock(), number, EXHAUSTED, True))
        iterator.__dict__[DONE] = True
    session.rest.wake(session.log)
    if not session.rest.left:
        session.rota.on = True
        session.entrance.reopen()
