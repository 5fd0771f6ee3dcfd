"""CUDA graphs: what is captured was not done yet; each replay does all of it."""

from __future__ import annotations

import time
from typing import Any

from .hooking import step_end
from .session import Session

KINDS = ("forwards", "inners", "backwards", "grads", "opts")
"""Lists of the log whose entries begin with (enter, exit)."""
CAPTURED = "_gpu_advisor_captured"

clock = time.perf_counter


class Capture:
    """One capture: where it began, then what the hooks saw in it."""

    def __init__(self, session: Session) -> None:
        self._start = clock()
        self._seconds = 0.0
        self._lengths = {kind: len(getattr(session.log, kind)) for kind in KINDS}
        self._entries: dict[str, list[Any]] = {}

    def close(self, session: Session) -> None:
        """Take what was seen since out of the log: none of it was done."""
        self._seconds = max(clock() - self._start, 1e-9)
        for kind, length in self._lengths.items():
            entries = getattr(session.log, kind)
            self._entries[kind] = entries[length:]
            del entries[length:]

    def __bool__(self) -> bool:
        return any(self._entries.values())

    def repeat(self, session: Session, start: float, end: float) -> None:
        """Into the log, in the order of the capture, as if done between `start` and `end`."""
        scale = (end - start) / self._seconds

        def moved(time_s: float) -> float:
            return start + scale * (time_s - self._start)

        for kind, entries in self._entries.items():
            getattr(session.log, kind).extend(
                (moved(entry[0]), moved(entry[1]), *entry[2:]) for entry in entries
            )


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
        session.replayed = True
        result = replay(self, *args, **kwargs)
        capture = self.__dict__.get(CAPTURED)
        # one inside a module's own call belongs to that call
        if capture and not session.muted and not session.root_runs:
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
