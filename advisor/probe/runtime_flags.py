"""Runtime flags: dtypes, layout, compilation, torch switches."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Callable

from . import module_tree

if TYPE_CHECKING:
    from .session import Session

LEAF = -7002
"""Key of the hook that looks into a leaf during one call."""


def look(session: Session, entry: Any, module: Any) -> None:
    """Read the flags before a call of `entry`.

    What is seen now takes the place of what was seen earlier.
    """
    torch, tree = session.torch, entry.tree_of(module)
    kind = tree.largest.device.type
    reads: dict[str, Callable[[], Any]] = {
        "device": lambda: str(tree.largest.device),
        "model_dtype": lambda: _name(tree.largest.dtype),
        "autocast_dtype": lambda: _autocast(torch, kind),
        "compiled": lambda: _compiled(session, entry, module),
        "channels_last": lambda: _is_channels_last(torch, tree.convolutions),
        "threads": lambda: int(torch.get_num_threads()),
    }
    if kind == "cuda":
        reads["tf32"] = lambda: has_tf32(torch)
        for flag in ("benchmark", "deterministic", "allow_tf32"):
            name = f"cudnn_{flag}"
            reads[name] = functools.partial(_cudnn, torch, flag)
    seen: dict[str, Any] = {}
    for name, read in reads.items():
        try:
            seen[name] = read()
        except Exception as problem:
            session.note(f"{name} could not be read: {type(problem).__name__}: {problem}")
    entry.flags = seen
    if not seen.get("compiled"):
        _watch_leaves(entry)


def _cudnn(torch: Any, flag: str) -> bool:
    return bool(getattr(torch.backends.cudnn, flag))


def has_tf32(torch: Any) -> bool:
    """Return True if float32 products may use TF32.

    Since 2.9 torch has a second way to say so, and raises where it is asked by the first one after
    a program has used the second.
    """
    matmul = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)
    return bool(matmul.allow_tf32) if precision is None else precision == "tf32"


def _is_channels_last(torch: Any, convolutions: list[Any]) -> bool | None:
    """Return True for channels-last, None without convolutions."""
    last = torch.channels_last
    return all(p.is_contiguous(memory_format=last) for p in convolutions) if convolutions else None


def _compiled(session: Session, entry: Any, module: Any) -> bool:
    """Return True if any module is compiled."""
    if entry.compilations != session.compilations:
        entry.compilations = session.compilations
        entry.compiled = any_compiled(module)
    return bool(entry.compiled)


def any_compiled(module: Any) -> bool:
    """Return True if the tree holds compiled modules."""
    return "torch._dynamo" in sys.modules and any(map(_is_compiled, module_tree.modules(module)))


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


def _watch_leaves(entry: Any) -> None:
    """Observe leaf outputs for the autocast dtype."""
    weights: dict[str, int] = {}

    def note(leaf: Any, args: Any, output: Any) -> None:
        dtype = getattr(output, "dtype", None)
        if dtype is not None and dtype.is_floating_point:
            name = _name(dtype)
            weights[name] = weights.get(name, 0) + module_tree.size_of(leaf)

    for leaf in entry.tree.leaves:
        leaf._forward_hooks[LEAF] = note
        entry.watched.append((leaf, weights))


def unwatch_leaves(entry: Any) -> None:
    """After that call."""
    weights = entry.watched[0][1]
    for leaf, _ in entry.watched:
        leaf._forward_hooks.pop(LEAF, None)
    entry.watched.clear()
    if weights:
        entry.flags["compute_dtype"] = max(weights, key=lambda name: weights[name])
