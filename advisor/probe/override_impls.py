"""Override implementations: flags, copies, optimizers and modules."""

from __future__ import annotations

import functools
import sys
import threading
import time
import warnings
from typing import Any, Callable

from .overrides import Overrides
from .runtime_flags import has_tf32
from .session import Session

COMPILE_MODES = ("reduce-overhead", "max-autotune")
AFTER_COMPILING = 3
"""Calls after a compilation that still belong to warm-up: backwards are compiled late."""

clock = time.perf_counter


# --- flags and copies ---------------------------------------------------------------------


def _set_tf32(torch: Any, overrides: Overrides) -> None:
    """Enable TF32 by the setting all versions accept.

    Torch raises where its newer and older settings differ.
    """
    before = "high" if has_tf32(torch) else "highest"

    def put(precision: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some versions call it the older way
            torch.set_float32_matmul_precision(precision)

    put("high")
    overrides.patches.on_undo(lambda: put(before))


def _set_benchmark(torch: Any, overrides: Overrides) -> None:
    flags = torch.backends.cudnn
    overrides.patches.on_undo(functools.partial(setattr, flags, "benchmark", flags.benchmark))
    flags.benchmark = True


def _flag(put: Callable[[Any, Overrides], None]) -> Callable[..., str | None]:
    """Set a flag after the program's own start."""

    def change(torch: Any, overrides: Overrides, module: Any, value: str) -> str | None:
        kind = _device_type(module)
        if kind != "cuda":
            return f"the model runs on {kind}, where this setting does nothing"
        put(torch, overrides)
        return None

    return change


def _non_blocking(torch: Any, session: Session, overrides: Overrides) -> None:
    """Make host-to-device copies non-blocking."""

    def wrapped(original: Any) -> Any:
        @functools.wraps(original)  # modes of torch's know functions by their names
        def copy(self: Any, *args: Any, **kwargs: Any) -> Any:
            stated = "non_blocking" in kwargs or any(isinstance(arg, bool) for arg in args)
            if stated or session.muted or self.device.type != "cpu":
                return original(self, *args, **kwargs)
            moved = original(self, *args, non_blocking=True, **kwargs)
            overrides.applied["non_blocking"] += moved.device.type == "cuda"
            return moved

        return copy

    for name in ("to", "cuda"):
        overrides.patches.put(torch.Tensor, name, wrapped(getattr(torch.Tensor, name)))


def _set_to_none(torch: Any, session: Session, overrides: Overrides) -> None:
    def wrapped(original: Any) -> Any:
        def zero_grad(self: Any, set_to_none: bool = True) -> Any:
            overrides.applied["set_to_none"] += not set_to_none
            return original(self, True)

        return zero_grad

    for owner in (sys.modules["torch.optim.optimizer"].Optimizer, torch.nn.Module):
        overrides.patches.put(owner, "zero_grad", wrapped(owner.zero_grad))


def _fused(torch: Any, session: Session, overrides: Overrides) -> None:
    """Make an optimizer fused where its parameters allow."""
    optimizer = sys.modules["torch.optim.optimizer"].Optimizer
    build = optimizer.__init__

    def __init__(self: Any, params: Any, defaults: Any) -> None:
        if not isinstance(params, torch.Tensor):
            params = list(params)
            if "fused" in defaults and defaults["fused"] is None and _can_fuse(params):
                defaults = {**defaults, "fused": True, "foreach": False}
                self._step_supports_amp_scaling = True
                overrides.applied["fused"] += 1
        build(self, params, defaults)

    overrides.patches.put(optimizer, "__init__", __init__)


def _can_fuse(params: list[Any]) -> bool:
    """Return True if all parameters are GPU floats."""
    tensors = [each for part in params for each in _tensors_of(part)]
    return bool(tensors) and all(
        each.device.type == "cuda" and each.is_floating_point() for each in tensors
    )


def _tensors_of(part: Any) -> list[Any]:
    """Tensors of one entry in an optimizer's `params`."""
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
_asked: Overrides | None = None


def _autocast(torch: Any, overrides: Overrides, module: Any, value: str) -> str | None:
    """Enter autocast around every call."""
    global _dtype, _asked
    _dtype, _asked = getattr(torch, value or "bfloat16"), overrides
    hooks = (
        module.register_forward_pre_hook(_enter_autocast),
        module.register_forward_hook(_leave_autocast, always_call=True),
    )
    for hook in hooks:
        overrides.patches.on_undo(hook.remove)
    return None


def _enter_autocast(module: Any, args: Any) -> None:
    context = sys.modules["torch"].autocast(_device_type(module), dtype=_dtype)
    context.__enter__()
    _open.__dict__.setdefault("stack", []).append(context)


def _leave_autocast(module: Any, args: Any, output: Any) -> Any:
    """Leave autocast and convert results to float32."""
    stack = _open.__dict__.get("stack")
    if not stack:  # the call in which the hooks were put
        return output
    stack.pop().__exit__(None, None, None)
    if _asked is not None:
        one = isinstance(output, sys.modules["torch"].Tensor)
        _asked.one_tensor = one and _asked.one_tensor is not False
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


def _channels_last(torch: Any, overrides: Overrides, module: Any, value: str) -> str | None:
    """Convert parameters in place to channels-last.

    Undo leaves the layout, because derived tensors share it.
    """
    if not any(parameter.dim() == 4 for parameter in module.parameters()):
        return "the model has no 2-d convolution"
    module.to(memory_format=torch.channels_last)
    hook = module.register_forward_pre_hook(_laid_out, with_kwargs=True)
    overrides.patches.on_undo(hook.remove)
    return None


def _laid_out(module: Any, args: Any, kwargs: Any) -> Any:
    torch: Any = sys.modules["torch"]

    def last(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.to(memory_format=torch.channels_last)
        return value

    return tuple(map(last, args)), {key: last(value) for key, value in kwargs.items()}


def _compile(torch: Any, overrides: Overrides, module: Any, value: str) -> str | None:
    """Compile the forward alone, and keep its hooks.

    Calls that compile, and a few after them, are kept out of the window.
    """
    if not hasattr(torch, "compile") or not hasattr(module, "_compiled_call_impl"):
        return f"torch {torch.__version__} cannot compile a module in place"
    if any(
        part._compiled_call_impl is not None or type(part).__name__ == "OptimizedModule"
        for part in module.modules()
    ):
        return "the model is compiled already"
    given = {"mode" if value in COMPILE_MODES else "backend": value} if value else {}
    compiled = torch.compile(module.forward, **given)
    settling = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal settling
        own = module.__dict__.get("forward", compiled)
        module.__dict__["forward"] = compiled
        before, start = compilations(), clock()
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            if own is compiled:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = own
            if compilations() != before:
                overrides.cost_s += clock() - start
                settling = AFTER_COMPILING
            if settling:
                settling -= 1
                overrides.warm_until(clock())

    module._compiled_call_impl = call
    return None


def compilations() -> int:
    """Count of compilations so far."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    kinds = [counters.get(name, {}) for name in ("frames", "stats")]
    return sum(int(count) for kind in kinds for count in kind.values())


def _threads(torch: Any, overrides: Overrides, module: Any, value: str) -> str | None:
    """Set the thread count in the computing thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(int(value))
    overrides.patches.on_undo(lambda: torch.set_num_threads(before))
    return None


def _device_type(module: Any) -> str:
    return str(next(module.parameters()).device.type)


PROCESS_WIDE: dict[str, Callable[[Any, Session, Overrides], None]] = {
    "non_blocking": _non_blocking,
    "set_to_none": _set_to_none,
    "fused": _fused,
}
MODULES: dict[str, Callable[[Any, Overrides, Any, str], str | None]] = {
    "autocast": _autocast,
    "channels_last": _channels_last,
    "compile": _compile,
    "cudnn_benchmark": _flag(_set_benchmark),
    "tf32": _flag(_set_tf32),
    "threads": _threads,
}
