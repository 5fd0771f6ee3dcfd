"""What removing each cost of one run would give at most, and why the device is not busy.

Every bound follows from one run by arithmetic: a part that takes the share s of the time can save
no more than itself, so nothing done to it gives more than 1 / (1 - s). A bound is no forecast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.tuning.bottleneck import on_gpu

if TYPE_CHECKING:
    from advisor.model import Run, Shares

WORTH_SAYING = 0.01
"""A part smaller than this share of the window is left out."""
SAMPLER_FORWARDS = 4

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
    "compute": (
        "forwards, backwards and optimizer steps",
        "Make the compute faster",
        "a larger batch, a lower precision or compilation",
    ),
    "other": (
        "code outside the model's calls",
        "Do less between the model's calls",
        "fewer conversions, prints and `.item()` calls",
    ),
    "validation": ("validation", "Validate less", "rarer or shorter passes"),
    "sampling": ("sampling", "Sample less", "rarer or shorter passes"),
    "saving": ("saving", "Save less", "rarer or asynchronous checkpoints"),
}
"""Field of Shares to what it is, what would help, and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Something that would help, and the rate it gives at most as a multiple of this run's."""

    title: str
    detail: str
    at_most: float | None
    """None: it would take the whole time away, which bounds nothing."""


def measured_parts(shares: Shares) -> dict[str, float]:
    """Field of Shares to its share, in the order of PARTS, without those not measured."""
    found = {name: getattr(shares, name) for name in PARTS}
    return {name: share for name, share in found.items() if share is not None}


def named(run: Run, part: str) -> str:
    """What a field of Shares means in `run`."""
    waits = part == "other" and on_gpu(run)
    return PARTS[part][0] + (", or waiting for the GPU to finish" if waits else "")


def bounds(run: Run, *, cpus: int | None = None) -> tuple[Bound, ...]:
    """What would help `run`, the largest bound first. `cpus`: how many the program may use."""
    parts = measured_parts(run.shares)
    if run.wait_share is not None:
        parts.setdefault("data_wait", run.wait_share)
    found = [
        _bound(run, name, share, parts, cpus)
        for name, share in parts.items()
        if share >= WORTH_SAYING
    ]
    forwards = run.effects.forwards_per_unit or 0.0
    if forwards >= SAMPLER_FORWARDS:
        share = 1.0 - (run.wait_share or 0.0)
        found.append(
            Bound(
                title="Take fewer sampling steps",
                detail=(
                    f"Each {run.unit} takes {forwards:.0f} forwards. This is for half as many; it "
                    "changes the product, so it needs a quality measure with a tolerance."
                ),
                at_most=_without(share / 2),
            )
        )
    return tuple(sorted(found, key=lambda b: -(b.at_most or float("inf"))))


def _bound(run: Run, name: str, share: float, parts: dict[str, float], cpus: int | None) -> Bound:
    _, title, how = PARTS[name]
    detail = f"{share:.1%} of the time is {named(run, name)}; {how} can help."
    if name == "data_wait":
        detail = " ".join([detail, *_loader_alone(run, cpus)])
    if name == "compute" and on_gpu(run):  # the host may wait for the same compute elsewhere
        share = min(1.0, share + parts.get("other", 0.0))
    return Bound(title=title, detail=detail, at_most=_without(share))


def several(number: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _without(share: float) -> float | None:
    return 1.0 / (1.0 - share) if share < 1.0 else None


def _loader_alone(run: Run, cpus: int | None) -> list[str]:
    """What the loader has, and what it did alone in the same process."""
    said = []
    workers = run.effects.workers
    if workers is not None and cpus is not None:
        each = " a rank" if run.ranks > 1 else ""
        has = f"The loader has {several(workers, 'worker')}{each}"
        said.append(f"{has}; the program may use {several(cpus, 'CPU')}.")
    alone = run.ceilings.loader if run.ceilings else ()
    if alone:
        best = max(alone, key=lambda ceiling: ceiling.units_per_s)
        ratio = f"{best.units_per_s / run.units_per_s:.3g}x this run's rate"
        said.append(f"With {several(best.workers, 'worker')} it alone did {ratio}.")
    return said


def idle_reasons(run: Run) -> tuple[str, ...]:
    """Why the model does not compute all the time, each with its number; empty if it does, or
    if the parts were not measured."""
    seen = run.telemetry
    gone = {
        name: share
        for name, share in measured_parts(run.shares).items()
        if name != "compute" and share >= WORTH_SAYING
    }
    said = []
    if seen.gpu_util_pct is not None:
        said.append(f"The GPU had no work in {100 - seen.gpu_util_pct:.0f} % of the samples.")
    said += [
        f"{share:.1%} of the time is {named(run, name)}."
        for name, share in sorted(gone.items(), key=lambda part: -part[1])
    ]
    if run.ranks > 1 and run.rank_units_per_s:
        slow, fast = min(run.rank_units_per_s), max(run.rank_units_per_s)
        if slow < fast * (1 - WORTH_SAYING):
            rank = run.rank_units_per_s.index(slow)
            said.append(f"Rank {rank} is the slowest: {slow / fast:.0%} of the fastest one's rate.")
    return tuple(said)
