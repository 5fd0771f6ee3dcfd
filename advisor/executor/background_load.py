"""Load of other programs beside the arms of a round: whom it slowed, and whether all alike."""

from collections.abc import Mapping, Sequence

from advisor.executor.requests import TrialResult, contended
from advisor.model import Neighbour, Run

ALIKE = 0.25
"""Largest load difference of equally contended arms: in CPUs, or as a share of the larger load.

Judgement: too small counts no round beside a steady neighbour, too large lets load favour an arm.
"""


def alike(runs: Mapping[str, TrialResult]) -> bool:
    """True if all arms had about the same load."""
    return loads_alike(
        [a.run.disturbance.others_cpus for a in runs.values() if a.run is not None]
    )


def loads_alike(others_cpus: Sequence[float | None]) -> bool:
    """True if loads are nearly equal, and none is unknown."""
    loads = [cpus for cpus in others_cpus if cpus is not None]
    if not loads or len(loads) < len(others_cpus):
        return False
    return max(loads) - min(loads) <= max(ALIKE, ALIKE * max(loads))


def is_watched(runs: Mapping[str, TrialResult]) -> bool:
    """True if the load beside one of these runs is known."""
    return any(a.run and a.run.disturbance.disturbed is not None for a in runs.values())


def contended_arms(runs: Mapping[str, TrialResult], *, watched: bool = False) -> str | None:
    """Names of a round's arms that are not known to have run undisturbed.

    `watched`: this machine tells the load beside other runs, so an arm without a reading is no
    quiet one. Where it tells of none, an unknown load is all that there is.
    """

    def counts(run: Run) -> bool:
        return contended(run) or (watched and run.disturbance.disturbed is None)

    names = [arm for arm, attempt in runs.items() if attempt.run and counts(attempt.run)]
    return ", ".join(names) or None


def neighbours(runs: Sequence[Run]) -> tuple[Neighbour, ...]:
    """Programs beside `runs` with their highest load, busiest first."""
    beside = (other for run in runs for other in run.disturbance.who)
    busiest = {other.name: other for other in sorted(beside, key=lambda other: other.cpus)}
    return tuple(sorted(busiest.values(), key=lambda other: -other.cpus))
