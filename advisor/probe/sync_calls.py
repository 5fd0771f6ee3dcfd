"""Copies between devices and waits, with the user's code lines.

A copy to the host waits until all that was queued on the device is done. Calls that torch makes by
name from compiled code do not come through here; they are no wait of the loop around it either.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

from . import call_sites
from .session import Session

WAITS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")
"""Methods of a tensor that give its numbers to the host."""
MOVES = ("to", "cuda")

clock = time.perf_counter


def watch_device(session: Session) -> None:
    """Record this thread's device copies and waits."""
    tensor, cuda = session.torch.Tensor, session.torch.cuda
    own = threading.get_ident()

    def is_left_alone() -> bool:
        return session.counting or session.reading or threading.get_ident() != own

    def waiting(name: str, *, on_device: bool = True) -> Callable[..., Any]:
        def wait(original: Any, *args: Any, **kwargs: Any) -> Any:
            if is_left_alone() or (on_device and not args[0].is_cuda):
                return original(*args, **kwargs)
            start = clock()
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
            moved = original(it, *args, **kwargs)
            queued = kwargs.get("non_blocking") or any(each is True for each in args)
            if was and not moved.is_cuda and not queued:
                _waited(session, start, name)
            elif event is not None and moved.is_cuda:
                session.add(("copy", start, clock()))
                device.queue(clock(), event)
            return moved

        return move

    for name in WAITS:
        session.patches.wrap(tensor, name)(waiting(name))
    for name in MOVES:
        session.patches.wrap(tensor, name)(moving(name))
    for owner in (cuda.Event, cuda.Stream, cuda):
        session.patches.wrap(owner, "synchronize")(waiting("synchronize", on_device=False))


def _waited(session: Session, start: float, name: str) -> None:
    """Record a wait of the host, with the user's line where one led to it."""
    session.add(("wait", start, clock(), call_sites.user_site() or "", name))


def _names_card(args: Any, kwargs: Any, name: str) -> bool:
    target = kwargs.get("device", args[0] if args else None)
    if hasattr(target, "is_cuda"):  # the text of a tensor waits for its numbers
        return bool(target.is_cuda)
    return name == "cuda" or isinstance(target, int) or "cuda" in str(target)[:16]
