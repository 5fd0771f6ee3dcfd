"""Synchronizing calls, with their user code lines.

On a device each of these waits until all that was queued is done. Without one nothing is waited
for; then the first calls that stand in the user's own code are recorded alone, because that code
waits once it runs on a device. Calls that a library makes on the host may be of numbers that stay
there.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any, Callable

from . import call_sites
from .session import Session

ON_HOST = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")
"""Methods that are recorded where no device computes."""
MOST_CALLS = 20_000
"""Most calls recorded on the host; then they cost next to nothing."""

clock = time.perf_counter


def record_sync(session: Session, frame: Any, name: str, start: float, end: float) -> None:
    """Record a synchronizing call at the user's line."""
    while frame is not None and call_sites.is_foreign(frame.f_code):
        frame = frame.f_back
    if frame is not None:
        site = f"{call_sites.shown(frame.f_code.co_filename)}:{frame.f_lineno}"
        session.add(("sync", start, end, site, name))


def watch_host(session: Session) -> None:
    """Record this thread's host calls without a device."""
    tensor, own = session.torch.Tensor, threading.get_ident()
    session.host_syncs = True
    left = MOST_CALLS

    def recording(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left and not session.fetching and threading.get_ident() == own:
                left -= 1
                frame = sys._getframe(1)
                if not call_sites.is_foreign(frame.f_code):
                    now = clock()
                    record_sync(session, frame, name, now, now)
            return original(self, *args, **kwargs)

        return call

    session.replace(tensor, {name: recording(name, getattr(tensor, name)) for name in ON_HOST})
