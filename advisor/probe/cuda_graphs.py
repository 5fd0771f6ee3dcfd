"""CUDA graphs: events of captures and replays."""

from __future__ import annotations

import time
from typing import Any, List

from .hooking import step_end
from .recorder import Event
from .session import Session

TIMED = ("call", "backward", "gradient", "step")
"""Kinds of events that a replay repeats; each has its start and end in second and third place."""
CAPTURED = "_gpu_advisor_captured"

clock = time.perf_counter


class Capture:
    """Captured events, which did no work yet."""

    def __init__(self, session: Session) -> None:
        self._start = clock()
        self._seconds = 0.0
        self._events: List[Event] = []
        session.recorder.divert(self._events)

    def close(self, session: Session) -> None:
        """End the capture and resume recording."""
        session.recorder.divert(None)
        self._seconds = max(clock() - self._start, 1e-9)
        for event in self._events:
            if event[0] not in TIMED:
                session.add(event)
        self._events = [event for event in self._events if event[0] in TIMED]
        session.updates -= sum(event[0] == "step" for event in self._events)

    def __bool__(self) -> bool:
        return bool(self._events)

    def repeat(self, session: Session, start: float, end: float) -> None:
        """Record captured events again between `start` and `end`."""
        scale = (end - start) / self._seconds

        def moved(time_s: float) -> float:
            return start + scale * (time_s - self._start)

        for event in self._events:
            session.add((event[0], moved(event[1]), moved(event[2]), *event[3:]))
            session.updates += event[0] == "step"


def install(torch: Any, session: Session) -> None:
    """Follow captures and replays."""
    step_ended = step_end(session)
    graph: Any = getattr(torch.cuda, "CUDAGraph", None)
    if not all(hasattr(graph, name) for name in ("capture_begin", "capture_end", "replay")):
        return
    begin, finish, replay = graph.capture_begin, graph.capture_end, graph.replay

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = begin(self, *args, **kwargs)
        session.capture = Capture(session)
        return result

    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        capture, session.capture = session.capture, None
        if capture is not None:
            session.attempt(capture.close, session)
            self.__dict__[CAPTURED] = capture
        return finish(self, *args, **kwargs)

    def replayed(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = clock()
        session.graph_replayed = True
        result = replay(self, *args, **kwargs)
        capture = self.__dict__.get(CAPTURED)
        # one inside a module's own call belongs to that call
        if capture and not session.muted and not session.in_call:
            end = clock()
            session.attempt(capture.repeat, session, start, end)
            step_ended(end)
        return result

    for name, ours in (
        ("capture_begin", capture_begin),
        ("capture_end", capture_end),
        ("replay", replayed),
    ):
        ours.__doc__ = getattr(graph, name).__doc__
        session.patches.put(graph, name, ours)
