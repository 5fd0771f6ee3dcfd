"""CUDA graphs: each replay repeats the events of its capture."""

from __future__ import annotations

import time
from typing import Any

from .session import Session

TIMED = ("call", "backward", "gradient", "step")
"""Kinds of events that a replay repeats; each has its start and end in second and third place."""
CAPTURED = "_gpu_advisor_captured"

clock = time.perf_counter


def install(torch: Any, session: Session) -> None:
    """Hook captures, which do no work, and replays."""
    graph: Any = getattr(torch.cuda, "CUDAGraph", None)
    if not all(hasattr(graph, name) for name in ("capture_begin", "capture_end", "replay")):
        return

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
        self.__dict__[CAPTURED] = [event for event in captured if event[0] in TIMED]
        for event in captured:
            if event[0] not in TIMED:
                session.add(event)
        return finish(self, *args, **kwargs)

    @session.patches.wrap(graph, "replay")
    def replayed(replay: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        start = clock()
        session.graph_replayed = True
        result = replay(self, *args, **kwargs)
        captured = self.__dict__.get(CAPTURED)
        # one inside a module's own call belongs to that call
        if captured and not session.muted and not session.in_call:
            end = clock()
            for kind, _, _, *rest in captured:
                session.add((kind, start, end, *rest))
            session.step_ended(end)
        return result
