"""Copies between devices and waits, with the user's code lines.

A copy to the host waits until all that was queued on the device is done. Calls that torch makes by
name from compiled code do not come through here; they are no wait of the loop around it either.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any, Callable

from . import call_sites
from .session import Session

WAITS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")
"""Methods of a tensor that give its numbers to the host."""
MOVES = ("to", "cuda")

Hook = Callable[..., Any]

clock = time.perf_counter


def record_sync(session: Session, name: str, start: float, end: float) -> None:
    """Record a synchronizing call at the user's line."""
    frame: Any = sys._getframe(2)
    while frame is not None and call_sites.is_foreign(frame.f_code):
        frame = frame.f_back
    if frame is not None:
        site = f"{call_sites.shown(frame.f_code.co_filename)}:{frame.f_lineno}"
        session.add(("sync", start, end, site, name))


class _DeviceHooks:
    """Hooks of one thread's device copies and waits."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._own = threading.get_ident()

    def _is_left_alone(self) -> bool:
        """Return True for a call of the probe, or of another thread."""
        return self._session.reading or threading.get_ident() != self._own

    def _waited(self, start: float, name: str) -> None:
        end = clock()
        self._session.add(("wait", start, end))
        record_sync(self._session, name, start, end)

    def waiting(self, name: str, original: Hook, on_device: bool) -> Hook:
        """Wrap a method that waits for the device."""

        @functools.wraps(original)
        def wait(*args: Any, **kwargs: Any) -> Any:
            if (on_device and not args[0].is_cuda) or self._is_left_alone():
                return original(*args, **kwargs)
            start = clock()
            try:
                return original(*args, **kwargs)
            finally:
                self._waited(start, name)

        return wait

    def moving(self, name: str, original: Hook) -> Hook:
        """Wrap a method that may copy between devices."""
        session = self._session

        @functools.wraps(original)
        def move(it: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_left_alone():
                return original(it, *args, **kwargs)
            was, before = it.is_cuda, None
            if not was and session.capture is None and _goes_to_card(args, kwargs, name):
                before = session.device.event()
            start = clock()
            moved = original(it, *args, **kwargs)
            if moved is it or moved.is_cuda == was:
                return moved
            if was:
                self._waited(start, name)
                return moved
            session.add(("copy", start, clock()))
            if before is not None:
                session.device.copied(before, session.device.event())
            return moved

        return move


def watch_device(session: Session) -> None:
    """Record this thread's device copies and waits."""
    tensor, cuda, hooks = session.torch.Tensor, session.torch.cuda, _DeviceHooks(session)
    ours = {name: hooks.waiting(name, getattr(tensor, name), True) for name in WAITS}
    ours.update({name: hooks.moving(name, getattr(tensor, name)) for name in MOVES})
    session.replace(tensor, ours)
    for owner in (cuda.Event, cuda.Stream, cuda):
        wait = hooks.waiting("synchronize", owner.synchronize, False)
        session.replace(owner, {"synchronize": wait})


def _goes_to_card(args: Any, kwargs: Any, name: str) -> bool:
    """Return True if the arguments may name a card."""
    target = kwargs.get("device", args[0] if args else None)
    return name == "cuda" or isinstance(target, int) or "cuda" in str(target)[:16]
