"""One program in a folder of its own: profiled beside its own clock, then tuned."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.errors import OPTIMIZE_EXIT_CODES
from benchmarks.reach.table import PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[2]
SLACK_S = 2e-3
"""The program tells its clock a little after the step that the probe timed."""
OURS = re.compile(r"(.*/)?(\.gpu-advisor|report-figures)(/|$)|report\.(md|json)$|.*\.patch$")
"""What `optimize` leaves in a folder, beside the config."""


@dataclass(kw_only=True)
class Clock:
    """What programs tell of their steps: (epoch seconds, units), in any order."""

    address: str
    ticks: list[tuple[float, float]] = field(default_factory=list)

    def rate(self, start: float, end: float) -> float | None:
        """Units/s of the steps inside [start, end]; None with fewer than two of them.

        A program that is ended with its window does not tell of its last step any more: then that
        one is taken to have ended there, with as many units as the one before.
        """
        inside = sorted(t for t in self.ticks if start - SLACK_S <= t[0] <= end + SLACK_S)
        if len(inside) < 2 or inside[-1][0] <= inside[0][0]:
            return None
        step_s = (inside[-1][0] - inside[0][0]) / (len(inside) - 1)
        if end - inside[-1][0] > step_s / 2:
            inside.append((end, inside[-1][1]))
        first = sum(units for when, units in inside if when == inside[0][0])
        return (sum(units for _, units in inside) - first) / (inside[-1][0] - inside[0][0])


@contextlib.contextmanager
def listening() -> Iterator[Clock]:
    """A clock that any number of processes may tell."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        clock = Clock(address=f"127.0.0.1:{server.getsockname()[1]}")
        threading.Thread(target=_accept, args=(server, clock), daemon=True).start()
        yield clock


def _accept(server: socket.socket, clock: Clock) -> None:
    with contextlib.suppress(OSError):
        while True:
            line, _ = server.accept()
            threading.Thread(target=_read, args=(line, clock), daemon=True).start()


def _read(line: socket.socket, clock: Clock) -> None:
    with contextlib.suppress(OSError, ValueError), line, line.makefile() as lines:
        for each in lines:
            when, units = each.split()
            clock.ticks.append((float(when), float(units)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A program's folder, and how it is called there."""

    program: Program
    folder: Path
    command: tuple[str, ...]
    runtime: Path

    def run(self, *words: str, clock: Clock | None = None) -> subprocess.CompletedProcess[str]:
        """`gpu-advisor WORDS CONFIG -- COMMAND` in the folder."""
        return subprocess.run(
            [sys.executable, "-m", "advisor", *words, self.program.config, "--", *self.command],
            cwd=self.folder,
            env=self.environment(clock),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def environment(self, clock: Clock | None = None) -> dict[str, str]:
        """Of every process; one thread each, so that two cores mean the same to all."""
        return {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GPU_ADVISOR_RUNTIME_DIR": str(self.runtime),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            **({"STEP_CLOCK": clock.address} if clock else {}),
        }

    def files(self) -> dict[str, str]:
        """Digests of what lies in the folder, by path."""
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }


def place(program: Program, root: Path) -> Place:
    """`program` in a fresh folder below `root`, its data made."""
    folder = root / program.name
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROGRAMS / program.name, folder, ignore=ignored)
    shutil.copy(PROGRAMS / "step_clock.py", folder)
    port = str(_free_port())
    command = tuple(word.replace("{port}", port) for word in program.command)
    here = Place(program=program, folder=folder, command=command, runtime=root / "runtime")
    if program.prepare is not None:
        subprocess.run(program.prepare, cwd=folder, env=here.environment(), check=True)
    return here


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """What came of one program."""

    name: str
    load: float
    """Of the machine, over the minute before it ended."""
    profile: dict[str, Any]
    optimize: dict[str, Any] | None = None
    wrong: tuple[str, ...] = ()
    """What does not hold; empty where all does."""


def measured(program: Program, root: Path, *, profile_only: bool) -> TuningResult:
    """Profile, then optimize `program`, and hold both against its table row."""
    here = place(program, root)
    before = here.files()
    profile, wrong = profiled(here)
    left = changed(before, here.files())
    wrong += [f"profile left {path}" for path in left]
    tuned = None
    if not profile_only:
        tuned, more = optimized(here, before)
        wrong += more
    return TuningResult(
        name=program.name,
        load=round(os.getloadavg()[0], 1),
        profile=profile,
        optimize=tuned,
        wrong=tuple(wrong),
    )


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Paths that are new, gone or of other content."""
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


TOLERANCE = 0.02


def profiled(here: Place) -> tuple[dict[str, Any], list[str]]:
    """What `profile` told beside the clock of the same run, and what of it is wrong."""
    with listening() as clock:
        done = here.run("profile", "--json", "--window", "3s", clock=clock)
    found = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if not found.get("ok"):
        why = (found.get("failure") or {}).get("evidence") or done.stderr.strip()[-300:]
        return {}, [f"profile failed: {why}"]
    start, end = found["window"]["start"], found["window"]["end"]
    seen = {
        "units_per_s": found["units"] / (end - start),
        "true_units_per_s": clock.rate(start, end),
        "unit": found["unit"],
        "batch": found["batch"],
        "workers": found["workers"],
        "accumulation": found["effects"]["accumulation"],
        "ranks": found["ranks"],
    }
    true = seen["true_units_per_s"]
    seen["error"] = None if true is None else seen["units_per_s"] / true - 1
    return seen, misread(here.program, seen)


def misread(program: Program, seen: dict[str, Any]) -> list[str]:
    """What `profile` told otherwise than the truth."""
    wrong = []
    if seen["error"] is None:
        wrong.append("the program's clock told too few steps")
    elif abs(seen["error"]) > TOLERANCE:
        wrong.append(f"rate off by {seen['error']:+.1%}")
    wanted: dict[str, Any] = {
        "unit": program.unit,
        "batch": program.batch,
        "workers": program.workers,
        "ranks": program.ranks,
    }
    if program.trains:
        wanted["accumulation"] = program.accumulation
    for name, value in wanted.items():
        found = 1.0 if name == "accumulation" and seen[name] is None else seen[name]
        if found != value:
            wrong.append(f"{name} {found}, not {value}")
    return wrong


TOO_SMALL = 24
"""Exit code of a budget that buys no proof."""
LATE_S = 5.0
"""For starting Python and writing the report, beside the budget."""


def optimized(here: Place, before: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """What `optimize` came to, and what of that breaks a promise."""
    begun = time.monotonic()
    done = here.run("optimize", "--budget", f"{here.program.minutes}m")
    took_s = time.monotonic() - begun
    shown = (done.stdout or done.stderr).strip()
    found: dict[str, Any] = {
        "seconds": round(took_s),
        "answer": shown.splitlines()[0] if shown else "",
    }
    wrong = []
    file = here.folder / "report.json"
    report = json.loads(file.read_text()) if file.is_file() else None
    if done.returncode == TOO_SMALL:
        if not re.search(r"--budget \d|\d+ ?(s|m|min|minutes|seconds)\b", shown + done.stderr):
            wrong.append("a budget too small, and none named that would do")
    elif done.returncode not in OPTIMIZE_EXIT_CODES.values() or report is None:
        wrong.append(f"optimize ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    if report is not None:
        found |= {name: report[name] for name in ("verdict", "gain", "suggestions")}
        wrong += unproven(here.program, report)
    budget_s = 60 * here.program.minutes
    if took_s > budget_s + LATE_S:
        wrong.append(f"took {took_s:.0f} s of a budget of {budget_s} s")
    for path in changed(before, here.files()):
        if path != here.program.config and not OURS.match(path):
            wrong.append(f"optimize left {path}")
    return found, wrong


def unproven(program: Program, report: dict[str, Any]) -> list[str]:
    """What was written without a proof, or against the rule that a training keeps its updates."""
    wrong = []
    if report["verdict"] == "improved":
        gain = report["gain"]
        if gain is None or gain["low"] <= 1.0:
            wrong.append(f"written without a proven gain: {gain}")
    elif report["changes"]:
        wrong.append("changes without an improvement")
    if report["verdict"] == "partial" and not re.search(r"--budget \d", report["reason"]):
        wrong.append("the answer is partial")
    moved = {change["kind"]: change for change in report["changes"]}
    batch, accumulation = moved.get("batch_size"), moved.get("grad_accum")
    if program.trains and batch is not None:
        new = batch["new"] * (accumulation["new"] if accumulation else program.accumulation)
        old = batch["old"] * (accumulation["old"] if accumulation else program.accumulation)
        if new != old:
            wrong.append(f"a training batch was written: {batch['old']} -> {batch['new']}")
    return wrong
