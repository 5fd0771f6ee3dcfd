"""How fast it was: by the user's pattern, by the probe, or by the time of the whole run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.model import Trial
    from advisor.trials.output import Count
    from advisor.trials.watch import Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Units finished in a span of epoch seconds, and how they were counted."""

    unit: str
    units: float
    units_per_s: float
    source: str
    start: float
    end: float


def counted_rate(trial: Trial, ending: Ending) -> Rate | None:
    """By output lines that match the user's pattern; None if too few did.

    The first line ends work that began before anybody watched, so it only starts the clock. A
    single line tells of the whole run, if that came to its end.
    """
    count: Count = ending.count
    if count.first_time is None or count.last_time is None:
        return None
    seconds = count.last_time - count.first_time
    if count.lines >= 3 and seconds > 0:
        units = count.units - count.first_units
        return Rate(
            unit=trial.unit,
            units=units,
            units_per_s=units / seconds,
            source=f"output lines that match {trial.plan.unit_regex!r}",
            start=count.first_time,
            end=count.last_time,
        )
    if ending.end != "exited" or ending.wall_s <= 0:
        return None
    return Rate(
        unit=trial.unit,
        units=count.units,
        units_per_s=count.units / ending.wall_s,
        source=f"units told by {trial.plan.unit_regex!r} over the time of the whole run",
        start=ending.started,
        end=ending.ended,
    )


def whole_run_rate(trial: Trial, ending: Ending) -> Rate | None:
    """One run is one unit: all that can be said of a program that shows nothing else."""
    if trial.plan.mode != "whole" or ending.end != "exited" or ending.exit_code != 0:
        return None
    return Rate(
        unit="run",
        units=1.0,
        units_per_s=1.0 / ending.wall_s,
        source="time of the whole run: neither steps nor matching output lines were seen",
        start=ending.started,
        end=ending.ended,
    )
