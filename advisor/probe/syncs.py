"""Where a step gives numbers of tensors to the host, how often, and how long it waits for them.

On a device each of these waits until all that was queued is done. Without one nothing is waited
for; then the first calls that stand in the user's own code are counted alone, because that code
waits once it runs on a device. What a library calls on the host may be of numbers that stay there.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Sequence, Tuple

from .loaders import installed, shown

if TYPE_CHECKING:
    from .session import Session
    from .window import Window

ON_HOST = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")
"""Methods that are counted where no device computes."""
MOST_CALLS = 20_000
"""On the host so many calls are counted; then they cost next to nothing. On a device the last ones
are kept."""
MOST_TOLD = 8
Place = Tuple[Any, int, str]
"""Code, line in it, and method."""
RARE = 0.01
"""Fewer a step are none of the loop's."""
OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


clock = time.perf_counter


class Syncs:
    """Calls by the line of the user's code that they come from."""

    def __init__(self) -> None:
        self._since = clock()
        self._until = float("inf")
        """Between these all calls are kept."""
        self._calls: Deque[Tuple[float, Place, float]] = deque()
        """When each ended, where it was, and seconds in it."""

    def note(self, frame: Any, name: str, end: float, seconds: float) -> None:
        """One call from `frame`, or from what the user's code called there."""
        while frame is not None and foreign(frame.f_code):
            frame = frame.f_back
        if frame is None:
            return
        if len(self._calls) == MOST_CALLS:
            self._since = self._calls.popleft()[0]
        self._calls.append((end, (frame.f_code, frame.f_lineno, name), seconds))

    def close(self) -> None:
        """No more is counted from here on."""
        self._until = min(self._until, clock())

    def told(self, window: Window, waited: bool) -> list[dict[str, Any]]:
        """The places, the costliest first: site, call, times a step, and mean milliseconds.

        Of the window's steps; where none of them was counted, of those of the run that were.
        """
        steps = self._counted(window.host_bounds[window.first : window.last + 1])
        steps = steps or self._counted(window.host_bounds)
        if not steps:
            return []
        many = len(steps) - 1
        sums: Dict[Place, List[float]] = {}
        for end, place, seconds in self._calls:
            if steps[0] < end <= steps[-1]:
                found = sums.setdefault(place, [0.0, 0.0])
                found[0] += 1
                found[1] += seconds
        told: list[dict[str, Any]] = [
            {
                "site": f"{shown(code.co_filename)}:{line}",
                "call": name,
                "per_step": calls / many,
                "ms": 1000.0 * seconds / calls if waited else None,
            }
            for (code, line, name), (calls, seconds) in sums.items()
            if calls >= RARE * many
        ]
        told.sort(key=lambda each: -each["per_step"] * (each["ms"] or 1.0))
        return told[:MOST_TOLD]

    def _counted(self, bounds: Sequence[float]) -> Sequence[float]:
        """Those of the steps' bounds between which all calls are kept; empty without a step."""
        held = [bound for bound in bounds if self._since <= bound <= self._until]
        return held if len(held) > 1 else []


_foreign_files: dict[str, bool] = {}


def foreign(code: Any) -> bool:
    """Whether it is no code of the user's."""
    name = code.co_filename
    known = _foreign_files.get(name)
    if known is None:
        known = _foreign_files[name] = name.startswith((OWN, "<")) or installed(name)
    return known


def watch_host(session: Session) -> None:
    """Count the calls of this thread, outside of the loader, where no device computes."""
    tensor, own = session.torch.Tensor, threading.get_ident()
    syncs = session.syncs = Syncs()
    left = MOST_CALLS

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left and not session.fetching and threading.get_ident() == own:
                left -= 1
                frame = sys._getframe(1)
                if session.frozen is not None or not left:
                    syncs.close()
                    left = 0
                elif not foreign(frame.f_code):
                    syncs.note(frame, name, clock(), 0.0)
            return original(self, *args, **kwargs)

        return counted

    for name in ON_HOST:
        session.patches.put(tensor, name, counting(name, getattr(tensor, name)))
