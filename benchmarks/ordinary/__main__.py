"""Ten ordinary programs, tuned in three minutes and held against a stopwatch.

    python -m benchmarks.ordinary [NAME ...] [--budget 3m] [--neighbour] [--flat] [--no-stopwatch]

Each program of `programs/` is tuned in a folder of its own. Then the original and the tuned command
run four times each, in turns and without gpu-advisor: the median ratio of their own clocks is the
true one. Beside it stands the ratio of their median epochs or passes, which leaves out what a
process loses once, some seconds after its start, and a longer run does not lose again.

With `--neighbour` another process takes a third of one CPU in bursts while the tool works. With
`--flat` the programs start from settings that leave nothing to gain.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from advisor.errors import OPTIMIZE_EXIT_CODES

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
OPTIMIZE = (sys.executable, "-m", "advisor", "optimize")
STOPWATCH_S, SLOWEST_S = 15.0, 90.0
"""Length of one run under the stopwatch; a slow program needs longer for two parts."""
ROUNDS = 4
"""Rounds of one program differed by a half: the median of four is steadier than two."""
PART = re.compile(r": (\d+) \w+ in ([0-9.]+) s")
"""Units and seconds of one epoch or pass, as each program prints them."""
BURSTS = """
import os, time
parent = os.getppid()
while os.getppid() == parent:
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass
    time.sleep(2)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program with its config, as it starves and with nothing to gain."""

    name: str
    words: tuple[str, ...]
    """Words behind the script."""
    config: str | None = None
    """Name of the config file; None: the settings are flags."""
    starved: str = ""
    flat: str = ""
    """Contents of the config, or the flags."""

    def command(self, settings: str) -> list[str]:
        """Whole command with the config's or the flags' `settings`."""
        flags = [] if self.config else shlex.split(settings)
        return [sys.executable, f"{self.name}.py", *self.words, *flags]


TRAIN_YAML = "data:\n  batch_size: 32  # images\n  workers: {}\noptim:\n  lr: 0.001\n"
SAMPLE_JSON = (
    '{{\n  "seed": 7,\n  "model": {{"width": 16}},\n'
    '  "sampling": {{"batch_size": {}, "steps": 12}}\n}}\n'
)
SCORE_YAML = "model: {{width: {}, depth: {}}}\neval:\n  batch_size: {}\n"
TILES_JSON = '{{"tile_size": {}, "tile_batch_size": {}, "network": {{"channels": {}}}}}\n'
REGRESS_JSON = """{{
  "seed": 1,
  "data": {{"window": 64, "loader": {{"batch_size": 20, "num_workers": {}}}}},
  "training": {{"learning_rate": 0.01, "epochs": 1000}}
}}
"""

CASES = (
    Program(
        name="classify",
        words=("--config", "classify.yaml"),
        config="classify.yaml",
        starved=TRAIN_YAML.format(0),
        flat=TRAIN_YAML.format(8),
    ),
    Program(
        name="sample",
        words=("--config", "sample.json"),
        config="sample.json",
        starved=SAMPLE_JSON.format(1),
        flat=SAMPLE_JSON.format(32),
    ),
    Program(name="language", words=(), starved="--num-workers 0", flat="--num-workers 8"),
    Program(
        name="features",
        words=("features.toml",),
        config="features.toml",
        starved='[extract]\nbatch_size = 1\noutput = "features.npy"\n',
        flat='[extract]\nbatch_size = 512\noutput = "features.npy"\n',
    ),
    Program(
        name="speech",
        words=("settings.py",),
        config="settings.py",
        starved="loader = dict(batch_size=4, num_workers=0)\n",
        flat="loader = dict(batch_size=32, num_workers=12)\n",
    ),
    Program(
        name="score",
        words=("-c", "score.yaml"),
        config="score.yaml",
        starved=SCORE_YAML.format(64, 3, 1),
        flat=SCORE_YAML.format(768, 6, 1024),
    ),
    Program(
        name="tiles",
        words=("tiles.json",),
        config="tiles.json",
        starved=TILES_JSON.format(8, 1, 12),
        flat=TILES_JSON.format(64, 4, 48),
    ),
    Program(name="segment", words=(), starved="-b 4 -j 0", flat="-b 16 -j 10"),
    Program(
        name="embed",
        words=("embed.yaml",),
        config="embed.yaml",
        starved="batch_size: 1\nnum_workers: 0\nwidth: 64\n",
        flat="batch_size: 64\nnum_workers: 0\nwidth: 256\n",
    ),
    Program(
        name="regress",
        words=("regress.json",),
        config="regress.json",
        starved=REGRESS_JSON.format(0),
        flat=REGRESS_JSON.format(6),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Claim of one call, beside the stopwatch."""

    name: str
    verdict: str
    seconds: float
    ratio: float | None
    low: float | None
    high: float | None
    true: float | None
    """Rate of the tuned command over the original's; None where nothing was written."""
    true_parts: tuple[float, ...]
    """The same ratio by each round of the stopwatch."""
    steady: float | None
    """The same ratio by the median epoch or pass of each run."""
    changes: tuple[str, ...]
    reason: str

    @property
    def holds(self) -> bool | None:
        """True if the stopwatch lies inside the interval."""
        if self.true is None or self.low is None:
            return None
        return self.low <= self.true <= (self.high or float("inf"))


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """Another process that works in bursts."""
    process = subprocess.Popen([sys.executable, "-c", BURSTS])
    try:
        yield
    finally:
        process.kill()
        process.wait()


class Rates(NamedTuple):
    """Units a second of one run, by the program's own clock, without its first part."""

    whole: float
    median_part: float


def rates(command: list[str], folder: Path) -> Rates:
    """Rates of one run under the stopwatch."""
    log = folder / "stopwatch.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
        began, parts = time.monotonic(), []
        while time.monotonic() - began < (STOPWATCH_S if len(parts) > 1 else SLOWEST_S):
            time.sleep(1.0)
            parts = [(int(units), float(s)) for units, s in PART.findall(log.read_text())]
        process.kill()
        process.wait()
    whole = sum(units for units, _ in parts[1:]) / sum(seconds for _, seconds in parts[1:])
    return Rates(whole, statistics.median(units / seconds for units, seconds in parts[1:]))


def tuned_command(program: Program, report: dict[str, Any], settings: str) -> list[str]:
    """Command with the result; the config was rewritten in place."""
    if program.config or not report["tuned_command"]:
        return program.command(settings)
    return shlex.split(report["tuned_command"])


def stopwatch(
    program: Program, report: dict[str, Any], settings: str, folder: Path
) -> tuple[Rates, ...]:
    """Both ratios of each round; the tuned command runs first in every second one."""
    original = folder / "original"
    original.mkdir()
    shutil.copy(PROGRAMS / f"{program.name}.py", original)
    if program.config:
        (original / program.config).write_text(settings)
    before = (program.command(settings), original)
    after = (tuned_command(program, report, settings), folder)
    ratios = []
    for number in range(ROUNDS):
        if number % 2:
            tuned, untuned = rates(*after), rates(*before)
        else:
            untuned, tuned = rates(*before), rates(*after)
        ratios.append(Rates(*(new / old for new, old in zip(tuned, untuned, strict=True))))
    return tuple(ratios)


def run(program: Program, *, flat: bool, budget: str, beside: bool, timed: bool) -> Outcome:
    """Tune one program, then hold the result against the stopwatch if `timed`."""
    settings = program.flat if flat else program.starved
    with tempfile.TemporaryDirectory(prefix="ordinary-") as name:
        folder = Path(name)
        shutil.copy(PROGRAMS / f"{program.name}.py", folder)
        if program.config:
            (folder / program.config).write_text(settings)
        words, command = [program.config] if program.config else [], program.command(settings)
        began = time.monotonic()
        with neighbour() if beside else contextlib.nullcontext():
            done = subprocess.run(
                [*OPTIMIZE, *words, "--json", "--budget", budget, "--", *command],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
        seconds = time.monotonic() - began
        if done.returncode not in OPTIMIZE_EXIT_CODES.values():
            report = {"verdict": f"exit {done.returncode}", "reason": done.stderr.strip()[-300:]}
        else:
            report = json.loads((folder / "report.json").read_text())
        ratios: tuple[Rates, ...] = ()
        if timed and report.get("changes"):
            ratios = stopwatch(program, report, settings, folder)
    gain = report.get("gain") or {}
    return Outcome(
        name=program.name,
        verdict=report["verdict"],
        seconds=seconds,
        ratio=gain.get("ratio"),
        low=gain.get("low"),
        high=gain.get("high"),
        true=statistics.median(ratio.whole for ratio in ratios) if ratios else None,
        true_parts=tuple(ratio.whole for ratio in ratios),
        steady=statistics.median(ratio.median_part for ratio in ratios) if ratios else None,
        changes=tuple(
            f"{each['path'].rsplit('.', 1)[-1]}={each['new']}" for each in report.get("changes", ())
        ),
        reason=report.get("reason") or "",
    )


def figure(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.3g}"


def row(each: Outcome) -> str:
    """Row of the table."""
    holds = {True: "yes", False: "NO", None: "-"}[each.holds]
    return (
        f"| {each.name} | {each.verdict} | {each.seconds:.0f} | {figure(each.ratio)} "
        f"| {figure(each.low)} to {figure(each.high)} | {figure(each.true)} "
        f"({', '.join(map(figure, each.true_parts))}) | {figure(each.steady)} | {holds} "
        f"| {', '.join(each.changes)} |"
    )


def main() -> None:
    """Print a row for each program, then the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    names = [case.name for case in CASES]
    parser.add_argument("names", nargs="*", choices=[*names, []], metavar="NAME")
    parser.add_argument("--budget", default="3m")
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--no-stopwatch", action="store_true", help="claims only")
    args = parser.parse_args()
    print(
        "| program | verdict | s | claimed | interval | stopwatch | median part | inside "
        "| written |\n|:--|:--|--:|--:|:--|:--|--:|:--|:--|"
    )
    found: list[Outcome] = []
    for case in CASES:
        if args.names and case.name not in args.names:
            continue
        timed = not args.no_stopwatch
        found.append(
            run(case, flat=args.flat, budget=args.budget, beside=args.neighbour, timed=timed)
        )
        print(row(found[-1]), flush=True)
        if found[-1].verdict != "improved":
            print(f"  {found[-1].reason}", file=sys.stderr, flush=True)
    held = [each.holds for each in found if each.holds is not None]
    improved = sum(each.verdict == "improved" for each in found)
    print(f"\nimproved {improved} of {len(found)}; stopwatch inside {sum(held)} of {len(held)}")


if __name__ == "__main__":
    main()
