"""Events of CUDA: clock, copies, waits, captured graphs, the card in use.

The host runs ahead of the device: its clock at a step's end says when work was queued. An event
recorded there says when that work was done. It is read once the device has passed it. To wait for
it would let the device run dry and slow the very steps that are timed, so nothing waits before the
window ends.

Device times become the host's `perf_counter` by one event that both clocks read together while
the card is idle; `advisor/analysis/device_time.py` says what the marks tell.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any, Callable

from . import call_sites, exchanges, module_facts
from .clocks import clock
from .recorder import STEPS
from .session import Session

APART_S = 0.001
"""Marks closer than this add nothing."""
RARELY_S = 0.02
"""Seconds between marks while steps are only counted.

Judgement: shorter costs counted steps an event each, longer moves the end of a short window by
more."""
ANCHOR_S = 1.0
"""Seconds after which the event that others are timed from moves on.

Torch tells the time between two events as float32 milliseconds: an hour apart they are exact
to 0.25 ms, and a second apart to 0.1 us.

Source: `elapsed_time` of torch's CUDAEvent.h gives a float. CUDA's own resolution is 0.5 us
(`cudaEventElapsedTime`), so shorter gains nothing, and longer loses digits."""
COMPARED = 8
"""Times that both clocks are read together: a busy host notices late, so the quickest counts.

Judgement: fewer may all be late on a busy host, which moves every mark. More delay the first step.
"""
GIB = 1024.0**3
WAITS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")
"""Tensor methods that give numbers to the host."""
MOVES = ("to", "cuda")


class DeviceMarks:
    """Times of the card's work on the host's clock, from events in its stream."""

    def __init__(self, session: Session, card: int) -> None:
        self._session = session
        self._cuda = session.torch.cuda
        self.card = card
        self._stream = self._cuda.current_stream(card)
        """Stream of the model, whose work is timed."""
        self._marked: dict[Any, float] = {}
        """Host time of the latest mark by source."""
        self._pending: deque[tuple[float, Any, Any, Any]] = deque()
        """Marks that the device may not have passed, in order of queueing: host time, event, kind
        and first event of a copy or an exchange that ends there or None, and an event of the log
        whose numbers the device has yet to copy."""
        self._done = float("-inf")
        self._base, self._passed = self._compared()

    def mark(self, now: float, source: Any) -> None:
        """Mark work queued by `now` (perf_counter) as a possible step end.

        `source` is a module, an optimizer, a loader or a graph. Which of them ends the steps is
        not known here, so each has marks of its own: were all kept apart from each other, a
        frequent source would leave none for the one that counts.
        """
        latest = self._marked.get(source, float("-inf"))
        apart_s = RARELY_S if self._session.counting else APART_S
        if now - latest < apart_s or self._is_capturing():
            return
        self.queue(now)
        self._marked[source] = now
        if source == "backward":
            self._stream = self._cuda.current_stream(self.card)

    def _is_capturing(self) -> bool:
        """Return True while the model's card records a graph.

        CUDA answers for the current card, and would open a context on it to do so.
        """
        is_current = self._cuda.current_device() == self.card
        return is_current and bool(self._cuda.is_current_stream_capturing())

    def event(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self.card))
        return event

    def is_aside(self) -> bool:
        """Return True inside another stream than the model's, which takes nothing from it."""
        return bool(self._cuda.current_stream(self.card) != self._stream)

    def queue(self, host: float, before: Any = None, numbers: Any = None) -> None:
        """Await the work queued by `host`: the end of a stretch whose kind and first event `before`
        has, or `numbers` for the log."""
        self._pending.append((host, self.event(), before, numbers))

    def poll(self) -> None:
        """Record what the device has passed; waits for nothing."""
        add = self._session.recorder.add
        while self._pending and self._pending[0][1].query():
            host, event, before, numbers = self._pending.popleft()
            done = self._at(event)
            if before is not None:
                kind, first = before
                add((kind, self._at(first), done))
                continue
            self._done = max(done, host, self._done)
            add(("mark", host, self._done))
            if numbers is not None:
                add(module_facts.read_numbers(numbers))

    def finish(self) -> None:
        """Wait for the card and record the remaining events."""
        self.queue(clock())
        self._cuda.synchronize(self.card)
        self.poll()

    def _at(self, event: Any) -> float:
        """Host time at which the device passed an event."""
        later_s = float(self._base.elapsed_time(event)) / 1000.0
        if later_s > ANCHOR_S:
            self._base, self._passed = event, self._passed + later_s
            return self._passed
        return self._passed + later_s

    def _compared(self) -> tuple[Any, float]:
        """Compare one event of the idle card with host time."""
        self._cuda.synchronize(self.card)
        readings = []
        for _ in range(COMPARED):
            before = clock()
            event = self.event()
            event.synchronize()
            readings.append((clock() - before, before, event))
        _, before, event = min(readings, key=lambda reading: reading[0])
        return event, before


def watch_device(session: Session, thread: int) -> None:
    """Record the device copies and waits of one thread, which is the loop's.

    What another thread waits for, such as one that fetches ahead, holds up no step by itself.
    While steps are only counted nothing is recorded.
    """
    tensor, cuda = session.torch.Tensor, session.torch.cuda
    exchanges.watch_collectives(session, thread)

    def is_left_alone() -> bool:
        return session.counting or session.reading or threading.get_ident() != thread

    def waiting(name: str, *, on_device: bool = True) -> Callable[..., Any]:
        def wait(original: Any, *args: Any, **kwargs: Any) -> Any:
            if is_left_alone() or (on_device and not args[0].is_cuda):
                return original(*args, **kwargs)
            start = clock()
            _mark_wait(session, start)
            try:
                return original(*args, **kwargs)
            finally:
                _waited(session, start, name)

        return wait

    def moving(name: str) -> Callable[..., Any]:
        def move(original: Any, it: Any, *args: Any, **kwargs: Any) -> Any:
            if is_left_alone():
                return original(it, *args, **kwargs)
            was, device = it.is_cuda, session.device
            event = None
            if not was and _names_card(args, kwargs, name):
                unseen = session.capture is not None or device.is_aside()
                event = None if unseen else device.event()
            start = clock()
            _mark_wait(session, start, waits=was and _names_host(args, kwargs))
            moved = original(it, *args, **kwargs)
            queued = kwargs.get("non_blocking") or any(
                argument is True for argument in args
            )
            if was and not moved.is_cuda and not queued:
                _waited(session, start, name)
            elif event is not None and moved.is_cuda:
                session.recorder.add(("copy", start, clock()))
                device.queue(clock(), ("device_copy", event))
            return moved

        return move

    for name in WAITS:
        session.device_patches.wrap(tensor, name)(waiting(name))
    for name in MOVES:
        session.device_patches.wrap(tensor, name)(moving(name))
    for owner in (cuda.Event, cuda.Stream, cuda):
        session.device_patches.wrap(owner, "synchronize")(
            waiting("synchronize", on_device=False)
        )


def _mark_wait(session: Session, start: float, *, waits: bool = True) -> None:
    """Mark the work that is waited for: a busy host wakes long after it was done."""
    device = session.device if waits and session.capture is None else None
    if device is not None and not device.is_aside():
        device.queue(start)


def _waited(session: Session, start: float, name: str) -> None:
    """Record a wait of the host, and the user's line, if any."""
    session.recorder.add(("wait", start, clock(), call_sites.user_site() or "", name))


def _names_card(args: Any, kwargs: Any, name: str) -> bool:
    target = kwargs.get("device", args[0] if args else None)
    if hasattr(target, "is_cuda"):  # the text of a tensor waits for its numbers
        return bool(target.is_cuda)
    return name == "cuda" or isinstance(target, int) or "cuda" in str(target)[:16]


def _names_host(args: Any, kwargs: Any) -> bool:
    target = kwargs.get("device", args[0] if args else None)
    return not hasattr(target, "is_cuda") and str(target).startswith("cpu")


def card_in_use(session: Session) -> int | None:
    """Index of the card with most parameters, else the current one."""
    torch = session.torch
    if torch is None or not torch.cuda.is_initialized():
        return None
    modules = [entry.module() for entry in session.modules]
    devices = [
        parameter.device
        for module in modules
        for parameter in module_facts.parameters(module)
    ]
    by_card = Counter(device.index or 0 for device in devices if device.type == "cuda")
    if by_card:
        return by_card.most_common(1)[0][0]
    return None if devices else int(torch.cuda.current_device())


def card_facts(session: Session) -> dict[str, Any] | None:
    index = card_in_use(session)
    if index is None:
        return None
    torch = session.torch
    facts = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    uuid = getattr(facts, "uuid", None)  # torch 2.5 and later
    return {
        "index": index,
        "name": facts.name,
        "uuid": None if uuid is None else str(uuid),
        "total_gib": total / GIB,
        "available_gib": (free + torch.cuda.memory_reserved(index)) / GIB,
        "compute_capability": f"{facts.major}.{facts.minor}",
    }


CAPTURED = "_gpu_advisor_captured"
"""Attribute of a graph: events that each replay repeats."""


def install(torch: Any, session: Session) -> None:
    """Hook captures of CUDA graphs, which do no work, and replays, which call no hook.

    While a graph is captured the program's calls run as ever and nothing is computed: their
    events are kept aside. Each replay then does the work of all of them in one call from which
    no module or optimizer is called, so it records those that end steps once more.
    """
    graph: Any = torch.cuda.CUDAGraph

    @session.patches.wrap(graph, "capture_begin")
    def capture_begin(begin: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        result = begin(self, *args, **kwargs)
        session.capture = []
        session.recorder.divert(session.capture)
        return result

    @session.patches.wrap(graph, "capture_end")
    def capture_end(finish: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        captured, session.capture = session.capture or [], None
        session.recorder.divert(None)
        self.__dict__[CAPTURED] = [event for event in captured if event[0] in STEPS]
        for event in captured:
            if event[0] not in STEPS:
                session.recorder.add(event)
        return finish(self, *args, **kwargs)

    @session.patches.wrap(graph, "replay")
    def replayed(replay: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        start = clock()
        session.graph_replayed = True
        result = replay(self, *args, **kwargs)
        captured = self.__dict__.get(CAPTURED)
        # one inside a module's call belongs to it
        if captured and not session.muted and session.entrance.call is None:
            end = clock()
            for kind, _, _, *rest in captured:
                if session.entrance.wanted or kind == "step":
                    session.recorder.add((kind, start, end, *rest))
            session.step_ended(end, id(self))
        return result
