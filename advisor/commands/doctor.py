"""`gpu-advisor doctor`: costly settings of a machine, and their remedies.

Looks only, unless --calibrate has it measure the cards and keep their rates.
"""

import argparse
import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple, TypeVar

import psutil
from pydantic import BaseModel, TypeAdapter

from advisor import __version__, numbers, settings
from advisor.commands import invocation, output
from advisor.executor.engines.connection import interpreter_of
from advisor.machine import calibration, contention, host, lock
from advisor.machine.contention import OTHERS_SHARE
from advisor.machine.gpu import uvm_loaded
from advisor.machine.host import nvidia_devices, read_machine
from advisor.machine.readings import GIB
from advisor.model import Disturbance, Machine
from advisor.probe import torch_info
from advisor.sandbox.capabilities import FORCED, detect_isolation
from advisor.sandbox.policy import SandboxPolicy
from advisor.state import project_root, state_folder

Answer = TypeVar("Answer")

LOOK_S = 0.5
"""Seconds in which the CPU use of other programs is watched.

Judgement: shorter takes a moment's load for a lasting one, longer only makes doctor wait."""
LEAST_FREE_SHARE, LEAST_FREE_GIB = 0.10, 1.0
"""RAM to leave, or the kernel drops cached files and swaps."""
LEAST_SHM_GIB = 1.0
"""Free room in /dev/shm, in GiB, below which doctor advises more.

Judgement: 16 waiting batches of 64 images (3 x 224 x 224, float32) take 0.6 GiB of it. Smaller
says nothing before workers crash, larger warns hosts on which they would not."""
ASK_LIMIT_S = 120.0
"""Longest wait, in seconds, for the program's Python to import torch and answer.

Judgement: a first import from a cold network disk takes a minute. Shorter calls such a Python
broken, longer makes the user wait for one that hangs."""
PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
INSTALL_TORCH = (
    "python -m pip install --force-reinstall torch"
    "  # pytorch.org/get-started names the build for an older driver"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The torch of COMMAND is asked, else that of the first python on PATH."
    invocation.add_flags(parser, "--json")
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="measure the rates of the cards here, for `gpu-advisor predict`",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 when there is something to fix"
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Print all checks; 1 if --strict and one is bad."""
    if args.calibrate:
        return calibrate(command or [], as_json=args.json)
    findings = checked(take(command or []))
    to_fix = sum(finding.status == "fix" for finding in findings.values())
    checks = [
        {
            "name": name,
            "status": finding.status,
            "value": finding.value,
            "why": purpose,
            "fix": finding.fix,
        }
        for (name, finding), (_, purpose) in zip(
            findings.items(), CHECKS.values(), strict=True
        )
    ]
    fields = {"verdict": verdict(findings), "to_fix": to_fix, "checks": checks}
    output.show(fields, as_text(findings), as_json=args.json)
    return int(args.strict and to_fix > 0)


class TorchFacts(BaseModel):
    """Facts that an interpreter reported; None: it could not."""

    python: str
    executable: str
    missing: str | None = None
    torch: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    available: bool | None = None
    warned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Readings of a machine at one moment."""

    machine: Machine
    cpus_shown: int
    """CPUs for a program that does not know of quotas."""
    ram_left_gib: float
    shm_left_gib: float | None
    nvidia_devices: int | None
    """Cards on the bus, with or without a driver."""
    uvm_missing: bool
    """The driver lists a card, but CUDA's device file is missing, and torch sees no card."""
    isolation: SandboxPolicy
    crowd: Disturbance
    own_calls: tuple[str, ...]
    """Other calls of gpu-advisor that measure meanwhile."""
    torch: TorchFacts | str
    """Or why nobody answered."""


def take(command: Sequence[str]) -> Readings:
    """Read everything, in about three seconds."""
    crowd = contention.look(LOOK_S)  # before anything of ours works beside it
    machine, room = read_machine(), host.memory_room_bytes()
    facts = ask(command, "facts", TypeAdapter(TorchFacts))
    computes = isinstance(facts, TorchFacts) and bool(facts.available)
    left_gib = psutil.virtual_memory().available / GIB
    shm = Path("/dev/shm")  # noqa: S108  only looked at
    return Readings(
        machine=machine,
        cpus_shown=len(os.sched_getaffinity(0)),
        ram_left_gib=left_gib if room is None else min(left_gib, room / GIB),
        shm_left_gib=shutil.disk_usage(shm).free / GIB if shm.is_dir() else None,
        nvidia_devices=nvidia_devices(),
        uvm_missing=bool(machine.gpus) and not computes and not uvm_loaded(),
        isolation=detect_isolation(str(Path.cwd())),
        crowd=crowd,
        own_calls=lock.holders(),
        torch=facts,
    )


def ask(command: Sequence[str], question: str, answer: TypeAdapter[Answer]) -> Answer | str:
    """Answer of `torch_info` in the user's Python, or why none.

    Its source is handed over as text: gpu-advisor need not be installed in that Python.
    """
    program = asking(command, os.environ.get("PATH"))
    if program is None:
        return (
            f"which Python `{command[0]}` starts is not known; name that: doctor -- PYTHON"
        )
    source = Path(torch_info.__file__).read_text(encoding="utf-8")
    try:
        done = subprocess.run(
            [program, "-c", source, question],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=ASK_LIMIT_S,
        )
    except (subprocess.TimeoutExpired, OSError) as problem:
        return f"{program} gave no answer: {problem}"
    for line in reversed(done.stdout.splitlines()):
        with contextlib.suppress(ValueError):
            return answer.validate_json(line)
    errors = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
    return f"{program} gave no answer: {errors[-1][:200]}"


def calibrate(command: Sequence[str], *, as_json: bool) -> int:
    """Measure cards with the user's torch, keep their rates; 1 without any."""
    with contextlib.ExitStack() as stack:
        for card in read_machine().gpus:
            stack.enter_context(lock.gpu_lock(card.uuid))
        answer = ask(command, "cards", calibration.MEASURED)
    if isinstance(answer, str) or not answer:
        problem = answer or "that torch sees no card; `gpu-advisor doctor` says why."
        fields: dict[str, object] = {"problem": problem, "cards": []}
        output.show(fields, f"Nothing measured: {problem}", as_json=as_json)
        return 1
    folder = state_folder(project_root(Path.cwd() / settings.FILE_NAME))
    calibration.keep(folder, answer)
    cards = [rates.model_dump() for rates in answer]
    table = output.table(
        [tuple(cards[0]), *(tuple(map(str, card.values())) for card in cards)]
    )
    text = "\n".join([*table, f"Kept in {folder}: `gpu-advisor predict` uses them."])
    output.show({"problem": None, "cards": cards}, text, as_json=as_json)
    return 0


def asking(command: Sequence[str], path: str | None) -> str | None:
    """Python of the command, or of its script; None of a program that starts another."""
    words = list(command)
    if words and PurePath(words[0]).name == "env":
        words = list(itertools.dropwhile(lambda word: "=" in word, words[1:]))
    if words and PYTHON.fullmatch(PurePath(words[0]).name):
        return words[0]
    if words:  # `conda run` and `poetry run` start the Python of another environment
        elsewhere = words[1:2] == ["run"]
        script = None if elsewhere else shutil.which(words[0], path=path)
        return script and interpreter_of(script, path)
    return (
        shutil.which("python", path=path)
        or shutil.which("python3", path=path)
        or sys.executable
    )


class Finding(NamedTuple):
    """Value of a check, with a remedy where not good."""

    value: str
    fix: str | None = None
    """Command for a shell."""
    unknown: bool = False
    absent: bool = False
    """What is asked about is not there, and nothing is wrong with that."""

    @property
    def status(self) -> str:
        """`good`, `none`, `fix` or `unknown`."""
        if self.absent:
            return "none"
        return "unknown" if self.unknown else "fix" if self.fix else "good"


def gpu(readings: Readings) -> Finding:
    gpus, note = readings.machine.gpus, readings.machine.gpu_note or "none"
    names = ", ".join(f"{gpu.name}, {numbers.gib(gpu.memory_total_gib)}" for gpu in gpus)
    if readings.uvm_missing:
        missing = f"{names}; /dev/nvidia-uvm is missing, which CUDA needs"
        return Finding(missing, "sudo nvidia-modprobe -u -c 0")
    if gpus:
        return Finding(f"{names}; driver {gpus[0].driver}")
    if "CUDA_VISIBLE_DEVICES" in note:
        return Finding(note, "unset CUDA_VISIBLE_DEVICES")
    if not readings.nvidia_devices:
        return Finding(note, absent=True)
    return Finding(
        f"{readings.nvidia_devices} NVIDIA on the bus, none can be used: {note}",
        "nvidia-smi  # names the driver's problem; in a container: docker run --gpus all ...",
    )


def torch(readings: Readings) -> Finding:
    """Build of the torch that the command would import."""
    facts = readings.torch
    if isinstance(facts, str):
        return Finding(facts, unknown=True)
    python = f"Python {facts.python}, {facts.executable}"
    if facts.missing is not None:
        missing = f"none in {python} ({facts.missing}); `doctor -- PYTHON` asks another one"
        return Finding(missing, unknown=True)
    built = (
        f"CUDA {facts.cuda}" if facts.cuda else f"ROCm {facts.rocm}" if facts.rocm else None
    )
    value = f"{facts.torch} in {python}, built for {built or 'CPUs'}"
    if not readings.machine.gpus or (built and facts.available):
        return Finding(value)
    warning = f" ({facts.warned[0]})" if facts.warned else ""
    return Finding(f"{value}: it does not see the GPU{warning}", INSTALL_TORCH)


def cpus(readings: Readings) -> Finding:
    usable, listed = readings.machine.cpus, readings.cpus_shown
    limit = f" of {listed} shown: a quota holds the rest" if usable < listed else ""
    return Finding(f"{usable}{limit}, {readings.machine.cpu_model}")


def memory(readings: Readings) -> Finding:
    """RAM left, inside the container's limit."""
    whole, left = readings.machine.ram_limit_gib, readings.ram_left_gib
    enough = left >= max(LEAST_FREE_GIB, LEAST_FREE_SHARE * whole)
    fix = None if enough else "ps -eo pid,user,rss,comm --sort=-rss | head"
    return Finding(f"{left:.1f} of {whole:.1f} GiB left", fix)


def shared_memory(readings: Readings) -> Finding:
    left = readings.shm_left_gib
    if left is None:
        return Finding("no /dev/shm", unknown=True)
    fix = "sudo mount -o remount,size=8G /dev/shm  # in a container: docker run --shm-size=8g ..."
    return Finding(f"{left:.2f} GiB left", fix if left < LEAST_SHM_GIB else None)


def other_programs(readings: Readings) -> Finding:
    """CPUs that others hold, and other calls of gpu-advisor."""
    crowd, listed = readings.crowd, readings.cpus_shown
    if crowd.others_cpus is None:
        return Finding("not reported here", unknown=True)
    who = ", ".join(f"{neighbour.name} {neighbour.cpus:.1f}" for neighbour in crowd.who)
    value = f"{crowd.others_cpus:.1f} of {listed} CPUs busy{f' ({who})' if who else ''}"
    fix = "ps -eo pid,user,pcpu,comm --sort=-pcpu | head"
    if readings.own_calls:
        value += f"; gpu-advisor itself measures meanwhile: {'; '.join(readings.own_calls)}"
        fix = "gpu-advisor doctor  # again, when that call has ended"
    return Finding(value, fix if crowd.others_cpus > OTHERS_SHARE * listed else None)


def isolation(readings: Readings) -> Finding:
    policy = readings.isolation
    if policy.kind != "guard":
        lack = f" ({policy.why_not_better})" if policy.why_not_better else ""
        return Finding(f"{policy.kind}{lack}")
    if policy.why_not_better.startswith(FORCED):
        return Finding(policy.kind, f"unset {FORCED}")
    fix = "sudo sysctl user.max_user_namespaces=15000  # see docs/isolation.md"
    return Finding(f"{policy.kind} ({policy.why_not_better})", fix)


def versions(readings: Readings) -> Finding:
    machine = readings.machine
    return Finding(f"gpu-advisor {__version__}, Python {machine.python}, {machine.os}")


CHECKS: dict[str, tuple[Callable[[Readings], Finding], str]] = {
    "GPU": (gpu, "without one the model computes on the CPU"),
    "torch": (torch, "a build that does not fit the driver leaves the GPU idle"),
    "CPUs": (cpus, "more loader workers than CPUs wait for each other"),
    "memory": (memory, "files that are read again come from it; with none, programs die"),
    "shared memory": (
        shared_memory,
        "loader workers hand every batch over through /dev/shm",
    ),
    "other programs": (other_programs, "they take CPUs from loader and launches"),
    "isolation": (isolation, "a measured program must not touch your files"),
    "versions": (versions, "a report of a fault needs them"),
}


def checked(readings: Readings) -> dict[str, Finding]:
    return {name: look(readings) for name, (look, _) in CHECKS.items()}


def verdict(findings: Mapping[str, Finding]) -> str:
    wrong = sum(finding.status == "fix" for finding in findings.values())
    return f"{numbers.many(wrong, 'thing') if wrong else 'Nothing'} to fix here."


def as_text(findings: Mapping[str, Finding]) -> str:
    lines = [verdict(findings), ""]
    for name, finding in findings.items():
        mark = "?" if finding.unknown else finding.status
        lines.append(f"  {mark:<4}  {name:<14}  {finding.value}")
        if finding.fix:
            lines += [f"{'':<8}{CHECKS[name][1]}", f"{'':<8}{finding.fix}"]
    return "\n".join(lines)
