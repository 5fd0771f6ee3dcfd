"""How surely failures are told apart, and what they leave behind.

    python -m benchmarks.failures [NAME ...] [--repeats 20]

Every program of `tests/runner/failures.py` is run to its end, and once more as often with the
calling process ended by `kill -9` at a random moment between its start and shortly after the
failure. Counted is how often kind, evidence and stacks were right, and what was left: processes,
and files (candidates, temporary directories, shared memory, anything changed in the working
directory).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time

from tests.runner.failures import CASES, Case, TrialResult, abandon, attempt

HEADS = (
    "kind",
    "program",
    "repeats",
    "told right",
    "processes left",
    "files left",
    "s each",
    "parent killed",
    "processes left",
    "files left",
)
LATE = 1.2
"""Part of a run's length up to which its parent is killed: some runs have ended before."""


def main() -> int:
    """Print the table; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description="Print how failures are told apart, as a table.")
    parser.add_argument("names", nargs="*", help="programs to run (default: all)")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which parents end")
    args = parser.parse_args()
    print("| " + " | ".join(HEADS) + " |\n|" + " --- |" * len(HEADS))
    problems = []
    for name, case in CASES.items():
        if args.names and name not in args.names:
            continue
        cells, found = _row(name, case, args.repeats, random.Random(f"{args.seed} {name}"))
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        for problem in found:
            print(f"{name}: {problem}", file=sys.stderr, flush=True)
        problems += found
    return 1 if problems else 0


def _row(
    name: str, case: Case, repeats: int, chance: random.Random
) -> tuple[list[object], list[str]]:
    ended, seconds = [], []
    for _ in range(repeats):
        begun = time.monotonic()
        ended.append(attempt(case))
        seconds.append(time.monotonic() - begun)
    each = statistics.median(seconds)
    cut = [abandon(case, chance.uniform(0.0, LATE * each)) for _ in range(repeats)]
    cells = [
        *(case.kind, name, repeats, sum(not one.wrong for one in ended), *_left(ended)),
        *(f"{each:.1f}", repeats, *_left(cut)),
    ]
    return cells, [problem for one in (*ended, *cut) for problem in one.problems]


def _left(attempts: list[TrialResult]) -> tuple[int, int]:
    return (
        sum(len(one.processes) for one in attempts),
        sum(len(one.files) for one in attempts),
    )


if __name__ == "__main__":
    sys.exit(main())
