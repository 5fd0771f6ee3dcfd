"""Would medians of several processes decide more where runs fall into modes? The rule beside them.

    python -m benchmarks.gate_medians [--seeds 1000]

The pairs of a whole gate are taken three by three; each arm's median of three stands for them, and
the same exact bounds are put on those eight. They are given the whole error budget at one look,
where the rule shares it between five.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import Counter
from typing import TYPE_CHECKING

from advisor import stats
from advisor.gate.rule import Rule, TuningResult
from benchmarks.gate_error_rates import play
from benchmarks.gate_worlds import WORLDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gate_worlds import World

TOGETHER = 3
DROPS = (0.0, 0.08)


def medians(log_rates: Sequence[float]) -> list[float]:
    """Of neighbours, TOGETHER at a time."""
    starts = range(0, len(log_rates) - TOGETHER + 1, TOGETHER)
    return [statistics.median(log_rates[start : start + TOGETHER]) for start in starts]


def by_medians(world: World, drop: float, seed: int, rule: Rule) -> TuningResult:
    """The verdict on the gate that `gate_error_rates.play` plays for this seed."""
    rng = random.Random(f"{world.name}/{drop}/{seed}")
    base, head = map(medians, world.arms(drop, rng, rule.looks[-1]))
    differences = [b - h for b, h in zip(base, head, strict=True)]
    interval = stats.walsh_interval(differences, rule.alpha)
    if interval.low > rule.tau:
        return "regression"
    return "pass" if interval.high < rule.tau else "inconclusive"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    seeds = parser.parse_args().seeds
    rule = Rule()
    print(f"{seeds} gates a row; medians of {TOGETHER}\n")
    print("| world | true drop | rule: pass % | red % | medians: pass % | red % |")
    print("|---|---|---|---|---|---|")
    for world in (world for world in WORLDS if world.base.slow_share or world.head.slow_share):
        for drop in DROPS:
            found = Counter(play(world, drop, seed, rule)[0] for seed in range(seeds))
            others = Counter(by_medians(world, drop, seed, rule) for seed in range(seeds))
            shares = " | ".join(
                f"{100 * counts[outcome] / seeds:.1f}"
                for counts in (found, others)
                for outcome in ("pass", "regression")
            )
            print(f"| {world.name} | {drop:.0%} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
