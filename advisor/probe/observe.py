"""What the program really does: loader arguments, dtype, shapes, losses, outputs, memory.

While steps run only cheap references are kept; values are read when the record is written, so
that no synchronisation is added.
"""

from __future__ import annotations

import hashlib
import os
import sys
import weakref
from typing import Any, Callable

from . import batches
from .session import Session

GIB = 1024.0**3
LOSSES_KEPT = 256
OUTPUTS_KEPT = 3
SAMPLES = 64
LOOKS = (1, 2, 8, 64)
"""Forwards of a root at which its dtype and flags are looked at."""


def guarded(session: Session, call: Callable[..., None], *args: Any) -> None:
    """Run one of ours; its errors go to the record."""
    try:
        call(*args)
    except Exception as problem:
        session.step_aside(problem)


# --- loaders ------------------------------------------------------------------------------


def loader_built(session: Session, loader: Any) -> None:
    """Note a new DataLoader; one rebuilt at the same line for the same data is the same one."""
    if "_gpu_advisor_loader" in loader.__dict__:
        return
    batch = getattr(loader, "batch_size", None)
    if batch is None:
        batch = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    facts = {
        "site": call_site(),
        "dataset": type(loader.dataset).__name__,
        "length": _length(loader.dataset),
        "asked_batch": batch,
        "sampler": type(getattr(loader, "sampler", None)).__name__,
    }
    for number, known in enumerate(session.log.loaders):  # noqa: B007
        if all(known.get(key) == value for key, value in facts.items()):
            break
    else:
        number = len(session.log.loaders)
        sizes = isinstance(batch, int) and not isinstance(batch, bool)
        facts["counter"] = batches.Counter(float(batch) if sizes else None)  # type: ignore[arg-type]
        session.log.loaders.append(facts)
    loader.__dict__["_gpu_advisor_loader"] = number


def loader_begins(session: Session, iterator: Any, loader: Any) -> None:
    """Note what an epoch really runs with."""
    if "_gpu_advisor_loader" not in loader.__dict__:
        loader_built(session, loader)
    number = loader.__dict__["_gpu_advisor_loader"]
    iterator.__dict__["_gpu_advisor_loader"] = number
    facts = session.log.loaders[number]
    workers = int(getattr(iterator, "_num_workers", 0))
    facts["iterated"] = True
    facts["workers"] = workers
    facts["iterator"] = weakref.ref(iterator)
    facts["prefetch"] = getattr(loader, "prefetch_factor", None) if workers else None
    facts["persistent"] = bool(getattr(iterator, "_persistent_workers", False))
    facts["pin"] = bool(getattr(iterator, "_pin_memory", False))
    facts["pin_asked"] = bool(getattr(loader, "pin_memory", False))
    facts["loader"] = weakref.ref(loader)
    if session.plan.get("ceilings_workers") and not facts["persistent"]:
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


def call_site() -> str | None:
    """`file.py:line` of the innermost frame that is the user's own code."""
    own = os.path.dirname(os.path.abspath(__file__))
    frame: Any = sys._getframe(1)
    fallback = None
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((own, "<")):
            where = f"{_shown(name)}:{frame.f_lineno}"
            if not _installed(name):
                return where
            if fallback is None and f"{os.sep}torch{os.sep}" not in name:
                fallback = where
        frame = frame.f_back
    return fallback


def _installed(name: str) -> bool:
    library = os.path.dirname(os.__file__)
    return "site-packages" in name or "dist-packages" in name or name.startswith(library)


def _shown(name: str) -> str:
    here = os.getcwd() + os.sep
    full = os.path.abspath(name)
    return full[len(here) :] if full.startswith(here) else full


# --- forwards -----------------------------------------------------------------------------


def root_enters(session: Session, root: Any) -> None:
    """Before a call from outside any module: look at it the first few times."""
    number = session.roots.get(root)
    if number is not None:
        facts = session.log.roots[number]
    else:
        facts = {
            "name": type(root).__name__,
            "parameters": sum(p.numel() for p in root.parameters() if not _lazy(p)),
            "calls": 0,
            "counter": batches.Counter(),
            "shapes": (),
            "outputs": [],
        }
        session.roots[root] = len(session.log.roots)
        session.log.roots.append(facts)
    facts["calls"] += 1
    if facts["calls"] in LOOKS and facts["parameters"]:
        _look_at(session, root, facts)


def _lazy(parameter: Any) -> bool:
    return "Uninitialized" in type(parameter).__name__


def root_leaves(
    session: Session, root: Any, args: Any, kwargs: Any, output: Any, enter: float, end: float
) -> None:
    """After the call, also when it raised (then `output` is None)."""
    log = session.log
    number = session.roots[root]
    facts = log.roots[number]
    problem = sys.exc_info()[1]
    if problem is not None:
        session.swallow(problem, "forward")
        return
    inputs = (args, kwargs) if kwargs else args
    log.forwards.append((enter, end, number, facts["counter"].count(inputs)))
    calls = facts["calls"]
    if calls <= OUTPUTS_KEPT and facts["parameters"]:
        if calls == 1:
            facts["shapes"] = tuple(
                "x".join(str(size) for size in tensor.shape[1:]) or "scalar"
                for tensor in batches.tensors_in(inputs)
            )
        facts["outputs"].extend(_samples(tensor) for tensor in batches.tensors_in(output, 4))


def _samples(tensor: Any) -> Any:
    """A few numbers of the first item, copied without waiting for the device."""
    first = tensor.detach()
    first = first[0] if first.dim() > 1 else first
    flat = first.flatten() if first.is_contiguous() else first.reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLES)][:SAMPLES].clone()


def _look_at(session: Session, root: Any, facts: dict[str, Any]) -> None:
    """Dtype of compute, flags and layout, as in force right now."""
    torch = session.torch
    parameter = max(root.parameters(), key=lambda p: 0 if _lazy(p) else p.numel())
    kind = parameter.device.type
    seen: dict[str, Any] = {"device": str(parameter.device), "model_dtype": _name(parameter.dtype)}
    seen["autocast_dtype"] = _autocast(torch, kind)
    seen["compiled"] = any(
        type(m).__name__ == "OptimizedModule" or getattr(m, "_compiled_call_impl", None) is not None
        for m in root.modules()
    )
    convolutions = [
        p for p in root.parameters() if p.dim() == 4 and max(p.shape[2:]) > 1 and p.shape[1] > 1
    ]
    seen["channels_last"] = (
        all(p.is_contiguous(memory_format=torch.channels_last) for p in convolutions)
        if convolutions
        else None
    )
    if kind == "cuda":
        seen["tf32"] = bool(torch.backends.cuda.matmul.allow_tf32)
        seen["cudnn_benchmark"] = bool(torch.backends.cudnn.benchmark)
    facts["seen"] = seen


def _autocast(torch: Any, kind: str) -> str | None:
    try:
        if not torch.is_autocast_enabled(kind):
            return None
        return _name(torch.get_autocast_dtype(kind))
    except TypeError:  # torch before 2.4 knew CUDA and CPU by name
        if kind == "cuda":
            return _name(torch.get_autocast_gpu_dtype()) if torch.is_autocast_enabled() else None
        enabled = torch.is_autocast_cpu_enabled()
        return _name(torch.get_autocast_cpu_dtype()) if enabled else None


def _name(dtype: Any) -> str:
    return str(dtype).rsplit(".", 1)[-1]


# --- losses -------------------------------------------------------------------------------


def loss(session: Session, tensors: Any) -> None:
    """Keep a reference to the loss; nobody waits for its value now."""
    unscaled, session.unscaled = session.unscaled, None
    if len(session.losses) >= LOSSES_KEPT and len(session.log.backwards) % 16:
        return
    tensor = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if unscaled is None and getattr(tensor, "numel", lambda: 0)() == 1:
        unscaled = tensor.detach()
    if unscaled is not None:
        session.losses.append(unscaled)
        if len(session.losses) > 2 * LOSSES_KEPT:
            del session.losses[LOSSES_KEPT::2]


# --- read when the record is written ------------------------------------------------------


def loss_values(session: Session) -> list[float]:
    """The losses as numbers; this waits for the device."""
    return [float(value.item()) for value in session.losses]


def fingerprint(session: Session, root: int | None, losses: list[float]) -> str | None:
    """Digest of the first outputs and losses, to three significant digits."""
    digest = hashlib.sha256()
    outputs = session.log.roots[root]["outputs"] if root is not None else []
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
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        peaks = []
        for index in range(torch.cuda.device_count()):
            stats = torch.cuda.memory_stats(index)
            peaks.append(
                (
                    stats.get("allocated_bytes.all.peak", 0) / GIB,
                    stats.get("reserved_bytes.all.peak", 0) / GIB,
                    stats.get("num_alloc_retries", 0),
                    stats.get("num_ooms", 0),
                )
            )
        found["allocated_gib"] = max(peak[0] for peak in peaks)
        found["reserved_gib"] = max(peak[1] for peak in peaks)
        found["alloc_retries"] = sum(peak[2] for peak in peaks)
        found["ooms"] = sum(peak[3] for peak in peaks)
    found["rss_gib"] = _own_rss_gib()
    alive = [pid for facts in session.log.loaders for pid in worker_pids(facts)]
    found["workers_rss_gib"] = sum(_rss_gib(pid) for pid in set(alive))
    return found


def _own_rss_gib() -> float | None:
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1.0 if sys.platform == "darwin" else 1024.0) / GIB


def _rss_gib(pid: int) -> float:
    """Memory that a worker does not share with its parent, where Linux tells."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") / GIB
    except (OSError, ValueError, IndexError):
        return 0.0
