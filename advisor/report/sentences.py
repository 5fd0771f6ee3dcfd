"""Sentences on decisions, from reasons and data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import numbers
from advisor.executor.comparison import AFTER, BEFORE
from advisor.knobs.registry import REGISTRY
from advisor.objective import OBJECTIVES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.executor.comparison import Comparison
    from advisor.knobs.findings import Followed
    from advisor.model import Gpu, Interval, Run

MOST_NAMED = 3
"""Files that are named."""
WIDE = 4.0
"""An interval whose high is so many times its low tells a direction and no size."""
UNDER_LOAD = "Some rounds ran under background load; rerun on an idle machine."
"""Note on every gain that rests on such rounds."""


def followed(found: Followed) -> str:
    """Sentence on a value that the program follows, whatever its name."""
    before, after = numbers.count(found.before), numbers.count(found.after)
    return (
        f"Found by experiment: `{found.path}` ({REGISTRY[found.kind].words}). With "
        f"{found.moved_to} in place of {found.value} the program showed {after}, not {before}."
    )


def unread(paths: Sequence[str]) -> str:
    """Sentence on changed results that cannot be compared."""
    return (
        f"{named(paths)}: the content differs from the original's, and this format is not "
        "compared. Look at them before you trust the result."
    )


def named(paths: Sequence[str]) -> str:
    """The first of these files, and the number of others."""
    more = len(paths) - MOST_NAMED
    shown = ", ".join(f"`{path}`" for path in paths[:MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def unused_gpu(runs: Sequence[Run], gpus: Sequence[Gpu]) -> str:
    """Sentence on a card that the program leaves idle; empty without one."""
    if not gpus or not any((run.effects.device or "").startswith("cpu") for run in runs):
        return ""
    return (
        f"Your program does not use the {gpus[0].name}: its model computed on the CPU. "
        "`gpu-advisor doctor -- COMMAND` shows if its torch sees the card; "
        "else look for a missing `.cuda()` or `device` setting."
    )


def gained(interval: Interval, unit: str, objective: str = "throughput") -> str:
    """Sentence on a proven gain.

    `did 2.04x the tiles a second in 6 rounds ...; 95 % interval 1.98 to 2.11`
    """
    wide = too_wide(interval)
    ratio = f"more than {interval.low:.2f}" if wide else f"{interval.estimate:.2f}"
    text = OBJECTIVES[objective].gain_sentence.format(
        ratio=ratio, one=numbers.one(unit), units=numbers.plural(unit)
    )
    bounds = (
        "lower 95 % bound; the machine was too unsteady to say how much more"
        if wide
        else f"95 % interval {interval.low:.2f} to {interval.high:.2f}"
    )
    rounds = numbers.many(interval.n, "interleaved round")
    return f"{text} in {rounds} of fresh processes; {bounds}"


def too_wide(interval: Interval) -> bool:
    """True if only the lower bound is worth showing."""
    return interval.high > WIDE * interval.low


def collapsed(proof: Comparison) -> str:
    """Sentence on runs that fell far behind their arm; empty without any."""
    slow = {
        arm.variant.label: proof.collapsed(name)
        for name, arm in ((BEFORE, proof.ab_test.before), (AFTER, proof.ab_test.after))
    }
    shown = " and ".join(f"{many} of {label}" for label, many in slow.items() if many)
    if not shown:
        return ""
    return (
        f"In the {len(proof.counted)} rounds of the comparison {shown} ran at less than half the "
        "speed of the others; all of them count."
    )
