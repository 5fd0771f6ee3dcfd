"""Upper bounds on gains, by Amdahl's law, and the memory of a step.

A part with the share s of the time gives at most 1 / (1 - s). Compute never vanishes, so its bound
is that of compute twice as fast. A bound is no forecast; its range is that of the runs.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.machine.readings import GIB
from advisor.model import SAMPLER_FORWARDS, Interval
from advisor.report.bottleneck import FEWEST, PARTS, part_name, part_share, typical

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from advisor.model import Run, Shares

GROWS_WITH = {
    "model": "the parameters",
    "gradients": "the parameters",
    "optimizer": "the parameters: twice for Adam, once for SGD with momentum",
    "activations": "batch, depth and input size; gradient checkpointing holds fewer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Fix, with its largest possible gain."""

    title: str
    detail: str
    at_most: Interval | None
    """None: it would take the whole time away, which bounds nothing."""


def measured_parts(shares: Shares) -> dict[str, float]:
    """Measured fields of Shares, in the order of PARTS."""
    found = {name: getattr(shares, name) for name in PARTS}
    return {name: share for name, share in found.items() if share is not None}


def bounds(runs: Sequence[Run]) -> tuple[Bound, ...]:
    """Bounds of fixes, the largest first."""
    if len(runs) < FEWEST:
        return ()
    found = [*_of_parts(runs), *_of_networks(runs), *_of_steps(runs)]
    return tuple(sorted(found, key=lambda b: -(b.at_most.estimate if b.at_most else float("inf"))))


def _of_parts(runs: Sequence[Run]) -> Iterator[Bound]:
    run = typical(runs)
    for name, words in PARTS.items():
        shares = [part_share(each, name) or 0.0 for each in runs]
        if max(shares) < numbers.WORTH_SAYING:
            continue
        detail = (
            f"{numbers.percent(statistics.fmean(shares))} of the time is {part_name(run, name)}: "
            f"{words.how}."
        )
        if name == "compute":
            detail += " The bound is for compute twice as fast."
            if run.on_gpu and run.shares.launch is None:  # the host may wait for it elsewhere
                pairs = zip(shares, runs, strict=True)
                shares = [min(1.0, share + (each.shares.other or 0.0)) for share, each in pairs]
            shares = [share / 2 for share in shares]
        yield Bound(title=words.fix, detail=detail, at_most=_without(shares))


def _of_networks(runs: Sequence[Run]) -> Iterator[Bound]:
    """Bounds for networks that take turns, if every run has the same."""
    by_run = [{(stage.name, stage.site): stage for stage in run.stages} for run in runs]
    for key, stage in by_run[-1].items():
        shares = [each[key].share for each in by_run if key in each]
        if len(shares) < len(runs) or statistics.fmean(shares) < numbers.WORTH_SAYING:
            continue
        site = f" at {stage.site}" if stage.site else ""
        held = f" with {numbers.count(stage.batch)} at once" if stage.batch else ""
        detail = (
            f"{statistics.fmean(shares):.1%} of the time is the network {stage.name}{site}, called "
            f"{numbers.number(stage.calls_per_unit)} times {numbers.one(runs[-1].unit)}{held}. "
            "This is if it took no time at all."
        )
        title = f"Give {stage.name} more at once, or make it faster"
        yield Bound(title=title, detail=detail, at_most=_without(shares))


def _of_steps(runs: Sequence[Run]) -> Iterator[Bound]:
    """Bound of half as many sampling steps."""
    forwards = runs[-1].effects.forwards_per_unit or 0.0
    if forwards >= SAMPLER_FORWARDS:
        detail = (
            f"Each {runs[-1].unit} takes {forwards:.0f} forwards. This is for half as many; it "
            "changes the product, so it needs a quality measure with a tolerance."
        )
        at_most = _without([(1.0 - (each.wait_share or 0.0)) / 2 for each in runs])
        yield Bound(title="Take fewer sampling steps", detail=detail, at_most=at_most)


def _without(shares: list[float]) -> Interval | None:
    if max(shares) >= 1.0:
        return None
    most = [1.0 / (1.0 - share) for share in shares]
    mean = statistics.fmean(shares)
    return Interval(estimate=1.0 / (1.0 - mean), low=min(most), high=max(most), n=len(most))


def footprint_lines(run: Run) -> list[str]:
    """Lines of a step's peak memory, by part; none where unmeasured."""
    if run.footprint is None or not run.footprint.whole:
        return []
    return [
        f"{numbers.memory(size / GIB):>10}  {name} ({numbers.percent(size / run.footprint.whole)}; "
        f"grows with {GROWS_WITH[name]})"
        for name, size in asdict(run.footprint).items()
    ]
