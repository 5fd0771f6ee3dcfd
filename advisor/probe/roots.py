"""Modules called from outside any module: their calls, shapes, dtype and first outputs."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

from . import batches, below, loaders, looks
from .layers import LayerObserver
from .layout import judge, placed
from .log import Root
from .session import Session

OUTPUTS_KEPT = 3
SAMPLES = 64
SCALARS_KEPT = 4096
LOOKS = (2, 8, 64, 256)
"""Calls at which dtype, flags and layout are looked at, for settings may change after the first,
and a few parameters, to be held against those of the first look."""
SETTLED_AT = LOOKS[-1]
"""At so many calls, and each time that it was called as often again, it may have settled."""
NUMBERS = 16
"""So many of each parameter that is looked at."""
ALWAYS = "_forward_hooks_always_called"
"""Attribute of modules that torch has since 2.1."""


def known(session: Session, module: Any) -> Root:
    """The root of a module, or of a compiled function; a new one if it is met for the first
    time."""
    root = session.roots.get(id(module))
    if root is None or root.module() is not module:
        parts = below.Parts(module if hasattr(module, "_modules") else None)
        root = _gone_like(session, module, parts.size)
        if root is None:
            root = Root(module, len(session.log.roots), parts.size)
            session.log.roots.append(root)
            root.site = loaders.call_site()
        root.parts = parts
        session.roots[id(module)] = root
    return root


def _gone_like(session: Session, module: Any, size: int) -> Root | None:
    """The root of a module that is no more and was like this one: a program may make its modules
    anew for every step."""
    name = type(module).__name__
    for root in session.log.roots:
        if root.name == name and root.parameters == size and root.module() is None:
            root.module = weakref.ref(module)
            return root
    return None


def listen(module: Any, key: int, hook: Any) -> None:
    """Have `hook(module, args, kwargs, output)` called after each call of `module`, also one that
    raised where torch can do that (2.1 and later)."""
    module._forward_hooks[key] = hook
    module._forward_hooks_with_kwargs[key] = True
    if ALWAYS in module.__dict__:
        module._forward_hooks_always_called[key] = True


def unlisten(module: Any, key: int) -> None:
    """Take that hook out again."""
    module._forward_hooks.pop(key, None)
    module._forward_hooks_with_kwargs.pop(key, None)
    if ALWAYS in module.__dict__:
        module._forward_hooks_always_called.pop(key, None)


def enter(session: Session, module: Any) -> Root | None:
    """Before a call: the root, looked at in some of its calls. None for a loss function and the
    like beside a real root: nothing is to be learnt from it."""
    root = known(session, module)
    if not root.entered:
        root.entered = True
        session.heavy_roots += bool(root.parameters)
        for act in session.on_root if root.parameters else ():
            session.attempt(act, module)
    if not root.parameters and session.heavy_roots:
        root.light = True
        return None
    look(session, root, module)
    return root


def is_light(session: Session, module: Any) -> bool:
    """Whether nothing is to be learnt from it, which was seen before."""
    root = session.roots.get(id(module))
    return root is not None and root.light and root.module() is module


def look(session: Session, root: Root, module: Any) -> None:
    """Another call of `root` begins."""
    root.calls += 1
    if root.calls > LOOKS[-1] or not root.parameters:
        return
    if root.calls == 1:
        session.attempt(_begin_telling, session, root, module)
    if root.calls in LOOKS:
        if session.capture is None:
            session.attempt(_keep_values, root, module)
        looks.look(session, root, module)


def leave(
    session: Session, root: Root, args: Any, kwargs: Any, output: Any, start: float, end: float
) -> None:
    """After the call, also when it raised: then there is no output."""
    problem = sys.exc_info()[1]
    if output is None and problem is not None:
        if root.watched:
            looks.unwatch_leaves(root)
        if root.teller is not None:
            root.teller.stop()
            root.teller, root.calls = None, 0  # it did not come to its end: listen again
        session.swallow(problem, "forward", root.items((args, kwargs or {})))
        return
    items = noted(session, root, args, kwargs, output)
    graded = session.torch.is_grad_enabled()
    log = session.log
    log.forwards.append((start, end, root.number, items, graded))
    if log.thread is None:
        log.thread = threading.get_ident()
    looks_for_items = not (log.nexts or log.opts or log.backwards)
    if looks_for_items and session.capture is None and len(root.scalars) < SCALARS_KEPT:
        root.scalars.append(_numbers(args, kwargs or {}, items))
    elif not root.calls % SETTLED_AT:
        root.place = _place(root)


def _place(root: Root) -> tuple[bool, Any, int] | None:
    """Where the items of its calls are counted: a dimension of one argument. None where more than
    that is to be seen in each."""
    if root.by_output is not False or root.inners or not root.parameters:
        return None
    layout = root.layout
    if layout is None:
        way, axis = root.counter.way, 0
    elif layout.mapped or layout.axis is None or layout.tokens not in (None, layout.path):
        return None
    else:
        way, axis = layout.path, layout.axis
    if way is None or len(way) != 2 or not all(by_item for by_item, _ in way):
        return None
    (_, group), (_, key) = way  # (args, kwargs), and what of them
    return group == 0, key, axis


def noted(session: Session, root: Root, args: Any, kwargs: Any, output: Any) -> float:
    """Items that went through this call; what it was like is kept of the first ones."""
    inputs = (args, kwargs or {})
    if root.calls > LOOKS[-1] and root.by_output is not None:
        return root.counter.count(output) if root.by_output else root.items(inputs)
    if root.watched:
        looks.unwatch_leaves(root)
    if root.by_output is None:
        root.by_output = _by_output(args, kwargs, output)
    if root.teller is not None:
        session.attempt(_end_telling, session, root, inputs, output)
    if root.calls <= OUTPUTS_KEPT and root.parameters:
        if not root.shapes:
            _note_shapes(root, inputs, output)
        if session.capture is None:
            came_out = [_samples(tensor) for tensor in batches.tensors_in(output, 4)]
            root.outputs.extend(came_out)
            root.firsts.append((_went_in(inputs), came_out))
    return root.counter.count(output) if root.by_output else root.items(inputs)


def _begin_telling(session: Session, root: Root, module: Any) -> None:
    root.teller = LayerObserver(session.torch, quiet=looks.any_compiled(module))
    root.teller.listen(module)


def _end_telling(session: Session, root: Root, inputs: Any, output: Any) -> None:
    teller, root.teller = root.teller, None
    if teller is None:
        return
    teller.stop()
    nexts = session.log.nexts
    if not root.by_output:
        root.layout = judge(teller, inputs, output, nexts[-1][3] if nexts else None)
        known = session.plan.get("batch_at")
        if known is not None and known["site"] == root.site:
            root.layout = placed(known, inputs, root.layout)


def _by_output(args: Any, kwargs: Any, output: Any) -> bool:
    """Whether only the output tells the number of items: it was asked for as a number."""
    if any(isinstance(value, (list, tuple)) for value in (*args, *(kwargs or {}).values())):
        return False
    return not _has_rows((args, kwargs)) and _has_rows(output)


def _has_rows(value: Any) -> bool:
    return any(len(tensor.shape) for tensor in batches.tensors_in(value))


def _note_shapes(root: Root, inputs: Any, output: Any) -> None:
    shapes = [tuple(tensor.shape) for tensor in batches.tensors_in(inputs)]
    root.dims = [list(map(int, shape)) for shape in shapes]
    samples = root.layout.count(inputs) if root.layout is not None else None
    root.shapes = tuple("x".join(map(str, _one(shape, samples))) or "scalar" for shape in shapes)
    results = [tuple(tensor.shape) for tensor in batches.tensors_in(output, 1)]
    if shapes and results and len(results[0]) > 1:
        root.same_shape = any(
            shape[:1] == results[0][:1] and shape[2:] == results[0][2:]
            for shape in shapes
            if len(shape) == len(results[0])
        )


def _one(shape: tuple[int, ...], samples: float | None) -> tuple[int, ...]:
    """`shape` without its batch dimension: the second one of [time, batch], else the first."""
    axis = 1 if len(shape) > 1 and shape[0] != samples == shape[1] else 0
    return shape[:axis] + shape[axis + 1 :]


def _numbers(args: Any, kwargs: dict[str, Any], items: float) -> dict[str, Any]:
    """Numbers, and tensors of one number or of one for each item, by argument."""
    found: dict[str, Any] = {}
    for name, value in [*((str(n), v) for n, v in enumerate(args)), *kwargs.items()]:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
        elif batches.is_tensor(value) and hasattr(value, "detach"):
            size = value.numel()
            if size == 1 or (size == items and len(value.shape) <= 2):
                found[name] = value.detach().reshape(-1)[:1].clone()
    return found


def _samples(tensor: Any) -> Any:
    """A few numbers of the first item, copied without waiting for the device."""
    first = _plain(tensor.detach())
    first = first[0] if first.dim() > 1 else first
    flat = first.flatten() if first.is_contiguous() else first.reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLES)][:SAMPLES].clone()


def _went_in(inputs: Any) -> list[Any]:
    """A few numbers of each input; nothing of inputs that have none, or that are no plain ones."""
    try:
        return [_samples(t) for t in batches.tensors_in(inputs, 4) if t.numel()]
    except Exception:
        return []


def _keep_values(root: Root, module: Any) -> None:
    root.values = [*root.values[:1], _values(root, module)]


def _values(root: Root, module: Any) -> list[Any]:
    """Some numbers of some parameters, copied without waiting for the device."""
    return [_few(parameter) for parameter in root.parts_of(module).some]


def _few(parameter: Any) -> Any:
    flat = _plain(parameter.detach()).reshape(-1)
    return flat[:: max(1, flat.numel() // NUMBERS)][:NUMBERS].clone()


def moved(root: Root) -> bool:
    """Whether its parameters are other ones by now; this waits for the device."""
    module = root.module()
    now = [_values(root, module)] if module is not None else []
    first, *later = [*root.values, *now] or [[]]
    return any(_differ(first, other) for other in later)


def _differ(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and any(
        a.shape == b.shape and a.dtype == b.dtype and bool((a.to(b.device) != b).any())
        for a, b in zip(some, others)
    )


def _plain(tensor: Any) -> Any:
    """What lies below the transforms of torch.func, whose tensors do not outlive the call."""
    functorch: Any = getattr(sys.modules["torch"]._C, "_functorch", None)
    wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)
    while wrapped is not None and wrapped(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor
