"""Kills, a full disk and edits at the worst moment: is the config ever lost?

    python -m benchmarks.kills [--kills 1000] [--calls 100] [--edits 1500] [--seed 0]

- Kills of the write and of the revert: a child is killed (SIGKILL) before the n-th line of
  advisor that it executes, for every n, and then at random times until there were `--kills`.
- Calls: `gpu-advisor optimize` on a small program, killed at random moments, alone or with every
  process that it started. Every tenth call is left to end.
- Edits: another process saves the config at the moment at which the write shows itself, by
  renaming a file over it or by writing into it.
- A full disk: the write and the revert on a small tmpfs with 0, 1, 2, ... KiB left (needs root).

Printed is what was seen. The exit code is 1 if anything was lost, left over, or told wrongly.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.support import edits, kills
from tests.support.rewriting import Failures


def main() -> int:
    """Run everything and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("kills", 1000), ("calls", 100), ("edits", 1500), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    failures = Failures()
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        rows = {
            "kills": lambda: kills.kills(asked.kills, folder, chance, failures),
            "edits": lambda: edits.edits(asked.edits, folder, chance, failures),
            "full disk": lambda: kills.full_disk(folder, failures),
            "calls": lambda: kills.calls(asked.calls, folder, chance, failures),
        }
        print("| what | how often | of these went wrong |\n| --- | --- | --: |", flush=True)
        for what, run in rows.items():
            before = failures.total()
            seen = ", ".join(f"{name} {number}" for name, number in sorted(run().items()))
            print(f"| {what} | {seen} | {failures.total() - before} |", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
