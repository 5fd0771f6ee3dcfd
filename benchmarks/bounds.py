"""Do the bounds of a gain hold, at every number of rounds and for arms of unequal noise?

    python -m benchmarks.bounds [--calls 1000] [--world drift] [--rounds 3] [--price]

Calls are played in simulated worlds (`tests/support/simulator/bounds.py`). `miss` is the share
of calls whose lower bound lies above the truth, nominally 2.5 %; `false` the share that is told
"improved" at no gain at all. `--price` tells what that costs: how many true gains are proven.
"""

import argparse
import itertools
from collections.abc import Sequence

from tests.support.simulator.bounds import ROUNDS, UNEQUAL, WORLDS, World, errors, played

GAINS = (1.03, 1.1, 1.3, 2.0)
PRICED = ("quiet", "noisy", "very noisy", "30 % slow by 1.54x", "autocorrelated 0.9")
"""Worlds in which found gains are counted."""


def print_errors(worlds: Sequence[World], rounds: Sequence[int], calls: int) -> None:
    """Misses and false proofs of equal programs."""
    print("| world | noise | " + " | ".join(f"{n} rounds" for n in rounds) + " |")
    print("|---|---|" + "---|" * len(rounds))
    for world, unequal in itertools.product(worlds, UNEQUAL):
        cells = []
        for n in rounds:
            low, high, proven = errors(played(world, unequal, 1.0, n, calls), 1.0)
            cells.append(f"{low:.1f} / {proven:.1f} ({high:.1f})")
        print(f"| {world.name} | {unequal} | " + " | ".join(cells) + " |", flush=True)


def print_price(worlds: Sequence[World], rounds: Sequence[int], calls: int) -> None:
    """Gains that are proven, and lower bounds above them."""
    print("| world | noise | true gain | " + " | ".join(f"{n} rounds" for n in rounds) + " |")
    print("|---|---|---|" + "---|" * len(rounds))
    for world, unequal, gain in itertools.product(worlds, ("equal", "candidate 2x"), GAINS):
        cells = []
        for n in rounds:
            low, _, proven = errors(played(world, unequal, gain, n, calls), gain)
            cells.append(f"{proven:.0f} ({low:.1f})")
        print(f"| {world.name} | {unequal} | {gain} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--world", action="append", help="a name; default: all")
    parser.add_argument("--rounds", type=int, action="append")
    parser.add_argument("--price", action="store_true", help="count true gains that are proven")
    args = parser.parse_args()
    names = args.world or (PRICED if args.price else [world.name for world in WORLDS])
    worlds = [each for each in WORLDS if each.name in names]
    rounds = args.rounds or ROUNDS
    if args.price:
        print(f"{args.calls} calls a cell: proven % (lower bound above the truth %)\n")
        print_price(worlds, rounds, args.calls)
    else:
        print(f"{args.calls} calls a cell, no true gain: miss % / false % (upper bound missed %)\n")
        print_errors(worlds, rounds, args.calls)


if __name__ == "__main__":
    main()
