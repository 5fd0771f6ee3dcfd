"""What the gate's rule can prove at a given noise, by playing it: the tables of gate/power.py.

    python -m benchmarks.gate_power [--seeds 400]

Bounds and tests are by ranks and distances, so only the distance of the true slowdown from the
threshold matters, counted in standard deviations of a pair. It is found by playing gates on both
sides of it; what a gate knows of that deviation, it knows from its own pairs, so the distance is
stretched until the chance holds on the average of what such estimates give.
"""

from __future__ import annotations

import argparse
import bisect
import math
import random
import statistics
from dataclasses import replace

from advisor.gate.assumptions import Arms
from advisor.gate.power import WORKLOADS
from advisor.gate.rule import LOOKS, Rule, TuningResult, judge

SIGMA = 0.01
"""Of a pair; any would do."""
GRID = tuple(0.25 * step for step in range(32))
ESTIMATES = 4000


def chances(outcome: TuningResult, workloads: int, seeds: int) -> dict[int, list[float]]:
    """By look: the chance of having `outcome` by then, at each distance of GRID."""
    rule = replace(Rule(), alpha=Rule().alpha / workloads)
    side = 1 if outcome == "regression" else -1
    found: dict[int, list[float]] = {look: [] for look in LOOKS}
    for distance in GRID:
        by = dict.fromkeys(LOOKS, 0)
        for seed in range(seeds):
            at = played(rule, rule.tau + side * distance * SIGMA, outcome, seed)
            for look in LOOKS:
                by[look] += at <= look
        for look in LOOKS:
            found[look].append(by[look] / seeds)
    return found


def played(rule: Rule, centre: float, outcome: TuningResult, seed: int) -> float:
    """The look at which a gate with this true centre has `outcome`; infinite if never."""
    rng = random.Random(seed)
    arms = Arms(
        base=[rng.gauss(0, SIGMA / math.sqrt(2)) for _ in range(LOOKS[-1])],
        head=[rng.gauss(-centre, SIGMA / math.sqrt(2)) for _ in range(LOOKS[-1])],
    )
    differences = [b - h for b, h in zip(arms.base, arms.head, strict=True)]
    judgement = judge({"w": differences}, rule, {"w": arms})["w"]
    return (judgement.looked_at or math.inf) if judgement.outcome == outcome else math.inf


def reach(curve: list[float], pairs: int, power: float = 0.9) -> float:
    """Distance at which `curve` holds `power` on the average of estimates from so many pairs."""
    rng = random.Random(pairs)
    estimates = sorted(
        statistics.stdev(rng.gauss(0, 1) for _ in range(pairs)) for _ in range(ESTIMATES)
    )[5::10]

    def held(distance: float) -> float:
        return statistics.fmean(_at(curve, distance * one) for one in estimates)

    low, high = 0.0, 2 * GRID[-1]
    if held(high) < power:
        return math.inf
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) < power else (low, middle)
    return high


def _at(curve: list[float], distance: float) -> float:
    place = min(bisect.bisect_right(GRID, distance), len(GRID) - 1)
    before, after = GRID[place - 1], GRID[place]
    part = min(1.0, (distance - before) / (after - before))  # flat beyond the last
    return curve[place - 1] + part * (curve[place] - curve[place - 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=400)
    seeds = parser.parse_args().seeds
    for workloads in WORKLOADS:
        red = chances("regression", workloads, seeds)
        for by in LOOKS:
            print(f"RED {workloads:3} by {by:2}:", {n: round(reach(red[by], n), 2) for n in LOOKS})
    passed = chances("pass", 1, seeds)
    for by in LOOKS:
        print(f"PASS    by {by:2}:", {n: round(reach(passed[by], n), 2) for n in LOOKS})


if __name__ == "__main__":
    main()
