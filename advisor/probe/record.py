"""The record: one JSON file a process, `<pid>.json`, always replaced whole."""

from __future__ import annotations

import errno
import json
import os
from typing import Any

from . import measure
from .session import Session

VERSION = 2
"""Of the format, which is written down where it is read: `advisor/runner/records.py`."""


def put(session: Session, content: dict[str, Any]) -> None:
    """Write `content` as this process's record, atomically."""
    path = os.path.join(session.records, f"{session.pid}.json")
    temporary = f"{path}.tmp"
    # a name that is no UTF-8 must not cost the record: its odd characters become question marks
    data = json.dumps(content, default=str, ensure_ascii=False).encode("utf-8", "replace")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        written = os.write(file, data)
    finally:
        os.close(file)
    if written < len(data):  # a full disk takes a part first
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
    os.replace(temporary, path)


def beat(session: Session) -> None:
    """The short record: is it alive, how far is it."""
    put(session, _head(session))


def aside(session: Session) -> None:
    """Every hook was taken back: nothing more will be told."""
    if session.frozen is None:
        beat(session)
    else:
        write(session, "aside")


def write(session: Session, state: str) -> None:
    """The whole record; what was frozen at the end of the window stands as it was then."""
    session.state = state
    content = session.frozen or full(session, ended=state == "exited")
    content.update(_head(session), ceilings=session.ceilings, flops=session.flops)
    content["footprint"] = session.footprint_bytes
    try:
        put(session, content)
    except OSError:
        pass


def full(session: Session, ended: bool) -> dict[str, Any]:
    """Everything there is to say. What cannot be read is left out and noted, never fatal."""
    content: dict[str, Any] = {}
    for part in (measure.measured, measure.facts):
        try:
            content.update(part(session, ended=ended))
        except Exception as problem:
            session.fail(problem)
    return content


def _head(session: Session) -> dict[str, Any]:
    log = session.log
    last = log.last_time()
    first = log.first_time()
    return {
        "version": VERSION,
        "pid": session.pid,
        "ppid": os.getppid(),
        "state": session.state,
        "alone": session.frozen is not None,
        "boot_time": session.boot_time,
        "first_step_time": None if first is None else first + session.epoch,
        "last_step_time": None if last is None else last + session.epoch,
        "steps": log.steps(),
        "whole_steps": log.whole_steps(session.optimizers_built > 0),
        "rank": session.rank,
        "world_size": session.world_size,
        "exception": session.exception,
        "swallowed": session.swallowed,
        "guard": session.guard,
        "writes": session.writes,
        "unreached": session.unreached,
        "errors": session.errors,
        "notes": session.notes,
    }
