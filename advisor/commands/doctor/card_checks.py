"""Checks of each card, as pure functions of readings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.commands.doctor.table import Check, Readings, Seen
from advisor.machine import profiles
from advisor.machine.readings import EVENT_REASONS, HARMFUL_EVENT_REASONS

if TYPE_CHECKING:
    from advisor.machine.condition import CardCondition

BUSY_PCT = 5.0
"""From here on a card works, and its link is awake."""
HELD_SHARE = 0.05
"""Share of the card's memory that others may hold, such as a desktop."""
LOWERED = 0.99
"""A power limit below this part of the card's own was lowered by somebody."""


def presence(readings: Readings) -> Seen:
    names = [card.gpu.name for card in readings.cards]
    if names:
        return Seen(value=f"{len(names)}: {', '.join(names)}", ok=True)
    note = readings.no_cards or "none"
    hidden = readings.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and "CUDA_VISIBLE_DEVICES" in note:
        return Seen(value=note, ok=False, fix="unset CUDA_VISIBLE_DEVICES")
    if "pip install" in note:
        return Seen(value=note, ok=False, fix="python -m pip install nvidia-ml-py")
    if readings.nvidia_devices:
        on_bus = f"{readings.nvidia_devices} NVIDIA on the bus, none can be used: {note}"
        fix = "nvidia-smi  # says what is wrong with the driver"
        if readings.host.container:
            fix = "docker run --gpus all ...  # gives the container the host's driver"
        return Seen(value=on_bus, ok=False, fix=fix)
    return Seen(value=f"none: {note}", ok=True)


def device_files(readings: Readings) -> Seen:
    if not readings.cards:
        return Seen(value="no GPU", ok=True)
    if readings.uvm_missing:
        return Seen(
            value="/dev/nvidia-uvm is missing", ok=False, fix="sudo nvidia-modprobe -u -c 0"
        )
    return Seen(value="there", ok=True)


def driver(card: CardCondition) -> Seen:
    version = card.gpu.driver
    if version is None:
        return Seen()
    cuda = f", runs CUDA up to {card.cuda_driver}" if card.cuda_driver else ""
    return Seen(value=f"{version}{cuda}", ok=True)


def persistence(card: CardCondition) -> Seen:
    if card.persistence is None:
        return Seen()
    if card.persistence:
        return Seen(value="on", ok=True)
    return Seen(value="off", ok=False, fix=f"sudo nvidia-smi -i {card.gpu.index} -pm 1")


def power_limit(card: CardCondition) -> Seen:
    limit, default = card.gpu.power_limit_w, card.power_default_w
    if limit is None:
        return Seen()
    drawn = "" if card.now.power_w is None else f"; draws {card.now.power_w:.0f} W now"
    if default is None:
        return Seen(value=f"{limit:.0f} W{drawn}")
    fix = f"sudo nvidia-smi -i {card.gpu.index} -pl {default:.0f}"
    ok = limit >= default * LOWERED
    return Seen(value=f"{limit:.0f} W, the card's own is {default:.0f} W{drawn}", ok=ok, fix=fix)


def clocks(card: CardCondition) -> Seen:
    now, reasons = card.now, card.now.event_reasons
    if reasons is None:
        return Seen()
    names = [name for bit, name in EVENT_REASONS.items() if reasons & bit]
    held = [name for name in names if name in HARMFUL_EVENT_REASONS]
    capped = "application clocks" in names and _below(now.sm_clock_mhz, card.sm_clock_max_mhz)
    parts = []
    if now.sm_clock_mhz is not None:
        most = "" if card.sm_clock_max_mhz is None else f" of {card.sm_clock_max_mhz:.0f}"
        parts.append(f"{now.sm_clock_mhz:.0f}{most} MHz")
    if now.temperature_c is not None:
        parts.append(f"{now.temperature_c:.0f} C")
    parts.append(f"held down by {', '.join(names)}" if names and names != ["idle"] else "not held")
    index = card.gpu.index
    fix = f"nvidia-smi -i {index} -q -d PERFORMANCE,TEMPERATURE,POWER"
    if capped and not held:
        fix = f"sudo nvidia-smi -i {index} -rac; sudo nvidia-smi -i {index} -rgc"
    return Seen(value=", ".join(parts), ok=not held and not capped, fix=fix)


def pcie(card: CardCondition) -> Seen:
    generation, width = card.pcie_generation, card.pcie_width
    generation_max, width_max = card.pcie_generation_max, card.pcie_width_max
    if not (generation and width and generation_max and width_max):
        return Seen()
    value = f"generation {generation} x{width}"
    asleep = (card.now.util_pct or 0.0) < BUSY_PCT and generation < generation_max
    if asleep:
        value += f" (asleep: it wakes to generation {generation_max} under load)"
    # the host's own generation is no fault of the slot; lanes that are missing are one
    profile = profiles.load_all().get(card.gpu.profile or "")
    datasheet = re.fullmatch(r"\d+x(\d+)", profile.pcie) if profile else None
    lanes = max(width_max, int(datasheet[1])) if datasheet else width_max
    good = f"generation {generation_max} x{lanes}, what card and host can do together"
    fix = "sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'  # then another slot, or the BIOS"
    return Seen(
        value=value,
        ok=(asleep or generation >= generation_max) and width >= lanes,
        good=good,
        fix=fix,
    )


def ecc(card: CardCondition) -> Seen:
    if card.ecc is None:
        return Seen()
    value = "on" if card.ecc else "off"
    if card.ecc_errors is not None:
        value += f", {card.ecc_errors} uncorrected errors"
    fix = f"nvidia-smi -i {card.gpu.index} -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER"
    return Seen(value=value, ok=not card.ecc_errors, fix=fix)


def other_processes(card: CardCondition) -> Seen:
    found = card.now.processes
    if found is None:
        return Seen()
    if not found:
        return Seen(value="none", ok=True)
    held = sum(process.memory_gib or 0.0 for process in found)
    working = card.now.working_pids or ()
    total = card.gpu.memory_total_gib
    value = f"{numbers.many(len(found), 'process')}, {held:.1f} GiB held, {len(working)} at work"
    ok = not working and (total is None or held < HELD_SHARE * total)
    pids = ",".join(str(process.pid) for process in found)
    return Seen(value=value, ok=ok, fix=f"ps -o pid,user,etime,args -p {pids}")


def mig(card: CardCondition) -> Seen:
    if card.gpu.mig is None:
        return Seen()
    if not card.gpu.mig:
        return Seen(value="off", ok=True)
    if (card.gpu.uuid or "").startswith("MIG-"):
        size = card.gpu.memory_total_gib
        size_text = "" if size is None else f", {size:.1f} GiB"
        return Seen(value=f"on; a program sees one slice of the card{size_text}", ok=True)
    fix = f"sudo nvidia-smi -i {card.gpu.index} -mig 0  # or make slices: nvidia-smi mig -h"
    return Seen(value="on, but the card has no slices: no program can use it", ok=False, fix=fix)


def _below(now: float | None, most: float | None) -> bool:
    return now is not None and most is not None and now < most


PRESENCE: tuple[Check[Readings], ...] = (
    Check(
        name="GPU",
        good="every card of this machine can be used",
        why="without one the model computes on the CPU",
        look=presence,
    ),
    Check(
        name="CUDA device files",
        good="/dev/nvidia-uvm is there",
        why="CUDA needs it; a program in a user namespace cannot have it made",
        look=device_files,
    ),
)

CARD_CHECKS: tuple[Check[CardCondition], ...] = (
    Check(
        name="driver",
        good="one that answers",
        why="torch runs no newer CUDA than the driver knows",
        look=driver,
    ),
    Check(
        name="persistence",
        good="on",
        why="without it the driver starts anew with each program: seconds every time",
        look=persistence,
    ),
    Check(
        name="power limit",
        good="the card's own limit",
        why="under load the clocks fall until the card draws no more than this",
        look=power_limit,
    ),
    Check(
        name="clocks",
        good="not held down by heat, power supply or application clocks",
        why="a card that is held down does the same kernels slower, and differently each time",
        look=clocks,
    ),
    Check(
        name="PCIe link",
        good="what the card could do",
        why="batches are copied through it; half the lanes take twice the time",
        look=pcie,
    ),
    Check(
        name="ECC",
        good="no uncorrected errors",
        why="uncorrected errors end programs, and come before a card fails",
        look=ecc,
    ),
    Check(
        name="other processes",
        good="none at work, and little memory held",
        why="they take its time and memory from yours",
        look=other_processes,
    ),
    Check(
        name="MIG",
        good="off, or on with slices",
        why="a slice has a part of the multiprocessors, the memory and its bandwidth",
        look=mig,
    ),
)
