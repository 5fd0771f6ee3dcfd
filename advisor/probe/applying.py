"""Puts the plan's what-if and its cap on device memory in place."""

from __future__ import annotations

import functools
import inspect
import time
from typing import Any

from . import buckets
from .loaders import call_site
from .session import Session
from .switches import PROCESS_WIDE, ROOTS
from .whatif import LOADER, WhatIf

WITHOUT_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}
"""A DataLoader without workers accepts these values only."""
FLAGS = ("persistent_workers", "pin_memory")


def install(torch: Any, session: Session) -> None:
    """Prepare the plan's what-if, and its cap on device memory."""
    cap = session.plan.get("memory_cap_gib")
    if cap:
        _cap_memory(torch, float(cap))
    asked = session.plan.get("whatif")
    if not asked:
        return
    session.whatif = whatif = WhatIf(session, str(asked))
    session.patches.on_undo(whatif.patches.undo)
    if any(name.startswith(LOADER) for name in whatif.settings):
        _loader(torch, session, whatif)
    put_on(session, whatif)


def put_on(session: Session, whatif: WhatIf) -> None:
    """The switches of `whatif`: on the roots that were called, and on those that will be."""
    for name, value in whatif.settings.items():
        if name in PROCESS_WIDE:
            PROCESS_WIDE[name](session.torch, session, whatif)
        elif name in ROOTS:
            change = functools.partial(_change_root, session, whatif, name, value)
            session.on_root.append(change)
            whatif.patches.on_undo(functools.partial(session.on_root.remove, change))
            for root in session.log.roots:
                module = root.module()
                if root.entered and root.parameters and module is not None:
                    change(module)
        elif not name.startswith(LOADER):
            whatif.refuse(f"{name} is no what-if of this probe")


def _change_root(session: Session, whatif: WhatIf, name: str, value: str, module: Any) -> None:
    """A module with parameters is called from outside for the first time."""
    try:
        why = ROOTS[name](session.torch, whatif, module, value)
    except Exception as problem:
        why = f"{type(problem).__name__}: {problem}"[:300]
    if why is None:
        whatif.applied[name] += 1
    else:
        whatif.refuse(why)


def _cap_memory(torch: Any, cap_gib: float) -> None:
    """Stand in for a smaller card, once CUDA starts. Torch makes each card that it caps the
    current one, and that is the program's to choose."""

    def cap() -> None:
        before = torch.cuda.current_device()
        for index in range(torch.cuda.device_count()):
            total = torch.cuda.get_device_properties(index).total_memory / 1024.0**3
            if cap_gib < total:
                torch.cuda.set_per_process_memory_fraction(cap_gib / total, index)
        torch.cuda.set_device(before)

    torch.cuda._lazy_call(cap)


# --- DataLoader arguments -----------------------------------------------------------------


def _loader(torch: Any, session: Session, whatif: WhatIf) -> None:
    loader = torch.utils.data.DataLoader
    build = loader.__init__
    signature = inspect.signature(build)
    wanted = {
        name[len(LOADER) :]: bool(int(value)) if name[len(LOADER) :] in FLAGS else int(value)
        for name, value in whatif.settings.items()
        if name.startswith(LOADER)
    }

    @functools.wraps(build)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        ours = session.frozen is None and not session.muted
        if ours and whatif.site in (None, call_site()):
            try:
                bound = signature.bind(self, *args, **kwargs)
                _rearrange(torch, whatif, bound.arguments, dict(wanted))
                args, kwargs = bound.args[1:], bound.kwargs
            except Exception as problem:
                whatif.refuse(f"{type(problem).__name__}: {problem}"[:300])
        build(self, *args, **kwargs)

    whatif.patches.put(loader, "__init__", __init__)


def _rearrange(torch: Any, whatif: WhatIf, given: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Put the what-if's values into a DataLoader's arguments; all of them or none."""
    batch, alike = wanted.pop("batch_size", None), wanted.pop("buckets", None)
    workers = wanted.get("num_workers", given.get("num_workers", 0))
    needs_workers = [name for name in wanted if name in WITHOUT_WORKERS and wanted[name]]
    if not workers and needs_workers:
        whatif.refuse(f"{needs_workers[0]} needs workers, and the loader has none")
        return
    if batch is not None:
        why = _resize(torch, given, batch)
        if why is not None:
            whatif.refuse(why)
            return
    if alike and not _bucketed(torch, whatif, given):
        return
    given.update(wanted)
    if not workers:
        given.update({name: v for name, v in WITHOUT_WORKERS.items() if name in given})
    for name in whatif.applied:
        whatif.applied[name] += name.startswith(LOADER)
    iterable = isinstance(given["dataset"], torch.utils.data.IterableDataset)
    if iterable and wanted.get("num_workers"):
        whatif.caution = (
            "the data set is an iterable one: unless it shards itself by worker, each worker "
            "yields all of it"
        )


def _bucketed(torch: Any, whatif: WhatIf, given: dict[str, Any]) -> bool:
    """Batches of like length; what it takes to read the lengths is paid once."""
    began = time.perf_counter()
    found = buckets.put(torch, given)
    whatif.cost_s += time.perf_counter() - began
    if isinstance(found, str):
        whatif.refuse(found)
        return False
    whatif.told_by, whatif.readings = found.told_by, found.readings
    if given["batch_sampler"].mixed:
        whatif.caution = "items of like length are then seen together, no longer wholly at random"
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
