"""Upper bounds on gains, by Amdahl's law.

With the memory of a step.

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
from advisor.report.bottleneck import FEWEST, member, typical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import Run, Shares

PARTS = {
    "data_wait": (
        "waiting for data",
        "Feed the data faster",
        "more loader workers, a cheaper transform or faster storage",
    ),
    "host_to_device": (
        "copies to the device",
        "Overlap the copies to the device",
        "pinned memory and non-blocking copies",
    ),
    "launch": (
        "the GPU doing each small kernel before the next is launched",
        "Launch fewer, larger kernels",
        "a larger batch, compilation or CUDA graphs",
    ),
    "sync": (
        "the GPU idle because the host had waited for it",
        "Wait for the GPU less often",
        "fewer `.item()`, `.cpu()` and printed losses",
    ),
    "compute": (
        "forwards, backwards and optimizer steps",
        "Make the compute faster",
        "a larger batch, a lower precision or compilation",
    ),
    "other": (
        "host code between steps, outside the model's calls",
        "Do less between the model's calls",
        "fewer conversions, prints and `.item()` calls",
    ),
    "saving": ("saving", "Save less", "rarer or asynchronous checkpoints"),
}
"""Field of Shares to what it is, what would help, and how."""
OF_A_DEVICE = {
    "compute": "the GPU at work",
    "other": "the GPU idle while the host runs code outside the model's calls",
    "data_wait": "the GPU idle while the program waits for data",
    "host_to_device": "the GPU idle for copies to it",
}
"""The same, where the parts tell what a device did."""


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


def named(run: Run, part: str) -> str:
    """Name of a field of Shares in `run`."""
    if run.shares.launch is not None:  # the parts tell what the device did
        return OF_A_DEVICE.get(part) or PARTS[part][0]
    waits = part == "other" and run.on_gpu
    return PARTS[part][0] + (", or waiting for the GPU to finish" if waits else "")


def bounds(runs: Sequence[Run], *, cpus: int | None = None) -> tuple[Bound, ...]:
    """Bounds of fixes, the largest first.

    `cpus`: how many the program may use.
    """
    if len(runs) < FEWEST:
        return ()
    run = typical(runs)
    names = list(measured_parts(run.shares))
    if run.wait_share is not None and "data_wait" not in names:
        names.append("data_wait")
    found = []
    for name in names:
        shares = [_share(each, name) for each in runs]
        if max(shares) >= numbers.WORTH_SAYING:
            _, title, how = PARTS[name]
            mean = sum(shares) / len(shares)
            detail = f"{mean:.1%} of the time is {named(run, name)}; {how} can help."
            hidden = [_hidden(each, name) for each in runs]
            if name == "data_wait":
                detail = " ".join([detail, *_loader_alone(run, cpus)])
            elif name == "compute":
                detail += " This is for compute twice as fast: none of it can be left out."
                hidden = [share / 2 for share in hidden]
            bound = _without(hidden)
            found.append(Bound(title=title, detail=detail, at_most=bound))
    found += _of_stages(runs)
    forwards = run.effects.forwards_per_unit or 0.0
    if forwards >= SAMPLER_FORWARDS:
        found.append(
            Bound(
                title="Take fewer sampling steps",
                detail=(
                    f"Each {run.unit} takes {forwards:.0f} forwards. This is for half as many; it "
                    "changes the product, so it needs a quality measure with a tolerance."
                ),
                at_most=_without([(1.0 - (each.wait_share or 0.0)) / 2 for each in runs]),
            )
        )
    return tuple(sorted(found, key=lambda b: -(b.at_most.estimate if b.at_most else float("inf"))))


def _of_stages(runs: Sequence[Run]) -> list[Bound]:
    """Bounds for networks that take turns.

    Their calls would take no time.
    """
    found = []
    for stage in stage_shares(runs):
        if stage.share < numbers.WORTH_SAYING:
            continue
        site = f" at {stage.site}" if stage.site else ""
        held = f" with {numbers.count(stage.batch)} at once" if stage.batch else ""
        detail = (
            f"{stage.share:.1%} of the time is the network {stage.name}{site}, called "
            f"{numbers.number(stage.calls_per_unit)} times {numbers.one(runs[-1].unit)}{held}. "
            "This is if it took no time at all."
        )
        shares = [
            each.share
            for run in runs
            for each in run.stages
            if (each.name, each.site) == (stage.name, stage.site)
        ]
        title = f"Give {stage.name} more at once, or make it faster"
        found.append(Bound(title=title, detail=detail, at_most=_without(shares)))
    return found


def _share(run: Run, name: str) -> float:
    part = getattr(run.shares, name)
    return float((run.wait_share if part is None and name == "data_wait" else part) or 0.0)


def _hidden(run: Run, name: str) -> float:
    """Share that goes with a part.

    The host may wait for the same compute elsewhere.
    """
    apart = run.shares.launch is not None
    beside = (run.shares.other or 0.0) if name == "compute" and run.on_gpu and not apart else 0.0
    return min(1.0, _share(run, name) + beside)


def _without(shares: list[float]) -> Interval | None:
    if max(shares) >= 1.0:
        return None
    most = [1.0 / (1.0 - share) for share in shares]
    mean = sum(shares) / len(shares)
    return Interval(estimate=1.0 / (1.0 - mean), low=min(most), high=max(most), n=len(most))


def _loader_alone(run: Run, cpus: int | None) -> list[str]:
    """Workers of the loader, with its isolated rate.

    The rate is from the same process.
    """
    lines = []
    workers = run.effects.workers
    if workers is not None and cpus is not None:
        each = f" a {member(run)}" if run.ranks > 1 else ""
        has = f"The loader has {numbers.many(workers, 'worker')}{each}"
        lines.append(f"{has}; the program may use {numbers.many(cpus, 'CPU')}.")
    alone = run.ceilings.loader if run.ceilings else ()
    if alone:
        best = max(alone, key=lambda ceiling: ceiling.units_per_s)
        rates = [numbers.number(rate) for rate in (best.units_per_s, run.units_per_s)]
        has, units = numbers.many(best.workers, "worker"), numbers.plural(run.unit)
        lines.append(
            f"With {has} it alone did {rates[0]} {units}/s where the whole did {rates[1]}."
        )
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """One of several networks that take turns."""

    name: str
    site: str | None
    share: float
    """Mean share of the time, over equal runs."""
    calls_per_unit: float
    batch: float | None


def stage_shares(runs: Sequence[Run]) -> list[StageShare]:
    """Mean shares by network.

    None unless every run has the same networks.
    """
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


GROWS_WITH = {
    "model": "the parameters",
    "gradients": "the parameters",
    "optimizer": "the parameters: twice for Adam, once for SGD with momentum",
    "activations": "batch, depth and input size; gradient checkpointing holds fewer",
    "workspace": "the parameters, or the largest layer",
}


def footprint_lines(run: Run) -> list[str]:
    """Lines of a step's peak memory, by part.

    None where that was not measured.
    """
    if run.footprint is None or not run.footprint.whole:
        return []
    parts = asdict(run.footprint)
    return [
        f"{numbers.memory(size / GIB):>10}  {name} ({numbers.percent(size / run.footprint.whole)}; "
        f"grows with {GROWS_WITH[name]})"
        for name, size in parts.items()
    ]
