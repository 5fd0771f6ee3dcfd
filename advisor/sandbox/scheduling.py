"""How the kernel schedules a process: CPUs, nice, policy, I/O priority and limits.

Processes of one user may change each other's. A program could so slow whatever runs after it, or
quicken itself alone. So the values of a call are those at its start: each trial begins with them,
whatever became of the caller's since.

Standard library only, for the supervisor.
"""

import ctypes
import functools
import os
import resource
import threading
from collections.abc import Mapping
from typing import Any

IOPRIO = {"x86_64": (251, 252), "aarch64": (30, 31)}
"""Numbers of ioprio_set and ioprio_get."""
IO_OF_A_PROCESS = 1
"""IOPRIO_WHO_PROCESS of `linux/ioprio.h`, for ioprio_set(2)."""
LIMITS = {
    name: getattr(resource, name)
    for name in sorted(dir(resource))
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}
NAMES = {
    "cpus": "its CPUs",
    "nice": "its nice value",
    "policy": "its scheduling policy",
    "priority": "its real-time priority",
    "io": "its I/O priority",
    "limits": "its limits",
}
"""In words, to tell what was changed."""

_libc = ctypes.CDLL(None, use_errno=True)


def read(thread: int = 0) -> dict[str, Any]:
    """Return the values of a thread, and the limits of this process; 0 is the caller."""
    return {
        "cpus": sorted(os.sched_getaffinity(thread)),
        "nice": os.getpriority(os.PRIO_PROCESS, thread),
        "policy": os.sched_getscheduler(thread),
        "priority": os.sched_getparam(thread).sched_priority,
        "io": _io_priority(thread),
        "limits": {
            name: list(resource.getrlimit(number)) for name, number in LIMITS.items()
        },
    }


def apply(wanted: Mapping[str, Any], thread: int = 0) -> None:
    """Set what differs. Raises OSError or ValueError where this user may not."""
    before = read(thread)
    if before["cpus"] != wanted["cpus"]:
        os.sched_setaffinity(thread, wanted["cpus"])
    both = [(state["policy"], state["priority"]) for state in (before, wanted)]
    if both[0] != both[1]:
        os.sched_setscheduler(thread, wanted["policy"], os.sched_param(wanted["priority"]))
    if before["nice"] != wanted["nice"]:
        os.setpriority(os.PRIO_PROCESS, thread, wanted["nice"])
    if before["io"] != wanted["io"] and wanted["io"] is not None:
        _set_io_priority(thread, wanted["io"])
    for name, limits in wanted["limits"].items():
        if before["limits"][name] != limits:
            resource.setrlimit(LIMITS[name], (limits[0], limits[1]))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return in words what is not as it was."""
    return [words for name, words in NAMES.items() if before[name] != after[name]]


@functools.cache
def at_start() -> dict[str, Any]:
    """Return the values of this process when it first asked: before any program ran."""
    return read()


class Watch:
    """Values of this process at the start of a call, and whether they still hold."""

    def __init__(self) -> None:
        self.start = at_start()

    def changed(self) -> str | None:
        """Say what others changed since, and put it back; None if nothing."""
        changed: list[str] = []
        for thread in [thread.native_id for thread in threading.enumerate()]:
            if thread is None:
                continue
            try:
                changed += differences(self.start, read(thread))
                apply(self.start, thread)
            except (OSError, ValueError):  # it ended, or what was taken cannot be had again
                continue
        once = list(dict.fromkeys(changed))
        return f"something changed {', '.join(once)} of gpu-advisor" if once else None


def _io_priority(thread: int) -> int | None:
    numbers = IOPRIO.get(os.uname().machine)
    if numbers is None:
        return None
    priority = _libc.syscall(ctypes.c_long(numbers[1]), IO_OF_A_PROCESS, thread)
    return int(priority) if priority >= 0 else None


def _set_io_priority(thread: int, value: int) -> None:
    number = IOPRIO[os.uname().machine][0]
    if _libc.syscall(ctypes.c_long(number), IO_OF_A_PROCESS, thread, value) < 0:
        raise OSError(ctypes.get_errno(), "ioprio_set")
