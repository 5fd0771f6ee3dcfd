"""Overrides: settings put in place of the program's own, inside its process.

Each of the plan's has a knob, a value and, for the argument of a DataLoader, the line that
builds it:

    autocast            around the forward of each module called from outside; a dtype
    channels_last       weights and inputs of each such module
    compile             the forward of each such module; true, a mode or a backend
    threads             of the CPU in one operation
    tf32  cudnn_benchmark  non_blocking  fused
    any other           that argument of the DataLoaders built at the line; of all without one

The record's entry `overrides` tells what became of each.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
import warnings
from typing import Any, Callable, Sequence

from .call_sites import call_site
from .clocks import clock
from .module_facts import any_compiled
from .session import MISSING, Session, restore

WITHOUT_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}
"""A DataLoader without workers accepts only these."""
COMPILE_MODES = ("reduce-overhead", "max-autotune")
AFTER_COMPILING = 3
"""Warm-up calls after a compilation: backwards are compiled late.

Judgement: fewer let a backward's compilation into the window, more lengthen each start."""


class AppliedOverride:
    """A setting that was asked for, and how often it was applied."""

    def __init__(self, session: Session, asked: dict[str, Any]) -> None:
        self.session = session
        self.knob: str = asked["knob"]
        self.value: Any = asked["value"]
        self.site: str | None = asked["site"]
        self.applied = 0
        self.why: str | None = None
        """First reason why it could not be applied."""
        self.cost_s = 0.0
        """Seconds of compilation, which no step pays again."""
        self.caution: str | None = None
        """What the user has to know before writing it."""
        self.one_tensor: bool | None = None
        """Every result of the module under autocast was a single tensor."""

    def apply(self, change: Callable[..., str | None], *args: Any) -> None:
        """Make a change, which may return why not."""
        try:
            reason = change(self.session.torch, self, *args)
        except Exception as problem:
            reason = f"{type(problem).__name__}: {problem}"[:300]
        if reason is None:
            self.applied += 1
            return
        self.why = self.why or reason
        self.session.note(f"override of {self.knob}: {reason}")

    def summary(self) -> dict[str, Any]:
        applied = self.applied > 0
        return {
            "knob": self.knob,
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
    asked = session.plan.get("overrides") or ()
    session.overrides = [AppliedOverride(session, override) for override in asked]
    loader = []
    for override in session.overrides:
        if override.knob in PROCESS_WIDE:
            PROCESS_WIDE[override.knob](torch, override)
        elif override.knob in MODULES:
            change = functools.partial(override.apply, _change_module)
            session.on_module.append(change)
        else:
            loader.append(override)
    loader.sort(key=lambda override: override.site or "")
    for site, several in itertools.groupby(loader, key=lambda override: override.site):
        _loader(torch, session, site, list(several))


def _change_module(torch: Any, override: AppliedOverride, module: Any) -> str | None:
    device = str(next(module.parameters()).device.type)
    if override.knob in ON_CARD and device != "cuda":
        return f"the model runs on {device}, where this setting does nothing"
    return MODULES[override.knob](torch, override, module)


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


def _loader(
    torch: Any, session: Session, site: str | None, several: Sequence[AppliedOverride]
) -> None:
    """Set arguments of the DataLoaders that are built at `site`."""
    loader = torch.utils.data.DataLoader
    signature = inspect.signature(loader.__init__)

    @session.patches.wrap(loader, "__init__")
    def __init__(build: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        ours = session.diagnosis is None and not session.muted
        if ours and site in (None, call_site()):
            given = signature.bind(self, *args, **kwargs)
            _rearrange(given.arguments, several)
            args, kwargs = given.args[1:], given.kwargs
        build(self, *args, **kwargs)


def _rearrange(given: dict[str, Any], several: Sequence[AppliedOverride]) -> None:
    """Put values into a DataLoader's arguments, its workers first: others need them."""
    for override in sorted(several, key=lambda override: override.knob != "num_workers"):
        override.apply(_argument, given)
    if not given.get("num_workers"):
        given.update({name: v for name, v in WITHOUT_WORKERS.items() if name in given})


def _argument(torch: Any, override: AppliedOverride, given: dict[str, Any]) -> str | None:
    """Put one value into a DataLoader's arguments, or return why not."""
    name, value = override.knob, override.value
    if name == "batch_size":
        return None if _resized(given, value) else "the program makes its batches itself"
    if name in WITHOUT_WORKERS and value and not given.get("num_workers"):
        return f"{name} needs workers, and the loader has none"
    given[name] = value
    if name == "in_order" and not value:
        override.caution = (
            "batches come as they are ready, so no run repeats another's order"
        )
    iterable = isinstance(given["dataset"], torch.utils.data.IterableDataset)
    if iterable and name == "num_workers" and value:
        override.caution = (
            "the data set is an iterable one: unless it shards itself by worker, each worker "
            "yields all of it"
        )
    return None


def _resized(given: dict[str, Any], batch: int) -> bool:
    """Set another batch size, if given."""
    batch_sampler: Any = given.get("batch_sampler")
    if batch_sampler is None and given.get("batch_size", 1) is not None:
        given["batch_size"] = batch
    elif isinstance(getattr(batch_sampler, "batch_size", None), int):
        batch_sampler.batch_size = batch
    else:
        return False
    return True


def _non_blocking(torch: Any, override: AppliedOverride) -> None:
    """Let copies from the host be queued, where the program does not say either way."""

    def copy(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        stated = "non_blocking" in kwargs or any(isinstance(arg, bool) for arg in args)
        if stated or override.session.muted or self.device.type != "cpu":
            return original(self, *args, **kwargs)
        moved = original(self, *args, non_blocking=True, **kwargs)
        override.applied += moved.device.type == "cuda"
        return moved

    for name in ("to", "cuda"):
        override.session.patches.wrap(torch.Tensor, name)(copy)


def _fused(torch: Any, override: AppliedOverride) -> None:
    """Make an optimizer fused where all its parameters are on a GPU.

    One of which the program says that it is to be fused, or is not, stays as it is.
    """

    @override.session.patches.wrap(torch.optim.Optimizer, "__init__")
    def __init__(build: Any, self: Any, params: Any, defaults: Any) -> None:
        build(self, params, defaults)
        tensors = [
            parameter for group in self.param_groups for parameter in group["params"]
        ]
        able = all(
            tensor.device.type == "cuda" and tensor.is_floating_point()
            for tensor in tensors
        )
        if able and "fused" in defaults and defaults["fused"] is None:
            for group in (self.defaults, *self.param_groups):
                group.update(fused=True, foreach=False)
            self._step_supports_amp_scaling = True
            override.applied += 1


# Hooks on a module are functions of this file: it can be copied and pickled as ever. They
# act from its second call on.
_open = threading.local()
_dtype: Any = None
_asked: AppliedOverride | None = None


def _autocast(torch: Any, override: AppliedOverride, module: Any) -> str | None:
    """Put autocast around the module's forward, from its next call on."""
    global _dtype, _asked
    _dtype, _asked = getattr(torch, override.value), override
    hooks = (
        module.register_forward_pre_hook(_enter_autocast),
        module.register_forward_hook(_leave_autocast, always_call=True),
    )
    for hook in hooks:
        override.session.patches.on_undo(hook.remove)
    return None


def _enter_autocast(module: Any, args: Any) -> None:
    device = next(module.parameters()).device
    context = sys.modules["torch"].autocast(device.type, dtype=_dtype)
    context.__enter__()
    _open.__dict__.setdefault("stack", []).append(context)


def _leave_autocast(module: Any, args: Any, output: Any) -> Any:
    """Leave autocast; a result that is one tensor goes on in float32.

    The program's own code behind the forward, such as its loss, knows of no other type.
    """
    stack = _open.__dict__.get("stack")
    if not stack:  # the hooks were put in this call
        return output
    stack.pop().__exit__(None, None, None)
    one = isinstance(output, sys.modules["torch"].Tensor)
    if _asked is not None:
        _asked.one_tensor = one and _asked.one_tensor is not False
    return output.float() if one and output.dtype == _dtype else output


def _channels_last(torch: Any, override: AppliedOverride, module: Any) -> str | None:
    """Convert parameters in place; undo leaves them, as others share them."""
    if not any(parameter.dim() == 4 for parameter in module.parameters()):
        return "the model has no 2-d convolution"
    module.to(memory_format=torch.channels_last)
    hook = module.register_forward_pre_hook(_laid_out, with_kwargs=True)
    override.session.patches.on_undo(hook.remove)
    return None


def _laid_out(module: Any, args: Any, kwargs: Any) -> Any:
    torch: Any = sys.modules["torch"]

    def last(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.to(memory_format=torch.channels_last)
        return value

    return tuple(map(last, args)), {key: last(value) for key, value in kwargs.items()}


def _compile(torch: Any, override: AppliedOverride, module: Any) -> str | None:
    """Compile the forward alone, and keep its hooks.

    The compiled forward stands in for the module's own during a call only. So the hooks, the
    program's and ours, run around compiled code and are no part of it. Calls that compiled, and
    a few after them, are marked as warm-up.
    """
    if not hasattr(module, "_compiled_call_impl"):
        return f"torch {torch.__version__} cannot compile a module in place"
    if any_compiled(module):
        return "the model is compiled already"
    how = override.value
    given = {} if how is True else {"mode" if how in COMPILE_MODES else "backend": how}
    compiled = torch.compile(module.forward, **given)
    settling = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal settling
        own_forward = vars(module).get("forward", MISSING)
        module.__dict__["forward"] = compiled
        before, start = compilations(), clock()
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            restore(module, "forward", own_forward)
            if compilations() != before:
                override.cost_s += clock() - start
                settling = AFTER_COMPILING
            if settling:
                settling -= 1
                override.session.recorder.add(("warm", clock()))

    module._compiled_call_impl = call
    return None


def compilations() -> int:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    kinds = [counters.get(name, {}) for name in ("frames", "stats")]
    return sum(int(count) for kind in kinds for count in kind.values())


def _tf32(torch: Any, override: AppliedOverride, module: Any) -> None:
    """Enable TF32 by the setting all versions accept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions call it the older way
        torch.set_float32_matmul_precision("high")


PROCESS_WIDE = {"non_blocking": _non_blocking, "fused": _fused}
ON_CARD = ("cudnn_benchmark", "tf32")
"""Refused where the model is not on a CUDA device: there they would do nothing."""
MODULES: dict[str, Callable[[Any, AppliedOverride, Any], str | None]] = {
    "autocast": _autocast,
    "channels_last": _channels_last,
    "compile": _compile,
    "cudnn_benchmark": lambda torch, *_: setattr(torch.backends.cudnn, "benchmark", True),
    "tf32": _tf32,
    "threads": lambda torch, override, _: torch.set_num_threads(override.value),
}
