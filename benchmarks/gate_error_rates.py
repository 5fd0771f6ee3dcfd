"""Error rates of the gate's test in simulated worlds, through the code that gives real verdicts.

    python -m benchmarks.gate_error_rates [--seeds 2000] [--keep]

A world says how the rates of processes scatter and drift on a runner. A true drop is one of the
mean rate: without one both arms do the same work in the same time in the long run, but for a
build's layout, which no number of processes of one build averages out.

For each world and each true drop many gates are played with `sequential_test.judge`. The second
table plays gates of several workloads, all of them at the threshold or at no change: its figures
are gates in which any workload is red. With `--keep` the same worlds are played for the referee
of a change, which keeps or drops it (`sequential_test.keep_or_drop`).
"""

import argparse
import math
import random
from collections import Counter
from dataclasses import dataclass

from advisor.gate.runner import orders
from advisor.gate.schema import ARMS
from advisor.gate.sequential_test import LOOKS, RULING_LOOKS, judge, keep_or_drop

DROPS = (0.0, 0.03, 0.05, 0.08)
FAMILIES = (1, 10, 20)
THRESHOLD = 0.05
TAU = -math.log1p(-THRESHOLD)
WORTH = 0.02
WANTED = math.log1p(WORTH)
GAINS = (0.0, 0.01, 0.02, 0.05, 0.10)
PROCESSES = 48
"""Of a gate of the most pairs: the span over which a drift is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What one arm's processes do by themselves, as log rates about the log of their mean."""

    sigma: float = 0.008
    """Standard deviation between processes."""
    skew: float = 0.0
    """Mean of an exponential loss on top: most runs are good, some are much worse."""
    slow_share: float = 0.0
    slow_by: float = 0.0
    """A share of processes lands in a slower mode, or stalls."""

    def draw(self, rng: random.Random) -> float:
        value = rng.gauss(0, self.sigma)
        if self.skew:
            value += math.log1p(self.skew) - rng.expovariate(1 / self.skew)
        if rng.random() < self.slow_share:
            value += math.log1p(-self.slow_by)
        return value - math.log1p(-self.slow_share * self.slow_by)


QUIET = Noise()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How a runner distorts the log rates of the two arms."""

    name: str
    base: Noise = QUIET
    head: Noise = QUIET
    drift: float = 0.0
    """Loss of rate from the first run to the last, as warm-up does."""
    wander: float = 0.0
    correlation: float = 0.0
    """Standard deviation of a wandering difference of the arms, and how alike it is from pair to
    pair."""
    layout: float = 0.0
    """Standard deviation of what a build's layout alone does to its rate."""
    builds: int = 1
    """Builds of each arm that the pairs take turns with."""

    def arms(self, drop: float, rng: random.Random, pairs: int) -> tuple[list[float], list[float]]:
        """Log rates of base and head, pair by pair, in the orders that the gate draws."""
        built = [[rng.gauss(0, self.layout) for _ in range(self.builds)] for _ in range(2)]
        wander = rng.gauss(0, self.wander)
        base, head = [], []
        for pair, order in zip(range(pairs), orders(rng.randrange(2**31)), strict=False):
            places = (2 * pair, 2 * pair + 1) if order == ARMS else (2 * pair + 1, 2 * pair)
            lost = [math.log1p(-self.drift * place / PROCESSES) for place in places]
            build = pair % self.builds
            base.append(self.base.draw(rng) + lost[0] + built[0][build])
            head.append(
                self.head.draw(rng) + lost[1] + built[1][build] + wander + math.log1p(-drop)
            )
            step = rng.gauss(0, self.wander * math.sqrt(1 - self.correlation**2))
            wander = self.correlation * wander + step
        return base, head


NOISY = Noise(sigma=0.03)
BIMODAL = Noise(slow_share=0.30, slow_by=0.11)
STALLING = Noise(slow_share=0.05, slow_by=0.30)

SYMMETRIC = (
    World(name="quiet 0.8 %"),
    World(name="drift 4 %", drift=0.04),
    World(name="drift 12 %", drift=0.12),
    World(name="sigma 3 %", base=NOISY, head=NOISY),
    World(name="bimodal 30 % x 11 %", base=BIMODAL, head=BIMODAL),
    World(name="5 % of runs stall by 30 %", base=STALLING, head=STALLING),
)
"""Both arms alike: what the exact bounds assume."""

ASYMMETRIC = (
    World(name="head skewed by 4 %", head=Noise(skew=0.04)),
    World(name="base skewed by 8 %", base=Noise(skew=0.08)),
    World(name="base slow by 25 % in 35 %, head never", base=Noise(slow_share=0.35, slow_by=0.25)),
    World(
        name="base slow by 20 % in 30 %, head in 5 %",
        base=Noise(slow_share=0.30, slow_by=0.2),
        head=Noise(slow_share=0.05, slow_by=0.2),
    ),
    World(
        name="base slow by 11 % in 20 %, head in 60 %",
        base=Noise(slow_share=0.2, slow_by=0.11),
        head=Noise(slow_share=0.6, slow_by=0.11),
    ),
    World(name="pairs correlated by 0.5, 4 %", wander=0.04, correlation=0.5),
    World(name="pairs correlated by 0.8, 4 %", wander=0.04, correlation=0.8),
    World(name="layout 3.5 %, a build a pair", layout=0.035, builds=24),
)
"""What the bounds do not assume, and what is seen, or has no room."""

UNSEEN = (
    World(name="head slow by 25 % in 35 %, base never", head=Noise(slow_share=0.35, slow_by=0.25)),
    World(name="pairs correlated by 0.9, 4 %", wander=0.04, correlation=0.9),
    World(name="layout 3.5 %, one build", layout=0.035),
)
"""What the pairs of one gate do not show: a mode in none of the five processes that a pass may fall
on, a wave slower than the gate, and what is the same in every process of a build."""

WORLDS = (*SYMMETRIC, *ASYMMETRIC, *UNSEEN)


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


def rulings(world: World, gain: float, seeds: int) -> dict[str, float]:
    """Share of each ruling on a change of this true gain, in percent, and the mean of pairs."""
    counts: Counter[str] = Counter()
    pairs = 0
    for seed in range(seeds):
        differences = draw(world, -gain, f"{world.name}/{gain}/{seed}", RULING_LOOKS[-1])
        found = keep_or_drop([-difference for difference in differences], WANTED)
        counts[found.ruling] += 1
        pairs += found.gain.n
    shares = {name: 100 * counts[name] / seeds for name in ("keep", "drop", "undecided")}
    return shares | {"pairs": pairs / seeds}


def print_rulings(seeds: int) -> None:
    """Table of the referee."""
    print(f"{seeds} calls a row; a gain of {WORTH:.0%} is worth keeping, looks {RULING_LOOKS}\n")
    print("| world | true gain | keep % | drop % | undecided % | pairs |")
    print("|---|---|---|---|---|---|")
    for world in WORLDS:
        for gain in GAINS:
            row = rulings(world, gain, seeds)
            print(
                f"| {world.name} | {gain:.0%} | {row['keep']:.1f} | {row['drop']:.1f} "
                f"| {row['undecided']:.1f} | {row['pairs']:.1f} |",
                flush=True,
            )


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
    parser.add_argument("--keep", action="store_true", help="play the referee's rule")
    args = parser.parse_args()
    if args.keep:
        print_rulings(args.seeds)
        return
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
