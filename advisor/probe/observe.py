"""Losses, outputs and memory: kept as references while steps run, read when the record is written,
so that no synchronisation is added."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

from . import loaders
from .session import Session

GIB = 1024.0**3
LOSSES_KEPT = 256
LOSSES_LATER = 4
"""Beyond those kept at first, every so many."""


def keep_loss(session: Session, tensors: Any) -> None:
    """Keep a copy of the loss; nobody waits for its value now.

    A copy, because a CUDA graph writes each loss to the same place; and none of what is captured,
    which is no value yet.
    """
    unscaled, session.unscaled = session.unscaled, None
    if session.capture is not None:
        return
    tensor = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if unscaled is None and getattr(tensor, "numel", lambda: 0)() == 1:
        unscaled = tensor.detach()
    if unscaled is not None:
        session.losses.append(unscaled.clone() if unscaled.device.type == "cuda" else unscaled)
        if len(session.losses) > 2 * LOSSES_KEPT:
            del session.losses[LOSSES_KEPT::2]


def loss_values(session: Session) -> list[float]:
    """The losses as numbers; this waits for the device. One that cannot be read is left out."""
    values = []
    for loss in session.losses:
        try:
            values.append(float(loss.item()))
        except Exception as problem:
            session.note(f"a loss could not be read: {type(problem).__name__}: {problem}")
    return values


def firsts(session: Session, root: int | None) -> dict[str, list[list[float]]]:
    """Numbers that went into the first forwards, and what came out; complex ones are left out."""
    kept = session.log.roots[root].firsts if root is not None else []
    found: dict[str, list[list[float]]] = {"inputs": [], "outputs": []}
    for went_in, came_out in kept:
        for name, tensors in (("inputs", went_in), ("outputs", came_out)):
            plain = [t for t in tensors if not t.is_complex()]
            found[name].append([float(v) for t in plain for v in t.to("cpu").tolist()])
    return found


def fingerprint(session: Session, root: int | None, losses: list[float]) -> str | None:
    """Digest of the first outputs and losses, to three significant digits."""
    digest = hashlib.sha256()
    outputs = session.log.roots[root].outputs if root is not None else []
    for values in outputs:
        for value in values.to("cpu").tolist():
            digest.update(_digits(value))
    for value in losses[:3]:
        digest.update(_digits(value))
    return digest.hexdigest()[:16] if outputs or losses else None


def _digits(value: Any) -> bytes:
    return (f"{value:.3g} " if isinstance(value, float) else f"{value} ").encode()


def memory(session: Session) -> dict[str, Any]:
    """Peaks so far: device allocator, and resident memory of this process and its workers."""
    found: dict[str, Any] = {}
    torch = session.torch
    if torch is not None and torch.cuda.is_initialized():
        all_stats = [torch.cuda.memory_stats(n) for n in range(torch.cuda.device_count())]
        found = {
            "allocated_gib": max(s.get("allocated_bytes.all.peak", 0) for s in all_stats) / GIB,
            "reserved_gib": max(s.get("reserved_bytes.all.peak", 0) for s in all_stats) / GIB,
            "alloc_retries": sum(s.get("num_alloc_retries", 0) for s in all_stats),
            "ooms": sum(s.get("num_ooms", 0) for s in all_stats),
        }
    found["rss_gib"] = _own_rss_gib()
    alive = {pid for facts in session.log.loaders for pid in loaders.worker_pids(facts)}
    found["workers_rss_gib"] = sum(map(_private_gib, alive))
    return found


def cpus() -> int | None:
    """CPUs that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count()


def _own_rss_gib() -> float | None:
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1.0 if sys.platform == "darwin" else 1024.0) / GIB


def _private_gib(pid: int) -> float:
    """Memory that a worker shares with nobody, pages forked from its parent left out; on Linux."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            private = [line.split()[1] for line in file if line.startswith("Private_")]
        return sum(map(int, private)) * 1024.0 / GIB
    except (OSError, ValueError, IndexError):
        return 0.0
