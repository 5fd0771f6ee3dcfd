"""Error rates of the gate's test in simulated worlds, through the code that gives real verdicts.

    python -m benchmarks.gate_error_rates [--seeds 2000]

A world (`gate_worlds`) says how the rates of processes scatter and drift on a runner. For each
world and each true drop of the mean rate many gates are played with `sequential_test.judge`. The
second table plays gates of several workloads, all of them at the threshold or at no change: its
figures are gates in which any workload is red.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from typing import TYPE_CHECKING

from advisor.gate.sequential_test import LOOKS, judge
from benchmarks.gate_worlds import SYMMETRIC, WORLDS

if TYPE_CHECKING:
    from benchmarks.gate_worlds import World

DROPS = (0.0, 0.03, 0.05, 0.08)
FAMILIES = (1, 10, 20)
THRESHOLD = 0.05
TAU = -math.log1p(-THRESHOLD)


def draw(world: World, drop: float, seed: str, pairs: int) -> list[float]:
    """Differences of one gate, pair by pair."""
    base, head = world.arms(drop, random.Random(seed), pairs)
    return [b - h for b, h in zip(base, head, strict=True)]


def rates(world: World, drop: float, seeds: int) -> dict[str, float]:
    """Share of each verdict, in percent, and the mean number of pairs."""
    counts: Counter[str] = Counter()
    pairs = 0
    for seed in range(seeds):
        values = draw(world, drop, f"{world.name}/{drop}/{seed}", LOOKS[-1])
        found = judge({"workload": values}, {"workload": TAU})["workload"]
        counts[found.outcome] += 1
        pairs += found.interval.n
    shares = {name: 100 * counts[name] / seeds for name in ("pass", "regression", "inconclusive")}
    return shares | {"pairs": pairs / seeds}


def any_red(world: World, drop: float, seeds: int, workloads: int) -> float:
    """Percent of gates of so many workloads in which at least one is red."""
    red = 0
    for seed in range(seeds):
        family = {
            n: draw(world, drop, f"{world.name}/{drop}/{seed}/{n}", LOOKS[-1])
            for n in range(workloads)
        }
        judged = judge(family, dict.fromkeys(family, TAU)).values()
        red += any(found.outcome == "regression" for found in judged)
    return 100 * red / seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000)
    args = parser.parse_args()
    print(f"{args.seeds} gates a row; threshold {THRESHOLD:.0%}, looks {LOOKS}\n")
    print("| world | true drop | pass % | red % | inconclusive % | pairs |")
    print("|---|---|---|---|---|---|")
    for world in WORLDS:
        for drop in DROPS:
            row = rates(world, drop, args.seeds)
            print(
                f"| {world.name} | {drop:.0%} | {row['pass']:.1f} | {row['regression']:.1f} "
                f"| {row['inconclusive']:.1f} | {row['pairs']:.1f} |",
                flush=True,
            )
    print("\n| world | true drop of all | " + " | ".join(f"any red of {n}, %" for n in FAMILIES))
    print("|---|---|" + "---|" * len(FAMILIES))
    for world in SYMMETRIC:
        for drop in (0.0, THRESHOLD):
            shares = [any_red(world, drop, max(1, args.seeds // n), n) for n in FAMILIES]
            cells = " | ".join(f"{share:.1f}" for share in shares)
            print(f"| {world.name} | {drop:.0%} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
