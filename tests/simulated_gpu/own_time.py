"""Time that passes for this process alone: while it computes, and as long as it says it sleeps.

What others take of the machine does not show in it, so that what a program's host and its device
do beside each other is the same on a busy machine as on an idle one; and a sleep is short.
For programs of one thread: what is waited for outside of `time.sleep` takes no time.
"""

import sys
import time
from collections.abc import Callable

PROBE = "_gpu_advisor_probe"
FASTER = 20.0
"""How many times as fast as the machine's own a sleep passes: an observer outside keeps up."""
_cpu = time.process_time
_really_sleep = time.sleep
_slept = 0.0


def begin() -> None:
    """From now on the clocks of `time` tell it; they go on from where they are.

    So do those of the probe, which is there already and has taken its clocks from `time`, so that
    what a program does to `time` changes none of them. Here all of the process is to have one time.
    """
    started = _cpu()

    def passed() -> float:
        return _cpu() - started + _slept

    own = {time.sleep: _sleep}
    for clock in (time.perf_counter, time.monotonic, time.time):
        own[clock] = _going_on(clock(), passed)
    loaded = [module for name, module in sys.modules.items() if name.startswith(PROBE)]
    for module in (time, *loaded):
        for name, value in list(vars(module).items()):
            if callable(value) and value in own:
                setattr(module, name, own[value])


def _going_on(since: float, passed: Callable[[], float]) -> Callable[[], float]:
    return lambda: since + passed()


def _sleep(seconds: float) -> None:
    global _slept
    _slept += max(0.0, seconds)
    _really_sleep(max(0.0, seconds) / FASTER)
