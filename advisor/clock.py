"""The clock of all measurements: epoch seconds that never step.

The wall clock is set back and forth by NTP, by people and by hypervisors. A trial that took it for
a stopwatch would last minus ten seconds, or be over its limit of an hour at once. So the wall clock
is read once, when this process begins, and the monotonic clock is added to that. The probe is told
the same start, and both speak of one time. Only dates for people and the dates of files are the
wall clock's own.
"""

import time

EPOCH = time.time() - time.monotonic()
"""Added to the monotonic clock of this host it gives the seconds of `now`."""


def now() -> float:
    """Epoch seconds of now, by the clock as it was when this process began."""
    return EPOCH + time.monotonic()


def set_ahead_s() -> float:
    """Seconds by which the wall clock was set ahead since then; below 0: set back."""
    return time.time() - now()
