"""Checks of cards, host and torch: one table of pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import numbers
from advisor.commands.doctor.interpreter import TorchFacts
from advisor.machine import profiles
from advisor.machine.contention import OTHERS_SHARE
from advisor.machine.readings import EVENT_REASONS, HARMFUL_EVENT_REASONS
from advisor.sandbox.capabilities import FORCED, Capability

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from advisor.machine.condition import CardCondition
    from advisor.machine.host_condition import HostCondition
    from advisor.model import Disturbance

BUSY_PCT = 5.0
"""From here on a card works, and its link is awake."""
HELD_SHARE = 0.05
"""Share of the card's memory that others may hold, such as a desktop."""
LOWERED = 0.99
"""A power limit below this part of the card's own was lowered by somebody."""
LEAST_FREE_SHARE, LEAST_FREE_GIB = 0.10, 1.0
"""RAM that must be left, or the kernel begins to drop cached files and to swap."""
LEAST_SHM_GIB = 1.0
FREE_CLOCKS = {"performance", "schedutil", "ondemand", "conservative", "interactive"}
"""Governors that go up to the highest clock under load."""
SELF_CLOCKING = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp", "intel_cpufreq")
"""Drivers under which `powersave` only lets the hardware choose, by its preference."""
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
TORCH_INDEX = (
    "python -m pip install --force-reinstall torch --index-url https://download.pytorch.org/whl"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Readings of a machine at one moment."""

    host: HostCondition
    environ: Mapping[str, str]
    cards: tuple[CardCondition, ...] = ()
    no_cards: str | None = None
    """Why there is no card."""
    nvidia_devices: int | None = None
    """Cards on the bus, whether or not a driver knows them."""
    uvm_missing: bool = False
    """The driver lists a card, but CUDA's own device file is not there."""
    isolation: Capability | None = None
    crowd: Disturbance | None = None
    own_calls: tuple[str, ...] = ()
    """Other calls of gpu-advisor that measure meanwhile."""
    torch: TorchFacts | str | None = None
    """Or why nobody answered."""


class Finding(NamedTuple):
    """Value of one check, whether it is good, and the remedy."""

    value: str
    ok: bool | None = None
    """None: unknown."""
    fix: str | None = None
    """Command for a shell."""


UNKNOWN = Finding("not told here")


class Check(NamedTuple):
    """Check of a part of this machine, and its importance."""

    name: str
    look: Callable[[Any], Finding]
    why: str


class Row(NamedTuple):
    """One check of one part of this machine."""

    area: str
    """`GPU 0`, `host`, `torch`."""
    name: str
    status: str
    """`good`, `fix` or `unknown`."""
    value: str
    why: str
    fix: str | None


def checked(readings: Readings) -> list[Row]:
    """Run every check, in the order of display."""
    parts: list[tuple[str, tuple[Check, ...], Any]] = [("GPU", GPU_CHECKS, readings)]
    parts += [(f"GPU {card.gpu.index}", CARD_CHECKS, card) for card in readings.cards]
    parts += [("host", HOST_CHECKS, readings), ("torch", TORCH_CHECKS, readings)]
    rows = []
    for area, checks, reading in parts:
        for name, look, why in checks:
            value, ok, fix = look(reading)
            status = "unknown" if ok is None else "good" if ok else "fix"
            fix = fix if status == "fix" else None
            rows.append(Row(area, name, status, value, why, fix))
    return rows


def verdict(rows: Sequence[Row]) -> str:
    """Verdict over all rows, in one sentence."""
    wrong = sum(row.status == "fix" for row in rows)
    unknown = sum(row.status == "unknown" for row in rows)
    found = f"{numbers.many(wrong, 'thing')} to fix here" if wrong else "Nothing to fix here"
    left = f"; {unknown} of {len(rows)} checks could not be told" if unknown else ""
    return f"{found}{left}."


# --- cards ----------------------------------------------------------------------------------


def presence(readings: Readings) -> Finding:
    names = [card.gpu.name for card in readings.cards]
    if readings.uvm_missing:
        value = f"{', '.join(names)}; /dev/nvidia-uvm is missing, which CUDA needs"
        return Finding(value, ok=False, fix="sudo nvidia-modprobe -u -c 0")
    if names:
        return Finding(f"{len(names)}: {', '.join(names)}", ok=True)
    note = readings.no_cards or "none"
    if "CUDA_VISIBLE_DEVICES" in note:
        return Finding(note, ok=False, fix="unset CUDA_VISIBLE_DEVICES")
    if "pip install" in note:
        return Finding(note, ok=False, fix="python -m pip install nvidia-ml-py")
    if not readings.nvidia_devices:
        return Finding(f"none: {note}", ok=True)
    fix = "nvidia-smi  # says what is wrong with the driver"
    if readings.host.container:
        fix = "docker run --gpus all ...  # gives the container the host's driver"
    on_bus = f"{readings.nvidia_devices} NVIDIA on the bus, none can be used: {note}"
    return Finding(on_bus, ok=False, fix=fix)


def power_limit(card: CardCondition) -> Finding:
    limit, default = card.gpu.power_limit_w, card.power_default_w
    if limit is None or default is None:
        return UNKNOWN
    fix = f"sudo nvidia-smi -i {card.gpu.index} -pl {default:.0f}"
    value = f"{limit:.0f} W, the card's own is {default:.0f} W"
    return Finding(value, ok=limit >= default * LOWERED, fix=fix)


def clocks(card: CardCondition) -> Finding:
    reasons, clock, most = card.now.event_reasons, card.now.sm_clock_mhz, card.sm_clock_max_mhz
    if reasons is None:
        return UNKNOWN
    names = [name for bit, name in EVENT_REASONS.items() if reasons & bit]
    held = [name for name in names if name in HARMFUL_EVENT_REASONS]
    capped = "application clocks" in names and None not in (clock, most) and clock != most
    parts = [] if clock is None else [f"{clock:.0f}{'' if most is None else f' of {most:.0f}'} MHz"]
    parts.append(f"held down by {', '.join(names)}" if names and names != ["idle"] else "not held")
    index = card.gpu.index
    fix = f"nvidia-smi -i {index} -q -d PERFORMANCE,TEMPERATURE,POWER"
    if capped and not held:
        fix = f"sudo nvidia-smi -i {index} -rac; sudo nvidia-smi -i {index} -rgc"
    return Finding(", ".join(parts), ok=not held and not capped, fix=fix)


def pcie(card: CardCondition) -> Finding:
    generation, generation_max = card.pcie_generation, card.pcie_generation_max
    width, width_max = card.pcie_width, card.pcie_width_max
    if not (generation and width and generation_max and width_max):
        return UNKNOWN
    asleep = (card.now.util_pct or 0.0) < BUSY_PCT and generation < generation_max
    wakes = f" (asleep: it wakes to generation {generation_max} under load)" if asleep else ""
    # The driver's maximum is that of card and host together. A slot with fewer lanes than the
    # card has is a fault of the place, which only the datasheet shows.
    profile = profiles.load_all().get(card.gpu.profile or "")
    datasheet = re.fullmatch(r"\d+x(\d+)", profile.pcie) if profile else None
    lanes = max(width_max, int(datasheet[1])) if datasheet else width_max
    return Finding(
        f"generation {generation} x{width}{wakes}",
        ok=(asleep or generation >= generation_max) and width >= lanes,
        fix="sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'  # then another slot, or the BIOS",
    )


def other_processes(card: CardCondition) -> Finding:
    found, working = card.now.processes, card.now.working_pids or ()
    if found is None:
        return UNKNOWN
    held, total = sum(each.memory_gib or 0.0 for each in found), card.gpu.memory_total_gib
    value = f"{numbers.many(len(found), 'process')}, {held:.1f} GiB held, {len(working)} at work"
    return Finding(
        value if found else "none",
        ok=not working and (total is None or held < HELD_SHARE * total),
        fix=f"ps -o pid,user,etime,args -p {','.join(str(each.pid) for each in found)}",
    )


def mig(card: CardCondition) -> Finding:
    if card.gpu.mig is None:
        return UNKNOWN
    sliced = (card.gpu.uuid or "").startswith("MIG-")
    if card.gpu.mig and not sliced:
        fix = f"sudo nvidia-smi -i {card.gpu.index} -mig 0  # or make slices: nvidia-smi mig -h"
        return Finding("on, but the card has no slices: no program can use it", ok=False, fix=fix)
    return Finding("on; a program sees one slice of the card" if sliced else "off", ok=True)


# --- host -----------------------------------------------------------------------------------


def governor(readings: Readings) -> Finding:
    found = readings.host.governor
    if found is None:
        return Finding("not told: a virtual machine, or the firmware chooses the clocks")
    self_clocking = found.driver.startswith(SELF_CLOCKING)
    sparing = found.preference in {"power", "balance_power"}
    free = FREE_CLOCKS | ({"powersave"} if self_clocking and not sparing else set())
    detail = ", ".join(filter(None, [found.driver, found.preference]))
    value = ", ".join(found.names) + (f" ({detail})" if detail else "")
    return Finding(
        value, ok=free.issuperset(found.names), fix="sudo cpupower frequency-set -g performance"
    )


def memory(readings: Readings) -> Finding:
    whole, left = readings.host.ram_gib, readings.host.ram_left_gib
    if whole is None or left is None:
        return UNKNOWN
    least = max(LEAST_FREE_GIB, LEAST_FREE_SHARE * whole)
    return Finding(
        f"{left:.1f} of {whole:.1f} GiB left",
        ok=left >= least,
        fix="ps -eo pid,user,rss,comm --sort=-rss | head",
    )


def shared_memory(readings: Readings) -> Finding:
    whole, left = readings.host.shm_gib, readings.host.shm_left_gib
    if whole is None or left is None:
        return Finding("no /dev/shm")
    fix = "sudo mount -o remount,size=8G /dev/shm"
    if readings.host.container:
        fix = "docker run --shm-size=8g ...  # or --ipc=host; for pods, an emptyDir in memory"
    return Finding(f"{left:.2f} of {whole:.2f} GiB left", ok=left >= LEAST_SHM_GIB, fix=fix)


def other_programs(readings: Readings) -> Finding:
    crowd, cpus = readings.crowd, readings.host.cpus_shown
    if crowd is None or crowd.others_cpus is None:
        return UNKNOWN
    who = ", ".join(f"{each.name} {each.cpus:.1f}" for each in crowd.who)
    value = f"{crowd.others_cpus:.1f} of {cpus} CPUs busy{f' ({who})' if who else ''}"
    fix = "ps -eo pid,user,pcpu,comm --sort=-pcpu | head"
    if readings.own_calls:
        value += f"; gpu-advisor itself measures meanwhile: {'; '.join(readings.own_calls)}"
        fix = "gpu-advisor doctor  # again, when that call has ended"
    return Finding(value, ok=crowd.others_cpus <= OTHERS_SHARE * cpus, fix=fix)


def isolation(readings: Readings) -> Finding:
    found = readings.isolation
    if found is None:
        return UNKNOWN
    fix = "sudo sysctl user.max_user_namespaces=15000  # see docs/isolation.md"
    if not found.refused:
        fix = f"unset {FORCED}"
    elif readings.host.container:
        fix = "docker run --security-opt seccomp=unconfined ...  # lets it make namespaces"
    why = f" ({found.why_not_better})" if found.refused else ""
    return Finding(f"{found.kind}{why}", ok=found.kind != "guard", fix=fix)


# --- torch ----------------------------------------------------------------------------------


def torch_build(readings: Readings) -> Finding:
    facts = readings.torch
    if not isinstance(facts, TorchFacts):
        return Finding(facts) if facts else UNKNOWN
    python = f"Python {facts.python}, {facts.executable}"
    if facts.missing is not None:
        return Finding(f"none in {python} ({facts.missing}); --python PATH names another one")
    built = f"CUDA {facts.cuda}" if facts.cuda else f"ROCm {facts.rocm}" if facts.rocm else None
    value = f"{facts.torch} in {python}, built for {built or 'CPUs'}"
    if not readings.cards or (built and facts.available):
        return Finding(value, ok=True)
    newest = readings.cards[0].cuda_driver
    reinstall = f"{TORCH_INDEX}/cu{(newest or '12.6').replace('.', '')}"
    if built is None:
        return Finding(f"{value}: the GPU is not used", ok=False, fix=reinstall)
    too_new = facts.cuda and newest and _major(facts.cuda) > _major(newest)
    warning = f" ({facts.warned[0]})" if facts.warned else ""
    fix = f"{reinstall}  # or a newer driver" if too_new else "nvidia-smi"
    return Finding(f"{value}, but it sees no GPU{warning}", ok=False, fix=fix)


def threads(readings: Readings) -> Finding:
    facts, usable = readings.torch, readings.host.cpus
    if not isinstance(facts, TorchFacts) or facts.threads is None:
        return Finding("no torch answered")
    pools = {name: facts.settings[name] for name in POOLS if facts.settings.get(name)}
    sizes = {name: int(size) for name, size in pools.items() if size.isdecimal()}
    too_few = not readings.cards and 2 * facts.threads < usable
    beyond = facts.threads > usable or any(size > usable for size in sizes.values())
    wanted = min(usable, *sizes.values()) if len(set(sizes.values())) > 1 else usable
    named = "".join(f", {name}={setting}" for name, setting in pools.items())
    return Finding(
        f"{facts.threads} in a call; {usable} usable CPUs{named}",
        ok=not too_few and not beyond and len(set(sizes.values())) < 2,
        fix=" ".join(["export", *(f"{name}={wanted}" for name in sizes or POOLS[:1])]),
    )


def _major(version: str) -> int:
    return int(version.split(".", 1)[0])


GPU_CHECKS: tuple[Check, ...] = (
    Check("GPU", presence, "without one the model computes on the CPU"),
)
CARD_CHECKS: tuple[Check, ...] = (
    Check("power limit", power_limit, "under load the clocks fall until the card draws no more"),
    Check("clocks", clocks, "a card that is held down does the same kernels slower"),
    Check("PCIe link", pcie, "batches are copied through it; half the lanes take twice the time"),
    Check("other processes", other_processes, "they take its time and memory from yours"),
    Check("MIG", mig, "a slice has a part of the card's processors, memory and bandwidth"),
)
HOST_CHECKS: tuple[Check, ...] = (
    Check("CPU governor", governor, "decoding and launching run at this clock"),
    Check("memory", memory, "files that are read again come from it; with none, programs die"),
    Check("shared memory", shared_memory, "loader workers hand every batch over through /dev/shm"),
    Check("other programs", other_programs, "they take CPUs from loader and launches"),
    Check("isolation", isolation, "a measured program must not touch your files"),
)
TORCH_CHECKS: tuple[Check, ...] = (
    Check("torch", torch_build, "a build that does not fit the driver leaves the GPU idle"),
    Check("threads", threads, "too many wait for each other in every call; too few idle"),
)
