"""Dtype, flags and layout of a root module, as they are in force during a call of it."""

from __future__ import annotations

import sys
from typing import Any, Callable

from . import below
from .log import Root
from .session import Session

LEAF = -7002
"""Key of the hook that looks into a leaf during one call."""


def look(session: Session, root: Root, module: Any) -> None:
    """Before a call of `root`: what is seen now takes the place of what was seen earlier; what
    cannot be read is noted."""
    torch, parts = session.torch, root.parts_of(module)
    kind = parts.largest.device.type
    looks: dict[str, Callable[[], Any]] = {
        "device": lambda: str(parts.largest.device),
        "model_dtype": lambda: _name(parts.largest.dtype),
        "autocast_dtype": lambda: _autocast(torch, kind),
        "compiled": lambda: _compiled(session, root, module),
        "channels_last": lambda: _is_channels_last(torch, parts.convolutions),
        "threads": lambda: int(torch.get_num_threads()),
    }
    if kind == "cuda":
        looks["tf32"] = lambda: has_tf32(torch)
        looks["cudnn_benchmark"] = lambda: bool(torch.backends.cudnn.benchmark)
    seen: dict[str, Any] = {}
    for name, read in looks.items():
        try:
            seen[name] = read()
        except Exception as problem:
            session.note(f"{name} could not be read: {type(problem).__name__}: {problem}")
    root.seen = seen
    if not seen.get("compiled"):
        _watch_leaves(root)


def has_tf32(torch: Any) -> bool:
    """Whether matrix products of float32 may round their inputs to TF32.

    Since 2.9 torch has a second way to say so, and raises where it is asked by the first one after
    a program has used the second.
    """
    matmul = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)
    return bool(matmul.allow_tf32) if precision is None else precision == "tf32"


def _is_channels_last(torch: Any, convolutions: list[Any]) -> bool | None:
    """None where the module has no convolution that a layout could change."""
    last = torch.channels_last
    return all(p.is_contiguous(memory_format=last) for p in convolutions) if convolutions else None


def _compiled(session: Session, root: Root, module: Any) -> bool:
    """Whether any of it is; gone through again only after something was compiled."""
    if root.compilations != session.compilations:
        root.compilations = session.compilations
        root.compiled = any_compiled(module)
    return root.compiled


def any_compiled(module: Any) -> bool:
    """Whether `module` or one below it is; none can be before torch's compiler was imported."""
    return "torch._dynamo" in sys.modules and any(map(_is_compiled, below.modules(module)))


def _is_compiled(module: Any) -> bool:
    if getattr(module, "_compiled_call_impl", None) is not None:
        return True
    forward = vars(module).get("forward")
    return type(module).__name__ == "OptimizedModule" or hasattr(
        forward, "_torchdynamo_orig_callable"
    )


def _autocast(torch: Any, kind: str) -> str | None:
    try:
        return _name(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else None
    except TypeError:  # torch before 2.4 knew CUDA and CPU by name
        if kind == "cuda":
            return _name(torch.get_autocast_gpu_dtype()) if torch.is_autocast_enabled() else None
        enabled = torch.is_autocast_cpu_enabled()
        return _name(torch.get_autocast_cpu_dtype()) if enabled else None


def _name(dtype: Any) -> str:
    return str(dtype).rsplit(".", 1)[-1]


def _watch_leaves(root: Root) -> None:
    """Autocast may be entered inside the forward: the leaves' outputs tell the dtype in use."""
    weights: dict[str, int] = {}

    def note(leaf: Any, args: Any, output: Any) -> None:
        dtype = getattr(output, "dtype", None)
        if dtype is not None and dtype.is_floating_point:
            name = _name(dtype)
            weights[name] = weights.get(name, 0) + below.size_of(leaf)

    for leaf in root.parts.leaves:
        leaf._forward_hooks[LEAF] = note
        root.watched.append((leaf, weights))


def unwatch_leaves(root: Root) -> None:
    """After that call."""
    weights = root.watched[0][1]
    for leaf, _ in root.watched:
        leaf._forward_hooks.pop(LEAF, None)
    root.watched.clear()
    if weights:
        root.seen["compute_dtype"] = max(weights, key=lambda name: weights[name])
