"""Clocks of the probe, as they were before the program's first line.

Most parts of the probe are imported with torch, when the program may have patched `time` (tests
freeze it, simulations let it run faster). This module is imported at the start of the process,
and all others take their clocks from here.
"""

from time import monotonic, perf_counter, process_time, sleep, time as wall_time

clock = perf_counter
"""Seconds of steps; of no meaning but in differences."""

__all__ = ["clock", "monotonic", "process_time", "sleep", "wall_time"]
