"""Turn of a call on a machine that others measure on, too."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from advisor import numbers
from advisor.errors import InterruptedByUserError, StateBusyError
from advisor.executor.engines import Engine

POLL_S = 0.5
"""Seconds between two looks; judgement."""


@contextlib.contextmanager
def taken(
    engine: Engine, wait_s: float, cancel: threading.Event, say: Callable[[str], None]
) -> Iterator[float]:
    """Hold `engine` as soon as nobody else does; gives the seconds waited.

    It waits `wait_s` at most, and says so. Raises StateBusyError after that, and
    InterruptedByUserError if `cancel` is set meanwhile.
    """
    begun, told = time.monotonic(), False
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(engine)
                break
            except StateBusyError as problem:
                waited_s = time.monotonic() - begun
                if waited_s >= wait_s:
                    if not wait_s:
                        raise
                    msg = f"{problem} It was waited for {numbers.duration(wait_s)}."
                    raise StateBusyError(msg) from problem
                if not told:
                    say(f"{problem} Waiting for it, {numbers.duration(wait_s)} at most.")
                told = True
                if cancel.wait(min(POLL_S, wait_s - waited_s)):
                    msg = "Interrupted while another gpu-advisor measured: nothing was run."
                    raise InterruptedByUserError(msg) from problem
        waited_s = time.monotonic() - begun if told else 0.0
        if told:
            say(f"Its turn came after {numbers.duration(waited_s)}.")
        yield waited_s
