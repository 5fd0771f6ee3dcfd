"""Where the time goes, in one word, one sentence, and evidence that each carries a number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.tuning.search import figure

if TYPE_CHECKING:
    from advisor.model import Ceilings, GpuProfile, Run

WAITING = 0.10
"""A share of the window above which waiting for data is worth naming."""
HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The bottleneck of one run."""

    name: str
    """data, sampling steps, small batch, host code, compute, other"""
    sentence: str
    evidence: tuple[str, ...]


def diagnose(
    run: Run,
    *,
    faster_batch: Run | None = None,
    ceilings: Ceilings | None = None,
    profile: GpuProfile | None = None,
) -> Diagnosis:
    """Name the bottleneck of `run`.

    `faster_batch` is a run of the same program at another batch, if one was faster: only that
    proves that small kernels were the limit.
    """
    wait = run.wait_share
    forwards = run.effects.forwards_per_unit or 1.0
    rate = run.units_per_s
    evidence = [*_parts(run), *_ceilings(run, ceilings), *_device(run, profile)]
    without_waits = 1 / (1 - wait) if wait is not None and wait < 1 else math.inf
    ratio = faster_batch.units_per_s / rate if faster_batch is not None else 1.0
    if wait is not None and wait >= WAITING and without_waits >= ratio:
        name = "data"
        sentence = f"The program waits for data during {wait:.0%} of the time: " + (
            f"the loader, not the model, sets the rate of {figure(rate)} {run.unit}s/s."
            if wait > HALF
            else f"a loader that never kept it waiting would give {without_waits:.2f}x at most; "
            "the model takes the larger part."
        )
    elif faster_batch is not None and ratio > 1:
        name = "small batch"
        sentence = (
            f"A batch of {run.effects.batch:g} leaves the device with too little work a call: "
            f"the same model did {ratio:.2f}x the {run.unit}s at a batch of "
            f"{faster_batch.effects.batch:g}."
        )
    elif forwards >= 4:
        name = "sampling steps"
        sentence = (
            f"Each {run.unit} needs {forwards:.0f} forwards of {run.step_ms or 0:.3g} ms, "
            "so its time is that product and nothing else of size."
        )
    elif (outside := _outside_the_model(run)) is not None:
        name = "host code"
        sentence = (
            f"Code outside the model's calls takes {outside:.0%} of the time, "
            f"the model {run.shares.compute or 0:.0%}: the loop around it sets the rate of "
            f"{figure(rate)} {run.unit}s/s."
        )
    elif wait is not None:
        name = "compute"
        sentence = (
            f"The model itself takes {1 - wait:.0%} of the time; waiting for data only {wait:.1%}."
        )
    else:
        name = "other"
        sentence = (
            f"The parts could not be told apart; the whole ran at {figure(rate)} {run.unit}s/s."
        )
    if wait is not None and wait >= WAITING and name != "data":
        evidence.append(f"It waited for data during {wait:.0%} of the time.")
    if forwards >= 4 and name != "sampling steps":
        evidence.append(
            f"Each {run.unit} needs {forwards:.0f} forwards, so its cost is linear in the steps."
        )
    return Diagnosis(name=name, sentence=sentence, evidence=tuple(evidence))


def on_gpu(run: Run) -> bool:
    """Whether the model computes on a GPU, where the host's clock sees only the calls."""
    return (run.effects.device or "").startswith("cuda")


def _outside_the_model(run: Run) -> float | None:
    """Share of the host's code where that is more than the model's; None where it is not.

    With work in flight on a GPU the host may only be waiting for it, so there the card must have
    been seen idle.
    """
    other, compute = run.shares.other, run.shares.compute
    if other is None or compute is None or other <= compute:
        return None
    if on_gpu(run) and (run.telemetry.gpu_util_pct or 100.0) > 100 * (1 - WAITING) / 2:
        return None
    return other


def _parts(run: Run) -> list[str]:
    lines = []
    if run.step_ms is not None:
        batch = f" for a batch of {run.effects.batch:g}" if run.effects.batch else ""
        lines.append(f"One {run.step_kind or 'step'} took {run.step_ms:.3g} ms{batch}.")
    if run.startup_s is not None:
        lines.append(
            f"The first step came {run.startup_s:.1f} s after the start (not in the rate)."
        )
    return lines


def _ceilings(run: Run, ceilings: Ceilings | None) -> list[str]:
    if ceilings is None:
        return []
    lines = []
    if ceilings.compute_units_per_s:
        lines.append(
            f"With the loader bypassed the model alone did {figure(ceilings.compute_units_per_s)} "
            f"{run.unit}s/s, {ceilings.compute_units_per_s / run.units_per_s:.2f}x the whole."
        )
    if ceilings.loader:
        best = max(ceilings.loader, key=lambda c: c.units_per_s)
        lines.append(
            f"The loader alone did up to {figure(best.units_per_s)} {run.unit}s/s "
            f"(with {best.workers} worker{'' if best.workers == 1 else 's'})."
        )
    return lines


def _device(run: Run, profile: GpuProfile | None) -> list[str]:
    lines = []
    seen = run.telemetry
    if seen.gpu_util_pct is not None:
        lines.append(
            f"The GPU had work during {seen.gpu_util_pct:.0f} % of the samples; that is time with "
            "any kernel running, not how full the chip was."
        )
    if profile is not None and run.peak_device_gib is not None:
        lines.append(
            f"The program peaked at {run.peak_device_gib:.2f} of {profile.memory_gib:.0f} GiB."
        )
    if seen.gpu_util_pct is None and seen.cpu_util_pct is not None:
        lines.append(f"The CPUs were {seen.cpu_util_pct:.0f} % busy; there is no GPU to fill.")
    for name, share in seen.event_reasons:
        if share > 0.01 and name not in {"idle", "none"}:
            lines.append(f"The GPU held its clocks down for {name} in {share:.0%} of the samples.")
    return lines
