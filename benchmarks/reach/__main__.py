"""Programs such as people publish: is their work read right, and do they get a proven answer?

    python -m benchmarks.reach [--program NAME ...] [--profile-only]

Each program has a clock of its own, which nobody asks but this benchmark. `profile` runs with it:
rate (within 2 %), batch, workers and accumulation must be what the program did in the same run, so
that what others do on the machine is in both. `optimize` runs without it, and must end in a proven
answer inside its budget, or say what budget it needs. Nothing may be left behind.

Programs whose framework is not installed are left out and named:
jsonargparse[signatures] beside the extra `frameworks`.
"""

import argparse
import platform
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.reach.measure import TuningResult, measured
from benchmarks.reach.table import TABLE

HEADS = (
    "program", "units/s", "clock", "error", "batch", "workers", "accumulation", "answer", "load",
    "wrong",
)  # fmt: skip


def main() -> None:
    """Measure the programs asked for, and print a row for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [each.name for each in TABLE]
    parser.add_argument("--program", action="append", choices=names, metavar="NAME")
    parser.add_argument("--profile-only", action="store_true")
    args = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, {time.strftime('%F')}\n")
    print("| " + " | ".join(HEADS) + " |\n|" + " --- |" * len(HEADS), flush=True)
    failed = False
    for program in TABLE:
        if args.program and program.name not in args.program:
            continue
        if (why := program.missing()) is not None:
            print(f"{program.name}: {why}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="reach-") as folder:
            outcome = measured(program, Path(folder), profile_only=args.profile_only)
        failed |= bool(outcome.wrong)
        print(row(outcome), flush=True)
    raise SystemExit(failed)


def row(outcome: TuningResult) -> str:
    """One line of the table."""
    seen, tuned = outcome.profile, outcome.optimize or {}
    names = ["units_per_s", "true_units_per_s"]
    rates = [f"{seen[name]:,.1f}" if seen.get(name) else "" for name in names]
    error = "" if seen.get("error") is None else f"{seen['error']:+.2%}"
    numbers = [str(seen.get(name, "")) for name in ("batch", "workers", "accumulation")]
    load, wrong = f"{outcome.load:g}", "; ".join(outcome.wrong)
    cells = [outcome.name, *rates, error, *numbers, answer(tuned), load, wrong]
    return f"| {' | '.join(cells)} |"


def answer(tuned: dict[str, object]) -> str:
    """The verdict with its gain, what was advised, and what it took."""
    if not tuned:
        return ""
    if "verdict" not in tuned:
        return str(tuned["answer"])[:120]
    gains = [("", tuned["gain"])]
    advice = tuned["suggestions"]
    assert isinstance(advice, list)
    gains += [(f"advised {each['title']}", each["gain"]) for each in advice]
    ratios = [f"{title} {gain['ratio']:.2f}x".strip() for title, gain in gains if gain]  # type: ignore[index]
    return f"{tuned['verdict']} {', '.join(ratios)} in {tuned['seconds']} s"


if __name__ == "__main__":
    main()
