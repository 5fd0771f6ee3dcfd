"""Does a busy machine change what `optimize` says? README's command one, with neighbours.

    python -m benchmarks.busy [--runs 5] [--world quiet --world bursts --world hog] [--json FILE]

Worlds: `quiet`; `bursts`, in which another process takes 30 % of one CPU, one second in three and a
third; `hog`, in which another process holds one CPU throughout. Each run is the whole command, in a
copy of the repository's config, without history. Printed for each: the verdict, the gain with its
bounds, how it speaks of the machine, and whether the quiet gain (the mean estimate of the quiet
runs, or --quiet-ratio) lies inside the interval.

Run it on a machine that is otherwise idle: what else is at work is a third neighbour.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import OPTIMIZE_EXIT_CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
KEPT = ("benchmarks", "config", "gpu-advisor.toml")
"""What the command reads."""
BURST_S, PERIOD_S = 1.0, 10.0 / 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one call said."""

    world: str
    verdict: str
    wall_s: float
    processes: int
    gain: float | None
    low: float | None
    high: float | None
    free: float | None
    free_low: float | None
    free_high: float | None
    busy: str
    changes: tuple[str, ...]

    @property
    def width(self) -> float | None:
        """High over low; None where only a lower bound was told."""
        return self.high / self.low if self.high and self.low else None


def burn(burst_s: float, period_s: float) -> None:
    """Take one CPU for `burst_s` of every `period_s`, while the one that began it lives."""
    parent = os.getppid()
    while os.getppid() == parent:
        end = time.monotonic() + burst_s
        while time.monotonic() < end:
            pass
        if period_s > burst_s:
            time.sleep(period_s - burst_s)


@contextlib.contextmanager
def world(name: str) -> Iterator[None]:
    """The neighbour of that name, while the context lasts."""
    if name == "quiet":
        yield
        return
    shape = {"bursts": (BURST_S, PERIOD_S), "hog": (BURST_S, BURST_S)}[name]
    neighbour = multiprocessing.get_context("spawn").Process(target=burn, args=shape, daemon=True)
    neighbour.start()
    try:
        yield
    finally:
        neighbour.terminate()
        neighbour.join()


def laid_out(project: Path) -> Path:
    """What the command reads, in a folder of its own."""
    (project / ".git").mkdir()
    for kept in KEPT:
        source, copy = ROOT / kept, project / kept
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("results", "__pycache__"))
        else:
            shutil.copy(source, copy)
    return project


def environment() -> dict[str, str]:
    """Of the command: its `python` is the one that runs this, whether or not that is activated."""
    here = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return {**os.environ, "PATH": here, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def one_call(name: str, budget: str | None) -> Line:
    """README's command one in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="busy-") as folder, world(name):
        project = laid_out(Path(folder))
        command = [
            sys.executable,
            "-m",
            "advisor",
            "optimize",
            "config/dem_completion.json",
            "--json",
        ]
        begun = time.monotonic()
        done = subprocess.run(
            [*command, *(["--budget", budget] if budget else [])],
            cwd=project,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        wall_s = time.monotonic() - begun
        if done.returncode not in OPTIMIZE_EXIT_CODES.values():
            return failed(name, done, wall_s)
        report = json.loads((project / "report.json").read_text())
    return line_of(name, report, wall_s)


def failed(name: str, done: subprocess.CompletedProcess[str], wall_s: float) -> Line:
    """A call that ended without a result."""
    return Line(
        world=name,
        verdict=f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}",
        wall_s=wall_s,
        processes=0,
        gain=None,
        low=None,
        high=None,
        free=None,
        free_low=None,
        free_high=None,
        busy="",
        changes=(),
    )


def line_of(name: str, report: dict[str, Any], wall_s: float) -> Line:
    """What a report says, in one line."""
    gain, free = report.get("gain") or {}, report.get("gain_free") or {}
    return Line(
        world=name,
        verdict=report["verdict"],
        wall_s=wall_s,
        processes=report["runs"],
        gain=gain.get("ratio"),
        low=gain.get("low"),
        high=gain.get("high"),
        free=free.get("ratio"),
        free_low=free.get("low"),
        free_high=free.get("high"),
        busy=report["load_note"],
        changes=tuple(f"{c['path'].rsplit('.', 1)[-1]}={c['to']}" for c in report["changes"]),
    )


def inside(truth: float | None, low: float | None, high: float | None) -> str:
    """Whether an interval holds the quiet gain."""
    if truth is None or low is None:
        return "-"
    return "yes" if low <= truth <= (high or math.inf) else "NO"


def figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def main() -> None:
    """Print a line for each call as it ends, and the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--world", action="append", choices=["quiet", "bursts", "hog"])
    parser.add_argument("--budget", help="for optimize; the workload's own by default")
    parser.add_argument("--quiet-ratio", type=float, help="the quiet free gain, from elsewhere")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    lines: list[Line] = []
    for name in args.world or ["quiet", "bursts", "hog"]:
        for _ in range(args.runs):
            lines.append(one_call(name, args.budget))
            print(lines[-1], flush=True)
            if args.json:
                args.json.write_text(json.dumps([asdict(line) for line in lines], indent=2))
    quiet = [line.free for line in lines if line.world == "quiet" and line.free]
    truth = args.quiet_ratio or (statistics.fmean(quiet) if quiet else None)
    print(f"\nquiet free gain: {figure(truth)}")
    print(
        "| world | verdict | s | free gain | bounds | holds the quiet one | gain | bounds | says |"
    )
    print("|:--|:--|--:|--:|:--|:--|--:|:--|:--|")
    for line in lines:
        print(
            f"| {line.world} | {line.verdict} | {line.wall_s:.0f} | {figure(line.free)} "
            f"| {figure(line.free_low)} to {figure(line.free_high)} "
            f"| {inside(truth, line.free_low, line.free_high)} | {figure(line.gain)} "
            f"| {figure(line.low)} to {figure(line.high)} | {line.busy or 'quiet'} |"
        )


if __name__ == "__main__":
    main()
