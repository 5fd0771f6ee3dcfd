"""Kinds of programs that people bring, each measured by `gpu-advisor profile` and by itself.

    python -m benchmarks.matrix [NAME ...]

A program writes the time and the units of each step it finished; over the window that the probe
measured, its own account must give the same rate.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.support.matrix import CASES, Case, measure


def main() -> None:
    """Print the matrix."""
    parser = argparse.ArgumentParser(description="Print the matrix of programs as a table.")
    parser.add_argument("names", nargs="*", help="cases to run (default: all)")
    parser.add_argument("--window", default="1s")
    args = parser.parse_args()
    heads = ("program", "units/s probe", "units/s truth", "error", "batch", "workers", "ranks")
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    for case in CASES:
        if args.names and case.name not in args.names:
            continue
        print("| " + " | ".join(_row(case, args.window)) + " |", flush=True)


def _row(case: Case, window: str) -> list[str]:
    why = case.missing()
    if why is not None:
        return [case.name, why, *[""] * 5]
    with tempfile.TemporaryDirectory(prefix="gpu-advisor-matrix-") as folder:
        outcome = measure(case, Path(folder), window)
    profile = outcome.profile
    if outcome.error is None:
        return [case.name, str(profile["failure"]), *[""] * 5]
    wanted = {"batch": case.batch, "workers": case.workers, "ranks": case.ranks}
    seen = [
        f"{profile[name]}" + ("" if value in (profile[name], None) else f", not {value}")
        for name, value in wanted.items()
    ]
    rates = [f"{outcome.units_per_s:,.1f}", f"{outcome.true_units_per_s:,.1f}"]
    return [case.name, *rates, f"{outcome.error:+.2%}", *seen]


if __name__ == "__main__":
    main()
