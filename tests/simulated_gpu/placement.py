"""Tensors that say they lie on a simulated card; their numbers are computed by the CPU at once.

A mode sees every torch function. It takes `cuda` out of the arguments, calls the function on the
CPU, queues the work on the card and marks what came out.
"""

import _thread
import contextlib
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch

from tests.simulated_gpu import device as sim, surface

STAGED_BYTES = 64 << 10
"""A pageable copy of no more is staged at once; the host waits for a larger one."""
BACKWARD = 2.0
"""Work of a backward, as a multiple of the forwards before it."""
WAITS = {
    "item", "tolist", "numpy", "cpu", "nonzero", "__bool__", "__float__", "__int__", "__index__",
    "__format__", "__repr__", "__array__", "equal",
}  # fmt: skip
"""What gives numbers to the host, which waits for them."""
FREE = {
    "detach", "view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand",
    "expand_as", "view_as", "flatten", "unflatten", "size", "dim", "numel", "stride",
    "is_contiguous", "data_ptr", "untyped_storage", "element_size", "requires_grad_", "chunk",
    "split", "unbind", "narrow", "select", "is_floating_point", "is_complex", "storage_offset",
    "register_hook", "retain_grad", "__len__", "__hash__", "__deepcopy__", "__reduce_ex__",
    "record_stream", "is_pinned", "__contains__", "register_post_accumulate_grad_hook",
    "type_as", "movedim", "swapaxes", "_make_subclass", "is_same_size", "is_tensor", "__dlpack__",
}  # fmt: skip
"""What launches no kernel."""
PRODUCTS = {"linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum"}
"""What multiplies matrices."""
CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"}
"""What cuDNN has several algorithms for."""
WITHIN = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
"""Folders of those that call for others."""


class Placement(TorchFunctionMode):
    """The rule for every function of torch in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.forward_s = 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in {"__get__", "__set__"}:
            return self._attribute(func, name, args)
        found = next((t for t in tensors((args, kwargs)) if card_index(t) is not None), None)
        where = card_index(found) if found is not None else None
        if name in {"to", "cuda", "cpu"} and args and isinstance(args[0], torch.Tensor):
            return self._moved(func, name, args, kwargs, where)
        target = self._redirect(kwargs)
        if name in {"pin_memory", "is_pinned"} or "pin_memory" in kwargs:
            return self._pinned(func, name, args, kwargs)
        if target is None and name in {"zeros_like", "empty_like", "ones_like", "full_like",
                                       "rand_like", "randn_like", "randint_like"}:  # fmt: skip
            target = where
        if target is not None:
            surface._lazy_init()
            where = target
        if where is None:
            return func(*args, **kwargs)
        card = sim.cards[where]
        special = {"backward": self._backward, "copy_": self._filled}.get(name)
        if special is not None:
            return special(card, func, args, kwargs)
        card.prepare(waits=name in WAITS, multiplies=name in PRODUCTS)
        with autocast_as_on_the_card():
            result = func(*args, **kwargs)
        if name not in FREE:
            size = sum(t.numel() * t.element_size() for t in tensors(result))
            seconds = card.kernel_s + card.s_per_byte * size
            if name in CONVOLUTIONS:
                seconds *= surface.algorithm_cost(tuple(t.shape for t in tensors(args)))
            card.launch(seconds)
            if card.graph is not None:
                sim.tell("captured", _caller())
            if torch.is_grad_enabled():
                self.forward_s += seconds
        if name not in {"item", "tolist", "numpy", "cpu"}:
            for tensor in tensors(result):
                place(tensor, card)
        return result

    def _attribute(self, func: Any, kind: str, args: Any) -> Any:
        name, owner = func.__self__.__name__, args[0]
        where = card_index(owner)
        if kind == "__set__":
            result = func(*args)
            if name == "data" and isinstance(args[1], torch.Tensor):
                moved = card_index(args[1])
                if moved is None:
                    owner.__dict__.pop("_simulated_card", None)
                else:
                    owner._simulated_card = moved
            return result
        if where is None:
            return func(*args)
        if name == "device":
            return torch.device("cuda", where)
        if name == "is_cuda":
            return True
        if name == "is_cpu":
            return False
        result = func(*args)
        if isinstance(result, torch.Tensor):
            place(result, sim.cards[where])
        return result

    @staticmethod
    def _redirect(kwargs: dict[str, Any]) -> int | None:
        """The card that a keyword asks for; the keyword then asks for the CPU."""
        asked = kwargs.get("device")
        if asked is None or isinstance(asked, int):
            return None
        card = _card_named(asked)
        if card is not None:
            kwargs["device"] = "cpu"
        return card

    def _moved(
        self, func: Any, name: str, args: Any, kwargs: dict[str, Any], where: int | None
    ) -> Any:
        """`to`, `cuda` and `cpu`: a copy where the device changes."""
        tensor, rest = args[0], list(args[1:])
        target = None if name == "cpu" else where
        if name == "cuda":
            named = rest and not isinstance(rest[0], bool)
            asked = rest.pop(0) if named else kwargs.pop("device", None)
            target = surface.card_of(asked).index
        elif name == "to":
            for place_, value in [*enumerate(rest), ("device", kwargs.get("device"))]:
                if isinstance(value, torch.Tensor):
                    target = card_index(value)
                elif isinstance(value, (str, torch.device)):
                    target = _card_named(value)
                    (kwargs if place_ == "device" else rest)[place_] = torch.device("cpu")
        if target is not None:
            surface._lazy_init()
        made = func(tensor, *rest, **kwargs) if name == "to" else tensor
        if target == where:
            if where is not None and made is not tensor:
                sim.cards[where].launch(sim.cards[where].kernel_s)
                place(made, sim.cards[where])
            return made
        non_blocking = bool(kwargs.get("non_blocking")) or any(v is True for v in rest)
        made = made.clone() if made is tensor else made
        size = tensor.numel() * tensor.element_size()
        if target is None:
            transfer(sim.cards[where or 0], size, waits=not non_blocking)
            made.__dict__.pop("_simulated_card", None)
            made._simulated_pinned = non_blocking  # as torch makes it
            return made
        staged = is_pinned(tensor) or size <= STAGED_BYTES
        transfer(sim.cards[target], size, waits=not (non_blocking and staged))
        place(made, sim.cards[target])
        return made

    def _pinned(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """`pin_memory` as a method or an argument, and the question for it."""
        if name == "is_pinned":
            return is_pinned(args[0])
        asked = kwargs.pop("pin_memory", True)
        made = (
            args[0].clone()
            if name == "pin_memory"
            else self.__torch_function__(func, (), args, kwargs)
        )
        made._simulated_pinned = bool(asked)
        return made

    @staticmethod
    def _filled(card: sim.Card, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """`copy_`, on the card or between it and the host."""
        target, source = args[:2]
        if card_index(target) == card_index(source):
            card.launch(card.kernel_s + card.s_per_byte * source.numel() * source.element_size())
            return func(*args, **kwargs)
        non_blocking = bool(kwargs.get("non_blocking")) or any(v is True for v in args[2:])
        host = source if card_index(source) is None else target
        size = source.numel() * source.element_size()
        staged = is_pinned(host) or (host is source and size <= STAGED_BYTES)
        transfer(card, size, waits=not (non_blocking and staged))
        return func(*args, **kwargs)

    def _backward(self, card: sim.Card, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The engine runs below this mode; its work is told from that of the forwards."""
        if func is torch.Tensor.backward:  # what it calls is seen by others, and by this mode
            with self:
                names = ("gradient", "retain_graph", "create_graph", "inputs")
                given = {**dict(zip(names, args[1:], strict=False)), **kwargs}
                gradient = given.pop("gradient", None)
                return torch.autograd.backward(args[0], gradient, **given)
        seconds, self.forward_s = self.forward_s, 0.0
        card.launch(BACKWARD * seconds)
        bare = getattr(func, "__wrapped__", func)  # who hooks it was called already
        return in_a_thread(bare, args, kwargs)


@contextlib.contextmanager
def autocast_as_on_the_card() -> Iterator[None]:
    """Let the CPU, which makes the numbers, round as the card would."""
    if not torch.is_autocast_enabled("cuda"):
        yield
        return
    torch.set_autocast_dtype("cpu", torch.get_autocast_dtype("cuda"))
    torch.set_autocast_enabled("cpu", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", False)


def in_a_thread(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call it in a thread that Python did not begin, as the engine of a device calls hooks.

    As there, modes of the dispatcher go with it, and modes of functions do not.
    """
    found: dict[str, Any] = {}
    modes = _python_dispatch._get_current_dispatch_mode_stack()
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            for mode in modes:
                _python_dispatch._push_mode(mode)
            found["result"] = func(*args, **kwargs)
        except BaseException as problem:
            found["problem"] = problem
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    with done:
        if "problem" in found:
            raise found["problem"]
        return found["result"]


def transfer(card: sim.Card, size: int, *, waits: bool) -> None:
    """Queue a copy between host and card; the host may wait for it."""
    card.launch(card.kernel_s + card.copy_s_per_byte * size, copy=True)
    if waits:
        card.synchronize()


def _card_named(device: Any) -> int | None:
    """The card that this names, None for the CPU."""
    asked = torch.device(device)
    if asked.type != "cuda":
        return None
    return sim.current if asked.index is None else asked.index


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether the card may read it while the host goes on."""
    return bool(tensor.__dict__.get("_simulated_pinned"))


def _caller() -> str:
    """The file that asked for this, outside of torch and of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(WITHIN):
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else ""


def tensors(value: Any, depth: int = 3) -> Iterable[torch.Tensor]:
    """Tensors in nested arguments."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part, depth - 1)
    elif depth and isinstance(value, dict):
        for part in value.values():
            yield from tensors(part, depth - 1)


def card_index(tensor: torch.Tensor) -> int | None:
    """The card a tensor is on, None for the CPU."""
    return tensor.__dict__.get("_simulated_card")


def place(tensor: torch.Tensor, card: sim.Card) -> None:
    """Mark a tensor, and take memory for its storage where that is new.

    Raises torch.cuda.OutOfMemoryError.
    """
    if card_index(tensor) is None:
        tensor._simulated_card = card.index
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
    if getattr(storage, "_simulated", False):
        return
    size = int(max(512, storage.nbytes()) * card.scale)
    if not card.memory.take(size):
        free = card.memory.limit - card.memory.allocated
        msg = (
            f"CUDA out of memory. Tried to allocate {size / 2**30:.2f} GiB. GPU {card.index} has a "
            f"total capacity of {card.memory.total / 2**30:.2f} GiB of which "
            f"{max(0, free) / 2**30:.2f} GiB is free."
        )
        raise torch.cuda.OutOfMemoryError(msg)
    storage._simulated = True
    weakref.finalize(storage, card.memory.give, size)


_real_generator = torch.Generator


class _OnTheCpu(type):
    """Makes generators of the CPU, whose numbers they are, and knows them as its own."""

    def __call__(cls, device: Any = "cpu") -> Any:
        return _real_generator("cpu")

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _real_generator)


class _Generator(metaclass=_OnTheCpu):
    """Stands in for `torch.Generator`."""


def install(_: Any) -> None:
    """From now on, in this thread and in those that it starts."""
    mode = Placement()
    mode.__enter__()
    torch.Generator = _Generator
    if hasattr(torch, "accelerator"):
        surface.accelerate(torch.accelerator)
    begin = threading.Thread.run

    def run(self: threading.Thread) -> None:
        with Placement():
            begin(self)

    threading.Thread.run = run  # type: ignore[method-assign]
