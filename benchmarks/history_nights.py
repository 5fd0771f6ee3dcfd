"""Made nights through the history's own rule: what is found, how late, how often for nothing.

    python -m benchmarks.history_nights [--seeds 20] [--nights 200]

A world says what one of twenty benchmarks of a machine does over the nights. Every night is
compared as `gpu-advisor gate --mode history` does, with the sessions that were stored before it.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.gate.history import Series, Session, compare
from advisor.gate.trend import NIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BENCHMARKS = 20
SIGMA = 0.01
"""Of one session: what differs from night to night on one machine."""
LOST = 0.03
"""From this loss on the nights until it is found are counted."""
THRESHOLD = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The true log rate of each night."""

    name: str
    level: Callable[[int], float]
    sigma: float = SIGMA

    def rates(self, seed: int, nights: int) -> list[float]:
        rng = random.Random(f"{self.name}/{seed}")
        return [100 * math.exp(self.level(n) + rng.gauss(0, self.sigma)) for n in range(nights)]


def crept(a_night: float) -> Callable[[int], float]:
    return lambda night: night * math.log1p(-a_night)


def between(first: int, last: int, change: float) -> Callable[[int], float]:
    """A change of the level from night `first` until before night `last`."""
    return lambda night: math.log1p(change) if first <= night < last else 0.0


NONE = World(name="no change", level=lambda _: 0.0)
NONE_NOISY = World(name="no change, sigma 2.5 %", level=lambda _: 0.0, sigma=0.025)
CHANGED = (
    World(name="creep 0.1 % a night", level=crept(0.001)),
    World(name="creep 0.3 % a night", level=crept(0.003)),
    World(name="creep 0.5 % a night", level=crept(0.005)),
    World(name="step of 3.5 % at night 60", level=between(60, 10**6, -0.035)),
    World(name="step of 10 % at night 60", level=between(60, 10**6, -0.10)),
    World(name="step of 10 %, recovered after 30", level=between(60, 90, -0.10)),
    World(name="gain of 20 % at night 40, lost at 120", level=between(40, 120, 0.20)),
)


def red_nights(rates: Sequence[float]) -> list[int]:
    """The nights that the history calls red, each stored before the next."""
    sessions: list[Session] = []
    red = []
    for night, rate in enumerate(rates):
        series = Series(workload="w", unit="sample", facts={}, sessions=sessions)
        found = compare(series, rate, THRESHOLD, benchmarks=BENCHMARKS)
        if found.verdict == "regression":
            red.append(night)
        sessions.append(
            Session.model_construct(
                created="2026-01-01",
                sha=f"c{night}",
                units_per_s=rate,
                processes=4,
                red=found.verdict == "regression",
                rebase=False,
            )
        )
    return red


def false_alarms_a_year(world: World, seeds: int, nights: int) -> float:
    """Of twenty unchanged benchmarks together; nights in a row are one alarm."""
    alarms = 0
    for seed in range(seeds * BENCHMARKS):
        red = red_nights(world.rates(seed, nights))
        alarms += sum(night - 1 not in red for night in red)
    return alarms * NIGHTS / (seeds * nights)


def first_lost(world: World, nights: int) -> int:
    """The first night on which LOST is lost of the best level there was."""
    best = -math.inf
    for night in range(nights):
        best = max(best, world.level(night))
        if best - world.level(night) >= -math.log1p(-LOST) - 1e-12:
            return night
    return nights


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--nights", type=int, default=200)
    args = parser.parse_args()
    print(f"{args.nights} nights, {BENCHMARKS} benchmarks, sigma {SIGMA:.1%} from night to night\n")
    print("| no change | false alarms a year, all benchmarks together |\n|---|---|")
    for world in (NONE, NONE_NOISY):
        print(f"| {world.name} | {false_alarms_a_year(world, args.seeds, args.nights):.2f} |")
    print("\n| changed | found within 10 nights of 3 % lost | median nights | latest | before |")
    print("|---|---|---|---|---|")
    for world in CHANGED:
        lost = first_lost(world, args.nights)
        late, early = [], 0
        for seed in range(5 * args.seeds):
            red = red_nights(world.rates(seed, args.nights))
            early += any(night < lost for night in red)
            late.append(next((night - lost for night in red if night >= lost), args.nights))
        late.sort()
        share = sum(nights <= 10 for nights in late) / len(late)
        print(
            f"| {world.name} | {share:.0%} | {late[len(late) // 2]} | {late[-1]} | {early} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
