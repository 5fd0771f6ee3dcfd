"""Kills, a full disk and whole calls at the worst moment."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from advisor.commands.revert import revert
from advisor.errors import (
    OPTIMIZE_EXIT_CODES,
    AdvisorError,
    BudgetTooSmallError,
    RevertConflictError,
)
from tests.support.rewriting import ORIGINAL, PACKAGE, Failures, child, rewrite, strays

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

PROGRAM = """\
import json, sys, time
batch = json.load(open(sys.argv[1]))["batch_size"]
while True:
    time.sleep(0.02 if batch <= 4 else 0.005 * batch)
    print("done", batch, "items", flush=True)
"""
SETTINGS = """\
[workload.small]
config = "c.json"
command = "{python} run.py {{config}}"
unit-regex = "done ([0-9]+) items"
phase = "test"
"""
ANSWERS = {*OPTIMIZE_EXIT_CODES.values(), BudgetTooSmallError.exit_code}
"""A call that ends by itself says one of these: on a busy machine its budget may hold no proof."""


# --- kills of the write and the revert ----------------------------------------------------


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of advisor `work` executes."""
    pid, pipe = child(work, stop_at=0)
    os.waitpid(pid, 0)
    with os.fdopen(pipe) as lines:
        return int(lines.read())


def fresh(folder: Path, *, rewritten: bool) -> Path:
    """A project with one config, in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = folder / "c.json"
    config.write_bytes(ORIGINAL)
    config.chmod(0o600)
    if rewritten:
        rewrite(config)
    return config


def check_after_kill(config: Path, tuned: bytes, failures: Failures, where: str) -> None:
    """The config is whole, and the next calls leave nothing lying about and do what they say."""
    found = config.read_bytes()
    if found not in {ORIGINAL, tuned}:
        failures.note(f"{where}: the config is neither the original nor the tuned one")
        return
    try:
        try:
            undone = revert([config])[config]
        except RevertConflictError as problem:
            undone = 0
            if "never rewritten" not in str(problem):
                failures.note(f"{where}: revert says {str(problem)[:120]}")
        if config.read_bytes() != ORIGINAL or undone != (found == tuned):
            failures.note(f"{where}: revert took back {undone} of a config that was {found[:24]!r}")
        rewrite(config)
        whole = config.read_bytes() == tuned and revert([config]) == {config: 1}
        if not whole or config.read_bytes() != ORIGINAL:
            failures.note(f"{where}: the next rewrite and revert went wrong")
    except Exception as problem:
        failures.note(f"{where}: the next call ended in {type(problem).__name__}: {problem}")
    if stray := strays(config):
        failures.note(f"{where}: left behind: {stray}")


def kills(
    count: int, folder: Path, chance: random.Random, failures: Failures, *, every: int = 1
) -> dict[str, int]:
    """Kill the write and the revert `count` times or more: each line once, then at any time.

    With `every` above 1 only so many of the lines.
    """
    tuned = ORIGINAL.replace(b'"batch_size": 1', b'"batch_size": 8')
    done: Counter[str] = Counter()
    config = folder / "k" / "c.json"
    works: dict[str, Callable[[], object]] = {
        "write": lambda: rewrite(config),
        "revert": lambda: revert([config]),
    }
    for name, work in works.items():
        fresh(config.parent, rewritten=name == "revert")
        lines = lines_of(work)
        steps = range(0, lines, every)
        for number in range(max(count // 2, len(steps)) if count else 0):
            fresh(config.parent, rewritten=name == "revert")
            exact = number < len(steps)
            pid, pipe = child(work, steps[number] + 1 if exact else None)
            where = f"{name}, line {steps[number] + 1} of {lines}" if exact else ""
            if not exact:
                delay = chance.uniform(0.0, 0.02)
                where = f"{name}, after {delay * 1000:.2f} ms"
                time.sleep(delay)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            os.close(pipe)
            done[f"{name}, at a line" if exact else f"{name}, at a time"] += 1
            done["killed before the end"] += os.WIFSIGNALED(status)
            check_after_kill(config, tuned, failures, where)
    return dict(done)


# --- kills of whole calls -----------------------------------------------------------------


def calls(count: int, folder: Path, chance: random.Random, failures: Failures) -> dict[str, int]:
    """Kill `gpu-advisor optimize` at random moments; every tenth call is left to end."""
    project = folder / "calls"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    config = project / "c.json"
    config.write_bytes(ORIGINAL)
    (project / "run.py").write_text(PROGRAM)
    (project / "gpu-advisor.toml").write_text(SETTINGS.format(python=sys.executable))
    known = {path.name for path in project.iterdir()} | {".gpu-advisor"}
    ours = {"report.md", "report.json", "report-figures"}
    env = {
        **os.environ,
        "GPU_ADVISOR_RUNTIME_DIR": str(folder / "runtime"),
        "PYTHONPATH": str(Path(PACKAGE).parent),
        "TMPDIR": str(folder / "tmp"),
    }
    (folder / "tmp").mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "advisor"]
    tune = [*argv, "optimize", "c.json", "--budget", "20s", "--window", "0.2s", "--json"]
    done: Counter[str] = Counter()
    longest_s = 12.0
    for number in range(count + count // 10):
        whole = number % 11 == 10
        if chance.random() < 0.3:
            shutil.rmtree(project / ".gpu-advisor", ignore_errors=True)
            config.write_bytes(ORIGINAL)
        began = time.monotonic()
        process = subprocess.Popen(
            tune, cwd=project, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if whole:
            _, stderr = process.communicate(timeout=120)
            longest_s = time.monotonic() - began
            done["left to end"] += 1
            if process.returncode not in ANSWERS:
                failures.note(f"call {number}: exit {process.returncode}: {stderr[-300:]!r}")
            left = {path.name for path in project.iterdir()} - known - ours
            if left:
                failures.note(f"call {number}: left behind: {sorted(left)}")
        else:
            tree = chance.random() < 0.5
            delay = chance.uniform(0.0, longest_s)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=delay)
            ended = process.poll() is not None
            kill(process.pid, tree=tree)
            _, stderr = process.communicate()
            done["ended first" if ended else "tree killed" if tree else "call killed"] += 1
            if ended and process.returncode not in ANSWERS:
                failures.note(f"call {number}: exit {process.returncode}: {stderr[-300:]!r}")
        found = config.read_bytes()
        plain = found.replace(b"batch_size", b"", 1)
        if len(plain) < len(ORIGINAL) - 20 or not found.endswith(b'nn"\n}\n'):
            failures.note(f"call {number}: the config is not whole: {found[:40]!r}")
        if whole or number % 5 == 0:
            back = subprocess.run(
                [*argv, "revert", "c.json", "--all"], cwd=project, env=env, capture_output=True,
                check=False,
            )  # fmt: skip
            expected = {0, RevertConflictError.exit_code}
            if back.returncode not in expected or config.read_bytes() != ORIGINAL:
                failures.note(f"call {number}: revert exit {back.returncode}: {back.stderr!r}")
            done["reverted afterwards"] += 1
        if left := [path.name for path in project.glob(".*.gpu-advisor*.json")]:
            done["candidates that a killed tree left for the next call"] += len(left)
    return dict(done)


def kill(pid: int, *, tree: bool) -> None:
    """SIGKILL to a process, or to it and to all that descend from it, wherever they hide."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        family = process.children(recursive=True) if tree else []
        for member in [process, *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()


# --- a full disk --------------------------------------------------------------------------


def full_disk(folder: Path, failures: Failures) -> dict[str, int]:
    """Write and revert with only so many KiB left."""
    done: Counter[str] = Counter()
    place = folder / "disk"
    place.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)],
        check=False, capture_output=True,
    )  # fmt: skip
    if mounted.returncode != 0:
        return {"not tried: no mount permitted": 0}
    tuned = ORIGINAL.replace(b'"batch_size": 1', b'"batch_size": 8')
    try:
        for name in ("write", "revert"):
            for pages in range(16):
                config = fresh(place / "p", rewritten=name == "revert")
                filled = place / "filler"
                with contextlib.suppress(OSError), filled.open("wb", buffering=0) as file:
                    while True:
                        file.write(b"x" * 4096)
                os.truncate(filled, max(0, filled.stat().st_size - 4096 * pages))
                before = config.read_bytes()
                try:
                    rewrite(config) if name == "write" else revert([config])
                    done[f"{name} done"] += 1
                except AdvisorError as problem:
                    done[f"{name} refused"] += 1
                    if "No space left" not in str(problem) or config.read_bytes() != before:
                        failures.note(f"{name}, {pages} pages: {problem}")
                except Exception as problem:
                    failures.note(f"{name}, {pages} pages: {type(problem).__name__}: {problem}")
                filled.unlink()
                check_after_kill(config, tuned, failures, f"{name} with {pages} pages left")
                shutil.rmtree(place / "p")
    finally:
        subprocess.run(["umount", str(place)], check=False)
    return dict(done)
