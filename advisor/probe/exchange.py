"""Where the host copies to the device, and where it waits for it.

Only in programs that use CUDA, and from the moment on when they do. What torch calls by name from
compiled code does not come through here; it is no wait of the loop around it either.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from .syncs import Syncs

if TYPE_CHECKING:
    from .session import Session

WAITS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")
"""Methods of a tensor that give its numbers to the host."""
MOVES = ("to", "cuda")

clock = time.perf_counter


def watch(session: Session) -> None:
    """Begin to note copies and waits of this thread."""
    torch, log, own = session.torch, session.log, threading.get_ident()
    tensor, cuda = torch.Tensor, torch.cuda
    syncs = session.syncs = Syncs()

    def waited(start: float, name: str, frame: Any) -> None:
        end = clock()
        log.waits.append((start, end))
        if session.frozen is None:
            syncs.note(frame, name, end, end - start)

    def noting(name: str, original: Callable[..., Any], on_device: bool) -> Callable[..., Any]:
        @functools.wraps(original)
        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            if (on_device and not self.is_cuda) or threading.get_ident() != own:
                return original(self, *args, **kwargs)
            start = clock()
            try:
                return original(self, *args, **kwargs)
            finally:
                waited(start, name, sys._getframe(1))

        return wait

    def moving(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def move(self: Any, *args: Any, **kwargs: Any) -> Any:
            start = clock()
            moved = original(self, *args, **kwargs)
            if moved is not self and threading.get_ident() == own:
                was, now = self.is_cuda, moved.is_cuda
                if now and not was:
                    log.copies.append((start, clock()))
                elif was and not now:
                    waited(start, name, sys._getframe(1))
            return moved

        return move

    for name in WAITS:
        session.patches.put(tensor, name, noting(name, getattr(tensor, name), on_device=True))
    for name in MOVES:
        session.patches.put(tensor, name, moving(name, getattr(tensor, name)))
    for owner in (cuda.Event, cuda.Stream):
        whole = noting("synchronize", owner.synchronize, on_device=False)
        session.patches.put(owner, "synchronize", whole)
    session.patches.put(cuda, "synchronize", _synchronizing(cuda.synchronize, own, waited))


def _synchronizing(
    original: Callable[..., Any], own: int, waited: Callable[[float, str, Any], None]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def synchronize(*args: Any, **kwargs: Any) -> Any:
        start = clock()
        try:
            return original(*args, **kwargs)
        finally:
            if threading.get_ident() == own:
                waited(start, "synchronize", sys._getframe(1))

    return synchronize
