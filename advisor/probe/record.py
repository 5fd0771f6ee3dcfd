"""Record of this process in `<pid>.json`.

`advisor/runner/process_records.py` reads it. The event log has loaders and modules.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, Callable

from . import (
    batch_limits,
    cuda_events,
    dataloader_hooks,
    module_facts,
    training_hooks,
    work_facts,
)
from .recorder import VERSION, write_whole
from .session import Session


def beat(session: Session) -> None:
    """Write what is known, atomically, from any thread."""
    recorder = session.recorder
    as_they_are = (
        "pid", "state", "boot_time", "optimizers_built", "exception", "swallowed", "guard",
        "writes", "altered", "errors", "notes",
    )  # fmt: skip
    content = {
        "version": VERSION,
        "ppid": os.getppid(),
        "alone": session.diagnosis is not None,
        "last_step_time": recorder.last_time,
        "steps": recorder.known_steps(),
        "whole_steps": recorder.known_steps(session.optimizers_built > 0),
        "rank": _distributed("RANK", "get_rank", 0),
        "world_size": _distributed("WORLD_SIZE", "get_world_size", 1),
        **{name: getattr(session, name) for name in as_they_are},
        **session.facts,
    }
    path = os.path.join(session.records, f"{session.pid}.json")
    draft = f"{path}.{threading.get_ident()}.tmp"
    write_whole(draft, json.dumps(content, default=str, ensure_ascii=False), os.O_TRUNC)
    os.replace(draft, path)


def keep(session: Session) -> None:
    """Close the event log and keep its facts."""
    session.reading = True
    if session.device is not None:
        session.attempt(session.device.finish)
    for index in range(len(session.loaders)):
        session.attempt(dataloader_hooks.describe, session, index, True)
    for entry in session.modules:
        session.attempt(module_facts.describe, session, entry, True)
    session.recorder.close()
    facts(session)


def write(session: Session, state: str) -> None:
    session.state = state
    if session.diagnosis is None:
        session.attempt(keep, session)
    try:
        beat(session)
    except OSError:
        pass


def _distributed(name: str, getter: str, default: int) -> int:
    """Rank or world size of the job; the default outside one."""
    dist = sys.modules.get("torch.distributed")
    try:
        if dist is not None and dist.is_available() and dist.is_initialized():
            return int(getattr(dist, getter)())
        return int(os.environ.get(name, default))
    except Exception:
        return default


def facts(session: Session) -> None:
    """Read facts of the process at its end, each by itself."""
    read: dict[str, Callable[[], Any]] = {
        "overrides": lambda: [override.summary() for override in session.overrides],
        "memory": lambda: memory(session),
        "collectives": collectives,
        "card": lambda: cuda_events.card_facts(session),
        "losses": lambda: training_hooks.loss_values(session),
        "work": lambda: work_facts.content(session),
        "limits": lambda: batch_limits.content(session.limits),
    }
    for name, fact in read.items():
        try:
            session.facts[name] = fact()
        except Exception as problem:
            session.fail(problem)


def collectives() -> int | None:
    """Collective calls of this process; None without a process group that counts."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    try:
        if c10d is None or not c10d.is_initialized():
            return None
        return int(
            sum(group._get_sequence_number_for_group() for group in c10d._world.pg_map)
        )
    except Exception:
        return None


def memory(session: Session) -> dict[str, Any]:
    torch = session.torch
    if torch is None or not torch.cuda.is_initialized():
        return {}
    stats = [torch.cuda.memory_stats(n) for n in range(torch.cuda.device_count())]
    peaks = {
        name: max(s.get(f"{kind}_bytes.all.peak", 0) for s in stats) / cuda_events.GIB
        for name, kind in (("allocated_gib", "allocated"), ("reserved_gib", "reserved"))
    }
    # a program that asked about its cards and computed elsewhere has no peak on them
    known = {name: peak for name, peak in peaks.items() if peak}
    return {**known, "alloc_retries": sum(s.get("num_alloc_retries", 0) for s in stats)}
