"""Networks that take turns: what each costs a unit, which to feed more at once, and the bound.

A stage of the share s can save no more than itself, so nothing done to it alone gives more than
1 / (1 - s), by Amdahl's law.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.report import numbers
from advisor.report.model import StageEntry
from advisor.report.view import shows_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import Run, Stage
    from advisor.report.model import Report, Side

STEADY = 0.15
"""Relative: a stage whose time a unit changed by no more is told as unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One stage, before and after, ready to be read."""

    name: str
    site: str
    before: str
    calls_before: str
    after: str
    calls_after: str
    faster: str


def entries(runs: Sequence[Run]) -> list[StageEntry]:
    """Mean shares over equal runs, by network; none unless every run told of the same ones."""
    told = [{_key(stage): stage for stage in run.stages} for run in runs]
    if not told or any(each.keys() != told[0].keys() for each in told):
        return []
    found = []
    for key, stage in told[-1].items():
        shares = [each[key].share for each in told]
        found.append(
            StageEntry(
                name=stage.name,
                site=stage.site,
                share=statistics.fmean(shares),
                share_low=min(shares),
                share_high=max(shares),
                calls_per_unit=statistics.fmean(each[key].calls_per_unit for each in told),
                batch=stage.batch,
            )
        )
    return found


def _key(stage: Stage | StageEntry) -> tuple[str, str | None]:
    return stage.name, stage.site


def seconds(side: Side, stage: StageEntry | None) -> float | None:
    """What a stage takes of one unit; None where that is not measured."""
    return stage.share / side.units_per_s if stage is not None and side.units_per_s else None


def after_of(report: Report, stage: StageEntry) -> StageEntry | None:
    """The same network in what was chosen; None where nothing was changed, or it was not told."""
    if not shows_after(report):
        return None
    return next((each for each in report.after.stages if _key(each) == _key(stage)), None)


def rows(report: Report) -> list[StageRow]:
    """Every stage worth a line, then the code between them."""
    before, after = report.before, report.after
    found = []
    for stage in before.stages:
        if stage.share < numbers.WORTH_SAYING:
            continue
        later = after_of(report, stage)
        was, now = seconds(before, stage), seconds(after, later)
        found.append(
            StageRow(
                name=stage.name,
                site=_short(stage.site),
                before=_cost(was, stage.share),
                calls_before=_calls(stage),
                after=_cost(now, later.share if later else None),
                calls_after=_calls(later) if later else numbers.NOT_MEASURED,
                faster=numbers.ratio(was / now) if was and now else numbers.NOT_MEASURED,
            )
        )
    if not found:
        return []
    rest = [_rest(side) for side in (before, after)]
    was, now = (
        None if share is None or not side.units_per_s else share / side.units_per_s
        for share, side in zip(rest, (before, after), strict=True)
    )
    return [
        *found,
        StageRow(
            name="",
            site="",
            before=_cost(was, rest[0]),
            calls_before="",
            after=_cost(now, rest[1]),
            calls_after="",
            faster=numbers.ratio(was / now) if was and now else numbers.NOT_MEASURED,
        ),
    ]


def _rest(side: Side) -> float | None:
    return max(0.0, 1.0 - sum(each.share for each in side.stages)) if side.stages else None


def _cost(took_s: float | None, share: float | None) -> str:
    """`11.9 ms (80 %)`"""
    if took_s is None or share is None:
        return numbers.NOT_MEASURED
    return f"{numbers.duration(took_s, 3)} ({numbers.percent(share)})"


def _calls(stage: StageEntry) -> str:
    """`1 of 1`: calls a unit, and items a call where that is known."""
    of = f" of {numbers.count(stage.batch)}" if stage.batch else ""
    return f"{numbers.number(stage.calls_per_unit)}{of}"


def told(report: Report) -> list[str]:
    """Which stage to feed more at once, what that can give at most, and what was reached."""
    stages, units = report.before.stages, numbers.plural(report.unit)
    if not stages:
        return []
    largest = max(stages, key=lambda stage: stage.share)
    spread = f"{numbers.percent(largest.share_low)} to {numbers.percent(largest.share_high)}"
    later = after_of(report, largest)
    was, now = seconds(report.before, largest), seconds(report.after, later)
    larger = bool(later and (later.batch or 0.0) > (largest.batch or 0.0))
    helped = larger and bool(was and now and now < was)
    calls = f", in calls of {numbers.count(largest.batch)}" if largest.batch else ""
    first = (
        f"The program calls {numbers.many(len(stages), 'network')} in turn. {_name(largest)} takes "
        f"{numbers.percent(largest.share)} of the time ({spread} in equal runs){calls}: "
    )
    first += (
        f"it is the one worth more {units} a call."
        if helped
        else f"if one is to be given more {units} a call, it is this one."
    )
    said = [first]
    if largest.share < 1:
        bound = numbers.ratio(1 / (1 - largest.share))
        said.append(
            f"If it took no time at all the rate would be {bound}, for the rest stays (Amdahl's "
            "law): nothing that is done to it alone gives more."
        )
    if later is None or not was or not now or not report.gain:
        return said
    held = f"it takes {_against(was, now)} {numbers.one(report.unit)}"
    if larger:
        held = f"With {numbers.count(later.batch)} {units} a call {held}"
    else:
        held = f"Its calls hold as many as before, and {held}"
    rates = report.objective == "throughput"
    said.append(f"{held}; the whole reached {numbers.gain(report.gain)}." if rates else f"{held}.")
    others = [each for each in stages if each is not largest and each.share >= numbers.WORTH_SAYING]
    grown = [each for each in others if _faster(report, each)]
    if others and not grown:
        said.append("None of the others gained from it.")
    elif grown:
        said.append(f"Faster as well: {', '.join(map(_name, grown))}.")
    return said


def _against(was: float, now: float) -> str:
    """`1/4.1 of that time`, or `2.4 times that time`."""
    if now <= was:
        return f"1/{numbers.measure(was / now, 2)} of that time"
    return f"{numbers.measure(now / was, 2)} times that time"


def _faster(report: Report, stage: StageEntry) -> bool:
    was, now = (
        seconds(report.before, stage),
        seconds(report.after, after_of(report, stage)),
    )
    return bool(was and now and was / now > 1 + STEADY)


def _name(stage: StageEntry) -> str:
    return f"{stage.name} ({_short(stage.site)})" if stage.site else stage.name


def _short(site: str | None) -> str:
    """`stages.py:88`, without its folders."""
    return (site or "").rpartition("/")[2]
