"""Several ranks of one job stop after the same step, else those left behind would hang."""

from __future__ import annotations

import json
import math
import os

from .session import Session

AHEAD_S = 0.6
"""The stop is announced this long before it comes."""
RECENT = 40
"""Steps from which it is told how many come in that time."""
LOOK_S = 0.1
"""How often a rank looks for the announcement."""


def announce(session: Session, now: float) -> None:
    """Rank 0 tells every rank, itself included, after which step to stop."""
    kind, done = _progress(session)
    recent = [entry[1] for entry in getattr(session.log, kind)[-RECENT:]]  # start-up was slower
    ahead = max(3, math.ceil(AHEAD_S * len(recent) / max(now - recent[0], 1e-3)))
    session.target = (kind, done + ahead)
    path = _path(session)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump({"kind": kind, "count": done + ahead}, file)
    os.replace(path + ".tmp", path)


def must_stop(session: Session) -> bool:
    """Whether the announced step was reached."""
    if session.target is None:
        try:
            with open(_path(session), encoding="utf-8") as file:
                told = json.load(file)
            session.target = (str(told["kind"]), int(told["count"]))
        except (OSError, ValueError):
            return False
    kind, count = session.target
    own_kind, done = _progress(session)
    return own_kind == kind and done >= count


def _progress(session: Session) -> tuple[str, int]:
    log = session.log
    for kind in ("opts", "nexts", "backwards"):
        if log.count(kind):
            return kind, log.count(kind)
    return "forwards", log.count("forwards")


def _path(session: Session) -> str:
    return os.path.join(session.records, "stop.json")
