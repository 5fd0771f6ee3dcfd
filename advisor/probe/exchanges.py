"""Exchanges with other ranks, as a card sees them.

The host queues an exchange and goes on: only the card waits, for the other ranks and for the
numbers. So each is timed by two events, from when the card is through with its own work until it
may go on.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from .clocks import clock
from .session import Session

COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_single", "reduce_scatter",
    "reduce_scatter_tensor", "reduce_scatter_single", "broadcast", "reduce", "all_to_all_single",
    "barrier", "_broadcast_coalesced",
)  # fmt: skip
"""Functions of torch.distributed that let the stream wait, unless they are asynchronous.
DistributedDataParallel calls the last one at each forward of a network with buffers, such as the
averages of batch normalisation."""


def ranks() -> int:
    """Ranks of this job that exchange numbers; 1 without a group."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return 1
    return int(distributed.get_world_size()) if distributed.is_initialized() else 1


def watch_collectives(session: Session, thread: int) -> None:
    """Time the exchanges that `thread` asks for itself."""
    distributed: Any = sys.modules.get("torch.distributed")
    if ranks() < 2:
        return

    def exchange(original: Any, *args: Any, **kwargs: Any) -> Any:
        device = session.device
        unseen = session.counting or session.reading or session.capture is not None
        if unseen or threading.get_ident() != thread or kwargs.get("async_op"):
            return original(*args, **kwargs)
        event = None if device.is_aside() else device.event()
        result = original(*args, **kwargs)
        if event is not None:
            device.queue(clock(), ("exchange", event))
        return result

    for name in COLLECTIVES:
        if hasattr(distributed, name):  # not all versions of torch have all
            session.device_patches.wrap(distributed, name)(exchange)


class BackwardExchange:
    """Times what a backward pass waits for other ranks, once its own gradients are there.

    DistributedDataParallel lets the stream wait for the exchange in a callback at the end of the
    pass. The engine calls back in the order of asking, and a hook of the loss asks first: so an
    event there is passed when the card is through with its own work.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hook: Any = None
        self._event: Any = None

    def open(self, tensors: Any) -> None:
        """Watch the pass that begins at `tensors`."""
        session = self._session
        tensor = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        if (
            session.capture is not None
            or not getattr(tensor, "requires_grad", False)
            or ranks() < 2
        ):
            return
        engine = session.torch.autograd.Variable._execution_engine

        def ask(_: Any) -> None:
            session.attempt(engine.queue_callback, through)

        def through() -> None:
            session.attempt(self._mark)

        with session.unseen():
            self._hook = tensor.register_hook(ask)

    def _mark(self) -> None:
        self._event = self._session.device.event()

    def close(self, end: float) -> None:
        """Mark the end of the exchange; `end`: of the pass, by the host."""
        if self._hook is not None:
            self._hook.remove()
        if self._event is not None:
            self._session.device.queue(end, ("exchange", self._event))
