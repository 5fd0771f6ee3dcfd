"""Networks that take turns: the share of the time of each, over equal runs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """One of several networks that take turns."""

    name: str
    site: str | None
    share: float
    """Of the time, mean over equal runs."""
    calls_per_unit: float
    batch: float | None


def stage_shares(runs: Sequence[Run]) -> list[StageShare]:
    """Mean shares by network; none unless every run has the same networks."""
    by_run = [{(stage.name, stage.site): stage for stage in run.stages} for run in runs]
    if not by_run or any(each.keys() != by_run[0].keys() for each in by_run):
        return []
    return [
        StageShare(
            name=stage.name,
            site=stage.site,
            share=statistics.fmean(each[key].share for each in by_run),
            calls_per_unit=statistics.fmean(each[key].calls_per_unit for each in by_run),
            batch=stage.batch,
        )
        for key, stage in by_run[-1].items()
    ]
