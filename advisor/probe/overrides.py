"""Overrides: settings applied from outside the program.

    loader.num_workers=4,loader.prefetch_factor=4@train.py:88
                        arguments of the DataLoaders built at that line; of all without `@`
    autocast=bfloat16   around the forward of each module called from outside
    channels_last       weights and inputs of each such module
    compile             the forward of each such module; compile=NAME with that backend or mode
    threads=4           of the CPU in one operation
    tf32  cudnn_benchmark  non_blocking  fused

Commas join several. The record's entry `whatif` tells which applied.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import warnings
from time import perf_counter as clock
from typing import Any, Callable, Iterable

from .call_sites import call_site
from .module_facts import any_compiled
from .session import MISSING, Session, restore

LOADER = "loader."
WITHOUT_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}
"""A DataLoader without workers accepts only these."""
FLAGS = ("persistent_workers", "pin_memory", "in_order")
COMPILE_MODES = ("reduce-overhead", "max-autotune")
AFTER_COMPILING = 3
"""Warm-up calls after a compilation: backwards are compiled late."""


class Overrides:
    """Requested settings, and how often each was applied."""

    def __init__(self, session: Session, asked: str) -> None:
        self.session = session
        self.asked = asked
        words, _, site = asked.partition("@")
        self.site: str | None = site or None
        pairs = (word.partition("=") for word in words.split(","))
        self.settings = {name.strip(): value for name, _, value in pairs}
        self.applied = dict.fromkeys(self.settings, 0)
        self.why: str | None = None
        self.cost_s = 0.0
        self.caution: str | None = None
        self.one_tensor: bool | None = None

    def apply(
        self, names: Iterable[str], change: Callable[..., str | None], *args: Any
    ) -> None:
        """Make a change, which may return why not; count it for `names`."""
        try:
            why = change(self.session.torch, self, *args)
        except Exception as problem:
            why = f"{type(problem).__name__}: {problem}"[:300]
        if why is not None:
            self.why = self.why or why
            self.session.note(f"what-if {self.asked}: {why}")
            return
        for name in names:
            self.applied[name] += 1

    def summary(self) -> dict[str, Any]:
        applied = all(self.applied.values())
        return {
            "name": self.asked,
            "applied": applied,
            "why": None
            if applied
            else self.why or "the program did nothing that it applies to",
            "cost_s": self.cost_s or None,
            "caution": self.caution,
            "one_tensor": self.one_tensor,
        }


def install(torch: Any, session: Session) -> None:
    """Put the plan's overrides and device memory cap in place."""
    cap = session.plan.get("memory_cap_gib")
    if cap:
        _cap_memory(torch, session, float(cap))
    asked = session.plan.get("whatif")
    if not asked:
        return
    session.overrides = overrides = Overrides(session, str(asked))
    loader = {n: v for n, v in overrides.settings.items() if n.startswith(LOADER)}
    if loader:
        _loader(torch, overrides, loader)
    for name, value in overrides.settings.items():
        if name in PROCESS_WIDE:
            PROCESS_WIDE[name](torch, overrides)
        elif name in MODULES:
            change = functools.partial(overrides.apply, [name], _change_module, name, value)
            session.on_module.append(change)


def _change_module(
    torch: Any, overrides: Overrides, name: str, value: str, module: Any
) -> str | None:
    device = str(next(module.parameters()).device.type)
    if name in ON_CARD and device != "cuda":
        return f"the model runs on {device}, where this setting does nothing"
    return MODULES[name](torch, overrides, module, value)


def _cap_memory(torch: Any, session: Session, cap_gib: float) -> None:
    """Cap the memory of each card that the program uses, to emulate a smaller one.

    To cap a card opens a context on it, which takes some 400 MB there. So of several cards
    each is capped once the program itself has one: when torch starts, when a module moves,
    and at the first call of a module.
    """
    capped: set[int] = set()

    def cap(*_: Any) -> None:
        if len(capped) == torch.cuda.device_count() or not torch.cuda.is_initialized():
            return
        for index in _used_cards(torch) - capped:
            capped.add(index)
            total = torch.cuda.get_device_properties(index).total_memory / 1024.0**3
            if cap_gib < total:
                # the call makes the card the current one; to set another opens it
                with torch.cuda.device(index):
                    torch.cuda.set_per_process_memory_fraction(cap_gib / total, index)

    torch.cuda._lazy_call(cap)
    session.on_module.append(cap)
    for name in ("to", "cuda"):

        @session.patches.wrap(torch.nn.Module, name)
        def move(original: Any, *args: Any, **kwargs: Any) -> Any:
            moved = original(*args, **kwargs)
            session.attempt(cap)
            return moved


def _used_cards(torch: Any) -> set[int]:
    """Cards on which this process has a context; the only one is taken for used."""
    count = torch.cuda.device_count()
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return {n for n in range(count) if count == 1 or not has_context or has_context(n)}


def _loader(torch: Any, overrides: Overrides, settings: dict[str, str]) -> None:
    loader = torch.utils.data.DataLoader
    session, signature = overrides.session, inspect.signature(loader.__init__)
    wanted: dict[str, Any] = {n.removeprefix(LOADER): int(v) for n, v in settings.items()}
    wanted.update({name: bool(wanted[name]) for name in FLAGS if name in wanted})

    @session.patches.wrap(loader, "__init__")
    def __init__(build: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        ours = session.diagnosis is None and not session.muted
        if ours and overrides.site in (None, call_site()):
            given = signature.bind(self, *args, **kwargs)
            overrides.apply(settings, _rearrange, given.arguments, dict(wanted))
            args, kwargs = given.args[1:], given.kwargs
        build(self, *args, **kwargs)


def _rearrange(
    torch: Any, overrides: Overrides, given: dict[str, Any], wanted: dict[str, Any]
) -> str | None:
    """Put values into a DataLoader's arguments; return why not."""
    workers = wanted.get("num_workers", given.get("num_workers", 0))
    needs_workers = [name for name in wanted if name in WITHOUT_WORKERS and wanted[name]]
    if not workers and needs_workers:
        return f"{needs_workers[0]} needs workers, and the loader has none"
    if "batch_size" in wanted and not _resized(given, wanted.pop("batch_size")):
        return "the program makes its batches itself"
    given.update(wanted)
    if not wanted.get("in_order", True):
        overrides.caution = (
            "batches come as they are ready, so no run repeats another's order"
        )
    if not workers:
        given.update({name: v for name, v in WITHOUT_WORKERS.items() if name in given})
    iterable = isinstance(given["dataset"], torch.utils.data.IterableDataset)
    if iterable and wanted.get("num_workers"):
        overrides.caution = (
            "the data set is an iterable one: unless it shards itself by worker, each worker "
            "yields all of it"
        )
    return None


def _resized(given: dict[str, Any], batch: int) -> bool:
    """Set another batch size, if given."""
    own: Any = given.get("batch_sampler")
    if own is None and given.get("batch_size", 1) is not None:
        given["batch_size"] = batch
    elif isinstance(getattr(own, "batch_size", None), int):
        own.batch_size = batch
    else:
        return False
    return True


def _non_blocking(torch: Any, overrides: Overrides) -> None:
    def copy(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        stated = "non_blocking" in kwargs or any(isinstance(arg, bool) for arg in args)
        if stated or overrides.session.muted or self.device.type != "cpu":
            return original(self, *args, **kwargs)
        moved = original(self, *args, non_blocking=True, **kwargs)
        overrides.applied["non_blocking"] += moved.device.type == "cuda"
        return moved

    for name in ("to", "cuda"):
        overrides.session.patches.wrap(torch.Tensor, name)(copy)


def _fused(torch: Any, overrides: Overrides) -> None:
    """Make an optimizer fused where all its parameters are on a GPU."""

    @overrides.session.patches.wrap(torch.optim.Optimizer, "__init__")
    def __init__(build: Any, self: Any, params: Any, defaults: Any) -> None:
        build(self, params, defaults)
        tensors = [each for group in self.param_groups for each in group["params"]]
        able = all(
            each.device.type == "cuda" and each.is_floating_point() for each in tensors
        )
        if able and "fused" in defaults and defaults["fused"] is None:
            for group in (self.defaults, *self.param_groups):
                group.update(fused=True, foreach=False)
            self._step_supports_amp_scaling = True
            overrides.applied["fused"] += 1


# Hooks on a module are functions of this file: it can be copied and pickled as ever. They
# act from its second call on.
_open = threading.local()
_dtype: Any = None
_asked: Overrides | None = None


def _autocast(torch: Any, overrides: Overrides, module: Any, value: str) -> str | None:
    global _dtype, _asked
    _dtype, _asked = getattr(torch, value or "bfloat16"), overrides
    hooks = (
        module.register_forward_pre_hook(_enter_autocast),
        module.register_forward_hook(_leave_autocast, always_call=True),
    )
    for hook in hooks:
        overrides.session.patches.on_undo(hook.remove)
    return None


def _enter_autocast(module: Any, args: Any) -> None:
    device = next(module.parameters()).device
    context = sys.modules["torch"].autocast(device.type, dtype=_dtype)
    context.__enter__()
    _open.__dict__.setdefault("stack", []).append(context)


def _leave_autocast(module: Any, args: Any, output: Any) -> Any:
    """Leave autocast; a result that is one tensor goes on in float32."""
    stack = _open.__dict__.get("stack")
    if not stack:  # the hooks were put in this call
        return output
    stack.pop().__exit__(None, None, None)
    one = isinstance(output, sys.modules["torch"].Tensor)
    if _asked is not None:
        _asked.one_tensor = one and _asked.one_tensor is not False
    return output.float() if one and output.dtype == _dtype else output


def _channels_last(torch: Any, overrides: Overrides, module: Any, value: str) -> str | None:
    """Convert parameters in place; undo leaves them, as others share them."""
    if not any(parameter.dim() == 4 for parameter in module.parameters()):
        return "the model has no 2-d convolution"
    module.to(memory_format=torch.channels_last)
    hook = module.register_forward_pre_hook(_laid_out, with_kwargs=True)
    overrides.session.patches.on_undo(hook.remove)
    return None


def _laid_out(module: Any, args: Any, kwargs: Any) -> Any:
    torch: Any = sys.modules["torch"]

    def last(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.to(memory_format=torch.channels_last)
        return value

    return tuple(map(last, args)), {key: last(value) for key, value in kwargs.items()}


def _compile(torch: Any, overrides: Overrides, module: Any, value: str) -> str | None:
    """Compile the forward alone, and keep its hooks."""
    if not hasattr(module, "_compiled_call_impl"):
        return f"torch {torch.__version__} cannot compile a module in place"
    if any_compiled(module):
        return "the model is compiled already"
    given = {"mode" if value in COMPILE_MODES else "backend": value} if value else {}
    compiled = torch.compile(module.forward, **given)
    settling = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal settling
        held = vars(module).get("forward", MISSING)
        module.__dict__["forward"] = compiled
        before, start = compilations(), clock()
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            restore(module, "forward", held)
            if compilations() != before:
                overrides.cost_s += clock() - start
                settling = AFTER_COMPILING
            if settling:
                settling -= 1
                overrides.session.recorder.add(("warm", clock()))

    module._compiled_call_impl = call
    return None


def compilations() -> int:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    kinds = [counters.get(name, {}) for name in ("frames", "stats")]
    return sum(int(count) for kind in kinds for count in kind.values())


def _tf32(torch: Any, overrides: Overrides, module: Any, value: str) -> None:
    """Enable TF32 by the setting all versions accept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions call it the older way
        torch.set_float32_matmul_precision("high")


PROCESS_WIDE = {"non_blocking": _non_blocking, "fused": _fused}
ON_CARD = ("cudnn_benchmark", "tf32")
"""Settings that do nothing elsewhere."""
MODULES: dict[str, Callable[[Any, Overrides, Any, str], str | None]] = {
    "autocast": _autocast,
    "channels_last": _channels_last,
    "compile": _compile,
    "cudnn_benchmark": lambda torch, *_: setattr(torch.backends.cudnn, "benchmark", True),
    "tf32": _tf32,
    "threads": lambda torch, _, __, value: torch.set_num_threads(int(value)),
}
