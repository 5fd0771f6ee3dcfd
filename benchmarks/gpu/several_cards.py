"""Time of a call on one card and on several equal ones, simulated.

    python -m benchmarks.gpu.several_cards [--window 4s]

The kernels of the program take most of the time, so the two processors of a small host do not
decide. Nothing else may run beside it.
"""

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.support.several_cards import tuned

STAGE = re.compile(r"^(\w[\w ]*): .*\((?:(\d+) min )?(?:([\d.]+) s )?of ", re.MULTILINE)


def stages(progress: str, whole_s: float) -> dict[str, float]:
    """Seconds of each stage, by its start and that of the next; the last one ends the call."""
    starts = [(name, 60 * int(m or 0) + float(s or 0)) for name, m, s in STAGE.findall(progress)]
    ends = [*(start for _, start in starts[1:]), whole_s]
    return {name: end - start for (name, start), end in zip(starts, ends, strict=True)}


def main() -> None:
    """Print a row for each number of cards."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--window", default="4s")
    args = parser.parse_args()
    print("| cards | written | search | rounds |\n|--:|:--|--:|--:|", flush=True)
    alone: dict[str, float] = {}
    for count in (1, 2, 4):
        with tempfile.TemporaryDirectory() as folder:
            flags = ("--evaluate", "--paced")
            begun = time.monotonic()
            text, progress = tuned(Path(folder, "x"), count, *flags, window=args.window)
        took = stages(progress, time.monotonic() - begun)
        sys.stderr.write(progress)
        alone = alone or took
        cells = [f"{took[n]:.0f} s ({took[n] / alone[n]:.2f})" for n in ("search", "confirm")]
        print(f"| {count} | `{text.strip()}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
