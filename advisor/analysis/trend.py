"""Trend of a rate along the items: data sorted by cost, such as longest first.

A window is of time. A faster variant comes further in it, to other items; where those cost
less, it looks faster than it is. What a window shows of this is the slope of its own rate.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from advisor.model import Run

# By judgement: a trend that is missed flatters a gain, one that is imagined hides it.
SURE = 3.0
"""A slope below so many of its standard errors is noise."""
RISES = 0.05
"""Growth of a rate over its window from which a variant beyond its items may owe all to them."""
LEVEL = 0.1
"""Share of the originals' slope below which a rate beyond their items is level beside it.

Judgement: costs that halve each 300 items leave a slope of a hundredth by the time they level off,
which a long window still tells from noise. A larger share calls a slower fall level."""
FEWEST_PARTS = 4
"""Parts of a window that a slope with an error needs.

Judgement: three leave the error one degree of freedom, so that chance passes for a slope. More
would leave short windows without one."""


def slope(run: Run) -> float:
    """Growth of the log rate for each unit; 0 where it is within the noise.

    A least-squares line through the parts of the window, which have equally many steps.
    """
    rates = [rate for rate in run.windows if rate > 0]
    if len(rates) < FEWEST_PARTS or run.units <= 0:
        return 0.0
    places = [run.units * (number + 0.5) / len(rates) for number in range(len(rates))]
    logs = [math.log(rate) for rate in rates]
    centre, level = fmean(places), fmean(logs)
    spread = sum((place - centre) ** 2 for place in places)
    pairs = list(zip(places, logs, strict=True))
    growth = sum((place - centre) * (log - level) for place, log in pairs) / spread
    rest = sum((log - level - growth * (place - centre)) ** 2 for place, log in pairs)
    error = math.sqrt(rest / (len(rates) - 2) / spread)
    return growth if abs(growth) > SURE * error else 0.0


def head_start(originals: Sequence[Run], after: Run) -> float:
    """Log gain that `after` owes to cheaper items; 0 where nothing shows one.

    Both rates must trend alike along the items. What grows with time, such as a warm-up,
    shows in the slower run as a steeper slope, so the flatter one is taken.

    Costs may have levelled off where a much larger batch is measured. A rate that is level
    there, or nearly, beyond all items of originals that rise, may owe its whole gain to them.
    """
    slopes = [*map(slope, originals), slope(after)]
    end = max(run.units_before + run.units for run in originals)
    rise = min(map(change, originals)) > RISES and is_one_order(originals)
    level = rise and 0.0 <= slopes[-1] < LEVEL * min(slopes[:-1])
    if level and after.units_before >= end:
        before = fmean(run.units_per_s for run in originals)
        return max(0.0, math.log(after.units_per_s / before))
    return owed(slopes, middle(after) - fmean(map(middle, originals)))


def owed(slopes: Sequence[float], ahead: float) -> float:
    """Log gain that rates with these slopes owe to items that lie `ahead` units further on."""
    if min(slopes) <= 0.0 <= max(slopes):
        return 0.0
    return min(slopes, key=abs) * ahead


def is_one_order(runs: Sequence[Run]) -> bool:
    """False where equal runs went through their data in other orders: nothing lies sorted."""
    passes = [run.work.loader.passes for run in runs if run.work and run.work.loader]
    return len({told[0].drawn.first for told in passes if told}) < 2


def middle(run: Run) -> float:
    """Number of the unit in the middle of the window."""
    return run.units_before + run.units / 2


def change(run: Run) -> float:
    """Relative change of the rate over the window; 0 where it is within the noise."""
    return math.expm1(slope(run) * run.units)
