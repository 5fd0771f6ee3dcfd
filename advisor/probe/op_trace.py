"""Trace of one whole step: its operations, and the memory that they take and free.

A dispatch mode sees every operation below autograd. Views and scalars cost nothing and are left
out. The trace is plain numbers; `advisor/prediction` says what they cost on a card.
"""

from __future__ import annotations

import gc
import importlib
import math
import weakref
from typing import Any

from . import module_facts
from .session import Session

MATRIX, CONVOLUTION, GROUPED, ATTENTION, OTHER = range(5)
"""Classes of operations that run at rates of their own."""
PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1}
"""Matrix products, by the place of their first factor."""
ATTENTION_FLOPS = {False: 4, True: 10}
"""Per query, key and channel, of a forward and of a backward with its recomputation."""


MOST_OPERATIONS = 100_000
"""A step of more is not traced."""


class OpTrace:
    """Operations and storages of one step."""

    def __init__(self, session: Session, optimizer: Any = None) -> None:
        self._session, self._torch = session, session.torch
        self._optimizer = optimizer
        self._problem: Exception | None = None
        self._dtypes: dict[str, int] = {}
        self._ops: list[tuple[int, int, float, int]] = []
        self._names: list[str] = []
        self._events: list[int] = []
        """Bytes of a storage that is made, or -1 - n where the nth is freed."""
        self._made = 0
        self._held: list[int] = []
        """Bytes of storages that were there before the step."""
        self._known: dict[int, Any] = {}
        self._tf32 = _tf32(session.torch)
        self._collects = False
        """Python's collector was on."""
        self._mode = _mode(self)

    def begin(self) -> None:
        """Watch every operation from now on.

        A card's optimizers go through all parameters at once, where a CPU's go one by one.
        """
        for group in getattr(self._optimizer, "param_groups", ()):
            if group.get("foreach", 0) is None and not group.get("fused"):
                group["foreach"] = True
        self._collects = gc.isenabled()
        gc.collect()
        gc.disable()  # it would free in other places at another batch
        self._mode.__enter__()

    def end(self) -> dict[str, Any]:
        """Stop watching; return the trace as an entry of the record."""
        self._mode.__exit__(None, None, None)
        if self._collects:
            gc.enable()
        if self._problem is not None:
            raise self._problem
        found = {
            "dtypes": list(self._dtypes),
            "names": self._names,
            "ops": self._ops,
            "held": self._held,
            "events": list(self._events),
            "kinds": self._kinds(),
        }
        return {"trace": found}

    def saw(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Add one operation, unless the loader makes a batch or an earlier one failed."""
        if self._session.fetching or self._problem is not None:
            return
        try:
            self._add(func, args, kwargs, result)
        except Exception as problem:
            self._problem = problem

    def _add(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if len(self._ops) >= MOST_OPERATIONS:
            msg = f"a step of more than {MOST_OPERATIONS} operations is not traced"
            raise OverflowError(msg)
        inputs = tensors((args, kwargs), self._torch)
        outputs = tensors(result, self._torch)
        card = self._session.stand_in
        if card is not None:
            if not card.counts(inputs):
                return
            inputs = [] if card.copying else inputs  # of the host
            card.mark(outputs)
        for tensor in inputs:
            self._meet(tensor, made=False)
        own = [tensor for tensor in outputs if self._meet(tensor, made=True)]
        if not own and not func._schema.is_mutable:  # a view, or numbers
            return
        name = func.overloadpacket.__name__
        kind, flops = _cost(name, args, outputs)
        moved = sum(each.numel() * each.element_size() for each in (*inputs, *outputs))
        floats = [each for each in inputs if each.is_floating_point()]
        dtype = str(floats[-1].dtype if floats else outputs[0].dtype if outputs else "none")
        dtype = dtype.replace("torch.", "")
        dtype = "tf32" if dtype == "float32" and kind in self._tf32 else dtype
        index = self._dtypes.setdefault(dtype, len(self._dtypes))
        self._names.append(name)
        self._ops.append((kind, index, flops, moved))

    def _meet(self, tensor: Any, *, made: bool) -> bool:
        """Note a storage; return True for one that was not known."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return False
        size = storage.nbytes()
        if made:
            number = self._made
            self._made += 1
            self._events.append(size)
        else:
            number = None
            self._held.append(size)

        def freed(_: Any) -> None:
            self._known.pop(key, None)
            if number is not None:
                self._events.append(-1 - number)

        self._known[key] = weakref.ref(storage, freed)
        return True

    def _kinds(self) -> dict[str, int]:
        """Bytes that stay from step to step, by kind."""
        if self._optimizer is None:
            return {}
        held = [p for group in self._optimizer.param_groups for p in group["params"]]
        states = tensors(list(self._optimizer.state.values()), self._torch)
        kinds = {"parameters": held, "gradients": [p.grad for p in held], "optimizer": states}
        return {
            kind: sum(each.numel() * each.element_size() for each in found if each is not None)
            for kind, found in kinds.items()
        }


def _mode(trace: OpTrace) -> Any:
    """Make the dispatch mode that reports to `trace`."""
    base: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Mode(base):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            trace.saw(func, args, kwargs or {}, result)
            return result

    return Mode()


def _tf32(torch: Any) -> set[int]:
    """Classes of operations that a card would compute in TF32: convolutions, by default."""
    matrix = {MATRIX} if module_facts.has_tf32(torch) else set()
    try:
        convolutions = bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # set by the second way that torch has since 2.9
        convolutions = torch.backends.cudnn.conv.fp32_precision == "tf32"
    return matrix | ({CONVOLUTION, GROUPED} if convolutions else set())


def tensors(value: Any, torch: Any) -> list[Any]:
    """Tensors of nested lists and mappings."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors(each, torch)]
    return []


def _cost(name: str, args: Any, outputs: list[Any]) -> tuple[int, float]:
    """Class and floating-point operations of one call."""
    if name in PRODUCTS:
        first = args[PRODUCTS[name]]
        return MATRIX, 2.0 * outputs[0].numel() * first.shape[-1]
    if name in ("convolution", "_convolution"):
        weight, groups = args[1], args[8]
        return _convolution(weight, groups, outputs[0].numel(), transposed=args[6], x=args[0])
    if name == "convolution_backward":
        gradient, x, weight, groups, wanted = args[0], args[1], args[2], args[9], args[10]
        kind, flops = _convolution(weight, groups, gradient.numel(), transposed=args[7], x=x)
        return kind, flops * sum(wanted[:2])
    if name.startswith("_scaled_dot_product"):
        backward = name.endswith("backward")
        query, key = args[1 if backward else 0], args[2 if backward else 1]
        each = ATTENTION_FLOPS[backward]
        return ATTENTION, float(each * query.numel() * key.shape[-2])
    return OTHER, 0.0


def _convolution(
    weight: Any, groups: int, outputs: int, *, transposed: bool, x: Any
) -> tuple[int, float]:
    each = x.numel() if transposed else outputs
    flops = 2.0 * each * math.prod(weight.shape[1:])
    return GROUPED if groups > 1 else CONVOLUTION, flops
