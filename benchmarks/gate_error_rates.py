"""Error rates of the gate's rule in simulated worlds, through the code that gives real verdicts.

    python benchmarks/gate_error_rates.py [--seeds 1000] [--json FILE]

A world says how the rates of processes scatter and drift on a runner. For each world and each
true drop, many gates are played: pairs are drawn in the order in which the gate would run them,
up to the look that decides. No row uses a shortcut: `advisor.gate.rule.judge` is called on the
log ratios exactly as the gate does.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from advisor.gate.rule import Rule, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How a runner distorts the log rate of one process."""

    name: str
    sigma: float = 0.008
    """Standard deviation between processes."""
    drift: float = 0.0
    """Loss of rate from the first run to the last of 48, as warm-up does."""
    slow_share: float = 0.0
    slow_by: float = 0.0
    """A share of processes lands in a slower mode, or stalls."""

    def log_rate(self, rng: random.Random, position: int) -> float:
        value = rng.gauss(0, self.sigma) + math.log1p(-self.drift * position / 48)
        if rng.random() < self.slow_share:
            value += math.log1p(-self.slow_by)
        return value


WORLDS = (
    World(name="quiet 0.8 %"),
    World(name="drift 4 %", drift=0.04),
    World(name="drift 12 %", drift=0.12),
    World(name="sigma 3 %", sigma=0.03),
    World(name="bimodal 30 % x 11 %", slow_share=0.30, slow_by=0.11),
    World(name="5 % of runs stall by 30 %", slow_share=0.05, slow_by=0.30),
)

DROPS = (0.0, 0.03, 0.05, 0.08)


def differences(world: World, drop: float, rng: random.Random, pairs: int) -> list[float]:
    """d of each pair, the order of base and head flipped from pair to pair."""
    values = []
    for pair in range(pairs):
        first, second = world.log_rate(rng, 2 * pair), world.log_rate(rng, 2 * pair + 1)
        base, head = (first, second) if pair % 2 == 0 else (second, first)
        values.append(base - (head + math.log1p(-drop)))
    return values


def play(world: World, drop: float, seed: int, rule: Rule) -> tuple[str, int]:
    """Verdict and number of pairs of one gate."""
    rng = random.Random(f"{world.name}/{drop}/{seed}")
    values = differences(world, drop, rng, rule.looks[-1])
    verdict = judge({"workload": values}, rule)["workload"]
    return verdict.outcome, verdict.looked_at or rule.looks[-1]


def rates(world: World, drop: float, seeds: int, rule: Rule) -> dict[str, float]:
    """Share of each verdict, in percent, and the mean number of processes."""
    played = [play(world, drop, seed, rule) for seed in range(seeds)]
    counts = Counter(outcome for outcome, _ in played)
    shares = {name: 100 * counts[name] / seeds for name in ("pass", "regression", "inconclusive")}
    return shares | {"processes": 2 * sum(pairs for _, pairs in played) / seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    rule = Rule()
    table = []
    print(f"{args.seeds} gates a row; threshold {rule.threshold:.0%}, looks {rule.looks}\n")
    print("| world | true drop | pass % | regression % | inconclusive % | processes |")
    print("|---|---|---|---|---|---|")
    for world in WORLDS:
        for drop in DROPS:
            row = rates(world, drop, args.seeds, rule)
            table.append({"world": world.name, "drop": drop} | row)
            print(
                f"| {world.name} | {drop:.0%} | {row['pass']:.1f} | {row['regression']:.1f} "
                f"| {row['inconclusive']:.1f} | {row['processes']:.0f} |"
            )
    if args.json:
        record = {"seeds": args.seeds, "threshold": rule.threshold, "rows": table}
        args.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
