"""Programs whose true effect of each setting is known: what does `optimize` write?

    python -m benchmarks.same_work [NAME ...] [--budget 75s] [--jobs 2] [--harmful | --free]
    python -m benchmarks.same_work --observed [NAME ...]

Each program of `programs.py` is tuned in a folder of its own. A harmful value that was written is
a fault, whatever it gains. A gain that changes nothing of the work should be written.

With `--observed` nothing is searched or written: two runs of the original and one of a changed
config are compared, as every trial of a search is. It takes seconds a program.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from advisor.errors import OPTIMIZE_EXIT_CODES
from benchmarks.same_work import observed
from benchmarks.same_work.programs import PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[2]
WORTH = 1.3
"""A free gain of less is no loss where it is not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one call wrote."""

    program: Program
    verdict: str
    seconds: float
    written: dict[str, Any]
    """New values by setting."""
    gain: float | None
    reason: str

    @property
    def ended(self) -> bool:
        """False where the call failed: it then shows nothing, whatever it left unchanged."""
        return not self.verdict.startswith("exit ")

    @property
    def harm(self) -> dict[str, str]:
        """Written settings that break the work, and how."""
        return {
            name: self.program.harmful[name]
            for name, value in self.written.items()
            if name in self.program.harmful
            and not (type(value) is int and value in self.program.harmless)
        }

    @property
    def missed(self) -> list[str]:
        """Free gains that were not written, where nothing else gained as much.

        Workers that start slowly cost as little where there are none as where they stay.
        """
        free = {name for name, gain in self.program.free.items() if gain >= WORTH}
        enough = {name for name in free if (self.gain or 0.0) >= self.program.free[name]}
        return sorted(free - set(self.written) - (set() if self.harm else enough))


def tune(program: Program, budget: str) -> Outcome:
    """Tune one program."""
    with tempfile.TemporaryDirectory(prefix="same-work-") as name:
        folder = Path(name)
        (folder / "runtime").mkdir(mode=0o700)
        (folder / "train.py").write_text(program.source)
        (folder / "config.yaml").write_text(yaml.safe_dump(program.config, sort_keys=False))
        began = time.monotonic()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "advisor", "optimize", "config.yaml", "--json"),
                *("--budget", budget, "--window", "1s"),
                *("--", sys.executable, "train.py", "config.yaml"),
            ],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "NO_COLOR": "1",
                "GPU_ADVISOR_RUNTIME_DIR": str(folder / "runtime"),  # calls may lie side by side
            },
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        report: dict[str, Any] = {
            "verdict": f"exit {done.returncode}",
            "reason": done.stderr.strip()[-400:],
        }
        if done.returncode in OPTIMIZE_EXIT_CODES.values():
            report = json.loads((folder / "report.json").read_text())
        config = yaml.safe_load((folder / "config.yaml").read_text())
    return Outcome(
        program=program,
        verdict=report["verdict"],
        seconds=seconds,
        written={key: value for key, value in config.items() if value != program.config.get(key)},
        gain=(report.get("gain") or {}).get("ratio"),
        reason=report.get("reason") or "",
    )


def row(each: Outcome) -> str:
    """Row of the table."""
    right = "HARM" if each.harm else "missed" if each.missed else "yes"
    written = ", ".join(f"{key}={value}" for key, value in each.written.items()) or "-"
    truth = "; ".join(
        [f"{key}: {how}" for key, how in each.program.harmful.items()]
        + [f"{key} is free, {gain:g}x" for key, gain in each.program.free.items()]
    )
    gain = "-" if each.gain is None else f"{each.gain:.3g}"
    return (
        f"| {each.program.name} | {truth} | {each.verdict} | {each.seconds:.0f} | {written} "
        f"| {gain} | {right if each.ended else 'no call'} |"
    )


def chosen(names: Iterable[str], *, harmful: bool, free: bool) -> list[Program]:
    """Programs of these names, of one kind where asked."""
    every = [program for program in PROGRAMS if not names or program.name in names]
    if harmful or free:
        every = [each for each in every if bool(each.harmful) is harmful]
    return every


def main() -> int:
    """Print a row for each program, then the counts; 1 where harm was written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--observed", action="store_true", help="compare single runs")
    parser.add_argument("--budget", default="75s")
    parser.add_argument("--jobs", type=int, default=1, help="calls side by side")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--harmful", action="store_true")
    kinds.add_argument("--free", action="store_true")
    args = parser.parse_args()
    programs = chosen(args.names, harmful=args.harmful, free=args.free)
    if args.observed:
        return observed.main(programs)
    print("| program | truth | verdict | s | written | claimed | right |")
    print("|:--|:--|:--|--:|:--|--:|:--|")
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for outcome in pool.map(lambda each: tune(each, args.budget), programs):
            outcomes.append(outcome)
            print(row(outcome), flush=True)
            if outcome.harm or outcome.missed or not outcome.ended:
                print(f"  {outcome.program.name}: {outcome.reason}", file=sys.stderr, flush=True)
    harms = [each for each in outcomes if each.program.harmful]
    frees = [each for each in outcomes if each.program.free]
    print(
        f"\nharmful values written: {sum(bool(each.harm) for each in harms)} of {len(harms)}; "
        f"free gains written: {sum(not each.missed for each in frees)} of {len(frees)}; "
        f"calls that failed: {sum(not each.ended for each in outcomes)}"
    )
    return int(any(each.harm or not each.ended for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
