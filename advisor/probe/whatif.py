"""Settings that no config holds, tried from inside the process.

    loader.num_workers=4,loader.prefetch_factor=4@train.py:88
                        arguments of the DataLoaders built at that line; of all without `@`
    autocast=bfloat16   around the forward of each root module
    channels_last       weights and inputs of each root module
    compile             the forward of each root module; compile=NAME with that backend
    tf32  cudnn_benchmark  non_blocking  set_to_none  fused

Several are joined by commas. What came of them goes into the record as `whatif`: whether all of
them applied and, if not, why; the effect is seen by the same observation as in every other run.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
import warnings
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
FLAGS = ("persistent_workers", "pin_memory")
LOADER = "loader."

clock = time.perf_counter


class WhatIf:
    """What the plan asks for, and what came of it."""

    def __init__(self, session: Session, asked: str) -> None:
        self._session = session
        self.asked = asked
        words, _, site = asked.partition("@")
        self.site: str | None = site or None
        self.settings = {
            name.strip(): value
            for name, _, value in (word.partition("=") for word in words.split(","))
        }
        self.applied = dict.fromkeys(self.settings, 0)
        """By setting: how often it was put in place."""
        self.why: str | None = None
        self.cost_s = 0.0
        self.caution: str | None = None

    def refuse(self, why: str) -> None:
        """Something did not apply somewhere; the first reason is kept, all of them are noted."""
        self.why = self.why or why
        note = f"what-if {self.asked}: {why}"
        if note not in self._session.notes:
            self._session.notes.append(note)

    def warm_until(self, time_s: float) -> None:
        """A one-time cost was paid until then; the window begins later."""
        self._session.log.warm_until = time_s

    def told(self) -> dict[str, Any]:
        """The record's entry."""
        missing = [name for name, times in self.applied.items() if not times]
        return {
            "name": self.asked,
            "applied": not missing,
            "why": (self.why or self._never(missing[0])) if missing else None,
            "cost_s": self.cost_s or None,
            "caution": self.caution,
        }

    def _never(self, name: str) -> str:
        if name.startswith(LOADER):
            return "no DataLoader was built" + (f" at {self.site}" if self.site else "")
        return NEVER.get(name, "no module with parameters was called")


NEVER = {
    "non_blocking": "no tensor was copied from host to device by `to` or `cuda`",
    "set_to_none": "zero_grad was never asked to keep zeros",
    "fused": "no optimizer with a fused update was built for parameters on a GPU",
}


def install(torch: Any, session: Session) -> None:
    """Prepare the plan's what-if, and its cap on device memory."""
    cap = session.plan.get("memory_cap_gib")
    if cap:
        _cap_memory(torch, float(cap))
    asked = session.plan.get("whatif")
    if not asked:
        return
    session.whatif = whatif = WhatIf(session, str(asked))
    if any(name.startswith(LOADER) for name in whatif.settings):
        _loader(torch, session, whatif)
    for name, value in whatif.settings.items():
        if name in PROCESS_WIDE:
            PROCESS_WIDE[name](torch, session, whatif)
        elif name in ROOTS:
            session.on_root.append(functools.partial(_change_root, session, whatif, name, value))
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

    session.patches.put(loader, "__init__", __init__)


def _rearrange(torch: Any, whatif: WhatIf, given: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Put the what-if's values into a DataLoader's arguments; all of them or none."""
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
    for name in whatif.applied:
        whatif.applied[name] += name.startswith(LOADER)
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
    """By the one way that every version has, and that the newer and the older settings agree
    with: where they differ, torch raises when a program reads the older ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions call it the older way
        torch.set_float32_matmul_precision("high")


def _set_benchmark(torch: Any) -> None:
    torch.backends.cudnn.benchmark = True


def _flag(put: Callable[[Any], None]) -> Callable[..., str | None]:
    """Set after the program's own start, which may have set it otherwise."""

    def change(torch: Any, whatif: WhatIf, module: Any, value: str) -> str | None:
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
            whatif.applied["non_blocking"] += moved.device.type == "cuda"
            return moved

        return copy

    for name in ("to", "cuda"):
        session.patches.put(torch.Tensor, name, wrapped(getattr(torch.Tensor, name)))


def _set_to_none(torch: Any, session: Session, whatif: WhatIf) -> None:
    def wrapped(original: Any) -> Any:
        def zero_grad(self: Any, set_to_none: bool = True) -> Any:
            whatif.applied["set_to_none"] += not set_to_none
            return original(self, True)

        return zero_grad

    for owner in (sys.modules["torch.optim.optimizer"].Optimizer, torch.nn.Module):
        session.patches.put(owner, "zero_grad", wrapped(owner.zero_grad))


def _fused(torch: Any, session: Session, whatif: WhatIf) -> None:
    """As if the optimizer had been built with `fused=True`, where it knows that and all of its
    parameters are floating-point numbers on a GPU."""
    optimizer = sys.modules["torch.optim.optimizer"].Optimizer
    build = optimizer.__init__

    def __init__(self: Any, params: Any, defaults: Any) -> None:
        if not isinstance(params, torch.Tensor):
            params = list(params)
            if "fused" in defaults and defaults["fused"] is None and _can_fuse(params):
                defaults = {**defaults, "fused": True, "foreach": False}
                self._step_supports_amp_scaling = True
                whatif.applied["fused"] += 1
        build(self, params, defaults)

    session.patches.put(optimizer, "__init__", __init__)


def _can_fuse(params: list[Any]) -> bool:
    """Whether all parameters are floating-point numbers on a GPU."""
    tensors = [each for part in params for each in _tensors_of(part)]
    return bool(tensors) and all(
        each.device.type == "cuda" and each.is_floating_point() for each in tensors
    )


def _tensors_of(part: Any) -> list[Any]:
    """Of one entry of an optimizer's `params`: a tensor, a named one, or a group of them."""
    if not isinstance(part, dict):
        return [part[1]] if isinstance(part, tuple) else [part]
    held = part["params"]
    if hasattr(held, "device"):
        return [held]
    part["params"] = list(held)
    return [each for inner in part["params"] for each in _tensors_of(inner)]


# --- root modules -------------------------------------------------------------------------
#
# Hooks on a module are functions of this file, so that the module can be copied and pickled as
# ever. They take effect from its second call on.

_open = threading.local()
_dtype: Any = None


def _autocast(torch: Any, whatif: WhatIf, module: Any, value: str) -> str | None:
    """Entered and left in every call: autocast caches cast weights until it is left."""
    global _dtype
    _dtype = getattr(torch, value or "bfloat16")
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


def _channels_last(torch: Any, whatif: WhatIf, module: Any, value: str) -> str | None:
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


def _compile(torch: Any, whatif: WhatIf, module: Any, value: str) -> str | None:
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
    compiled = torch.compile(module.forward, **({"backend": value} if value else {}))
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
                whatif.warm_until(clock())

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
    "non_blocking": _non_blocking,
    "set_to_none": _set_to_none,
    "fused": _fused,
}
ROOTS: dict[str, Callable[[Any, WhatIf, Any, str], str | None]] = {
    "autocast": _autocast,
    "channels_last": _channels_last,
    "compile": _compile,
    "cudnn_benchmark": _flag(_set_benchmark),
    "tf32": _flag(_set_tf32),
}
