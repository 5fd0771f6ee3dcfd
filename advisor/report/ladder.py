"""A larger model, rung by rung: what each costs in rate and memory, each measured by one process.

Another model is another product: nothing is said of how good it is, and nothing of it is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model import Failure, Run
from advisor.report import numbers
from advisor.report.footprint import GROWS
from advisor.report.model import RungEntry
from advisor.report.sides import footprint_gib

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.report.model import Report, Value
    from advisor.tuner.standing import TunerState

NOT_RUN = "not-run"


def entries(now: TunerState) -> list[RungEntry]:
    """What the ladder stands on, and every declared rung, for report.json; none where none ran."""
    climbed = {each.name: each.result for each in now.told.rungs}
    ladder = now.facts.workload.ladder
    if not any(rung.name in climbed for rung in ladder):
        return []
    found = []
    below: Run | None = None
    declared: list[tuple[str, dict[str, Value]]] = [("", {})]
    declared += [(rung.name, dict(rung.set)) for rung in ladder]
    for name, values in declared:
        result = climbed.get(name)
        found.append(_entry(name, values, result, below, now.facts.memory_limit_gib))
        below = result if isinstance(result, Run) else None
    return found


def _entry(
    name: str,
    settings: dict[str, Value],
    run: Run | Failure | None,
    below: Run | None,
    limit_gib: float,
) -> RungEntry:
    if run is None:
        return RungEntry(name=name, settings=settings, outcome=NOT_RUN)
    if isinstance(run, Failure):
        return RungEntry(name=name, settings=settings, outcome=run.kind, detail=run.evidence)
    on_card = run.on_gpu and run.held_gib is not None
    return RungEntry(
        name=name,
        settings=settings,
        outcome="ok",
        units_per_s=run.units_per_s,
        peak_mem_gib=run.peak_mem_gib,
        memory_left=1 - (run.held_gib or 0.0) / limit_gib if on_card else None,
        footprint_gib=footprint_gib(run),
        unfollowed=alike(run, below),
    )


def alike(run: Run, below: Run | None) -> bool:
    """Whether both computed and held the same, as far as it was seen."""
    seen = run.effects.fingerprint
    return (
        below is not None
        and seen is not None
        and seen == below.effects.fingerprint
        and run.footprint is not None
        and run.footprint == below.footprint
    )


# --- for a reader -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCandidate:
    """One line: what was set on top of the line above, and what came of it."""

    name: str
    settings: tuple[tuple[str, Value], ...]
    units_per_s: float | None
    of_first: float | None
    """Its rate over that of the first line."""
    peak_mem_gib: float | None
    memory_left: float | None
    parts_gib: tuple[float, ...]
    """In the order of PARTS, and then all of them together; empty where not measured."""
    note: str


PARTS = tuple(GROWS)


def rungs(report: Report) -> list[QualityCandidate]:
    """Every rung, what the ladder stands on first."""
    first = report.ladder[0].units_per_s if report.ladder else None
    return [
        QualityCandidate(
            name=entry.name or ground(report),
            settings=tuple(entry.settings.items()),
            units_per_s=entry.units_per_s,
            of_first=entry.units_per_s / first if entry.units_per_s and first else None,
            peak_mem_gib=entry.peak_mem_gib,
            memory_left=entry.memory_left,
            parts_gib=_parts(entry.footprint_gib),
            note=_note(entry),
        )
        for entry in report.ladder
    ]


def ground(report: Report) -> str:
    """What the ladder stands on."""
    if not report.changes:
        return "the original"
    return "what is written" if report.written else "what was proven"


def has_parts(report: Report) -> bool:
    """Whether it was measured of any rung what fills its memory."""
    return any(entry.footprint_gib for entry in report.ladder)


def told(report: Report) -> list[str]:
    """Which rung is the highest that fitted and what it costs, what failed, what is not known."""
    failed = next((e for e in report.ladder if e.outcome not in {"ok", NOT_RUN}), None)
    told = [_highest(report)]
    if failed is not None:
        why = f"{failed.outcome}: {failed.detail.rstrip('.')}"
        told.append(f"The rung {failed.name} failed ({why}), and the ladder ends there.")
    missing = [entry.name for entry in report.ladder if entry.outcome == NOT_RUN]
    if missing:
        when = "Not run after that" if failed is not None else "Not run"
        told.append(f"{when}: {_listed(missing)}.")
    told += [
        f"The rung {entry.name} changed nothing that was seen, so the program does not follow it."
        for entry in report.ladder
        if entry.unfollowed
    ]
    within = (
        f", so differences within {numbers.percent(report.noise_band)} say nothing"
        if report.noise_band is not None
        else ", so no range is known"
    )
    told.append(f"Each line is one process{within}.")
    told.append(
        "Memory and rate are all that is claimed: a larger model is another product, how good it "
        "is no short run shows, and nothing of it is written."
    )
    return told


def _highest(report: Report) -> str:
    """The last rung that ran inside the memory there is, against what the ladder stands on."""
    first, *above = report.ladder
    fitted = [e for e in above if e.outcome == "ok" and (e.memory_left or 0.0) >= 0]
    if not fitted:
        return f"No rung above {ground(report)} came to its end inside the memory there is."
    last, below = fitted[-1], ground(report)
    text = f"The highest rung that fitted is {last.name}, on top of those below it"
    if last.units_per_s and first.units_per_s:
        share = numbers.percent(last.units_per_s / first.units_per_s)
        text += f": it has {share} of the rate of {below}"
    held, at_first = sum(last.footprint_gib.values()), sum(first.footprint_gib.values())
    if held and at_first:
        text += (
            f", and a step of it holds {numbers.memory(held)} in tensors where that holds "
            f"{numbers.memory(at_first)}"
        )
    if last.memory_left is not None:
        text += f"; {numbers.percent(last.memory_left)} of the card's usable memory stays free"
    return f"{text}."


def _parts(held: Mapping[str, float]) -> tuple[float, ...]:
    if not held:
        return ()
    parts = tuple(held.get(part, 0.0) for part in PARTS)
    return (*parts, sum(parts))


def _note(entry: RungEntry) -> str:
    if entry.outcome == NOT_RUN:
        return "not run"
    if entry.outcome != "ok":
        return entry.outcome
    if entry.unfollowed:
        return "not followed by the program"
    return "more than is usable" if (entry.memory_left or 0.0) < 0 else ""


def _listed(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *head, last = names
    return f"{', '.join(head)} and {last}" if head else last
