"""Installation of overrides and the device memory cap."""

from __future__ import annotations

import functools
import inspect
import time
from typing import Any

from . import buckets, override_impls
from .call_sites import call_site
from .overrides import LOADER, Overrides
from .session import Session

WITHOUT_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}
"""A DataLoader without workers accepts these values only."""
FLAGS = ("persistent_workers", "pin_memory")


def install(torch: Any, session: Session) -> None:
    """Prepare the what-if and the device memory cap."""
    cap = session.plan.get("memory_cap_gib")
    if cap:
        _cap_memory(torch, float(cap))
    asked = session.plan.get("whatif")
    if not asked:
        return
    session.overrides = overrides = Overrides(session, str(asked))
    session.patches.on_undo(overrides.patches.undo)
    if any(name.startswith(LOADER) for name in overrides.settings):
        _loader(torch, session, overrides)
    _put_on(session, overrides)


def _put_on(session: Session, overrides: Overrides) -> None:
    """Apply the overrides, per module at first call."""
    for name, value in overrides.settings.items():
        if name in override_impls.PROCESS_WIDE:
            override_impls.PROCESS_WIDE[name](session.torch, session, overrides)
        elif name in override_impls.MODULES:
            change = functools.partial(_change_module, session, overrides, name, value)
            session.on_module.append(change)
        elif not name.startswith(LOADER):
            overrides.refuse(f"{name} is no what-if of this probe")


def _change_module(
    session: Session, overrides: Overrides, name: str, value: str, module: Any
) -> None:
    """Change a module at its first outermost call."""
    try:
        why = override_impls.MODULES[name](session.torch, overrides, module, value)
    except Exception as problem:
        why = f"{type(problem).__name__}: {problem}"[:300]
    if why is None:
        overrides.applied[name] += 1
    else:
        overrides.refuse(why)


def _cap_memory(torch: Any, cap_gib: float) -> None:
    """Cap device memory to emulate a smaller card.

    Torch switches the current card, so the program's choice is restored.
    """

    def cap() -> None:
        before = torch.cuda.current_device()
        for index in range(torch.cuda.device_count()):
            total = torch.cuda.get_device_properties(index).total_memory / 1024.0**3
            if cap_gib < total:
                torch.cuda.set_per_process_memory_fraction(cap_gib / total, index)
        torch.cuda.set_device(before)

    torch.cuda._lazy_call(cap)


# --- DataLoader arguments -----------------------------------------------------------------


def _loader(torch: Any, session: Session, overrides: Overrides) -> None:
    loader = torch.utils.data.DataLoader
    build = loader.__init__
    signature = inspect.signature(build)
    wanted = {
        name[len(LOADER) :]: bool(int(value)) if name[len(LOADER) :] in FLAGS else int(value)
        for name, value in overrides.settings.items()
        if name.startswith(LOADER)
    }

    @functools.wraps(build)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        ours = session.diagnosis is None and not session.muted
        if ours and overrides.site in (None, call_site()):
            try:
                bound = signature.bind(self, *args, **kwargs)
                _rearrange(torch, overrides, bound.arguments, dict(wanted))
                args, kwargs = bound.args[1:], bound.kwargs
            except Exception as problem:
                overrides.refuse(f"{type(problem).__name__}: {problem}"[:300])
        build(self, *args, **kwargs)

    overrides.patches.put(loader, "__init__", __init__)


def _rearrange(
    torch: Any, overrides: Overrides, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Put the what-if values into a DataLoader's arguments."""
    batch, alike = wanted.pop("batch_size", None), wanted.pop("buckets", None)
    workers = wanted.get("num_workers", given.get("num_workers", 0))
    needs_workers = [name for name in wanted if name in WITHOUT_WORKERS and wanted[name]]
    if not workers and needs_workers:
        overrides.refuse(f"{needs_workers[0]} needs workers, and the loader has none")
        return
    if batch is not None:
        why = _resize(torch, given, batch)
        if why is not None:
            overrides.refuse(why)
            return
    if alike and not _bucketed(torch, overrides, given):
        return
    given.update(wanted)
    if not workers:
        given.update({name: v for name, v in WITHOUT_WORKERS.items() if name in given})
    for name in overrides.applied:
        overrides.applied[name] += name.startswith(LOADER)
    iterable = isinstance(given["dataset"], torch.utils.data.IterableDataset)
    if iterable and wanted.get("num_workers"):
        overrides.caution = (
            "the data set is an iterable one: unless it shards itself by worker, each worker "
            "yields all of it"
        )


def _bucketed(torch: Any, overrides: Overrides, given: dict[str, Any]) -> bool:
    """Batch items by length; read the lengths once."""
    began = time.perf_counter()
    found = buckets.put(torch, given)
    overrides.cost_s += time.perf_counter() - began
    if isinstance(found, str):
        overrides.refuse(found)
        return False
    overrides.told_by, overrides.readings = found.told_by, found.readings
    if given["batch_sampler"].mixed:
        overrides.caution = (
            "items of like length are then seen together, no longer wholly at random"
        )
    return True


def _resize(torch: Any, given: dict[str, Any], batch: int) -> str | None:
    """Another batch size; returns why it cannot be had."""
    own = given.get("batch_sampler")
    if own is None:
        if given.get("batch_size", 1) is None:
            return "batch_size=None: the data set makes the batches itself"
        given["batch_size"] = batch
    elif type(own) is torch.utils.data.BatchSampler:
        given["batch_sampler"] = type(own)(own.sampler, batch, own.drop_last)
    elif isinstance(getattr(own, "batch_size", None), int):
        own.batch_size = batch
    else:
        return f"{type(own).__name__} makes the batches and has no batch_size"
    return None
