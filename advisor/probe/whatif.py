"""Settings that no config holds, tried from inside: `loader.num_workers=4`, `autocast=bfloat16`.

Several are joined by commas. Each is a row of a table; one that cannot be applied leaves a note,
and what really took effect is seen by the same observation as in every other run.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from .session import Session

Apply = Callable[[Any, Session, str], None]

WORKERS_ONLY = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
"""Loader arguments that must be absent without workers."""


def install(torch: Any, session: Session) -> None:
    """Apply the plan's what-if, and its cap on device memory."""
    cap = session.plan.get("memory_cap_gib")
    if cap:
        session.attempt(_cap_memory, torch, float(cap))
    settings = {}
    for part in filter(None, str(session.plan.get("whatif") or "").split(",")):
        name, _, value = part.strip().partition("=")
        settings[name] = value
    loader = {n.partition(".")[2]: v for n, v in settings.items() if n.startswith("loader.")}
    if loader:
        session.attempt(_loader_arguments, torch, session, loader)
    for name, value in settings.items():
        apply = TABLE.get(name)
        if apply is not None:
            session.attempt(apply, torch, session, value)
        elif not name.startswith("loader."):
            session.notes.append(f"what-if {name!r} is not known")


def _cap_memory(torch: Any, cap_gib: float) -> None:
    """Stand in for a smaller card, once CUDA starts."""

    def cap() -> None:
        for index in range(torch.cuda.device_count()):
            total = torch.cuda.get_device_properties(index).total_memory / 1024.0**3
            if cap_gib < total:
                torch.cuda.set_per_process_memory_fraction(cap_gib / total, index)

    torch.cuda._lazy_call(cap)


# --- loaders ------------------------------------------------------------------------------


def _loader_arguments(torch: Any, session: Session, wanted: dict[str, str]) -> None:
    """Every DataLoader is built with these arguments in place of its own."""
    import inspect

    data = torch.utils.data
    build = data.DataLoader.__init__
    signature = inspect.signature(build)
    values = {name: _value(text) for name, text in wanted.items()}

    @functools.wraps(build)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
            _edit(data, bound.arguments, values, session)
            args, kwargs = bound.args[1:], bound.kwargs
        except Exception as problem:
            _note(session, f"loader arguments were left alone: {problem}")
        build(self, *args, **kwargs)

    session.patches.put(data.DataLoader, "__init__", __init__)


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    return words[text.lower()] if text.lower() in words else int(text)


def _edit(data: Any, own: dict[str, Any], values: dict[str, Any], session: Session) -> None:
    for name, value in values.items():
        if name == "batch_size":
            _edit_batch(data, own, int(value), session)
        else:
            own[name] = bool(value) if name in ("persistent_workers", "pin_memory") else value
    if not own.get("num_workers"):
        for name in WORKERS_ONLY:
            if own.pop(name, None) and name in values:
                _note(session, f"loader.{name} needs workers; a loader without any is as it was")


def _edit_batch(data: Any, own: dict[str, Any], size: int, session: Session) -> None:
    sampler = own.get("batch_sampler")
    if sampler is None:
        if own.get("batch_size", 1) is None:
            _note(
                session, "a loader leaves batching to its data set: loader.batch_size is as it was"
            )
        else:
            own["batch_size"] = size
    elif type(sampler) is data.BatchSampler:
        own["batch_sampler"] = data.BatchSampler(sampler.sampler, size, sampler.drop_last)
    elif isinstance(getattr(sampler, "batch_size", None), int):
        sampler.batch_size = size
    else:
        name = type(sampler).__name__
        _note(session, f"{name} hides its batch size: loader.batch_size is as it was")


def _note(session: Session, text: str) -> None:
    if text not in session.notes:
        session.notes.append(text)


# --- root modules -------------------------------------------------------------------------


def _autocast(torch: Any, session: Session, value: str) -> None:
    """Each root's forward runs under autocast; entering it once for all would train with stale
    casts of the weights, which are only dropped on exit."""
    dtype = getattr(torch, value or "bfloat16")
    if dtype == torch.float16:
        _note(session, "autocast to float16 without a GradScaler: the rate holds, losses may not")

    def wrap(module: Any) -> None:
        forward = module.forward
        kind = next(module.parameters()).device.type

        @functools.wraps(forward)
        def under_autocast(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(kind, dtype):
                output = forward(*args, **kwargs)
            return _converted(output, lambda t: t.float() if t.is_floating_point() else t)

        module.forward = under_autocast

    session.on_root.append(wrap)


def _channels_last(torch: Any, session: Session, value: str) -> None:
    def lay_out(tensor: Any) -> Any:
        return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor

    def wrap(module: Any) -> None:
        module.to(memory_format=torch.channels_last)  # parameters keep their identity
        forward = module.forward

        @functools.wraps(forward)
        def laid_out(*args: Any, **kwargs: Any) -> Any:
            return forward(*_converted(args, lay_out), **_converted(kwargs, lay_out))

        module.forward = laid_out

    session.on_root.append(wrap)


def _compile(torch: Any, session: Session, value: str) -> None:
    options = {"backend": value} if value else {}

    def wrap(module: Any) -> None:
        module.forward = torch.compile(module.forward, **options)

    session.on_root.append(wrap)


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """`value` with its tensors converted, in plain containers and mappings."""
    if hasattr(value, "dtype") and hasattr(value, "dim"):
        return convert(value)
    if isinstance(value, tuple):
        parts = [_converted(part, convert) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_converted(part, convert) for part in value]
    if isinstance(value, dict):
        for key in list(value):
            value[key] = _converted(value[key], convert)
    return value


# --- flags and calls ----------------------------------------------------------------------


def _flags(*names: str) -> Apply:
    """Set now, and again at each new root: scripts set them late."""

    def apply(torch: Any, session: Session, value: str) -> None:
        def put(_module: Any = None) -> None:
            for name in names:
                owner: Any = torch.backends
                *path, last = name.split(".")
                for part in path:
                    owner = getattr(owner, part)
                setattr(owner, last, True)

        put()
        session.on_root.append(put)

    return apply


def _non_blocking(torch: Any, session: Session, value: str) -> None:
    """Copies to the device do not wait; they overlap only from pinned memory."""
    move, to_cuda = torch.Tensor.to, torch.Tensor.cuda

    @functools.wraps(move)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        target = kwargs.get("device", args[0] if args else None)
        if str(target).startswith("cuda") and not any(isinstance(a, bool) for a in args):
            kwargs.setdefault("non_blocking", True)
        return move(self, *args, **kwargs)

    @functools.wraps(to_cuda)
    def cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) < 2:
            kwargs.setdefault("non_blocking", True)
        return to_cuda(self, *args, **kwargs)

    session.patches.put(torch.Tensor, "to", to)
    session.patches.put(torch.Tensor, "cuda", cuda)


def _set_to_none(torch: Any, session: Session, value: str) -> None:
    optimizer: Any = torch.optim.Optimizer
    zero = optimizer.zero_grad

    @functools.wraps(zero)
    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        zero(self, set_to_none=True)

    session.patches.put(optimizer, "zero_grad", zero_grad)


TABLE: dict[str, Apply] = {
    "autocast": _autocast,
    "channels_last": _channels_last,
    "compile": _compile,
    "tf32": _flags("cuda.matmul.allow_tf32", "cudnn.allow_tf32"),
    "cudnn_benchmark": _flags("cudnn.benchmark"),
    "non_blocking": _non_blocking,
    "set_to_none": _set_to_none,
}
