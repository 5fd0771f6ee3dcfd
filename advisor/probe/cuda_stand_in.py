"""Stand-in for a CUDA card on a host without one.

A mode sees every function of torch. It lets the CPU do the card's work, and marks
storages that would lie there. Tensors' devices stay `cpu`, so that all parts agree. Streams
and events do nothing. Only a prediction puts it in.
"""

from __future__ import annotations

import importlib
import types
import warnings
from typing import Any, Callable

from .op_trace import tensors
from .session import Session

MARK = "_gpu_advisor_on_card"
"""Attribute of a storage that would lie on the card."""
MOVES = ("to", "cuda", "cpu")
QUIET = (
    "_lazy_init", "init", "set_device", "synchronize", "empty_cache", "ipc_collect",
    "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_accumulated_memory_stats",
    "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream",
)  # fmt: skip
"""Functions of torch.cuda that do nothing here."""

WIDENED = (
    "layer_norm", "group_norm", "softmax.int", "log_softmax.int", "exp", "log", "rsqrt",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "reciprocal", "softplus",
)  # fmt: skip
"""Operations that autocast computes in float32 on a card only."""
SLOW_IN_HALF = (
    "mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "mkldnn_rnn_layer",
    "mkldnn_rnn_layer_backward",
)  # fmt: skip
"""Operations of 16 bits that many CPUs compute 150 times slower, or not at all."""
LIBRARIES: list[Any] = []
"""Holders of what torch's dispatcher was given: once collected, a library takes it back."""


class _Idle:
    """Stream or event of a card without work: every method answers, and does nothing."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Idle:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def elapsed_time(self, _: Any) -> float:
        return 1.0

    def __getattr__(self, name: str) -> Callable[..., _Idle]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self


def install(torch: Any, session: Session) -> None:
    """Put the plan's card in, unless the host has one."""
    if not session.plan.get("trace") or torch.cuda.is_available():
        return
    if hasattr(torch.library, "get_kernel"):  # since 2.9
        session.attempt(halves_in_float32, torch)
    card = session.plan.get("stand_in")
    if not card:
        return
    for name, answer in _answers(torch, card).items():
        session.patches.put(torch.cuda, name, answer)
    session.patches.put(torch, "Generator", _generator(torch.Generator))
    session.patches.put(torch.Tensor, "pin_memory", lambda self, *_, **__: self)
    _redirect(torch, session)
    session.attempt(autocast_as_on_card, torch)
    session.stand_in = StandIn(torch)
    session.stand_in.mode.__enter__()


def _answers(torch: Any, card: dict[str, Any]) -> dict[str, Any]:
    """Names of torch.cuda with their stand-ins."""
    major, minor = map(int, card["compute_capability"].split("."))
    total = int(card["memory_gib"] * 1024**3)
    facts = types.SimpleNamespace(name=card["title"], total_memory=total)
    facts.major, facts.minor = major, minor
    facts.multi_processor_count = 64  # asked for, and never used by a CPU
    state = torch.get_rng_state()
    values = {
        **dict.fromkeys(QUIET),
        **dict.fromkeys(
            ("current_device", "_exchange_device", "_maybe_exchange_device"), 0
        ),
        **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved"), 0),
        "max_memory_reserved": 0,
        "memory_stats": {},
        "memory_summary": "",
        "mem_get_info": (total, total),
        "is_available": True,
        "is_bf16_supported": bool(card.get("bf16_tflops")),
        "is_current_stream_capturing": False,
        "device_count": 1,
        "get_device_name": card["title"],
        "get_device_capability": (major, minor),
        "get_device_properties": facts,
        "get_rng_state": state,
        "get_rng_state_all": [state],
    }
    idle = dict.fromkeys(
        ("Stream", "Event", "stream", "current_stream", "default_stream"), _Idle
    )
    return {**{name: _always(value) for name, value in values.items()}, **idle}


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _generator(real: Any) -> Any:
    """Class of generators on the CPU, whatever device is named."""

    class OnHost(type):
        def __call__(cls, device: Any = None) -> Any:
            return real()

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, real)

    return OnHost("Generator", (), {})


def autocast_as_on_card(torch: Any) -> None:
    """Let the CPU's autocast compute in float32 what a card's does."""
    library = torch.library.Library("aten", "IMPL")
    LIBRARIES.append(library)
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def widened(operation: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(autocast):
                return operation(*_wide(torch, args), **kwargs)

        return call

    for name in WIDENED:
        packet, _, overload = name.partition(".")
        operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
        library.impl(name, widened(operation), "AutocastCPU")


def halves_in_float32(torch: Any) -> None:
    """Let the CPU compute slow operations of 16 bits in 32."""
    library = torch.library.Library("aten", "IMPL")
    LIBRARIES.append(library)
    cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

    def widened(kernel: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = kernel.call_boxed(cpu, *_wide(torch, args), **kwargs)
            results = result if isinstance(result, tuple) else (result,)
            narrow = _cast(results, (torch.float32,), args[0].dtype)
            return narrow if isinstance(result, tuple) else narrow[0]

        return call

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an operation has two kernels
        for name in SLOW_IN_HALF:
            kernel = torch.library.get_kernel(f"aten::{name}", "CPU")
            library.impl(name, widened(kernel), "CPU")


def _wide(torch: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values with tensors of 16 bits in float32."""
    return _cast(values, (torch.float16, torch.bfloat16), torch.float32)


def _cast(values: tuple[Any, ...], old: tuple[Any, ...], new: Any) -> tuple[Any, ...]:
    """Values with tensors of the old types in the new one."""
    return tuple(
        value.to(new) if getattr(value, "dtype", None) in old else value for value in values
    )


def _redirect(torch: Any, session: Session) -> None:
    """Change functions that name a card and are none of tensors."""
    wrap = session.patches.wrap

    @wrap(torch.amp.autocast_mode.autocast, "__init__")
    def autocast(
        build: Any,
        self: Any,
        device_type: str,
        dtype: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        build(self, device_type, dtype, *args, **kwargs)

    @wrap(torch, "load")
    def load(original: Any, file: Any, *_: Any, **kwargs: Any) -> Any:
        return original(file, **{**kwargs, "map_location": "cpu"})

    @wrap(torch, "compile")
    def compiled(_: Any, model: Any = None, **kwargs: Any) -> Any:
        return model if model is not None else lambda function: function

    session.patches.put(torch.nn.Module, "compile", _always(None))

    if hasattr(torch.autograd, "_engine_run_backward"):

        @wrap(torch.autograd, "_engine_run_backward")
        def run_backward(original: Any, *args: Any, **kwargs: Any) -> Any:
            with session.stand_in.mode:  # checkpointing calls the program's functions
                return original(*args, **kwargs)

    @wrap(torch.nn.DataParallel, "forward")
    def forward(_: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class StandIn:
    """Card that the CPU stands in for, by a mode over torch."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._devices: Any = importlib.import_module("torch.utils._device")
        self.mode = _mode(self)
        self.used = False
        """Something was put on the card."""
        self.target: bool | None = None
        """The running function's result lies on the card; None: unknown."""

    def call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function on the CPU, mark what the card would hold."""
        name = getattr(func, "__name__", "")
        args, target = self._without_card(func, name, args, kwargs)
        moved = name in MOVES and target is not None
        self.used |= bool(target)
        before, self.target = self.target, target
        try:
            result = args[0] if name == "cuda" else func(*args, **kwargs)
            if (
                moved
                and self.holds(args[0]) != target
                and _storage(result) is _storage(args[0])
            ):
                result = result.clone()
        finally:
            self.target = before
        if target is None and self.used and tensors(result, self._torch):
            target = any(map(self.holds, tensors(args, self._torch)))
        if target or moved:
            self.mark(result, bool(target))
        return result

    def _without_card(
        self, func: Any, name: str, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, bool | None]:
        """Arguments that name the CPU for the card, and the side of the result."""
        if name in ("cuda", "cpu"):
            return args, name == "cuda"
        place = kwargs.get("device")
        if place is None and name == "to" and len(args) > 1:
            on_card = self._side(args[1])
            if on_card and not isinstance(args[1], self._torch.Tensor):
                args = (args[0], "cpu", *args[2:])
            return args, on_card
        if place is None and func in self._devices._device_constructors():
            place = getattr(self._devices, "CURRENT_DEVICE", None)
        on_card = self._side(place)
        if on_card:
            kwargs["device"] = "cpu"
            kwargs.pop("pin_memory", None)
        return args, on_card

    def _side(self, place: Any) -> bool | None:
        """Return True for the card, False for the host, None without a device.

        Every tensor here is on the CPU, and so says `cpu` of itself. A program that copies the
        device of a tensor to make another one mostly means the card.
        """
        if isinstance(place, self._torch.Tensor):
            return self.holds(place)
        if isinstance(place, self._torch.device):  # a tensor's `cpu` mostly means the card
            return place.type == "cuda" or (self.used and place.type == "cpu") or None
        if isinstance(place, str):
            return place.startswith("cuda")
        return True if isinstance(place, int) and not isinstance(place, bool) else None

    def counts(self, inputs: Any) -> bool:
        """Return True for operations of the card, and for all if unused."""
        if not self.used:
            return True
        return any(map(self.holds, inputs)) if self.target is None else self.target

    def holds(self, tensor: Any) -> bool:
        return bool(getattr(_storage(tensor), MARK, False))

    def mark(self, result: Any, on_card: bool = True) -> None:
        """Note on which side tensors lie."""
        for storage in map(_storage, tensors(result, self._torch)):
            if storage is not None:
                setattr(storage, MARK, on_card)


def _mode(card: StandIn) -> Any:
    base: Any = importlib.import_module("torch.overrides").TorchFunctionMode

    class Mode(base):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return card.call(func, args, dict(kwargs or {}))

    return Mode()


def _storage(tensor: Any) -> Any:
    """Storage of a tensor, or None of a sparse one."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
