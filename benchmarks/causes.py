"""Is the bottleneck that was made the one that is named? Random programs on a simulated card.

    python -m benchmarks.causes [--seed 1] [--cases 16]

Costs, card, window and whether it trains are drawn; one kind of cost is the largest part of what
the card waits for, or the card works most of the time. The truth is the device's own account, and
the program's of its loader. Prints a row a program; ends with 0 if every cause is named right and
no share is off by more than five points.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.model import MeasurePlan
from advisor.report.bottleneck import diagnose
from tests import light, simulated_gpu
from tests.probe.program import python
from tests.runs import a_run
from tests.simulated_gpu import Card

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS = 0.05
"""What a share may be off."""
COPY_US_PER_MB = 24_000.0
"""A slow bus: a copy that counts is small to make."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One program: what was made, what was told, what was true."""

    made: str
    words: str
    named: str
    shares: dict[str, tuple[float, float]]
    """(told, true) by part."""

    @property
    def right(self) -> bool:
        """Whether the cause and every share are."""
        return self.made == self.named and self.off <= POINTS

    @property
    def off(self) -> float:
        """Largest difference of a share from the truth."""
        return max((abs(told - true) for told, true in self.shares.values()), default=0.0)


def data(draw: random.Random) -> str:
    fetch = draw.uniform(8, 50)
    return f"--fetch {fetch:.1f} --kernel {draw.uniform(0.05, 0.6) * fetch:.1f}{read(draw)}"


def mostly_data(draw: random.Random) -> str:
    """60 % in the loader, 30 % in the host's code, 10 % on the card."""
    step = draw.uniform(20, 80)
    return f"--fetch {0.6 * step:.1f} --host {0.3 * step:.1f} --kernel {0.1 * step:.1f} --item"


def host(draw: random.Random) -> str:
    host_ms = draw.uniform(10, 80)
    return f"--host {host_ms:.1f} --kernel {draw.uniform(0.05, 0.5) * host_ms:.1f}"


def mostly_host(draw: random.Random) -> str:
    """25 % in the loader, 60 % in the host's code, 15 % on the card."""
    step = draw.uniform(20, 80)
    return f"--fetch {0.25 * step:.1f} --host {0.6 * step:.1f} --kernel {0.15 * step:.1f} --item"


def compute(draw: random.Random) -> str:
    kernel = draw.uniform(20, 90)
    return f"--host {draw.uniform(0, 0.1) * kernel:.1f} --kernel {kernel:.1f}{read(draw)}"


def synchronisation(draw: random.Random) -> str:
    kernel = draw.uniform(8, 40)
    return f"--host {draw.uniform(0.5, 0.95) * kernel:.1f} --kernel {kernel:.1f} --item"


def transfer(draw: random.Random) -> str:
    return f"--copied {draw.choice((256, 384, 768))} --kernel {draw.uniform(1, 5):.1f}"


def launch(draw: random.Random) -> str:
    return f"--small {draw.choice((150, 220, 500))}{read(draw)}"


def read(draw: random.Random) -> str:
    """Whether the loss is read in each step."""
    return draw.choice(("", " --item"))


MADE: tuple[tuple[str, Callable[[random.Random], str]], ...] = (
    ("data", data),
    ("host code", host),
    ("compute", compute),
    ("synchronisation", synchronisation),
    ("data", mostly_data),
    ("host code", mostly_host),
    ("transfer", transfer),
    ("launch", launch),
)


def measured(made: str, words: str, draw: random.Random) -> Row:
    """One program in one process, under the probe."""
    card = Card(copy_us_per_mb=COPY_US_PER_MB, kernel_us=draw.choice((2.0, 4.0, 8.0)))
    plan = MeasurePlan(measure_s=draw.choice((0.4, 0.7, 1.1)), min_steps=8)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "cards.jsonl"
        base = {"PYTHONPATH": light.PYTHONPATH}
        env = simulated_gpu.environment((card,), base=base, truth=told, own_time=True)
        args = ("--loader", *words.split())
        reading = python(
            Path(folder), "gpu_loop.py", *args, plan=plan, env=env, timeout_s=300
        ).measured
        truth = simulated_gpu.read_truth(told)
    run = a_run(shares=reading.shares, wait_share=reading.wait_share, effects=reading.effects)
    found = diagnose([run, run])
    window = reading.window_start, reading.window_end
    shares = {}
    if made != "launch":  # there the card works between the launches, and nobody can see that
        busy = truth.busy_share(0, *window) - truth.copied_share(0, *window)
        shares["compute"] = (reading.shares.compute or 0.0, busy)
        idle = truth.idle_share("data", 0, *window)
        shares["data wait"] = (reading.shares.data_wait or 0.0, idle)
    return Row(made=made, words=words, named=found.name if found else "", shares=shares)


def main() -> int:
    """0 if every row is right."""
    parser = argparse.ArgumentParser(prog="benchmarks.causes", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=16)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    rows = []
    print("| made | program | named | told and true shares | |\n|:--|:--|:--|:--|:--|")
    for number in range(args.cases):
        made, costs = MADE[number % len(MADE)]
        words = draw.choice(("--train ", "")) + costs(draw)
        rows.append(row := measured(made, words, draw))
        shares = ", ".join(f"{n} {told:.1%} / {true:.1%}" for n, (told, true) in row.shares.items())
        mark = "" if row.right else "**wrong**"
        print(f"| {made} | `{words}` | {row.named} | {shares} | {mark} |", flush=True)
    named = sum(row.made == row.named for row in rows)
    print(f"\n{named} of {len(rows)} named right; the largest error of a share is "
          f"{100 * max(row.off for row in rows):.1f} points.")  # fmt: skip
    return int(not all(row.right for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
