"""Throughput by output pattern, probe or whole run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.analysis.window_parts import Part
    from advisor.model import Trial
    from advisor.runner.monitor import TrialExit
    from advisor.runner.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Units finished in a span, with their counter."""

    unit: str
    units: float
    units_per_s: float
    rate_source: str
    window_start: float
    window_end: float
    parts: tuple[tuple[Part, ...], ...] = ()
    """Of the window, process by process; none where it was not cut."""


def best_rate(trial: Trial, ending: TrialExit, reading: Reading | None) -> Rate | None:
    """Rate by pattern, probe or whole run, or None.

    One trial always uses one way, because rates of two ways do not compare.
    """
    if trial.plan.unit_regex is not None:
        return counted_rate(trial, ending)
    return probed_rate(trial, reading) or whole_run_rate(trial, ending)


def probed_rate(trial: Trial, reading: Reading | None) -> Rate | None:
    """Rate by probe steps; None with too few."""
    if reading is None or not reading.units_per_s:
        return None
    return Rate(
        unit=reading.unit or trial.unit,
        units=reading.units,
        units_per_s=reading.units_per_s,
        rate_source=reading.rate_source,
        window_start=reading.window_start,
        window_end=reading.window_end,
        parts=reading.parts,
    )


def counted_rate(trial: Trial, ending: TrialExit) -> Rate | None:
    """Rate by matching output lines; None with too few.

    The first line ends work that began before anybody watched, so it only starts the clock. A
    single line counts for the whole run, if it finished.
    """
    count = ending.count
    if count.first_time is None or count.last_time is None:
        return None
    seconds = count.last_time - count.first_time
    if count.lines >= 3 and seconds > 0:
        units = count.units - count.first_units
        return Rate(
            unit=trial.unit,
            units=units,
            units_per_s=units / seconds,
            rate_source=f"output lines that match {trial.plan.unit_regex!r}",
            window_start=count.first_time,
            window_end=count.last_time,
            parts=(count.parts,),
        )
    if ending.end != "exited" or ending.wall_s <= 0:
        return None
    return Rate(
        unit=trial.unit,
        units=count.units,
        units_per_s=count.units / ending.wall_s,
        rate_source=f"units told by {trial.plan.unit_regex!r} over the time of the whole run",
        window_start=ending.started,
        window_end=ending.ended,
    )


def whole_run_rate(trial: Trial, ending: TrialExit) -> Rate | None:
    """Rate of a run that counts as one unit."""
    if trial.plan.mode != "whole" or ending.end != "exited" or ending.exit_code != 0:
        return None
    return Rate(
        unit="run",
        units=1.0,
        units_per_s=1.0 / ending.wall_s,
        rate_source="time of the whole run: neither steps nor matching output lines were seen",
        window_start=ending.started,
        window_end=ending.ended,
    )
