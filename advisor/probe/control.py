"""When the probe looks, writes and stops."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, NoReturn

from . import (
    ceilings,
    exchange,
    flops,
    footprint,
    patience,
    ranks,
    record,
    steps,
    syncs,
    window,
)
from .clock import start_if_in_use
from .resting import filled
from .session import KEPT, Session

BEAT_S = 1.0
"""Shortest time between two rewrites of the record."""
FIRST_LOOK = 0.25
"""The first look comes after this part of the seconds to be measured: it tells when a window may
be full while there is little to read."""
LIGHT, LIGHTER = 0.005, 0.002
"""Looking takes no larger share of the time, for what has to be read grows with the run."""
LATE = 5.0
"""Past so many times the seconds to be measured something else is waited for: the smaller one."""
TRAINING_PATIENCE_S = 30.0
"""How long inference is watched on when the program seems about to train."""


def tick(session: Session, now: float) -> None:
    """Called by the hooks where a step may have ended, once `now` is past `session.due`."""
    if session.stopping or session.capture is not None:
        return
    try:
        if session.tally is not None:
            if flops.ended(session):
                look_at_memory(session)
        elif session.footprint is not None:
            if footprint.ended(session):
                measure_alone(session)
        else:
            _look(session, now)
    except Exception as problem:
        _again_later(session, now, problem)


def _again_later(session: Session, now: float, problem: Exception) -> None:
    """What fails with so little seen may go well with more; a window that is kept is enough."""
    session.fail(problem)
    if session.frozen is not None:
        stop(session)
    if len(session.errors) >= KEPT:
        session.leave_alone()
    else:
        session.due = session.next_beat = now + BEAT_S
        session.next_check = max(session.next_check, session.due)


def _look(session: Session, now: float) -> None:
    plan = session.plan
    if session.first_event is None:
        session.first_event = now
        if plan.get("mode", "window") == "window":
            first_look = now + FIRST_LOOK * float(plan.get("measure_s") or 3.0)
            session.next_check = min(first_look, _last_moment(session))
    many = session.world_size > 1
    if many and ranks.must_stop(session):
        stop(session)
    began = session.state != "stepping" and session.log.at_work()
    if began:
        session.state = "stepping"
    if began or now >= session.next_beat:
        session.next_beat = now + BEAT_S
        session.log.trim()
        if session.clock is None and session.state == "stepping":  # else its card is not known yet
            session.attempt(_begin_clock, session)
        record.beat(session)
    if now >= session.next_check:
        spent = time.thread_time()
        need = missing_s(session, now)
        spent = time.thread_time() - spent
        session.next_check = float("inf")
        if need is not None:
            later = _next_look(session, need, spent)
            session.next_check = min(later, _last_moment(session))
        if need is None and not many:
            window_is_full(session)
        elif need is None and session.rank == 0:
            ranks.announce(session, now)
    session.due = min(session.next_beat, session.next_check)
    if session.state != "stepping" or session.tally or session.footprint:
        session.due = 0.0
    if many:
        session.due = 0.0 if session.target else min(session.due, now + ranks.LOOK_S)


def _last_moment(session: Session) -> float:
    """When the process stops however full its window is."""
    longest_s = session.plan.get("longest_s")
    began = session.first_event
    return float("inf") if longest_s is None or began is None else began + float(longest_s)


def _next_look(session: Session, need_s: float, spent_s: float) -> float:
    """When to look again, after a look that took `spent_s` and found `need_s` missing.

    What is missing is a guess, after the first steps a bad one: it is made anew soon enough.
    """
    now = time.perf_counter()
    measure_s = float(session.plan.get("measure_s") or 3.0)
    late = now - (session.first_event or now) > LATE * measure_s
    return now + max(min(need_s, measure_s), spent_s / (LIGHTER if late else LIGHT))


def _begin_clock(session: Session) -> None:
    """Once the program is seen to compute on a card."""
    session.clock = start_if_in_use(session.torch, session.log.roots)
    if session.clock is not None:
        exchange.watch(session)
    elif session.syncs is None:
        syncs.watch_host(session)


def missing_s(session: Session, now: float) -> float | None:
    """Seconds until the window may be full; None when it is."""
    if now >= _last_moment(session):
        session.cut_short = True
        return None
    log = filled(session.log)
    ledger = steps.read(log, session.plan)
    if ledger is None:
        return 0.2
    if _about_to_train(session, ledger, now):
        return 0.5
    found, need = window.find(log, ledger, session.plan)
    if need is not None:
        return need.seconds
    return None if found is None else _more_s(session, found)


def _more_s(session: Session, full: window.Window) -> float | None:
    """Seconds that a full window goes on because others disturbed it; None if it does not."""
    start, end = full.start + session.epoch, full.end + session.epoch
    measure_s = float(session.plan.get("measure_s") or 3.0)
    return patience.more_s(session.records, start, end, measure_s) or None


def _about_to_train(session: Session, ledger: steps.Ledger, now: float) -> bool:
    """A first validation pass must not be taken for the workload."""
    if ledger.kind in steps.TRAINING or not session.optimizers_built:
        return False
    loaders = session.log.loaders
    idle = not loaders or any(not loader.get("iterated") for loader in loaders)
    return idle and now - (session.first_event or now) < TRAINING_PATIENCE_S


def window_is_full(session: Session) -> None:
    """Measure the parts where that is asked for; else stop."""
    plan = session.plan
    session.rest.wake(session.log)
    if not plan.get("ceilings_workers") or session.world_size > 1:
        stop(session)
    session.frozen = record.full(session, ended=False)
    session.next_check = float("inf")
    if flops.begin(session, session.frozen.get("measured")):
        record.beat(session)
    else:
        look_at_memory(session)


def look_at_memory(session: Session) -> None:
    """See what a step holds where it is one that can be seen into; else go on."""
    if footprint.begin(session, session.frozen and session.frozen.get("measured")):
        session.due = 0.0
        record.beat(session)
    else:
        measure_alone(session)


def measure_alone(session: Session) -> None:
    """Replay a batch where there is one to replay; else stop."""
    measured = session.frozen and session.frozen.get("measured")
    if not measured or not ceilings.begin(session, measured):
        stop(session)
    record.beat(session)


def replayed(session: Session) -> Any:
    """A cached batch for the program; once compute alone is known, this is the end."""
    batch, known = session.replay.next()
    if known:
        stop(session)
    return batch


def stop(session: Session) -> NoReturn:
    """Write the record and leave at once.

    Raising would run the program's own handlers (and save a checkpoint), so it is os._exit.
    """
    session.stopping = True
    if session.frozen is not None and session.plan.get("ceilings_workers"):
        session.replay, session.muted = None, True
        record.beat(session)
        try:
            ceilings.drain_loaders(session)
        except Exception as problem:
            session.fail(problem)
    record.write(session, "stopped")
    leave(session, 0)


def leave(session: Session, status: int) -> NoReturn:
    """Flush what the program printed, and end the process without running its handlers."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    session.leave(status)
    raise AssertionError


def finish(session: Session) -> None:
    """The program came to its own end, or to a crash while its batch was replayed."""
    if os.getpid() != session.pid or session.muted or session.stopping:
        return
    if session.frozen is not None:
        if session.replay is not None:
            session.notes.append("the program did not live through a replayed batch")
        stop(session)
    session.stopping = True
    if session.torch is None:
        session.state = "exited"
        record.beat(session)
    else:
        record.write(session, "exited")
