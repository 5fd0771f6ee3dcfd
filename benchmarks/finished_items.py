"""Is a finished item counted where no DataLoader tells what one is?

`python -m benchmarks.finished_items [NAME ...] [--video-s SECONDS]` profiles the programs of
`tests/fixtures/programs/no_loader.py`, each with its own account of what it finished, and
prints both rates of the same window. Where nothing shows that an item is finished the unit
has another name, and its batch is never written. `--video-s 75` gives the video sampler
items of that length.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from advisor.model import UNFINISHED
from advisor.numbers import plural

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "fixtures" / "programs" / "no_loader.py"
NAMES = (
    "generation_by_hand", "generation_without_a_cache", "generate_method", "beam_search",
    "video_sampler", "ppo", "ppo_of_many", "dqn", "actor_and_learner", "pipeline_over_a_generator",
    "server_loop", "embedding_of_slices",
)  # fmt: skip
FORWARDS = 50
"""Forwards of one video."""
WITHIN, FEW = 0.03, 5
"""Largest error, and fewest items of a window whose edges do not matter."""


def row(name: str, video_s: float | None) -> str:
    """One line of the table: what was counted, at what rate, and by the program's own clock."""
    words = [name]
    if video_s is not None and name == "video_sampler":
        words.append(str(video_s / FORWARDS))
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth"
        own = {"TRUTH": str(truth), "PYTHONPATH": str(ROOT), "GPU_ADVISOR_ISOLATION": "guard"}
        profile_it = ["-m", "advisor", "profile", "--json", "--window", "3s", "--"]
        done = subprocess.run(
            [sys.executable, *profile_it, sys.executable, str(PROGRAM), *words],
            cwd=folder,
            env={**os.environ, **own, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        if not found.get("ok"):
            return f"| {name} | no rate: {done.stderr.strip()[-200:]} | | | | |"
        start, end = found["window"]["start"], found["window"]["end"]
        seen, true = found["units"] / (end - start), own_rate(truth, start, end)
    named = found["unit"] in map(plural, UNFINISHED)
    told = "refused by name" if named else "ok" if abs(seen / true - 1) <= WITHIN else "WRONG"
    error = "" if named else f"{seen / true - 1:+.1%}"
    return f"| {name} | {found['unit']} | {seen:,.3g} | {true:,.3g} | {error} | {told} |"


def own_rate(truth: Path, start: float, end: float) -> float:
    """Units a second by the program's own clock, in the window, or between all items if few."""
    lines = [line.split() for line in truth.read_text().splitlines()]
    noted = [(float(when), float(units)) for when, units in lines]
    inside = [units for when, units in noted if start <= when < end]
    if len(inside) >= FEW:
        return sum(inside) / (end - start)
    (first, _), *later = noted
    return sum(units for _, units in later) / (later[-1][0] - first) if later else float("nan")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--video-s", type=float)
    given = parser.parse_args()
    print("| program | unit | units/s | its own clock | error | |\n|---|---|--:|--:|--:|---|")
    for name in given.names:
        print(row(name, given.video_s), flush=True)


if __name__ == "__main__":
    main()
