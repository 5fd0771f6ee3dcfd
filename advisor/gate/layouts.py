"""Several builds of each arm: what one build's layout does is no slowdown. Pure functions.

Where the linker puts a hot loop, or in which order modules were compiled, can move a rate by
percents, and every process of the build shares it. So where each arm was built several times a
verdict needs more than its pairs: it has to hold for the builds as well, each counted once, by
its mean. Their bounds are Mann and Whitney's: exact as long as the builds of both arms scatter
alike, whatever that scatter looks like.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from advisor import stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.gate.assumptions import Arms
    from advisor.model import Interval

FEWEST = 3
"""Builds of each arm: with three one order in twenty puts them all on one side."""


def between_builds(arms: Arms, alpha: float) -> Interval | None:
    """By how much base's builds are faster than head's; None where each was built once."""
    if arms.builds is None:
        return None
    base, head = (
        list(_means(values, [pair[side] for pair in arms.builds]).values())
        for side, values in enumerate((arms.base, arms.head))
    )
    return stats.two_sample_interval(base, head, alpha)


def within_builds(arms: Arms) -> Arms:
    """The same runs, as if each arm's builds were equal: what is left is between processes."""
    if arms.builds is None:
        return arms
    sides = [
        _centred(values, [pair[side] for pair in arms.builds])
        for side, values in enumerate((arms.base, arms.head))
    ]
    return type(arms)(base=sides[0], head=sides[1])


def _means(values: Sequence[float], builds: Sequence[int]) -> Mapping[int, float]:
    return {
        build: statistics.fmean(v for v, b in zip(values, builds, strict=True) if b == build)
        for build in sorted(set(builds))
    }


def _centred(values: Sequence[float], builds: Sequence[int]) -> list[float]:
    means, middle = _means(values, builds), statistics.fmean(values)
    return [v - means[b] + middle for v, b in zip(values, builds, strict=True)]
