"""Records of gates as tests want them, from a few numbers."""

from collections.abc import Sequence
from typing import Any

from advisor.gate.schema import (
    Arm,
    GateMode,
    GateRecord,
    Inputs,
    PairEntry,
    ProgramEntry,
    Rate,
    RunEntry,
)
from advisor.gate.verdict import decide
from advisor.model import Failure, Telemetry

BUSY = Telemetry(sm_clock_mhz=1980.0, sm_clock_spread_pct=0.5, busy_samples=100, foreign_pids=0)
"""A run on a card that gives every reading and has nothing to complain about."""


def run(arm: Arm, rates: dict[str, float] | None = None, **more: Any) -> RunEntry:
    """One process; `rates` by workload."""
    made = {key: Rate(mean=value, unit="sample") for key, value in (rates or {}).items()}
    return RunEntry(**{"arm": arm, "wall_s": 1.0, "source": "probe", "rates": made, **more})


def failed(arm: Arm, kind: str) -> RunEntry:
    return run(arm, source=None, problem=Failure(kind=kind, evidence="it broke", next_step=""))


def pair(number: int, base: RunEntry, head: RunEntry, discarded: str | None = None) -> PairEntry:
    order = "base first" if number % 2 else "head first"
    return PairEntry(number=number, order=order, base=base, head=head, discarded=discarded)


def program(runs: Sequence[tuple[RunEntry, RunEntry]], name: str = "train", **more: Any):
    """A program with these pairs of runs."""
    pairs = [pair(number, base, head) for number, (base, head) in enumerate(runs, 1)]
    facts: dict[str, Any] = {"command": "python train.py", "definition": "d", "pairs": pairs}
    return ProgramEntry(name=name, **{**facts, **more})


def program_of(base: Sequence[float], head: Sequence[float], name: str = "train", **more: Any):
    """A program that is one workload, from the rates of its pairs."""
    rates = zip(base, head, strict=True)
    runs = [(run("base", {name: b}), run("head", {name: h})) for b, h in rates]
    return program(runs, name, **more)


def suite_of(base: dict[str, float], head: dict[str, float], n: int = 12, **more: Any):
    """A suite whose benchmarks have these rates in every pair, nearly."""
    wobbles = [1 + 0.001 * ((3 * number) % n / n) for number in range(1, n + 1)]
    bases = [{name: rate * wobble for name, rate in base.items()} for wobble in wobbles]
    return program([(run("base", rates), run("head", head)) for rates in bases], "suite", **more)


def discarded(entry: ProgramEntry, reason: str, *numbers: int) -> ProgramEntry:
    """The same, without its pairs of these numbers."""
    pairs = [
        each.model_copy(update={"discarded": reason if each.number in numbers else None})
        for each in entry.pairs
    ]
    return entry.model_copy(update={"pairs": pairs})


def around(rate: float, n: int = 12, spread: float = 0.004) -> list[float]:
    """n rates about `rate`, none equal to another."""
    return [rate * (1 + spread * ((7 * i) % n / n - 0.5)) for i in range(n)]


def record_of(*programs: ProgramEntry, mode: GateMode = "ab", **inputs: Any) -> GateRecord:
    """The record of these raw values."""
    return decide(programs, Inputs(**inputs)).model_copy(update={"mode": mode})
