"""torch.cuda's own names over the simulated cards: what programs and their observers call.

Each function and class here whose name torch.cuda has too takes its place there.
"""

import contextlib
import itertools
import types
from collections.abc import Callable
from typing import Any, Self

import torch

from tests.simulated_gpu import device as sim


def install(cuda: Any) -> None:
    """Replace the names of torch.cuda; called as soon as that module was executed."""
    for name, value in list(globals().items()):
        if getattr(value, "__module__", "") == __name__ and hasattr(cuda, name):
            setattr(cuda, name, value)


def accelerate(accelerator: Any) -> None:
    """Make the cards torch's accelerator, for which loaders pin memory."""
    for own in (is_available, device_count, synchronize, current_stream, set_stream):
        setattr(accelerator, own.__name__, own)
    accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
    accelerator.current_device_index = current_device
    accelerator.set_device_index = set_device


def card_of(device: Any = None) -> sim.Card:
    """The card that a device, an index or nothing at all means."""
    if device is None:
        return sim.here()
    index = device if isinstance(device, int) else torch.device(device).index
    return sim.cards[sim.current if index is None else index]


def is_available() -> bool:
    if not sim.initialized:
        sim.tell("early", "is_available")
    return bool(sim.cards)


def is_initialized() -> bool:
    return sim.initialized


def _lazy_init() -> None:
    """Begin to use the cards, once."""
    if not sim.initialized:
        sim.initialized = True
        for call, _ in torch.cuda._queued_calls:
            call()


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return len(sim.cards)


def current_device() -> int:
    _lazy_init()
    return sim.current


def set_device(device: Any) -> None:
    _lazy_init()
    sim.current = card_of(device).index


class device:
    """Another current card for a while."""

    def __init__(self, device: Any) -> None:
        self._index = 0 if device is None else card_of(device).index

    def __enter__(self) -> None:
        self._before, sim.current = sim.current, self._index

    def __exit__(self, *args: object) -> None:
        sim.current = self._before


def synchronize(device: Any = None) -> None:
    card_of(device).synchronize()


def get_device_name(device: Any = None) -> str:
    return card_of(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    return (9, 0)


def get_device_properties(device: Any = None) -> types.SimpleNamespace:
    card = card_of(device)
    return types.SimpleNamespace(
        name=card.name, uuid=card.uuid.removeprefix("GPU-"), total_memory=card.memory.total,
        major=9, minor=0, multi_processor_count=132,
    )  # fmt: skip


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def manual_seed(seed: int) -> None:
    """The CPU's generator makes the numbers."""


manual_seed_all = manual_seed


def get_rng_state(device: Any = None) -> Any:
    return torch.default_generator.get_state()


def set_rng_state(state: Any, device: Any = None) -> None:
    torch.default_generator.set_state(state)


_numbers = itertools.count(1)


class Stream:
    """A stream of a card."""

    def __init__(
        self, device: Any = None, priority: int = 0, *, number: int | None = None, **_: object
    ) -> None:
        _lazy_init()
        self.card = card_of(device)
        self.device = torch.device("cuda", self.card.index)
        self.cuda_stream = next(_numbers) if number is None else number
        self._before: list[int] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and hash(self) == hash(other)

    def __hash__(self) -> int:
        return hash((self.card.index, self.cuda_stream))

    @property
    def end(self) -> float:
        """When its queued work is over."""
        return self.card.ends.get(self.cuda_stream, 0.0)

    def synchronize(self) -> None:
        sim.not_in_a_capture("a wait for the device")
        sim.wait(self.end)

    def query(self) -> bool:
        sim.not_in_a_capture("a look at a stream")
        return self.end <= sim.clock()

    def is_capturing(self) -> bool:
        return self.card.graph is not None

    def wait_event(self, event: Any) -> None:
        self.card.ends[self.cuda_stream] = max(self.end, event.at or 0.0)

    def wait_stream(self, stream: Any) -> None:
        self.card.ends[self.cuda_stream] = max(self.end, stream.end)

    def __enter__(self) -> Self:
        self._before.append(self.card.stream)
        self.card.stream = self.cuda_stream
        return self

    def __exit__(self, *args: object) -> None:
        self.card.stream = self._before.pop()


def current_stream(device: Any = None) -> Stream:
    return Stream(device, number=card_of(device).stream)


def stream(stream: Any) -> Any:
    return contextlib.nullcontext() if stream is None else stream


def set_stream(stream: Any) -> None:
    stream.card.stream = stream.cuda_stream


class Event:
    """A mark in a card's stream, passed when the work before it is done."""

    def __init__(self, enable_timing: bool = False, **_: object) -> None:
        self.at: float | None = None
        self.card: sim.Card | None = None
        self.captured = False

    def record(self, stream: Any = None) -> None:
        stream = stream or current_stream()
        if self.card not in (None, stream.card):
            msg = "Event device does not match recording stream's device."
            raise RuntimeError(msg)
        self.card, self.captured = stream.card, stream.is_capturing()
        if self.captured:
            sim.tell("spoilt", "an event inside a capture")
        self.card.context = True
        self.at = max(sim.clock(), stream.end)

    def query(self) -> bool:
        self._require_a_time("a look at an event")
        return self.at is None or self.at <= sim.clock()

    def synchronize(self) -> None:
        self._require_a_time("a wait for an event")
        assert self.at is not None
        sim.wait(self.at)

    def _require_a_time(self, what: str) -> None:
        """A captured event never has one, and no other is asked while a stream is captured."""
        sim.not_in_a_capture(what)
        if self.captured:
            raise sim.CaptureError(sim.NOT_PERMITTED)

    def wait(self, stream: Any = None) -> None:
        (stream or current_stream()).wait_event(self)

    def elapsed_time(self, end: Self) -> float:
        """Milliseconds. Raises RuntimeError for marks not passed yet, or of two cards."""
        if self.card is not end.card:
            msg = "CUDA error: invalid resource handle"
            raise RuntimeError(msg)
        if self.at is None or end.at is None or not (self.query() and end.query()):
            msg = "CUDA error: device not ready"
            raise RuntimeError(msg)
        return (end.at - self.at) * 1000


def is_current_stream_capturing() -> bool:
    return bool(sim.cards) and sim.here().graph is not None


class CUDAGraph:
    """Work that is captured once and queued as a whole afterwards."""

    def __init__(self, *_: object, **__: object) -> None:
        self.reset()

    def reset(self) -> None:
        self._graph, self._card = sim.Graph(), sim.here()

    def capture_begin(self, *_: object, **__: object) -> None:
        self._card = sim.here()
        self._card.graph = self._graph

    def capture_end(self) -> None:
        """Raises CaptureError where something was done that a capture does not survive."""
        self._card.graph = None
        if self._graph.spoilt:
            msg = "CUDA error: operation failed due to a previous error during capture"
            raise sim.CaptureError(msg)

    def replay(self) -> None:
        self._card.launch(self._graph.seconds)


class graph:
    """Capture what is done inside."""

    def __init__(self, cuda_graph: Any, *_: object, **__: object) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        synchronize()
        self._graph.capture_begin()

    def __exit__(self, *args: object) -> None:
        self._graph.capture_end()


def _reader(name: str) -> Callable[..., int]:
    def read(device: Any = None) -> int:
        return int(getattr(card_of(device).memory, name))

    return read


memory_allocated, max_memory_allocated, memory_reserved, max_memory_reserved = map(
    _reader, ("allocated", "peak", "reserved", "peak_reserved")
)


def memory_stats(device: Any = None) -> dict[str, int]:
    memory = card_of(device).memory
    return {
        "allocated_bytes.all.current": memory.allocated,
        "allocated_bytes.all.peak": memory.peak,
        "reserved_bytes.all.current": memory.reserved,
        "reserved_bytes.all.peak": memory.peak_reserved,
        "num_alloc_retries": memory.ooms,
        "num_ooms": memory.ooms,
    }


def reset_peak_memory_stats(device: Any = None) -> None:
    memory = card_of(device).memory
    memory.peak, memory.peak_reserved = memory.allocated, memory.reserved


def mem_get_info(device: Any = None) -> tuple[int, int]:
    card = card_of(device)
    _lazy_init()
    card.context = True
    return card.memory.total - card.memory.reserved - sim.CONTEXT_BYTES, card.memory.total


def empty_cache() -> None:
    for card in sim.cards:
        card.memory.free_cache()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Caps the allocator, and leaves its card the current one, as torch's own does."""
    card = card_of(device)
    card.context = True
    sim.current = card.index
    card.memory.limit = int(fraction * card.memory.total)


GUESSED = 1.5
"""Cost of the algorithm that is taken without a search."""
_algorithms: dict[object, bool] = {}


def algorithm_cost(shape: object) -> float:
    """Time of a convolution of this shape, as a multiple of the best algorithm's.

    As in cuDNN: the cache is looked up before `torch.backends.cudnn.benchmark` is.
    """
    searched = _algorithms.setdefault(shape, bool(torch.backends.cudnn.benchmark))
    return 1.0 if searched else GUESSED
