"""What ran faster and is not ours to write: how it is measured, and what must be known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model import Candidate, Failure, Run
from advisor.tuning import effects

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.tuning.search import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What ran faster than the best candidate by more than a tie."""

    candidate: Candidate
    whatif: str | None = None
    title: str
    detail: str
    run: Run
    ratio: float
    """Of single runs."""
    extra_s: float = 0.0
    site: str | None = None
    patch: str | None = None


def measure(
    search: Search,
    whatif: str | None,
    *,
    candidate: Candidate | None = None,
    series: str = "",
    extra_s: float = 0.0,
) -> Run | Failure:
    """`candidate`, else the best, with `whatif` in a process of its own. Raises OverBudgetError.

    An earlier call's pairs are as good as new ones: history is believed only while the machine is.
    """
    candidate = candidate or search.best_candidate
    return search.runner.measure(
        candidate,
        "whatif",
        search.plan(candidate, whatif=whatif),
        series=series,
        expected_s=search.expected_s() + extra_s,
    )


def faster_run(
    search: Search, whatif: str, without_gain: list[str], extra_s: float = 0.0
) -> Run | None:
    """The run with `whatif`, if it applied and was faster by more than a tie."""
    assert search.best is not None
    result = measure(search, whatif, extra_s=extra_s)
    if isinstance(result, Failure):
        without_gain.append(f"{whatif} ({result.kind}: {result.evidence})")
    elif result.whatif is None or not result.whatif.applied:
        why = result.whatif.why if result.whatif else "the probe could not tell"
        without_gain.append(f"{whatif} (did not apply: {why})")
    elif lost := effects.unprocessed(search.original, result):
        without_gain.append(f"{whatif} ({lost})")
    elif not search.faster(result, search.best):
        without_gain.append(f"{whatif} ({result.units_per_s / search.best.units_per_s:.2f}x)")
    elif (result.peak_mem_gib or 0.0) > search.memory_limit_gib:
        without_gain.append(f"{whatif} (peaked at {result.peak_mem_gib:.2f} GiB)")
    else:
        return result
    return None


def held_by_config(search: Search, *kinds: str) -> bool:
    """Whether a knob of the documents sets this, and the program follows it."""
    return any(
        decision is None or decision.outcome != "ignored"
        for knob in search.of_kind(*kinds)
        for decision in [search.decisions.get((knob.document, knob.path))]
    )


def located(search: Search, site: str | None) -> tuple[Path, int] | None:
    """File and line of a `file.py:line`, if the file is there."""
    name, _, line = (site or "").rpartition(":")
    path = search.runner.program.cwd / name
    return (path, int(line)) if name and line.isdigit() and path.is_file() else None
