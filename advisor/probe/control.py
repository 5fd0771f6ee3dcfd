"""Control of the probe beside torch: hooks, flushes and commands.

Parent and probe speak through files in the trial's folder. They need no connection that a
launcher would have to pass on, and nobody waits for an answer. The parent writes
`command-<pid>.json`, replaced whole: {number, phase, ...}. The probe looks for it where a step of
the program may have ended.

    count       {calls}: record only what counts steps; `calls`: with forwards and passes
    stop        {kind, count}: stop at that many events of a kind, at once without one
    diagnose    {boundary, loader, root, step_s}: the window is full; look at parts, stop
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from typing import Any, NoReturn

from . import (
    cuda_events,
    cuda_stand_in,
    dataloader_hooks,
    diagnostics,
    module_hooks,
    overrides,
    own_threads,
    record,
    training_hooks,
    work_facts,
)
from .session import Session, Unseen

HOOKS = (
    cuda_stand_in.install, dataloader_hooks.install, module_hooks.install,
    training_hooks.backwards, training_hooks.asked_for, training_hooks.scaler,
    training_hooks.optimizers, training_hooks.recomputing, cuda_events.install, overrides.install,
    work_facts.install, work_facts.schedules, work_facts.averages,
)  # fmt: skip
"""Parts hooked one by one: where one cannot be, the others are."""

TICK_S = 0.05
"""Shortest time between ticks, once steps have begun.

Record: benchmarks/results/probe-cpu4.md, 2026-11-29: ticks cost 2 to 14 us of a counted step."""
BEAT_S = 1.0
"""Shortest time between rewrites of the record."""


def install(torch: Any, session: Session) -> None:
    session.patches.on_undo(functools.partial(record.beat, session))
    session.torch, session.unseen = torch, functools.partial(Unseen, session)
    session.tick = functools.partial(tick, session)
    for hook in HOOKS:
        session.attempt(hook, torch, session)


def tick(session: Session, now: float) -> None:
    """Do the periodic work of the probe at a possible end of a step.

    The probe has no thread of its own for this: one would take the interpreter from the program
    in the middle of a step. `now`: time of `perf_counter`.
    """
    if session.stopping or session.diagnosis is not None:
        return
    if not session.ticking.acquire(blocking=False):
        return  # another thread does it
    try:
        session.due = now + BEAT_S  # if it fails
        session.attempt(_tick, session, now)
    finally:
        session.ticking.release()


def _tick(session: Session, now: float) -> None:
    recorder = session.recorder
    if session.device is not None:
        session.attempt(session.device.poll)
    recorder.add(("spent", now, session.spent_s))
    recorder.flush()
    began = session.state != "stepping" and recorder.at_work()
    if began:
        session.state = "stepping"
        session.attempt(own_threads.look, session)
    if session.target is not None:
        kind, count = session.target
        if recorder.counts[kind] >= count:
            stop(session)
    if began or now >= session.next_beat:
        session.next_beat = now + BEAT_S
        if session.device is None and session.state == "stepping":  # its card is known
            session.attempt(begin_clock, session)
        record.beat(session)
    _obey(session)
    session.due = 0.0 if session.state != "stepping" or session.target else now + TICK_S


def begin_clock(session: Session) -> None:
    """Start the device clock once a card is in use."""
    card = cuda_events.card_in_use(session)
    if card is not None:
        session.device = cuda_events.DeviceMarks(session, card)
        thread = threading.get_ident()
        session.watch_device = functools.partial(cuda_events.watch_device, session, thread)
        session.patches.on_undo(session.device_patches.undo)
        if not session.counting:
            session.watch_device()


def _obey(session: Session) -> None:
    """Carry out the parent's latest command, once."""
    path = os.path.join(session.records, f"command-{session.pid}.json")
    try:
        with open(path, encoding="utf-8") as file:
            command: dict[str, Any] = json.load(file)
        number, phase = int(command["number"]), command["phase"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if number <= session.command or (phase == "count" and session.entrance.call):
        return  # counting begins at a later tick, outside a module's call
    session.command = number
    if phase == "count":
        session.switch(counting=True, calls=bool(command.get("calls", True)))
    elif phase == "stop" and command.get("kind"):
        session.target = (str(command["kind"]), int(command["count"]))
    elif phase == "stop":
        stop(session)
    elif phase == "diagnose":
        session.switch(counting=False)
        record.keep(session)
        session.diagnosis = diagnostics.Diagnosis(session, command, stop)
        record.write(session, session.state)  # a profiler may take the process down
        session.diagnosis.begin()


def stop(session: Session) -> NoReturn:
    """Write the record; leave at once, past the program's handlers.

    A handler could save a checkpoint, upload a result or wait for other ranks, which are
    about to be stopped as well.
    """
    session.stopping = True
    record.write(session, "stopped")
    leave(session, 0)


def leave(session: Session, status: int) -> NoReturn:
    """Flush output and end the process without handlers."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    session.leave(status)


def finish(session: Session) -> None:
    if os.getpid() != session.pid or session.muted or session.stopping:
        return
    if session.diagnosis is not None:
        session.note("the program ended while a step of it was looked at")
        stop(session)
    session.stopping = True
    record.write(session, "exited")
