"""Made nights through the history's own rule: what is found, how late, how often for nothing.

    python -m benchmarks.history_nights [--changed 60] [--seeds 20] [--nights 200]

A world says what one of twenty benchmarks of a machine does over the nights; the other nineteen do
not change. Every night is compared as `gpu-advisor gate --mode history` does, with the sessions
that were stored before it.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.gate import scatter
from advisor.gate.history import Series, Session, compare
from advisor.gate.trend import NIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.gate.scatter import Scatter

BENCHMARKS = 20
SIGMA = 0.01
"""Of one session: what differs from night to night on one machine."""
NOISY = 0.025
LOST = 0.03
"""From this loss on the nights until it is found are counted."""
SOON = 10
"""Nights."""
THRESHOLD = 0.05
TAILS = 5
"""Degrees of freedom of nights that stray."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The true log rate of each night, and how far nights lie about it."""

    name: str
    level: Callable[[int], float] = lambda _: 0.0
    sigma: float = SIGMA
    tails: int | None = None
    """Degrees of freedom of Student's t; None: normal."""
    unlike: float = 0.0
    """Standard deviation of the logarithm of sigma between benchmarks."""

    def rates(self, seed: int, nights: int) -> list[float]:
        rng = random.Random(f"{self.name}/{seed}")
        sigma = self.sigma * math.exp(rng.gauss(0, self.unlike))
        return [
            100 * math.exp(self.level(night) + sigma * self._stray(rng)) for night in range(nights)
        ]

    def _stray(self, rng: random.Random) -> float:
        """A draw of standard deviation 1."""
        normal = rng.gauss(0, 1)
        if self.tails is None:
            return normal
        chi2 = rng.gammavariate(self.tails / 2, 2)
        return normal * math.sqrt((self.tails - 2) / chi2)


def crept(a_night: float) -> Callable[[int], float]:
    return lambda night: night * math.log1p(-a_night)


def between(first: int, last: int, change: float) -> Callable[[int], float]:
    """A change of the level from night `first` until before night `last`."""
    return lambda night: math.log1p(change) if first <= night < last else 0.0


NONE = World(name="no change")
UNCHANGED = (
    NONE,
    replace(NONE, name="no change, sigma 2.5 %", sigma=NOISY),
    replace(NONE, name="no change, t with 5 degrees", tails=TAILS),
    replace(NONE, name="no change, t, sigma 2.5 %", tails=TAILS, sigma=NOISY),
    replace(NONE, name="no change, sigmas apart by half", unlike=0.5, sigma=NOISY),
)
CREEPS = (0.001, 0.003, 0.005)
CHANGED = (
    *(World(name=f"creep {rate:.1%} a night", level=crept(rate)) for rate in CREEPS),
    *(World(name=f"creep {r:.1%}, t", level=crept(r), tails=TAILS) for r in CREEPS),
    *(World(name=f"creep {r:.1%}, sigma 2.5 %", level=crept(r), sigma=NOISY) for r in CREEPS),
    World(name="step of 3.5 % at night 60", level=between(60, 10**6, -0.035)),
    World(name="step of 10 % at night 60", level=between(60, 10**6, -0.10)),
    World(name="step of 10 %, recovered after 30", level=between(60, 90, -0.10)),
    World(name="gain of 20 % at night 40, lost at 120", level=between(40, 120, 0.20)),
)


def scatters(rates: Sequence[float]) -> list[Scatter | None]:
    """What is known before each night of how far a benchmark's nights scatter."""
    logs = list(map(math.log, rates))
    return [scatter.own(logs[:night]) for night in range(len(logs))]


def red_nights(
    rates: Sequence[float], beside: Sequence[Sequence[Scatter | None]] = ()
) -> list[int]:
    """The nights that the history calls red, each stored before the next.

    `beside` has the `scatters` of the machine's other benchmarks.
    """
    sessions: list[Session] = []
    red = []
    for night, rate in enumerate(rates):
        series = Series(workload="w", unit="sample", facts={}, sessions=sessions)
        found = compare(series, rate, THRESHOLD, beside=[other[night] for other in beside])
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


def machine(world: World, seed: int, nights: int) -> list[list[float]]:
    """The rates of twenty benchmarks of which the first is of `world`, the others unchanged."""
    still = replace(world, name=f"{world.name}, beside", level=NONE.level)
    first = BENCHMARKS * seed
    others = [still.rates(first + number, nights) for number in range(1, BENCHMARKS)]
    return [world.rates(first, nights), *others]


def alarms(world: World, seed: int, nights: int) -> int:
    """Of all benchmarks of one machine; nights in a row are one alarm."""
    rates = machine(world, seed, nights)
    known = [scatters(each) for each in rates]
    found = 0
    for number, each in enumerate(rates):
        red = red_nights(each, [*known[:number], *known[number + 1 :]])
        found += sum(night - 1 not in red for night in red)
    return found


def first_lost(world: World, nights: int) -> int:
    """The first night on which LOST is lost of the best level there was."""
    best = -math.inf
    for night in range(nights):
        best = max(best, world.level(night))
        if best - world.level(night) >= -math.log1p(-LOST) - 1e-12:
            return night
    return nights


def tell_false_alarms(seeds: int, nights: int) -> None:
    """A row a world, of `seeds` machines each."""
    years = seeds * nights / NIGHTS
    print("| no change | false alarms, all benchmarks together | a year |\n|---|---|---|")
    for world in UNCHANGED:
        found = sum(alarms(world, seed, nights) for seed in range(seeds))
        print(f"| {world.name} | {found} in {years:.1f} years | {found / years:.2f} |", flush=True)


def tell_what_is_found(seeds: int, nights: int) -> None:
    """A row a world, of `seeds` machines each."""
    print(f"| changed | found within {SOON} nights of 3 % lost | median nights | latest | before |")
    print("|---|---|---|---|---|")
    for world in CHANGED:
        lost = first_lost(world, nights)
        late, early = [], 0
        for seed in range(seeds):
            first, *others = machine(world, seed, min(nights, lost + 4 * SOON))
            red = red_nights(first, list(map(scatters, others)))
            early += any(night < lost for night in red)
            late.append(next((night - lost for night in red if night >= lost), nights))
        late.sort()
        soon = sum(each <= SOON for each in late)
        latest = f"more than {4 * SOON}" if late[-1] == nights else late[-1]
        print(
            f"| {world.name} | {soon} of {len(late)} | {late[len(late) // 2]} | {latest} "
            f"| {early} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="machines without a change")
    parser.add_argument("--changed", type=int, default=60, help="machines of each change")
    parser.add_argument("--nights", type=int, default=200)
    args = parser.parse_args()
    print(f"{args.nights} nights, {BENCHMARKS} benchmarks, sigma {SIGMA:.1%} from night to night\n")
    tell_what_is_found(args.changed, args.nights)
    print()
    tell_false_alarms(args.seeds, args.nights)


if __name__ == "__main__":
    main()
