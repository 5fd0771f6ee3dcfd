"""Checks of torch, as pure functions of readings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.commands.doctor.interpreter import TorchFacts
from advisor.commands.doctor.table import Check, Readings, Seen

if TYPE_CHECKING:
    from collections.abc import Callable

POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
BINDING = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "MKL_DYNAMIC")
TENSOR_CORES_SINCE = 8
"""Compute capability from which on TF32 exists."""
INDEX = "https://download.pytorch.org/whl"


def answered(look: Callable[[Readings, TorchFacts], Seen]) -> Callable[[Readings], Seen]:
    """A check that needs a torch that answered."""

    def looked(readings: Readings) -> Seen:
        facts = readings.torch
        if isinstance(facts, TorchFacts) and facts.missing is None:
            return look(readings, facts)
        return Seen(value="no torch answered")

    return looked


def version(readings: Readings) -> Seen:
    facts = readings.torch
    if not isinstance(facts, TorchFacts):
        return Seen(value=facts) if facts else Seen()
    python = f"Python {facts.python}, {facts.executable}"
    if facts.missing is not None:
        return Seen(value=f"none in {python} ({facts.missing}); --python PATH names another one")
    return Seen(value=f"{facts.torch} in {python}", ok=True)


def cuda(readings: Readings, facts: TorchFacts) -> Seen:
    built = f"CUDA {facts.cuda}" if facts.cuda else f"ROCm {facts.rocm}" if facts.rocm else None
    if not readings.cards:
        return Seen(value=f"built for {built or 'CPUs'}; there is no GPU to use", ok=True)
    if built is None:
        fix = f"python -m pip install --force-reinstall torch --index-url {INDEX}/{_tag(readings)}"
        return Seen(value="built for CPUs: the GPU is not used", ok=False, fix=fix)
    if facts.available:
        return Seen(
            value=f"built for {built}, sees {numbers.many(facts.devices or 0, 'GPU')}", ok=True
        )
    warning = f" ({facts.warned[0]})" if facts.warned else ""
    newest = readings.cards[0].cuda_driver
    fix = "nvidia-smi"
    if facts.cuda and newest and _version(facts.cuda)[0] > _version(newest)[0]:
        fix = (
            f"python -m pip install --force-reinstall torch --index-url {INDEX}/{_tag(readings)}"
            "  # or a newer driver"
        )
    return Seen(value=f"built for {built}, but sees no GPU{warning}", ok=False, fix=fix)


def cudnn(readings: Readings, facts: TorchFacts) -> Seen:
    if facts.cudnn is None:
        without = "none"
        if not readings.cards:
            return Seen(value=f"{without}; there is no GPU to use it", ok=True)
        fix = f"python -m pip install --force-reinstall torch --index-url {INDEX}/{_tag(readings)}"
        return Seen(value=without, ok=not facts.cuda, fix=fix)
    return Seen(value=str(facts.cudnn), ok=True)


def tf32(readings: Readings, facts: TorchFacts) -> Seen:
    if facts.matmul_precision is None:
        return Seen()
    convolutions = {True: "on", False: "off", None: "not told"}[facts.cudnn_tf32]
    value = f"matmul precision {facts.matmul_precision}, convolutions {convolutions}"
    capable = [card for card in readings.cards if _major(card.gpu.compute_capability)]
    override = readings.environ.get("NVIDIA_TF32_OVERRIDE")
    if override == "0" and capable:
        value += "; NVIDIA_TF32_OVERRIDE=0 forbids it to every library"
        return Seen(value=value, ok=False, fix="unset NVIDIA_TF32_OVERRIDE")
    if not capable:
        value += "; no GPU here has it"
    return Seen(value=value, ok=True)


def threads(readings: Readings, facts: TorchFacts) -> Seen:
    usable = readings.host.cpus
    if facts.threads is None:
        return Seen()
    good = f"{max(1, usable // 2)} to {usable}: the CPUs that may be used, or their cores"
    between = "" if facts.interop_threads is None else f" ({facts.interop_threads} between calls)"
    value = f"{facts.threads} in a call{between}; {usable} usable CPUs"
    too_few = not readings.cards and 2 * facts.threads < usable
    ok = facts.threads <= usable and not too_few
    return Seen(value=value, ok=ok, good=good, fix=f"export OMP_NUM_THREADS={usable}")


def thread_settings(readings: Readings) -> Seen:
    facts = readings.torch
    environ = facts.settings if isinstance(facts, TorchFacts) else readings.environ
    found = {name: value for name in (*POOLS, *BINDING) if (value := environ.get(name, ""))}
    if not found:
        return Seen(value="none set", ok=True)
    value = ", ".join(f"{name}={setting}" for name, setting in found.items())
    sizes = {name: size for name in POOLS if (size := _leading(found.get(name, ""))) is not None}
    usable = readings.host.cpus
    # What torch made of them is the check of its threads; here only what it cannot show.
    beyond = [name for name, size in sizes.items() if size > usable and name != "OMP_NUM_THREADS"]
    if not isinstance(facts, TorchFacts) or facts.threads is None:
        beyond = [name for name, size in sizes.items() if size > usable]
    apart = len(set(sizes.values())) > 1
    wanted = min(usable, *sizes.values()) if sizes else usable
    fix = " ".join(["export", *(f"{name}={wanted}" for name in sizes)])
    return Seen(value=value, ok=not beyond and not apart, fix=fix)


def _tag(readings: Readings) -> str:
    """Folder of builds that the driver runs: `cu126`."""
    newest = readings.cards[0].cuda_driver if readings.cards else None
    return f"cu{newest.replace('.', '')}" if newest else "cu126"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)) or (0,)


def _major(capability: str | None) -> bool:
    return capability is not None and _version(capability)[0] >= TENSOR_CORES_SINCE


def _leading(value: str) -> int | None:
    """Leading number: `4` of `4` and of `4,2`."""
    found = re.match(r"\s*(\d+)", value)
    return int(found[1]) if found and int(found[1]) else None


TORCH_CHECKS: tuple[Check[Readings], ...] = (
    Check(
        name="torch",
        good="one that can be imported",
        why="the interpreter of your command decides which torch runs, not this one",
        look=version,
    ),
    Check(
        name="CUDA",
        good="a build that sees the GPU",
        why="a build for CPUs, or one too new for the driver, leaves the GPU idle",
        look=answered(cuda),
    ),
    Check(
        name="cuDNN",
        good="there, where a GPU is",
        why="convolutions and recurrent layers are many times slower without it",
        look=answered(cudnn),
    ),
    Check(
        name="TF32",
        good="yours to decide: it rounds, and `optimize` tries it inside your tolerance",
        why="float32 products run on tensor cores with it",
        look=answered(tf32),
    ),
    Check(
        name="threads",
        good="the CPUs that may be used",
        why="more threads than CPUs wait for each other in every call; too few leave CPUs idle",
        look=answered(threads),
    ),
    Check(
        name="OMP and MKL",
        good="nothing, or one number for all, no more than the usable CPUs",
        why="each library starts a pool of its own, and programs inherit these settings",
        look=thread_settings,
    ),
)
