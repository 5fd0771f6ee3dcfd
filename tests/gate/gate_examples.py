"""Records of gates as tests want them, from a few numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.gate.schema import (
    Inputs,
    PairEntry,
    Problem,
    ProgramEntry,
    Rate,
    RunEntry,
)
from advisor.gate.verdict import decide
from advisor.model import Telemetry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.gate.schema import GateRecord, Mode, Variant


def rate(value: float, **more: Any) -> Rate:
    return Rate(**{"mean": value, "unit": "sample", **more})


def run(arm: Variant, rates: dict[str, float] | None = None, **more: Any) -> RunEntry:
    """One process; `rates` by workload."""
    made = {key: rate(value) for key, value in (rates or {}).items()}
    facts: dict[str, Any] = {"source": "probe", "rates": made, **more}
    return RunEntry(arm=arm, wall_s=1.0, **facts)


def failed(arm: Variant, kind: str, evidence: str = "it broke") -> RunEntry:
    return RunEntry(arm=arm, wall_s=1.0, problem=Problem(kind=kind, evidence=evidence))


def pair(number: int, base: RunEntry, head: RunEntry, discarded: str | None = None) -> PairEntry:
    order = "base first" if number % 2 else "head first"
    return PairEntry(number=number, order=order, base=base, head=head, discarded=discarded)


def program(pairs: Sequence[PairEntry], name: str = "train", **more: Any) -> ProgramEntry:
    return ProgramEntry(
        name=name, command="python train.py", definition="d", pairs=list(pairs), **more
    )


def program_of(
    base: Sequence[float], head: Sequence[float], name: str = "train", **more: Any
) -> ProgramEntry:
    """A program that is one workload, from the rates of its pairs."""
    pairs = [
        pair(number, run("base", {name: b}), run("head", {name: h}))
        for number, (b, h) in enumerate(zip(base, head, strict=True), 1)
    ]
    return program(pairs, name, **more)


def around(rate_: float, n: int = 12, spread: float = 0.004) -> list[float]:
    """n rates about `rate_`, none equal to another."""
    return [rate_ * (1 + spread * ((7 * i) % n / n - 0.5)) for i in range(n)]


def suite_of(base: dict[str, float], head: dict[str, float], n: int = 12) -> ProgramEntry:
    """A suite whose benchmarks have these rates in every pair, nearly."""
    pairs = []
    for number in range(1, n + 1):
        wobble = 1 + 0.001 * ((3 * number) % n / n)
        runs: dict[Variant, RunEntry] = {
            "base": run("base", {k: v * wobble for k, v in base.items()}),
            "head": run("head", dict(head)),
        }
        pairs.append(pair(number, runs["base"], runs["head"]))
    return program(pairs, "suite")


def record_of(*programs: ProgramEntry, mode: Mode = "ab", **inputs: Any) -> GateRecord:
    """The record of these raw values."""
    return decide(programs, Inputs(**inputs)).model_copy(update={"mode": mode})


BUSY = Telemetry(sm_clock_mhz=1980.0, sm_clock_spread_pct=0.5, busy_samples=100, foreign_pids=0)
"""A run on a card that gives every reading and has nothing to complain about."""
