"""Time that passes for this process alone: while it computes, and as long as it says it sleeps.

What others take of the machine does not show in it, so that what a program's host and its device
do beside each other is the same on a busy machine as on an idle one; and a sleep is short.
For programs of one thread: what is waited for outside of `time.sleep` takes no time.
"""

import time
from collections.abc import Callable

FASTER = 20.0
"""How many times as fast as the machine's own a sleep passes: an observer outside keeps up."""
_cpu = time.process_time
_really_sleep = time.sleep
_slept = 0.0


def begin() -> None:
    """From now on the clocks of `time` tell it; they go on from where they are."""
    started = _cpu()

    def passed() -> float:
        return _cpu() - started + _slept

    for name in ("perf_counter", "monotonic", "time"):
        setattr(time, name, _going_on(getattr(time, name)(), passed))
    time.sleep = _sleep


def _going_on(since: float, passed: Callable[[], float]) -> Callable[[], float]:
    return lambda: since + passed()


def _sleep(seconds: float) -> None:
    global _slept
    _slept += max(0.0, seconds)
    _really_sleep(max(0.0, seconds) / FASTER)
