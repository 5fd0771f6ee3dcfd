"""Copies between devices and waits, with the user's code lines.

A copy to the host waits until all that was queued on the device is done. Calls that torch makes by
name from compiled code do not come through here; they are no wait of the loop around it either.
"""

from __future__ import annotations

import functools
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
        site = call_sites.user_site()
        if site is not None:
            self._session.add(("sync", start, end, site, name))

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

        @functools.wraps(original)
        def move(it: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_left_alone():
                return original(it, *args, **kwargs)
            was = it.is_cuda
            event = None if was or not _names_card(args, kwargs, name) else self._event()
            start = clock()
            moved = original(it, *args, **kwargs)
            if moved is not it and moved.is_cuda != was:
                self._copied(name, start, event, was and not _non_blocking(args, kwargs))
            return moved

        return move

    def _event(self) -> Any:
        """Event before a copy to the card; None inside a capture or on a stream of its own."""
        device = self._session.device
        unseen = self._session.capture is not None or device.is_aside()
        return None if unseen else device.event()

    def _copied(self, name: str, start: float, event: Any, waits: bool) -> None:
        """Record a copy; `event` lies before one to the card, `waits` is one to the host."""
        if waits:
            self._waited(start, name)
        elif event is not None:
            self._session.add(("copy", start, clock()))
            self._session.device.copied(event, self._session.device.event())


def watch_device(session: Session) -> None:
    """Record this thread's device copies and waits."""
    tensor, cuda, hooks = session.torch.Tensor, session.torch.cuda, _DeviceHooks(session)
    ours = {name: hooks.waiting(name, getattr(tensor, name), True) for name in WAITS}
    ours.update({name: hooks.moving(name, getattr(tensor, name)) for name in MOVES})
    session.replace(tensor, ours)
    for owner in (cuda.Event, cuda.Stream, cuda):
        wait = hooks.waiting("synchronize", owner.synchronize, False)
        session.replace(owner, {"synchronize": wait})


def _names_card(args: Any, kwargs: Any, name: str) -> bool:
    """Return True if the arguments may name a card."""
    target = kwargs.get("device", args[0] if args else None)
    if hasattr(target, "is_cuda"):  # the text of a tensor waits for its numbers
        return bool(target.is_cuda)
    return name == "cuda" or isinstance(target, int) or "cuda" in str(target)[:16]


def _non_blocking(args: Any, kwargs: Any) -> bool:
    """Return True for a copy that the host does not wait for."""
    return bool(kwargs.get("non_blocking")) or any(each is True for each in args)
