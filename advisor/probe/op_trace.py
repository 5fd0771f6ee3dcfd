"""Profile of one whole step: floating-point operations, storages, memory by kind.

A dispatch mode sees every operation below autograd, whatever the program calls them by; views and
scalars cost nothing. It slows the step, so it is on after the window only.
`advisor/prediction` says what the numbers cost on a card.
"""

from __future__ import annotations

import gc
import importlib
import math
import weakref
from typing import Any

from .module_facts import in_tf32, parameters
from .overrides import compilations
from .session import Patches, Session

MATRIX, CONVOLUTION, GROUPED, ATTENTION, OTHER = range(5)
"""Classes of operations with rates of their own."""
PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1}
"""Matrix products, by place of their first factor."""
CONVOLUTIONS = ("convolution", "_convolution", "convolution_backward")
ATTENTION_FLOPS = {False: 4, True: 10}
"""FLOPs for each query, key and channel; True: in the backward pass.

Two products forward and five backward, one of which computes the scores again, each of a
multiplication and an addition. As in FlashAttention-2 (arXiv:2307.08691), whose backward pass
counts 2.5 times its forward.
"""
TF32_SWITCHES = {MATRIX: "matrix", CONVOLUTION: "convolution", GROUPED: "convolution"}
"""Kind of product whose switch decides; attention has none."""
MOST_OPERATIONS = 100_000
"""Operations of a step that are traced; a step of more is not.

Judgement: fewer leave loops over tokens without their FLOPs, more take memory and time of the
diagnosis."""


class OpTrace:
    """Operations of one step: with `lists` each of them, else their sum."""

    def __init__(
        self, session: Session, optimizer: Any = None, *, lists: bool = True
    ) -> None:
        self._session, self._torch = session, session.torch
        self._optimizer, self._lists = optimizer, lists
        self._problem: Exception | None = None
        self._flops: dict[str, float] = {}
        """Floating-point operations by the dtype in which a card computes them."""
        self._ops: list[tuple[int, str, float, int, str]] = []
        """Class, dtype, floating-point operations, bytes and name of each."""
        self._events: list[int] = []
        """Bytes of a storage made, or -1 - n where the nth is freed."""
        self._made = 0
        self._held: list[int] = []
        """Bytes of storages from before the step."""
        self._known: dict[int, Any] = {}
        self._tf32 = in_tf32(session.torch)
        self._patches = Patches()
        self._mode = _mode(self, session.torch)

    def begin(self) -> None:
        for group in getattr(self._optimizer, "param_groups", ()) if self._lists else ():
            if group.get("foreach", 0) is None and not group.get("fused"):
                group["foreach"] = True  # all parameters at once, as on a card
        if not self._lists and self._session.device is not None:
            self._torch.cuda.reset_peak_memory_stats(self._session.device.card)
        gc.collect()
        gc.disable()  # it would free in other places at another batch
        self._mode.__enter__()
        for name in ("__enter__", "__exit__"):
            self._patches.wrap(self._torch.inference_mode, name)(self._enter_again)

    def _enter_again(self, original: Any, *args: Any) -> None:
        """Enter the mode again after inference mode, whose end turns it off."""
        original(*args)
        self._mode.__exit__(None, None, None)
        self._mode.__enter__()

    def end(self) -> dict[str, Any]:
        """Stop watching; return entries of the record."""
        self._mode.__exit__(None, None, None)
        self._patches.undo()
        gc.enable()
        if self._problem is not None:
            raise self._problem
        if not self._lists:
            by_dtype = sorted(self._flops.items())
            flops = {"per_step": sum(self._flops.values()), "by_dtype": by_dtype}
            return {"flops": flops, "footprint": self._footprint()}
        return {
            "trace": {"ops": self._ops, "held": self._held, "events": list(self._events)}
        }

    def saw(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Add an operation, unless it is ours, the loader makes a batch or an earlier one failed.

        Ours are samples of gradients and the like. On a busy machine two traced steps had them at
        different places, and no batch could be predicted from the two.
        """
        own = self._session.fetching or self._session.looking
        if own or self._problem is not None:
            return
        try:
            outputs = tensors(result, self._torch)
            name = func.overloadpacket.__name__
            kind, flops = _cost(name, args, outputs)
            if not flops and not self._lists:
                return
            inputs = tensors((args, kwargs), self._torch)
            dtype = self._dtype(name, kind, inputs, outputs)
            if flops:
                self._flops[dtype] = self._flops.get(dtype, 0.0) + flops
            if self._lists:
                self._add(func, inputs, outputs, kind, dtype, flops)
        except Exception as problem:
            self._problem = problem

    def _dtype(self, name: str, kind: int, inputs: Any, outputs: Any) -> str:
        """Dtype in which a card computes an operation: of its largest factor."""
        floats = [tensor for tensor in inputs if tensor.is_floating_point()]
        factors = [max(floats, key=lambda tensor: tensor.numel())] if floats else outputs
        dtype = str(factors[0].dtype).replace("torch.", "") if factors else "none"
        product = "recurrent" if "_rnn" in name else TF32_SWITCHES.get(kind)
        wide = dtype == "float32" and product is not None
        return "tf32" if wide and self._tf32[str(product)] else dtype

    def _add(
        self, func: Any, inputs: Any, outputs: Any, kind: int, dtype: str, flops: float
    ) -> None:
        if len(self._ops) >= MOST_OPERATIONS:
            msg = f"a step of more than {MOST_OPERATIONS} operations is not traced"
            raise OverflowError(msg)
        card = self._session.stand_in
        if card is not None:
            if not card.counts(inputs):
                return
            inputs = [] if card.target else inputs  # they may be of the host
            card.mark(outputs)
        for tensor in inputs:
            self._meet(tensor, made=False)
        storages = [tensor for tensor in outputs if self._meet(tensor, made=True)]
        if not storages and not func._schema.is_mutable:  # a view, or numbers
            return
        moved = sum(
            tensor.numel() * tensor.element_size() for tensor in (*inputs, *outputs)
        )
        self._ops.append((kind, dtype, flops, moved, func.overloadpacket.__name__))

    def _meet(self, tensor: Any, *, made: bool) -> bool:
        """Note a storage; return True for an unknown one."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return False
        number = self._made
        self._made += made
        (self._events if made else self._held).append(storage.nbytes())

        def freed(_: Any) -> None:
            self._known.pop(key, None)
            if made:
                self._events.append(-1 - number)

        self._known[key] = weakref.ref(storage, freed)
        return True

    def _footprint(self) -> dict[str, int] | None:
        """Bytes on the card at the peak; all but activations stay between steps."""
        if self._session.device is None or self._optimizer is None:
            return None
        card = self._session.device.card
        model = [p for group in self._optimizer.param_groups for p in group["params"]]
        for module in (entry.module() for entry in self._session.modules):
            if hasattr(module, "buffers"):
                model += [*parameters(module), *module.buffers()]
        states = [
            value for state in self._optimizer.state.values() for value in state.values()
        ]
        kinds = {
            "model": model,
            "gradients": [p.grad for p in model],
            "optimizer": states,
        }
        bytes_by_kind = {kind: _bytes(tensors) for kind, tensors in kinds.items()}
        others = self._torch.cuda.max_memory_allocated(card) - sum(bytes_by_kind.values())
        return {**bytes_by_kind, "activations": max(0, others)}


def why_not(session: Session) -> str | None:
    """Reason why no step can be profiled, or None."""
    script = session.torch.jit.ScriptModule
    hidden = {
        "compiled code does": compilations() > 0,
        "scripted code does": any(
            isinstance(module.module(), script) for module in session.modules
        ),
        "CUDA graphs do": session.graph_replayed,
    }
    return next(
        (f"{name} not show its operations" for name in hidden if hidden[name]), None
    )


def _bytes(tensors: list[Any]) -> int:
    unique = {id(tensor): tensor for tensor in tensors if getattr(tensor, "is_cuda", False)}
    return sum(tensor.numel() * tensor.element_size() for tensor in unique.values())


def _mode(trace: OpTrace, torch: Any) -> Any:
    base: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    device = torch.ops.prim.device.default

    class Mode(base):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given, result = kwargs or {}, NotImplemented
            if func is not device:
                with self:  # in inference mode a whole layer comes here, not its parts
                    result = func.decompose(*args, **given)
            if result is NotImplemented:
                result = func(*args, **given)
                trace.saw(func, args, given, result)
            return result

    return Mode()


def tensors(value: Any, torch: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors(part, torch)]
    return []


def _cost(name: str, args: Any, outputs: list[Any]) -> tuple[int, float]:
    """Class and floating-point operations of one call; what is no product costs none.

    A multiplication and the addition of its result count as two. A convolution does one such
    pair for each element it makes and each weight that this element meets; a transposed one
    spreads its input, so there the input's elements count. Its backward pass does as much for
    each gradient it is asked for, of the input and of the weight.
    """
    backward = name.endswith("backward")
    given = args[backward:]  # without the gradient
    if name in PRODUCTS:
        first = args[PRODUCTS[name]]
        return MATRIX, 2.0 * outputs[0].numel() * first.shape[-1]
    if name in CONVOLUTIONS:
        x, weight, transposed, groups = given[0], given[1], given[6], given[8]
        made = x if transposed else args[0] if backward else outputs[0]
        flops = 2.0 * made.numel() * math.prod(weight.shape[1:])
        gradients = sum(args[10][:2]) if backward else 1
        return GROUPED if groups > 1 else CONVOLUTION, flops * gradients
    if name.startswith("_scaled_dot_product"):
        query, key = given[:2]
        masked = "flash" in name and any(arg is True for arg in args)  # causal: half
        each = ATTENTION_FLOPS[backward] / (2 if masked else 1)
        return ATTENTION, float(each * query.numel() * key.shape[-2])
    if "_rnn" in name:  # the backward has the same first arguments
        weights = args[1] if isinstance(args[1], (list, tuple)) else args[1:3]
        products = sum(weight.numel() for weight in weights if weight.dim() == 2)
        return MATRIX, 2.0 * args[0].numel() / args[0].shape[-1] * products * (1 + backward)
    return OTHER, 0.0
