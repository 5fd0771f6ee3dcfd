"""Facts of called modules: items, shapes and flags."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from . import batches, call_sites, module_tree, runtime_flags
from .layers import LayerObserver
from .layout import Layout, judge, placed
from .session import Session

OUTPUTS_KEPT = 3
SAMPLES = 64
LOOKS = (2, 8, 64, 256)
"""Calls at which flags and a few parameters are looked at: settings may change after the first."""
NUMBERS = 16
"""So many of each parameter that is looked at."""
NUMBERS_KEPT = 1 << 16
"""Calls of which the numbers among the arguments are recorded."""


class Module:
    """Module called from outside, or in an inner loop."""

    def __init__(self, module: Any, index: int, parameters: int) -> None:
        self.module = weakref.ref(module)
        self.index = index
        self.name = type(module).__name__
        self.parameters = parameters
        self.calls = 0
        self.light = False
        """A loss function or the like beside a real network: nothing is to be learnt from it."""
        self.entered = False
        """It was called from outside any module."""
        self.counter = batches.Counter(least_depth=2)  # (args, kwargs) are no batch themselves
        self.by_output: bool | None = None
        """True if only the output counts items; None before the first call."""
        self.inners: list[Module] = []
        """Networks that it calls many times within one forward."""
        self.looped: float | None = None
        """Calls of such a network in one forward, where they are too quick to be followed."""
        self.shapes: tuple[str, ...] = ()
        self.dims: list[list[int]] = []
        """Whole shapes of the tensors that went into its first call."""
        self.site: str | None = None
        """`file.py:line` of its first call."""
        self.firsts: list[tuple[list[Any], list[Any]]] = []
        """Of the first calls: numbers that went in, and what came out."""
        self.tree = module_tree.Tree(None)
        """Modules and parameters below it."""
        self.compiled, self.compilations = False, -1
        """Whether any of it was, after so many times that the program compiled something."""
        self.flags: dict[str, Any] = {}
        self.same_shape = False
        """The output has the shape of the input: a denoiser's does, and a classifier's does not."""
        self.numbers = 0
        """Calls of which numbers were recorded."""
        self.watched: list[tuple[Any, dict[str, int]]] = []
        """Leaves that carry a hook during this call, and parameters by output dtype."""
        self.layer_observer: LayerObserver | None = None
        """Listens during its first call."""
        self.layout: Layout | None = None
        self.tokens = (0.0, 0.0)
        """Tokens and items of the calls so far, where tokens were seen."""
        self.values: list[list[Any]] = []
        """A few numbers of its parameters: early on, and later."""

    def tree_of(self, module: Any) -> module_tree.Tree:
        """Return the module tree below `module`."""
        if not self.tree.are_current():
            self.tree = module_tree.Tree(module)
        return self.tree

    def items(self, inputs: Any) -> float:
        """Items of one call with `inputs`, (args, kwargs)."""
        if self.layout is None:
            return self.counter.count(inputs)
        found = self.layout.count(inputs)
        if found is None:
            return self.counter.count(inputs)
        if self.layout.tokens is not None:
            tokens, items = self.tokens
            self.tokens = tokens + (self.layout.count_tokens(inputs) or 0.0), items + found
        return found


def known(session: Session, module: Any) -> Module:
    """Return the entry of a module or compiled function."""
    entry = session.modules_by_id.get(id(module))
    if entry is None or entry.module() is not module:
        tree = module_tree.Tree(module if hasattr(module, "_modules") else None)
        entry = _gone_like(session, module, tree.size)
        if entry is None:
            entry = Module(module, len(session.modules), tree.size)
            session.modules.append(entry)
            entry.site = call_sites.call_site()
        entry.tree = tree
        session.modules_by_id[id(module)] = entry
        describe(session, entry)
    return entry


def _gone_like(session: Session, module: Any, size: int) -> Module | None:
    """Return the entry of a similar, deleted module.

    A program may make its modules anew for every step.
    """
    name = type(module).__name__
    for entry in session.modules:
        if entry.name == name and entry.parameters == size and entry.module() is None:
            entry.module = weakref.ref(module)
            return entry  # type: ignore[no-any-return]
    return None


def describe(session: Session, entry: Module, *, at_end: bool = False) -> None:
    """Write the facts of a module to the log."""
    tokens, items = entry.tokens
    content: dict[str, Any] = {
        "name": entry.name,
        "site": entry.site,
        "parameters": entry.parameters,
        "unit": entry.layout.unit if entry.layout is not None else "sample",
        "same_shape": entry.same_shape,
        "inners": [inner.index for inner in entry.inners],
        "looped": entry.looped,
        "flags": entry.flags,
        "shapes": entry.shapes,
        "dims": entry.dims,
        "tokens": tokens,
        "token_items": items,
    }
    if at_end:
        content.update(_first_numbers(entry))
    session.add(("module", entry.index, content))


def describe_all(session: Session) -> None:
    """Write the facts of each module."""
    for entry in session.modules:
        session.attempt(lambda entry=entry: describe(session, entry, at_end=True))


def _first_numbers(entry: Module) -> dict[str, list[list[float]]]:
    """Real numbers of the first calls' inputs and outputs."""
    found: dict[str, list[list[float]]] = {"inputs": [], "outputs": []}
    for went_in, came_out in entry.firsts:
        for name, tensors in (("inputs", went_in), ("outputs", came_out)):
            plain = [t for t in tensors if not t.is_complex()]
            numbers = [float(v) for t in plain for v in t.to("cpu").tolist()]
            found[name].append(numbers)
    return found


# --- one call -----------------------------------------------------------------------------


def begin(session: Session, entry: Module, module: Any) -> None:
    """Another call of `entry` begins."""
    entry.calls += 1
    if entry.calls > LOOKS[-1] or not entry.parameters:
        return
    if entry.calls == 1:
        session.attempt(_listen_to_layers, session, entry, module)
    if entry.calls in LOOKS:
        if session.capture is None:
            session.attempt(_keep_values, entry, module)
        runtime_flags.look(session, entry, module)


def failed(session: Session, entry: Module, inputs: Any, problem: BaseException) -> None:
    """Note a failed call, and observe the next one."""
    if entry.watched:
        runtime_flags.unwatch_leaves(entry)
    if entry.layer_observer is not None:
        entry.layer_observer.stop()
        entry.layer_observer, entry.calls = None, 0
    session.record_exception(problem, "forward", entry.items(inputs))


def items_of(session: Session, entry: Module, args: Any, kwargs: Any, output: Any) -> float:
    """Items of this call; observe the first ones."""
    inputs = (args, kwargs or {})
    if entry.calls > LOOKS[-1] and entry.by_output is not None:
        return entry.counter.count(output) if entry.by_output else entry.items(inputs)
    looked = bool(entry.watched) or entry.layer_observer is not None
    if entry.watched:
        runtime_flags.unwatch_leaves(entry)
    if entry.by_output is None:
        entry.by_output = _by_output(args, kwargs, output)
    if entry.layer_observer is not None:
        session.attempt(_judge_layout, session, entry, inputs, output)
    if entry.calls <= OUTPUTS_KEPT and entry.parameters:
        if not entry.shapes:
            _note_shapes(entry, inputs, output)
        if session.capture is None:
            came_out = [_samples(tensor) for tensor in batches.tensors_in(output, 4)]
            entry.firsts.append((_went_in(inputs), came_out))
    if looked:
        describe(session, entry)
    return entry.counter.count(output) if entry.by_output else entry.items(inputs)


def _listen_to_layers(session: Session, entry: Module, module: Any) -> None:
    entry.layer_observer = LayerObserver(session.torch, quiet=runtime_flags.any_compiled(module))
    entry.layer_observer.listen(module)


def _judge_layout(session: Session, entry: Module, inputs: Any, output: Any) -> None:
    observer, entry.layer_observer = entry.layer_observer, None
    if observer is None:
        return
    observer.stop()
    if not entry.by_output:
        loaded = session.latest_batch or None
        entry.layout = judge(observer, inputs, output, loaded)
        place = session.plan.get("batch_at")
        if place is not None and place["site"] == entry.site:
            entry.layout = placed(place, inputs, entry.layout)


def _by_output(args: Any, kwargs: Any, output: Any) -> bool:
    """Return True if only the output counts items."""
    if any(isinstance(value, (list, tuple)) for value in (*args, *(kwargs or {}).values())):
        return False
    return not _has_rows((args, kwargs)) and _has_rows(output)


def _has_rows(value: Any) -> bool:
    return any(len(tensor.shape) for tensor in batches.tensors_in(value))


def _note_shapes(entry: Module, inputs: Any, output: Any) -> None:
    shapes = [tuple(tensor.shape) for tensor in batches.tensors_in(inputs)]
    entry.dims = [list(map(int, shape)) for shape in shapes]
    samples = entry.layout.count(inputs) if entry.layout is not None else None
    entry.shapes = tuple("x".join(map(str, _one(shape, samples))) or "scalar" for shape in shapes)
    results = [tuple(tensor.shape) for tensor in batches.tensors_in(output, 1)]
    if shapes and results and len(results[0]) > 1:
        entry.same_shape = any(
            shape[:1] == results[0][:1] and shape[2:] == results[0][2:]
            for shape in shapes
            if len(shape) == len(results[0])
        )


def _one(shape: tuple[int, ...], samples: float | None) -> tuple[int, ...]:
    """Return `shape` without its batch dimension."""
    axis = 1 if len(shape) > 1 and shape[0] != samples == shape[1] else 0
    return shape[:axis] + shape[axis + 1 :]


# --- numbers ------------------------------------------------------------------------------


def record_numbers(session: Session, entry: Module, args: Any, kwargs: Any, items: float) -> None:
    """Record numeric arguments that distinguish sampler steps.

    Tensors count that hold one number, or one for each item. Those on a card are copied without
    waiting for it, and recorded once it has passed that copy.
    """
    if entry.numbers >= NUMBERS_KEPT:
        return
    entry.numbers += 1
    found: dict[str, Any] = {}
    for name, value in [*((str(n), v) for n, v in enumerate(args)), *kwargs.items()]:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
        elif batches.is_tensor(value) and hasattr(value, "detach"):
            size = value.numel()
            if size == 1 or (size == items and len(value.shape) <= 2):
                first = value.detach().reshape(-1)[:1]
                found[name] = first.to("cpu", non_blocking=True) if first.is_cuda else first.clone()
    event = ("numbers", entry.index, found)
    if session.device is None or not any(batches.is_tensor(value) for value in found.values()):
        session.add(read_numbers(event))
    else:
        session.device.after_mark(event)


def read_numbers(event: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the event with its tensors read."""
    kind, index, found = event
    plain = {
        name: float(value.tolist()[0]) if batches.is_tensor(value) else value
        for name, value in found.items()
    }
    return kind, index, plain


def _samples(tensor: Any) -> Any:
    """Copy a few numbers of the first item asynchronously."""
    first = _plain(tensor.detach())
    first = first[0] if first.dim() > 1 else first
    flat = first.flatten() if first.is_contiguous() else first.reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLES)][:SAMPLES].clone()


def _went_in(inputs: Any) -> list[Any]:
    """Return a few numbers of each input."""
    try:
        return [_samples(t) for t in batches.tensors_in(inputs, 4) if t.numel()]
    except Exception:
        return []


def _keep_values(entry: Module, module: Any) -> None:
    entry.values = [*entry.values[:1], _values(entry, module)]


def _values(entry: Module, module: Any) -> list[Any]:
    """Copy sample parameter values without synchronizing."""
    return [_few(parameter) for parameter in entry.tree_of(module).some]


def _few(parameter: Any) -> Any:
    flat = _plain(parameter.detach()).reshape(-1)
    return flat[:: max(1, flat.numel() // NUMBERS)][:NUMBERS].clone()


def moved(entry: Module) -> bool:
    """Return True if the parameters changed; synchronizes."""
    module = entry.module()
    latest = [_values(entry, module)] if module is not None else []
    first, *later = [*entry.values, *latest] or [[]]
    return any(_differ(first, other) for other in later)


def _differ(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and any(
        a.shape == b.shape and a.dtype == b.dtype and bool((a.to(b.device) != b).any())
        for a, b in zip(some, others)
    )


def _plain(tensor: Any) -> Any:
    """Return the tensor below torch.func transforms."""
    functorch: Any = getattr(sys.modules["torch"]._C, "_functorch", None)
    wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)
    while wrapped is not None and wrapped(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor
