"""What a gate costs: processes and minutes, beside what other tools spend on the same question.

    python -m benchmarks.gate_cost [--seeds 200]

Pairs are those of gates played through the rule (`gate_error_rates`); what others spend is what
their defaults or their documents say. A process costs its start-up and its run; both arms are
warmed up once, and nothing else is counted.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from advisor.gate.rule import Rule
from benchmarks.gate_error_rates import rates
from benchmarks.gate_worlds import SYMMETRIC

STARTS_S = (1, 20, 120)
RUNS_S = (10, 60, 600)
QUIET, NOISY = SYMMETRIC[0], SYMMETRIC[3]
PLAYED = (
    ("quiet (0.8 %), no change", QUIET, 0.0),
    ("quiet (0.8 %), 8 % slower", QUIET, 0.08),
    ("noisy (3 %), no change", NOISY, 0.0),
    ("noisy (3 %), 8 % slower", NOISY, 0.08),
)
WARM_UPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What another tool runs to answer the same question, and which error it bounds."""

    name: str
    processes: int
    bounds: str


PEERS = (
    Peer(name="github-action-benchmark", processes=1, bounds="none: one stored number"),
    Peer(name="torchbench, one run against one", processes=2, bounds="none"),
    Peer(name="asv continuous, 2 rounds", processes=4, bounds="none between processes"),
    Peer(name="benchstat, 10 runs an arm", processes=20, bounds="false alarms, runs interleaved"),
    Peer(name="hyperfine, 10 runs an arm", processes=20, bounds="none"),
    Peer(name="ABBA, 14 pairs", processes=28, bounds="false alarms"),
    Peer(name="pyperf, 20 processes an arm", processes=40, bounds="false alarms, without drift"),
)


def minutes(processes: float) -> str:
    """The cells of one row: by start-up, then by run."""
    times = [processes * (start + run) / 60 for start in STARTS_S for run in RUNS_S]
    return " | ".join(f"{time:.0f}" if time >= 10 else f"{time:.1f}" for time in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    seeds = parser.parse_args().seeds
    heads = " | ".join(f"{start}+{run} s" for start in STARTS_S for run in RUNS_S)
    print(f"minutes by start-up + run of one process; {seeds} gates a row")
    print(
        "a run that does not fit the budget is measured by a window: then the 10 s columns hold\n"
    )
    print(f"| | bounds | processes | {heads} |")
    print("|---|---|---" + "|---" * (len(STARTS_S) * len(RUNS_S)) + "|")
    for name, world, drop in PLAYED:
        found = rates(world, drop, seeds, Rule())
        processes = 2 * found["pairs"] + WARM_UPS
        answer = "regression" if drop else "pass"
        told = f"both ({found[answer]:.0f} % {answer})"
        print(f"| this gate: {name} | {told} | {processes:.0f} | {minutes(processes)} |")
    for peer in PEERS:
        print(f"| {peer.name} | {peer.bounds} | {peer.processes} | {minutes(peer.processes)} |")


if __name__ == "__main__":
    main()
