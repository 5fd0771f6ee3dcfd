"""On a regression, why: one more run of each arm, outside the timed set, and what moved."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from advisor.gate.entries import ARMS, RunEntry
from advisor.gate.records import Attribution, MovedEntry
from advisor.gate.verdict import belongs
from advisor.numbers import one, percent

if TYPE_CHECKING:
    from advisor.gate.measure import Bench
    from advisor.gate.program import Program
    from advisor.gate.records import GateRecord
    from advisor.gate.session import Session
    from advisor.model import MeasurePlan

PARTS = {
    "data_wait": "waiting for data",
    "host_to_device": "host to device",
    "compute": "compute",
    "launch": "launching kernels",
    "sync": "waiting for the GPU",
    "sampling": "sampling",
    "validation": "validation",
    "saving": "saving",
    "other": "host code between steps",
}
"""Shares of a unit's time, by the name a reader knows."""

READINGS = {
    "util_pct": ("GPU utilisation", "%"),
    "sm_clock_mhz": ("SM clock", "MHz"),
    "mem_clock_mhz": ("memory clock", "MHz"),
    "power_w": ("power", "W"),
    "temperature_c": ("temperature", "degrees C"),
}
SMALLEST_MEMORY_GIB = 0.05
SMALLEST_CHANGE = 0.02
"""Relative change of a figure below which it did not move."""


def of_red(session: Session, record: GateRecord) -> list[Attribution]:
    """One extra run of each arm of every program of which `record` proves a regression."""
    red = [w.name for w in record.workloads if w.verdict == "regression"]
    found = []
    for program in session.asked:
        if any(belongs(name, session.programs[program.name]) for name in red):
            session.say(f"{program.name}: one more run of each arm, to see what moved")
            found.append(_explained(program, session.bench, session.plans[program.name]))
    return found


def _explained(program: Program, bench: Bench, plan: MeasurePlan) -> Attribution:
    runs = {arm: bench.run(program, arm, plan, math.inf) for arm in ARMS}
    return compare(program.name, runs["base"], runs["head"])


def compare(name: str, base: RunEntry, head: RunEntry) -> Attribution:
    """What differs between two runs; pure."""
    for run in (base, head):
        if run.problem:
            sentence = f"the extra run of {run.arm} failed: {run.problem.evidence}"
            return Attribution(program=name, sentence=sentence)
    parts = _parts(base, head)
    moved = [*(entry for _, entry in parts), *_readings(base, head), *_effects(base, head)]
    return Attribution(program=name, sentence=_sentence(parts, base, head), moved=moved)


def _unit_ms(run: RunEntry) -> float | None:
    """Milliseconds a unit, of a program that is one workload."""
    rates = list(run.rates.values())
    return 1000 / rates[0].mean if len(rates) == 1 else None


def _parts(base: RunEntry, head: RunEntry) -> list[tuple[float, MovedEntry]]:
    """Where a unit's time goes: growth in milliseconds, and the line that shows it."""
    base_ms, head_ms = _unit_ms(base), _unit_ms(head)
    if base_ms is None or head_ms is None:
        return []
    unit = next(iter(head.rates.values())).unit
    found = []
    for part, title in PARTS.items():
        if part in base.shares and part in head.shares:
            before, after = base_ms * base.shares[part], head_ms * head.shares[part]
            entry = MovedEntry(
                what=f"{title}, {one(unit)}",
                base=f"{before:.3g} ms",
                head=f"{after:.3g} ms",
                change=_change(before, after),
            )
            found.append((after - before, entry))
    whole = MovedEntry(
        what=f"whole time, {one(unit)}",
        base=f"{base_ms:.3g} ms",
        head=f"{head_ms:.3g} ms",
        change=_change(base_ms, head_ms),
    )
    return [*sorted(found, key=lambda item: -item[0]), (0.0, whole)]


def _readings(base: RunEntry, head: RunEntry) -> list[MovedEntry]:
    pairs = [
        (title, unit, getattr(base.gpu, key), getattr(head.gpu, key))
        for key, (title, unit) in READINGS.items()
    ]
    if max(base.peak_mem_gib or 0.0, head.peak_mem_gib or 0.0) > SMALLEST_MEMORY_GIB:
        pairs.append(("peak memory", "GiB", base.peak_mem_gib, head.peak_mem_gib))
    return [
        MovedEntry(
            what=title,
            base=f"{before:.4g} {unit}",
            head=f"{after:.4g} {unit}",
            change=_change(before, after),
        )
        for title, unit, before, after in pairs
        if before is not None and after is not None
    ]


def _effects(base: RunEntry, head: RunEntry) -> list[MovedEntry]:
    """Settings that were seen to differ: workers, batch, dtype and the like."""
    return [
        MovedEntry(
            what=key.replace("_", " "),
            base=_shown(base.effects.get(key)),
            head=_shown(head.effects.get(key)),
            change="differs",
        )
        for key in sorted(base.effects.keys() | head.effects.keys())
        if base.effects.get(key) != head.effects.get(key)
    ]


def _sentence(parts: list[tuple[float, MovedEntry]], base: RunEntry, head: RunEntry) -> str:
    differing = [f"{e.what} ({e.base} to {e.head})" for e in _effects(base, head)]
    settings = f" Settings that differ: {', '.join(differing)}." if differing else ""
    base_ms, head_ms = _unit_ms(base), _unit_ms(head)
    if base_ms is None or head_ms is None:
        return "A suite of benchmarks: its own table shows which of them moved." + settings
    growth = head_ms - base_ms
    if len(parts) < 2:
        return (
            "The probe saw no steps in this program, so where the time went is not known."
            + settings
        )
    most, entry = parts[0]
    if growth <= 0 or most <= 0:
        return "This one extra run of each arm does not show the slowdown again." + settings
    share = min(1.0, most / growth)
    title, _, unit = entry.what.rpartition(", ")
    return (
        f"{title[0].upper()}{title[1:]} grew from {entry.base} to {entry.head} {unit}: "
        f"{percent(share)} of the added time." + settings
    )


def _change(before: float, after: float) -> str:
    if not before:
        return "" if not after else "new"
    change = after / before - 1
    return f"{100 * change:+.0f} %" if abs(change) >= SMALLEST_CHANGE else "same"


def _shown(value: object) -> str:
    return "not seen" if value is None else str(value)
