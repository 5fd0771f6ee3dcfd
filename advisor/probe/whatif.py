"""What-ifs: one setting that no config holds, tried from inside the process.

    loader.num_workers=4,prefetch_factor=4@train.py:88
                        arguments of the DataLoaders built at that line; everywhere without `@`
    autocast=bfloat16   around the forward of each root module
    channels_last       weights and inputs of each root module
    compile             the forward of each root module
    tf32  cudnn_benchmark  non_blocking  set_to_none

What came of it goes into the record as `whatif`: whether it applied and, if not, why.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from typing import Any, Callable

from .loaders import call_site
from .session import Session

AFTER_COMPILING = 3
"""Calls after a compilation that still belong to warm-up: backwards are compiled late."""
WITHOUT_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}
"""A DataLoader without workers accepts these values only."""

clock = time.perf_counter


class WhatIf:
    """One what-if of the plan, and what came of it."""

    def __init__(self, asked: str) -> None:
        self.asked = asked
        words, _, site = asked.partition("@")
        self.site: str | None = site or None
        self.name, self.values = _parsed(words)
        self.applied = 0
        self.why: str | None = None
        self.cost_s = 0.0
        self.caution: str | None = None

    def refuse(self, why: str) -> None:
        """It did not apply somewhere; the first reason is kept."""
        self.why = self.why or why

    def told(self) -> dict[str, Any]:
        """The record's entry."""
        never = (
            f"no DataLoader was built at {self.site}"
            if self.name == "loader" and self.site
            else NEVER.get(self.name, "no module with parameters was called")
        )
        return {
            "name": self.asked,
            "applied": bool(self.applied),
            "why": None if self.applied else self.why or never,
            "cost_s": self.cost_s or None,
            "caution": self.caution,
        }


NEVER = {
    "loader": "no DataLoader was built",
    "non_blocking": "no tensor was copied from host to device by `to` or `cuda`",
    "set_to_none": "zero_grad was never asked to keep zeros",
}


def _parsed(words: str) -> tuple[str, dict[str, Any]]:
    """`autocast=bfloat16` to ("autocast", {"": "bfloat16"}), loader arguments by name."""
    if words.startswith("loader."):
        pairs = [pair.partition("=") for pair in words[len("loader.") :].split(",")]
        flags = ("persistent_workers", "pin_memory")
        return "loader", {
            key: bool(int(value)) if key in flags else int(value) for key, _, value in pairs
        }
    name, _, value = words.partition("=")
    return name, {"": value} if value else {}


def install(torch: Any, session: Session) -> None:
    """Prepare the plan's what-if, if it has one."""
    asked = session.plan.get("whatif")
    if not asked:
        return
    session.whatif = whatif = WhatIf(str(asked))
    begin = PROCESS_WIDE.get(whatif.name)
    if begin is not None:
        begin(torch, session, whatif)
    elif whatif.name not in ROOTS:
        whatif.refuse(f"{whatif.name} is no what-if of this probe")


def root_found(session: Session, module: Any) -> None:
    """A module with parameters is called from outside for the first time."""
    whatif: WhatIf | None = session.whatif
    change = ROOTS.get(whatif.name) if whatif is not None else None
    if whatif is None or change is None:
        return
    try:
        why = change(session.torch, session, whatif, module)
    except Exception as problem:
        why = f"{type(problem).__name__}: {problem}"[:300]
    if why is None:
        whatif.applied += 1
    else:
        whatif.refuse(why)


# --- DataLoader arguments -----------------------------------------------------------------


def _loader(torch: Any, session: Session, whatif: WhatIf) -> None:
    loader = torch.utils.data.DataLoader
    build = loader.__init__
    signature = inspect.signature(build)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        ours = session.frozen is None and not session.muted
        if ours and whatif.site in (None, call_site()):
            try:
                bound = signature.bind(self, *args, **kwargs)
                _rearrange(torch, whatif, bound.arguments)
                args, kwargs = bound.args[1:], bound.kwargs
            except Exception as problem:
                whatif.refuse(f"{type(problem).__name__}: {problem}"[:300])
        build(self, *args, **kwargs)

    __init__.__wrapped__ = build  # type: ignore[attr-defined]
    session.patches.put(loader, "__init__", __init__)


def _rearrange(torch: Any, whatif: WhatIf, given: dict[str, Any]) -> None:
    """Put the what-if's values into a DataLoader's arguments; all of them or none."""
    wanted = dict(whatif.values)
    batch = wanted.pop("batch_size", None)
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
    given.update(wanted)
    if not workers:
        given.update({name: v for name, v in WITHOUT_WORKERS.items() if name in given})
    whatif.applied += 1
    iterable = isinstance(given["dataset"], torch.utils.data.IterableDataset)
    if iterable and wanted.get("num_workers"):
        whatif.caution = (
            "the data set is an iterable one: unless it shards itself by worker, each worker "
            "yields all of it"
        )


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


# --- flags and copies ---------------------------------------------------------------------


def _set_tf32(torch: Any) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


def _set_benchmark(torch: Any) -> None:
    torch.backends.cudnn.benchmark = True


def _flag(put: Callable[[Any], None]) -> Callable[..., str | None]:
    """Set after the program's own start, which may have set it otherwise."""

    def change(torch: Any, session: Session, whatif: WhatIf, module: Any) -> str | None:
        kind = _device_type(module)
        if kind != "cuda":
            return f"the model runs on {kind}, where this setting does nothing"
        put(torch)
        return None

    return change


def _non_blocking(torch: Any, session: Session, whatif: WhatIf) -> None:
    """Copies from host to device only: a copy back must be waited for before it is read."""

    def wrapped(original: Any) -> Any:
        def copy(self: Any, *args: Any, **kwargs: Any) -> Any:
            said = "non_blocking" in kwargs or any(isinstance(arg, bool) for arg in args)
            if said or session.muted or self.device.type != "cpu":
                return original(self, *args, **kwargs)
            moved = original(self, *args, non_blocking=True, **kwargs)
            whatif.applied += moved.device.type == "cuda"
            return moved

        return copy

    for name in ("to", "cuda"):
        session.patches.put(torch.Tensor, name, wrapped(getattr(torch.Tensor, name)))


def _set_to_none(torch: Any, session: Session, whatif: WhatIf) -> None:
    def wrapped(original: Any) -> Any:
        def zero_grad(self: Any, set_to_none: bool = True) -> Any:
            whatif.applied += not set_to_none
            return original(self, True)

        return zero_grad

    for owner in (sys.modules["torch.optim.optimizer"].Optimizer, torch.nn.Module):
        session.patches.put(owner, "zero_grad", wrapped(owner.zero_grad))


# --- root modules -------------------------------------------------------------------------
#
# Hooks on a module are functions of this file, so that the module can be copied and pickled as
# ever. They take effect from its second call on.

_open = threading.local()
_dtype: Any = None


def _autocast(torch: Any, session: Session, whatif: WhatIf, module: Any) -> str | None:
    """Entered and left in every call: autocast caches cast weights until it is left."""
    global _dtype
    _dtype = getattr(torch, whatif.values[""])
    module.register_forward_pre_hook(_enter_autocast)
    module.register_forward_hook(_leave_autocast, always_call=True)
    return None


def _enter_autocast(module: Any, args: Any) -> None:
    context = sys.modules["torch"].autocast(_device_type(module), dtype=_dtype)
    context.__enter__()
    _open.__dict__.setdefault("stack", []).append(context)


def _leave_autocast(module: Any, args: Any, output: Any) -> Any:
    """Results in float32: what comes after the model was not written for another dtype."""
    stack = _open.__dict__.get("stack")
    if not stack:  # the call in which the hooks were put
        return output
    stack.pop().__exit__(None, None, None)
    return _widened(output)


def _widened(value: Any) -> Any:
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == _dtype else value
    if isinstance(value, dict):
        for key in list(value):
            value[key] = _widened(value[key])
    elif type(value) in (list, tuple):
        return type(value)(_widened(part) for part in value)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_widened(part) for part in value))
    return value


def _channels_last(torch: Any, session: Session, whatif: WhatIf, module: Any) -> str | None:
    """The parameters stay the same objects, so that the optimizer keeps them."""
    if not any(parameter.dim() == 4 for parameter in module.parameters()):
        return "the model has no 2-d convolution"
    module.to(memory_format=torch.channels_last)
    module.register_forward_pre_hook(_laid_out, with_kwargs=True)
    return None


def _laid_out(module: Any, args: Any, kwargs: Any) -> Any:
    torch: Any = sys.modules["torch"]

    def last(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.to(memory_format=torch.channels_last)
        return value

    return tuple(map(last, args)), {key: last(value) for key, value in kwargs.items()}


def _compile(torch: Any, session: Session, whatif: WhatIf, module: Any) -> str | None:
    """The forward alone is compiled, so that hooks around it stay as they are.

    Calls that compile, and a few after them, are kept out of the window.
    """
    if not hasattr(torch, "compile") or not hasattr(module, "_compiled_call_impl"):
        return f"torch {torch.__version__} cannot compile a module in place"
    if any(
        part._compiled_call_impl is not None or type(part).__name__ == "OptimizedModule"
        for part in module.modules()
    ):
        return "the model is compiled already"
    compiled = torch.compile(module.forward)
    settling = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal settling
        own = module.__dict__.get("forward", compiled)
        module.__dict__["forward"] = compiled
        before, start = _graphs(), clock()
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            if own is compiled:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = own
            if _graphs() != before:
                whatif.cost_s += clock() - start
                settling = AFTER_COMPILING
            if settling:
                settling -= 1
                session.log.warm_until = clock()

    module._compiled_call_impl = call
    return None


def _graphs() -> int:
    """How often anything was compiled so far."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    kinds = [counters.get(name, {}) for name in ("frames", "stats")]
    return sum(int(count) for kind in kinds for count in kind.values())


def _device_type(module: Any) -> str:
    return str(next(module.parameters()).device.type)


PROCESS_WIDE: dict[str, Callable[[Any, Session, WhatIf], None]] = {
    "loader": _loader,
    "non_blocking": _non_blocking,
    "set_to_none": _set_to_none,
}
ROOTS: dict[str, Callable[[Any, Session, WhatIf, Any], str | None]] = {
    "autocast": _autocast,
    "channels_last": _channels_last,
    "compile": _compile,
    "cudnn_benchmark": _flag(_set_benchmark),
    "tf32": _flag(_set_tf32),
}
