"""Event log of a process, and its reader.

Each line of `events-<pid>.jsonl` is a JSON list of events, each a list `[kind, ...]`
whose fields `READERS` holds. Times are seconds of the process's `time.perf_counter()`.

The log is untrusted, since the program shares its process and folder with the recorder. What may
stand in it is bounded here once, so that no later sum or ratio has to ask whether a number is
finite. An event that does not fit is left out and counted in `unread`; it ends no call.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from advisor.model import LoaderWork, TrainingSign
from advisor.model.runs import JsonScalar
from advisor.probe.recorder import PASS_ENDED

T = TypeVar("T")
LARGEST = 1e100
"""Numbers beyond it are none of a program's: products and sums of two that are below stay finite.

The largest that programs have are masks of -3e38, the least number of float32.
"""
BoundedNumber = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=0.0, le=1e11, allow_inf_nan=False)]
"""Seconds since the epoch, or an earlier start: to the year 5138."""
Number = Annotated[int, Field(ge=0, lt=1 << 31)]
EventText = Annotated[str, Field(max_length=4096)]


TENSORS = ("inputs", "outputs", "rows")
"""Facts of a module that hold numbers of its tensors: any may stand there."""


def bounded(value: object) -> bool:
    """True if no number in `value`, however deep, is beyond LARGEST; NaN and infinity are."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, (int, float)) and not -LARGEST <= part <= LARGEST:
            return False
        if isinstance(part, dict):
            waiting += [inner for name, inner in part.items() if name not in TENSORS]
        elif isinstance(part, (list, tuple)):
            waiting += part
    return True


def typed(values: Mapping[str, JsonScalar], name: str, kind: type[T]) -> T | None:
    """Value of that name, if of this very type."""
    value = values.get(name)
    return value if type(value) is kind else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFacts:
    """Facts of a DataLoader's construction and use."""

    site: str | None = None
    """`train.py:88` where it was built."""
    arguments: dict[str, JsonScalar] = field(default_factory=dict)
    """Values in force by argument: batch_size, num_workers, prefetch_factor, ..."""
    pass_items: int | None = None
    left_out: int | None = None
    iterated: bool = False
    guessed: bool = False
    """Neither the batch asked for nor a layer tells how many items its batches have."""
    other_thread: bool = False
    """Another thread than the working one takes its batches."""
    rows: int = 0
    positions: int = 0
    padded: int = 0
    """Rows of its batches, their positions, and the padded of these."""
    work: LoaderWork | None = None
    """Told once, at the end of the record."""

    @property
    def workers(self) -> int:
        return typed(self.arguments, "num_workers", int) or 0

    @property
    def padding_share(self) -> float | None:
        return self.padded / self.positions if self.positions else None

    @property
    def tokens_per_item(self) -> float | None:
        """Tokens of one item, without padding."""
        return (self.positions - self.padded) / self.rows if self.rows > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """One module that the program calls."""

    name: str = ""
    site: str | None = None
    """`train.py:95` of its first call."""
    parameters: int = 0
    added_parameters: int = 0
    """Parameters that no module called before it has."""
    same_shape: bool = False
    """Its output has the shape of its input."""
    flags: dict[str, JsonScalar] = field(default_factory=dict)
    """Flags in force during its calls: device, dtypes, tf32, compiled, channels_last, ..."""
    shapes: tuple[str, ...] = ()
    """Shapes of its tensor inputs without batch dimension."""
    tokens: BoundedNumber = 0.0
    """Token positions of the calls of `token_items` items."""
    token_items: BoundedNumber = 0.0
    inputs: tuple[tuple[float, ...], ...] = ()
    outputs: tuple[tuple[float, ...], ...] = ()
    """Numbers into its first calls, and out of them."""
    carries: bool | None = None
    """A batch's call gets what that of the batch before gave."""
    rows: tuple[tuple[float, ...], ...] = ()
    """Of each of the first rows of its results: how many numbers it has, and a few of them."""

    @property
    def tokens_per_item(self) -> float | None:
        """Positions per sample with padding, or None."""
        return self.tokens / self.token_items if self.token_items > 0 else None


NO_LOADER, NO_MODULE = LoaderFacts(), ModuleFacts()


class Span(NamedTuple):
    start: BoundedNumber
    end: BoundedNumber


class BatchFetch(NamedTuple):
    """One `next` of a DataLoader."""

    start: BoundedNumber
    end: BoundedNumber
    loader: Number
    items: BoundedNumber

    @property
    def ended_pass(self) -> bool:
        return self.items == PASS_ENDED


class ForwardCall(NamedTuple):
    """Outermost call of a module."""

    start: BoundedNumber
    end: BoundedNumber
    module: Number
    items: BoundedNumber
    graded: bool
    """Gradients were enabled."""


class OptimizerStep(NamedTuple):
    """Step of one of torch's optimizers."""

    start: BoundedNumber
    end: BoundedNumber
    optimizer: Number


class Generated(NamedTuple):
    """Call of a library's `generate`."""

    start: BoundedNumber
    end: BoundedNumber
    prompts: BoundedNumber


class DeviceMark(NamedTuple):
    """Completion time of device work queued by `host`."""

    host: BoundedNumber
    done: BoundedNumber


class HookChange(NamedTuple):
    time: BoundedNumber
    counting: bool
    calls: bool
    """Forwards are recorded since, and passes besides updates."""


class ProbeTime(NamedTuple):
    """Seconds the hooks took from the program so far."""

    time: BoundedNumber
    spent_s: BoundedNumber


class HostWait(NamedTuple):
    """The host waited for the device, or copied numbers from a tensor."""

    start: BoundedNumber
    end: BoundedNumber
    site: EventText
    """`train.py:83`; empty where no user line led to it."""
    name: EventText


@dataclass(slots=True)
class EventLog:
    """Event log of one process, ordered by end times."""

    clock: float = 0.0
    """Added to a time it gives epoch seconds of the parent's clock."""
    ended: bool = False
    """The program ended by itself: its last batch and gradients count."""
    fetches: list[BatchFetch] = field(default_factory=list)
    calls: list[ForwardCall] = field(default_factory=list)
    backwards: list[Span] = field(default_factory=list)
    gradients: list[Span] = field(default_factory=list)
    """Gradients asked for by `autograd.grad` or torch.func, not by `backward`."""
    updates: list[OptimizerStep] = field(default_factory=list)
    copies: list[Span] = field(default_factory=list)
    """Copies from host to device, as the host saw them."""
    generated: list[Generated] = field(default_factory=list)
    waits: list[HostWait] = field(default_factory=list)
    saves: list[Span] = field(default_factory=list)
    marks: list[DeviceMark] = field(default_factory=list)
    device_copies: list[Span] = field(default_factory=list)
    """Copies to the device, as the device did them."""
    exchanges: list[Span] = field(default_factory=list)
    """From the end of a device's own work to the end of an exchange with other ranks."""
    hooks: list[HookChange] = field(default_factory=list)
    spent: list[ProbeTime] = field(default_factory=list)
    loaders: dict[int, LoaderFacts] = field(default_factory=dict)
    modules: dict[int, ModuleFacts] = field(default_factory=dict)
    numbers: dict[int, list[dict[str, float]]] = field(default_factory=dict)
    """Numbers among the arguments of a module's calls."""
    rows: dict[float, tuple[int, ...]] = field(default_factory=dict)
    """Numbers of a call's rows, by its end; of the first calls without a loader."""
    warm_until: float = 0.0
    """A one-time cost was paid until then."""
    ahead_since: float | None = None
    """Since when threads or pools of the program's own were at work, if before the first step."""
    validations: list[Span] | None = None
    """Stretches of a training, where the log is only of these."""
    unread: int = 0

    @property
    def passes(self) -> list[Span]:
        """Gradient computations for updates, backward passes first."""
        return self.backwards or self.gradients

    @property
    def trains(self) -> TrainingSign | None:
        """Clearest sign of training, or None."""
        if self.updates:
            return "optimizer"
        return "backward" if self.backwards else "gradients" if self.gradients else None

    def loader(self, number: int | None) -> LoaderFacts:
        """Facts of a DataLoader; empty if unrecorded."""
        return NO_LOADER if number is None else self.loaders.get(number, NO_LOADER)

    def module(self, number: int | None) -> ModuleFacts:
        return NO_MODULE if number is None else self.modules.get(number, NO_MODULE)

    def batches(self, loaders: Collection[int | None]) -> list[BatchFetch]:
        """Fetches of these loaders that gave a batch."""
        return [
            fetch
            for fetch in self.fetches
            if fetch.loader in loaders and not fetch.ended_pass
        ]

    def last_time(self) -> float | None:
        """End of the latest event; None before the first."""
        lists: list[list[Any]] = [self.fetches, self.calls, self.passes, self.updates]
        return max((events[-1].end for events in lists if events), default=None)

    @property
    def counting_since(self) -> float | None:
        return next((change.time for change in self.hooks if change.counting), None)

    def hooked_spans(self) -> list[Span]:
        """Stretches with every kind recorded."""
        changes = [(change.time, change.counting) for change in self.hooks]
        edges = [(-math.inf, False), *changes, (math.inf, True)]
        return [Span(a, b) for (a, counting), (b, _) in pairwise(edges) if not counting]

    def hooked(self) -> EventLog:
        """Part of the log in which forwards and backwards are recorded, too.

        Counted steps have none. Averages over calls must leave them out, or they would be of
        steps with no call at all.
        """
        if all(change.calls for change in self.hooks):
            return self
        return self.inside(self.hooked_spans())

    def inside(self, spans: list[Span]) -> EventLog:
        """Part of the log: events that end inside `spans`."""
        part: dict[str, Any] = {name: _inside(getattr(self, name), spans) for name in TIMED}
        return replace(self, **part)


def _inside(events: list[Any], spans: list[Span]) -> list[Any]:
    ends = [event.end for event in events]
    inside: list[Any] = []
    for start, end in spans:
        inside += events[bisect.bisect_right(ends, start) : bisect.bisect_right(ends, end)]
    return inside


class EventKind(NamedTuple):
    """Where events of one name go."""

    into: str
    """List of `EventLog` that holds them."""
    type: type[Any]
    by_device: bool = False
    """Their times are of the device's work, which goes on when the host has moved on."""


READERS: dict[str, EventKind] = {
    "batch": EventKind("fetches", BatchFetch),
    "pass_end": EventKind("fetches", BatchFetch),
    "call": EventKind("calls", ForwardCall),
    "backward": EventKind("backwards", Span),
    "gradient": EventKind("gradients", Span),
    "step": EventKind("updates", OptimizerStep),
    "copy": EventKind("copies", Span),
    "generation": EventKind("generated", Generated),
    "wait": EventKind("waits", HostWait),
    "save": EventKind("saves", Span),
    "mark": EventKind("marks", DeviceMark, by_device=True),
    "device_copy": EventKind("device_copies", Span, by_device=True),
    "exchange": EventKind("exchanges", Span, by_device=True),
    "hooks": EventKind("hooks", HookChange),
    "spent": EventKind("spent", ProbeTime),
}
"""Events by their name in the log."""
TIMED = {
    kind.into
    for kind in READERS.values()
    if hasattr(kind.type, "end") and not kind.by_device
}
"""Lists of what the host did from a start to an end: a part of the log is cut out of these."""
_EVENTS = {name: TypeAdapter(kind.type) for name, kind in READERS.items()}
_TIME, _CLOCK = TypeAdapter(BoundedNumber), TypeAdapter(Moment)
_NUMBER = TypeAdapter(Number)
_NUMBERS = TypeAdapter(dict[str, BoundedNumber])
_ROWS = TypeAdapter(tuple[int, ...])
_LOADER, _MODULE = TypeAdapter(LoaderFacts), TypeAdapter(ModuleFacts)


class EventReader:
    """Reader of a log that still grows, fed with the bytes as they come."""

    def __init__(self) -> None:
        self.log = EventLog()
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Read the lines whole by now; the rest is kept until its line's end has come."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                events = from_json(line, allow_inf_nan=False)
            except ValueError:
                events = None
            for event in events if isinstance(events, list) else [None]:
                try:
                    self._event(event)
                except (ValueError, TypeError, KeyError, IndexError):
                    self.log.unread += 1

    def _event(self, event: Any) -> None:
        log, (name, first, *more) = self.log, event
        if name in READERS:
            typed_event = _EVENTS[name].validate_python([first, *more], strict=True)
            getattr(log, READERS[name].into).append(typed_event)
        elif name == "warm":
            log.warm_until = _TIME.validate_python(first, strict=True)
        elif name == "ahead":
            since = _TIME.validate_python(first, strict=True)
            log.ahead_since = min(
                since, since if log.ahead_since is None else log.ahead_since
            )
        elif name == "clock":
            log.clock = _CLOCK.validate_python(first, strict=True)
        elif not bounded(more):
            raise ValueError(name)
        elif name == "loader":
            log.loaders[_NUMBER.validate_python(first)] = _LOADER.validate_python(more[0])
        elif name == "module":
            log.modules[_NUMBER.validate_python(first)] = _MODULE.validate_python(more[0])
        elif name == "rows":
            log.rows[_TIME.validate_python(first, strict=True)] = _ROWS.validate_python(
                more[0]
            )
        elif name == "numbers":
            numbers = _NUMBERS.validate_python(more[0], strict=True)
            log.numbers.setdefault(_NUMBER.validate_python(first), []).append(numbers)
        else:
            raise KeyError(name)


def merged(spans: Iterable[Sequence[float]]) -> list[Span]:
    """Merge overlapping spans, in order."""
    joined: list[Span] = []
    for start, end in sorted((span[0], span[1]) for span in spans):
        if joined and start < joined[-1].end:
            if end > joined[-1].end:
                joined[-1] = Span(joined[-1].start, end)
        elif end > start:
            joined.append(Span(start, end))
    return joined


def without(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """Time of sorted `spans` outside `taken`, whose spans are in order and apart."""
    starts, ends = [span.start for span in taken], [span.end for span in taken]
    outside = []
    for begin, end in spans:
        inside = taken[bisect.bisect_right(ends, begin) : bisect.bisect_left(starts, end)]
        edges = [begin, *(moment for span in inside for moment in span), end]
        rests = zip(edges[::2], edges[1::2], strict=True)
        outside += [Span(start, until) for start, until in rests if until > start]
    return outside


def within(spans: Sequence[Span], limits: Sequence[Span]) -> list[Span]:
    """Time of sorted `spans` inside `limits`."""
    return without(spans, without(spans, limits))


def split(spans: Sequence[Span], taken: Sequence[Span]) -> tuple[float, list[Span]]:
    """Seconds of `spans` in `taken`, and what lies outside."""
    rest = without(spans, taken)
    return seconds(spans) - seconds(rest), rest


def seconds(spans: Sequence[Span]) -> float:
    return float(sum(span.end - span.start for span in spans))


def seconds_inside(spans: Iterable[Sequence[float]], limits: Sequence[Span]) -> float:
    """Seconds of any `spans` in `limits`, each moment once."""
    return seconds(within(merged(spans), limits))
