"""How quiet the machine was, and what kept the program from the user's files, in words."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.executor.comparison import COLLAPSED
from advisor.executor.requests import disturbed
from advisor.stats import pooled_band

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.executor.requests import TrialResult
    from advisor.model import Neighbour, Run


def busy(runs: Sequence[Run], who: Sequence[Neighbour], cpus: int, *, stood_in: bool) -> str:
    """How quiet the machine was, for the first lines; empty where it was quiet throughout."""
    held = [run.disturbance.others_cpus for run in runs if run.disturbance.others_cpus is not None]
    if not held:
        told = (
            "Whether others were at work on this machine meanwhile could not be read: unverified."
        )
        return told if runs else ""
    if not any(run.disturbance.disturbed for run in runs):
        return ""
    names = ", ".join(f"{each.name} up to {each.cpus:.1f}" for each in worth_a_name(who))
    named = f" ({names})" if names else ""
    mean = sum(held) / len(held)
    how = "on a busy machine: others" if mean >= BUSY * cpus else "beside others, who"
    much = f"{mean:.1f}" if mean >= WORTH_A_NAME else "less than 0.1"
    text = f"Measured {how} held {much} of {numbers.many(cpus, 'CPU')}{named}."
    if stood_in:
        text += f" {BESIDE_OTHERS}"
    return text


def between_equal_runs(attempts: Sequence[TrialResult]) -> float | None:
    """How far equal processes lay apart in this call, as a band; None where none ran twice. Runs
    that collapsed are counted by themselves elsewhere."""
    rates: dict[tuple[str, str], list[float]] = {}
    for attempt in attempts:
        run, request = attempt.run, attempt.request
        if run is not None and request.command == "own" and not disturbed(run):
            rates.setdefault((attempt.label, request.plan.mode), []).append(run.units_per_s)
    usual = [
        [rate for rate in group if rate * COLLAPSED >= statistics.median(group)]
        for group in rates.values()
    ]
    return pooled_band(usual)


BESIDE_OTHERS = (
    "Disturbed rounds had to be counted: this is the gain beside others, and a quiet machine may "
    "show another."
)
"""Of every gain that rests on such rounds."""
BUSY = 0.1
"""Share of the CPUs from which on a machine is called busy."""
WORTH_A_NAME = 0.05
"""CPUs; who holds less is not told by name."""
MOST_NAMES = 3


def worth_a_name(who: Sequence[Neighbour]) -> list[Neighbour]:
    """The busiest of `who`."""
    return [each for each in who[:MOST_NAMES] if each.cpus >= WORTH_A_NAME]


def crowded(who: Sequence[Neighbour]) -> str:
    """That others were at work, where no run came to its end that could tell how much."""
    names = ", ".join(f"{each.name} {each.cpus:.1f} CPUs" for each in worth_a_name(who))
    return f"Tried on a busy machine, beside others: {names}." if names else ""


ISOLATION = {
    "overlay": "overlay: what the program wrote was thrown away with each trial",
    "landlock": "landlock: writes outside the trial's own folders were denied",
    "guard": "none: what the program wrote is real",
}
"""Kind of isolation to what it means for the user's files."""


def left_behind(attempts: Sequence[TrialResult]) -> list[str]:
    """Files that trials wrote outside their scratch and that are still there, sorted."""
    stays = (each.result for each in attempts if each.result.isolation != "overlay")
    return sorted({path for result in stays for path in result.files_created})


def unisolated(runs: Sequence[Run]) -> str:
    """That nothing kept the program from the user's files, for the first lines; else empty."""
    notes = [note for run in runs if run.isolation == "guard" for note in run.notes]
    told = next((note for note in notes if note.startswith("not isolated")), "")
    return f"{told[:1].upper()}{told[1:]}." if told else ""
