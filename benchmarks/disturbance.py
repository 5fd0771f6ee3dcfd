"""Is the rate under others' bursts that of the quiet machine, and is a run told that was not?

    python -m benchmarks.disturbance [--rounds N] [--limit MINUTES] [--only PROGRAM,...]

Every program is measured alone and while a process of ours burns one core in bursts, interleaved.
Other people's work on the machine would spoil both: before each run it waits for a quiet moment,
and a run counts only if others than ours took next to nothing in its window. The table shows
medians of the runs that count: quiet, over the whole window, over its clean parts.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from advisor.machine.others import Others
from advisor.model import Candidate, MeasurePlan, Run, Trial
from advisor.runner import run_trial

ROOT = Path(__file__).resolve().parents[1]
STRANGERS_CPUS = 0.08
"""Mean that processes which are not ours may keep busy in a window that counts."""

WORLDS: dict[str, tuple[float, float] | None] = {  # seconds of a period, share of it that burns
    "quiet": None,
    "30 % of a core, 1 s": (1.0, 0.3),
    "30 % of a core, 3 s": (3.0, 0.3),
    "30 % of a core, 0.05 s": (0.05, 0.3),
    "one core throughout": (1.0, 1.0),
}


# --- programs, each in a process of its own -------------------------------------------------


def program(name: str) -> None:
    """Run for ever: one of PROGRAMS."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Items(Dataset[Any]):
        def __init__(self, work: int) -> None:
            self.work = work

        def __len__(self) -> int:
            return 10**7

        def __getitem__(self, index: int) -> Any:
            sum(k * k for k in range(self.work))
            return torch.zeros(64)

    threads, work, workers, model, given = {
        "loader without workers": (1, 20_000, 0, _linear(torch, 2, 64), None),
        "loader with workers": (1, 20_000, 2, _linear(torch, 2, 64), None),
        "small kernels, 2 threads": (2, 1, 0, _conv(torch), torch.zeros(8, 16, 32, 32)),
        "large kernels, 2 threads": (2, 1, 0, _linear(torch, 2, 1024), torch.zeros(512, 1024)),
        "Python, 1 thread": (1, 1, 0, _linear(torch, 1, 64), None),
    }[name]
    torch.set_num_threads(threads)
    for batch in DataLoader(Items(work), batch_size=8, num_workers=workers):
        with torch.no_grad():
            model(batch if given is None else given)
        if name.startswith("Python"):
            sum(k * k for k in range(100_000))


PROGRAMS = (
    "small kernels, 2 threads",
    "large kernels, 2 threads",
    "loader without workers",
    "loader with workers",
    "Python, 1 thread",
)


def _linear(torch: Any, layers: int, width: int) -> Any:
    pairs = [(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(layers)]
    return torch.nn.Sequential(*(layer for pair in pairs for layer in pair))


def _conv(torch: Any) -> Any:
    return torch.nn.Sequential(*(torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(6)))


def burn(period_s: float, share: float) -> None:
    """Work for a share of every period, until killed; the first one at a random moment."""
    time.sleep(random.random() * period_s)
    while True:
        end = time.perf_counter() + period_s * share
        while time.perf_counter() < end:
            pass
        time.sleep(period_s * (1 - share))


# --- measuring ------------------------------------------------------------------------------


def command(*args: object) -> tuple[str, ...]:
    return (sys.executable, "-m", "benchmarks.disturbance", *map(str, args))


def wait_for_quiet(until: float) -> None:
    """Until others leave the machine alone for half a second."""
    while time.time() < until:
        others = Others()
        others.look(now=True)
        time.sleep(0.5)
        others.look(now=True)
        if (others.slices[-1].others_cpus or 0.0) < STRANGERS_CPUS:
            return


def attempt(name: str, world: str, folder: str) -> tuple[Run, float] | None:
    """(run, CPUs that strangers kept busy in its window) in `world`; None if it failed."""
    bursts = WORLDS[world]
    trial = Trial(
        id="001",
        purpose="baseline",
        label="original",
        candidate=Candidate(),
        command=command("program", name),
        cwd=str(ROOT),
        scratch=tempfile.mkdtemp(dir=folder),
        plan=MeasurePlan(measure_s=3.0),
    )
    if bursts is None:
        run = run_trial(trial)
        ours = 0.0
    else:
        with subprocess.Popen(command("burn", *bursts), cwd=ROOT) as burner:
            try:
                begun, before = time.time(), psutil.Process(burner.pid).cpu_times()
                run = run_trial(trial)
                after = psutil.Process(burner.pid).cpu_times()
                ours = (after.user - before.user) / (time.time() - begun)
            finally:
                burner.kill()
    if not isinstance(run, Run):
        sys.stderr.write(f"{name}, {world}: {run.kind}: {run.evidence}\n")
        return None
    return run, max(0.0, (run.disturbance.others_cpus or 0.0) - ours)


def measure(names: list[str], rounds: int, limit_s: float) -> dict[str, dict[str, list[Run]]]:
    """The runs that count, by program and world."""
    until = time.time() + limit_s
    kept: dict[str, dict[str, list[Run]]] = {
        name: {world: [] for world in WORLDS} for name in names
    }
    with tempfile.TemporaryDirectory() as folder:
        while time.time() < until:
            missing = [
                (len(runs), name, world)
                for name, worlds in kept.items()
                for world, runs in worlds.items()
                if len(runs) < rounds
            ]
            if not missing:
                break
            fewest = min(count for count, _, _ in missing)
            _, name, world = random.choice([each for each in missing if each[0] == fewest])
            wait_for_quiet(until)
            outcome = attempt(name, world, folder)
            if outcome is None:
                continue
            run, strangers = outcome
            if strangers <= STRANGERS_CPUS + (0.05 if WORLDS[world] else 0.0):
                kept[name][world].append(run)
                sys.stderr.write(f"{name}, {world}: {run.units_per_s:.1f}\n")
    return kept


def raw(run: Run) -> float:
    return run.units / (run.window_end - run.window_start)


def table(kept: dict[str, dict[str, list[Run]]]) -> list[str]:
    """Markdown."""
    heads = ["program", "world", "runs", "raw / quiet", "clean / quiet", "spread of quiet"]
    heads += ["disturbed", "window s", "clean"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for name, worlds in kept.items():
        quiet = [run.units_per_s for run in worlds["quiet"]]
        if not quiet:
            continue
        middle = statistics.median(quiet)
        spread = (max(quiet) - min(quiet)) / middle
        for world, runs in worlds.items():
            if not runs:
                continue
            lines.append(
                f"| {name} | {world} | {len(runs)} "
                f"| {statistics.median(map(raw, runs)) / middle:.3f} "
                f"| {statistics.median(r.units_per_s for r in runs) / middle:.3f} "
                f"| {spread:.1%} | {sum(bool(r.disturbance.disturbed) for r in runs)} "
                f"| {statistics.median(r.window_end - r.window_start for r in runs):.1f} "
                f"| {statistics.median(r.disturbance.clean_share or 0.0 for r in runs):.0%} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=30.0, help="minutes")
    parser.add_argument("--only", default="", help="programs, by the beginning of their names")
    args = parser.parse_args()
    chosen = args.only.split(",")
    names = [name for name in PROGRAMS if any(name.startswith(each) for each in chosen)]
    sys.stdout.write("\n".join(table(measure(names, args.rounds, 60 * args.limit))) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["program"]:
        program(sys.argv[2])
    elif sys.argv[1:2] == ["burn"]:
        burn(float(sys.argv[2]), float(sys.argv[3]))
    else:
        main()
