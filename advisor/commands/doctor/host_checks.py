"""Checks of the host, as pure functions of readings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.commands.doctor.table import Check, Readings, Seen
from advisor.machine.contention import OTHERS_SHARE, STEAL_SHARE
from advisor.sandbox.capabilities import FORCED, Capability

if TYPE_CHECKING:
    from advisor.machine.host_condition import Governor

LEAST_FREE_SHARE, LEAST_FREE_GIB = 0.10, 1.0
"""RAM that must be left, or the kernel begins to drop cached files and to swap."""
LEAST_SHM_GIB = 1.0
LEAST_FILES = 1024
FREE_CLOCKS = {"performance", "schedutil", "ondemand", "conservative", "interactive"}
"""Governors that go up to the highest clock under load."""
SELF_CLOCKING = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp", "intel_cpufreq")
"""Drivers under which `powersave` only lets the hardware choose, by its preference."""
SPARING = {"power", "balance_power"}

COSTLY_SETTINGS = {
    "CUDA_LAUNCH_BLOCKING": "every launch waits for the GPU",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor is allocated by the driver",
    "CUDA_CACHE_DISABLE": "kernels are compiled anew at each start",
    "PYTHONDEVMODE": "Python checks itself all the time",
    "PYTHONTRACEMALLOC": "Python notes every allocation",
}
"""Variables for finding faults, which were left set, and what they cost."""


def cpus(readings: Readings) -> Seen:
    host = readings.host
    value = f"{host.cpus} usable of {host.cpus_shown} shown"
    if host.quota_cpus is not None:
        value += f"; the cgroup grants {host.quota_cpus:g}"
    return Seen(value=value, ok=True)


def governor(readings: Readings) -> Seen:
    found = readings.host.governor
    if found is None:
        return Seen(value="not told: a virtual machine, or the firmware chooses the clocks")
    names = ", ".join(found.names)
    detail = ", ".join(filter(None, [found.driver, found.preference]))
    value = f"{names} ({detail})" if detail else names
    slow = [name for name in found.names if not _free_to_rise(name, found)]
    return Seen(value=value, ok=not slow, fix="sudo cpupower frequency-set -g performance")


def _free_to_rise(name: str, found: Governor) -> bool:
    if name == "powersave" and found.driver.startswith(SELF_CLOCKING):
        return found.preference not in SPARING
    return name in FREE_CLOCKS


def memory(readings: Readings) -> Seen:
    whole, left = readings.host.ram_gib, readings.host.ram_left_gib
    if whole is None or left is None:
        return Seen()
    least = max(LEAST_FREE_GIB, LEAST_FREE_SHARE * whole)
    return Seen(
        value=f"{left:.1f} of {whole:.1f} GiB left",
        ok=left >= least,
        good=f"at least {least:.1f} GiB left",
        fix="ps -eo pid,user,rss,comm --sort=-rss | head",
    )


def swap(readings: Readings) -> Seen:
    whole, used, pages = (
        readings.host.swap_gib,
        readings.host.swap_used_gib,
        readings.swapped_pages,
    )
    if whole is None or used is None or pages is None:
        return Seen()
    moved = f"{pages} pages read back meanwhile" if pages else "nothing read back meanwhile"
    value = f"{used:.1f} of {whole:.1f} GiB used, {moved}" if whole else "none"
    return Seen(value=value, ok=not pages, fix="ps -eo pid,user,rss,comm --sort=-rss | head")


def shared_memory(readings: Readings) -> Seen:
    whole, left = readings.host.shm_gib, readings.host.shm_left_gib
    if whole is None or left is None:
        return Seen(value="no /dev/shm")
    used = f"{whole - left:.2f} used" if whole else "none used"
    fix = "sudo mount -o remount,size=8G /dev/shm"
    if readings.host.container:
        fix = "docker run --shm-size=8g ...  # or --ipc=host; for pods, an emptyDir in memory"
    return Seen(value=f"{whole:.2f} GiB, {used}", ok=left >= LEAST_SHM_GIB, fix=fix)


def limits(readings: Readings) -> Seen:
    found = {limit.name: limit for limit in readings.host.limits}
    parts = [f"{limit.soft or 'any'} {limit.name}" for limit in found.values()]
    files = found.get("open files")
    few = files is not None and files.soft is not None and files.soft < LEAST_FILES
    bound = [name for name in ("address space", "CPU time") if name in found and found[name].soft]
    flags = {"address space": "-v", "CPU time": "-t"}
    fix = [f"ulimit {flags[name]} unlimited" for name in bound]
    fix += [f"ulimit -n {files.hard or 'unlimited'}"] if few and files else []
    return Seen(value=", ".join(parts), ok=not few and not bound, fix="; ".join(fix))


def costly_settings(readings: Readings) -> Seen:
    found = [
        name for name in COSTLY_SETTINGS if readings.environ.get(name, "") not in {"", "0", "false"}
    ]
    if not found:
        return Seen(value="none", ok=True)
    parts = [f"{name} ({COSTLY_SETTINGS[name]})" for name in found]
    return Seen(value=", ".join(parts), ok=False, fix=f"unset {' '.join(found)}")


def other_programs(readings: Readings) -> Seen:
    crowd = readings.crowd
    if crowd is None or crowd.others_cpus is None:
        return Seen()
    who = ", ".join(f"{each.name} {each.cpus:.1f}" for each in crowd.who)
    value = f"{crowd.others_cpus:.1f} of {readings.host.cpus_shown} CPUs busy"
    ok = crowd.others_cpus <= OTHERS_SHARE * readings.host.cpus_shown
    fix = "ps -eo pid,user,pcpu,comm --sort=-pcpu | head"
    return Seen(value=f"{value} ({who})" if who else value, ok=ok, fix=fix)


def stolen_time(readings: Readings) -> Seen:
    crowd = readings.crowd
    if crowd is None or crowd.steal_share is None:
        return Seen()
    share = crowd.steal_share
    fix = "vmstat 1 5  # column st; the provider's: a machine with CPUs of its own"
    return Seen(value=f"{share:.0%} of the CPUs' time", ok=share <= STEAL_SHARE, fix=fix)


def isolation(readings: Readings) -> Seen:
    found = readings.isolation
    if not isinstance(found, Capability):
        return Seen(value=found) if found else Seen()
    why = f" ({found.why_not_better})" if found.refused else ""
    fix = "sudo sysctl user.max_user_namespaces=15000  # see docs/isolation.md"
    if not found.refused:
        fix = f"unset {FORCED}"
    elif readings.host.container:
        fix = "docker run --security-opt seccomp=unconfined ...  # lets it make namespaces"
    return Seen(value=f"{found.kind}{why}", ok=found.kind != "guard", fix=fix)


def disturbance(readings: Readings) -> Seen:
    crowd = readings.crowd
    if crowd is None or crowd.disturbed is None:
        return Seen(value="what others do cannot be read here (/proc/stat)")
    with_steal = " and by the hypervisor" if crowd.steal_share is not None else ""
    return Seen(value=f"what others take is read every 0.1 s, from /proc{with_steal}", ok=True)


HOST_CHECKS: tuple[Check[Readings], ...] = (
    Check(
        name="CPUs",
        good="what you meant to have",
        why="loader workers and threads share these; programs often count more than they may use",
        look=cpus,
    ),
    Check(
        name="CPU governor",
        good="one that raises the clocks under load",
        why="decoding, launching and everything on the CPU runs at this clock",
        look=governor,
    ),
    Check(
        name="memory",
        good="a tenth left",
        why="files that are read again come from what is left; with none, programs are killed",
        look=memory,
    ),
    Check(
        name="swap",
        good="nothing read back",
        why="memory that is read back from a disk is a thousand times slower",
        look=swap,
    ),
    Check(
        name="/dev/shm",  # noqa: S108  looked at, not written to
        good=f"at least {LEAST_SHM_GIB:g} GiB left",
        why="loader workers hand every batch over through it; a full one kills them",
        look=shared_memory,
    ),
    Check(
        name="limits",
        good=f"at least {LEAST_FILES} open files, address space and CPU time unlimited",
        why="each tensor that a worker hands over holds a file open; CUDA reserves address space",
        look=limits,
    ),
    Check(
        name="debug settings",
        good="none",
        why="they are made for finding faults, and slow everything",
        look=costly_settings,
    ),
    Check(
        name="other programs",
        good="at most a quarter of the CPUs",
        why="they take CPUs from loader and launches",
        look=other_programs,
    ),
    Check(
        name="stolen time",
        good=f"at most {STEAL_SHARE:.0%}",
        why="the hypervisor gave these CPUs to somebody else meanwhile",
        look=stolen_time,
    ),
    Check(
        name="isolation",
        good="overlay or landlock",
        why="what your program writes while it is measured must not touch your files",
        look=isolation,
        costs="measuring",
    ),
    Check(
        name="disturbance",
        good="what others take can be read",
        why="a run that others slowed down decides nothing, if that is seen",
        look=disturbance,
        costs="measuring",
    ),
)
