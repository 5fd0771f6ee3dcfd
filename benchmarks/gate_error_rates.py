"""Error rates of the gate's rule in simulated worlds, through the code that gives real verdicts.

    python -m benchmarks.gate_error_rates [--seeds 2000] [--json FILE]

A world (`gate_worlds`) says how the rates of processes scatter and drift on a runner. For each
world and each true drop of the mean rate many gates are played: pairs are drawn in the order in
which the gate would run them, up to the look that decides. No row uses a shortcut:
`advisor.gate.rule.judge` is called on the log rates exactly as the gate does.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.gate.assumptions import Arms
from advisor.gate.rule import Rule, judge
from benchmarks.gate_worlds import WORLDS

if TYPE_CHECKING:
    from benchmarks.gate_worlds import World

DROPS = (0.0, 0.03, 0.05, 0.08)


def play(world: World, drop: float, seed: int, rule: Rule) -> tuple[str, int]:
    """Verdict and number of pairs of one gate."""
    rng = random.Random(f"{world.name}/{drop}/{seed}")
    base, head = world.arms(drop, rng, rule.looks[-1])
    differences = [b - h for b, h in zip(base, head, strict=True)]
    arms = Arms(base=base, head=head, builds=world.told_builds(rule.looks[-1]))
    found = judge({"workload": differences}, rule, {"workload": arms})["workload"]
    return found.outcome, found.looked_at or rule.looks[-1]


def rates(world: World, drop: float, seeds: int, rule: Rule) -> dict[str, float]:
    """Share of each verdict, in percent, and the mean number of pairs."""
    played = [play(world, drop, seed, rule) for seed in range(seeds)]
    counts = Counter(outcome for outcome, _ in played)
    shares = {name: 100 * counts[name] / seeds for name in ("pass", "regression", "inconclusive")}
    return shares | {"pairs": sum(pairs for _, pairs in played) / seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    rule = Rule()
    table = []
    print(f"{args.seeds} gates a row; threshold {rule.threshold:.0%}, looks {rule.looks}\n")
    print("| world | true drop | pass % | red % | inconclusive % | pairs |")
    print("|---|---|---|---|---|---|")
    for world in WORLDS:
        for drop in DROPS:
            row = rates(world, drop, args.seeds, rule)
            table.append({"world": world.name, "drop": drop} | row)
            print(
                f"| {world.name} | {drop:.0%} | {row['pass']:.1f} | {row['regression']:.1f} "
                f"| {row['inconclusive']:.1f} | {row['pairs']:.1f} |",
                flush=True,
            )
    if args.json:
        record = {"seeds": args.seeds, "threshold": rule.threshold, "rows": table}
        args.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
