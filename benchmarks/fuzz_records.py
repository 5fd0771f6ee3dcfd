"""Does anything that a program can write, or a clock can do, end a call or hang it?

    python -m benchmarks.fuzz_records [--cases 5000] [--seed 1] [--slow-s 10]

Each case is a record, an event log, an output, a suite's JSON, a list of loaded files or a saved
gate.json at random, most of them nearly right. It goes from its files to the verdict of a gate.
Printed: every fault with its number, and how many cases of each kind there were. Exit code 1 if
anything raised, or took more than `--slow-s` seconds of CPU.
"""

import argparse
import sys
from collections import Counter

from tests.support.hostile_records import WEIGHTS, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slow-s", type=float, default=10.0)
    args = parser.parse_args()
    found = Counter[str]()
    for fault in faults(args.cases, args.seed, args.slow_s):
        found[fault.kind] += 1
        print(fault, flush=True)
    whole = sum(WEIGHTS.values())
    for kind, many in WEIGHTS.items():
        print(f"{kind}: about {args.cases * many // whole} cases, {found[kind]} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
