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
from typing import TYPE_CHECKING, Any, Callable

from .loaders import installed, shown

if TYPE_CHECKING:
    from .session import Session

ON_HOST = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")
"""Methods that are counted where no device computes."""
MOST_CALLS = 20_000
"""On the host so many calls are counted; then they cost next to nothing."""
MOST_TOLD = 8
RARE = 0.01
"""Fewer a step are none of the loop's."""
OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Syncs:
    """Calls by the line of the user's code that they come from."""

    def __init__(self, steps: int) -> None:
        self._began = steps
        self._ended: int | None = None
        self._calls: dict[tuple[Any, int, str], list[float]] = {}
        """By code, place in it and method: calls, and seconds in them."""

    def note(self, frame: Any, name: str, seconds: float) -> None:
        """One call from `frame`, or from what the user's code called there."""
        while frame is not None and foreign(frame.f_code):
            frame = frame.f_back
        if frame is None:
            return
        found = self._calls.setdefault((frame.f_code, frame.f_lineno, name), [0.0, 0.0])
        found[0] += 1
        found[1] += seconds

    def close(self, steps: int) -> None:
        """No more is counted from here on."""
        self._ended = steps if self._ended is None else self._ended

    def told(self, steps: int, waited: bool) -> list[dict[str, Any]]:
        """The places, the costliest first: site, call, times a step, and mean milliseconds."""
        many = (steps if self._ended is None else self._ended) - self._began
        if many < 1:
            return []
        found: list[dict[str, Any]] = [
            {
                "site": f"{shown(code.co_filename)}:{line}",
                "call": name,
                "per_step": calls / many,
                "ms": 1000.0 * seconds / calls if waited else None,
            }
            for (code, line, name), (calls, seconds) in self._calls.items()
            if calls >= RARE * many
        ]
        found.sort(key=lambda each: -each["per_step"] * (each["ms"] or 1.0))
        return found[:MOST_TOLD]


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
    syncs = session.syncs = Syncs(session.log.steps())
    left = MOST_CALLS

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left and not session.fetching and threading.get_ident() == own:
                left -= 1
                frame = sys._getframe(1)
                if session.frozen is not None or not left:
                    syncs.close(session.log.steps())
                    left = 0
                elif not foreign(frame.f_code):
                    syncs.note(frame, name, 0.0)
            return original(self, *args, **kwargs)

        return counted

    for name in ON_HOST:
        session.patches.put(tensor, name, counting(name, getattr(tensor, name)))
