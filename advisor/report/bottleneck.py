"""The bottleneck of equal runs: one word, one sentence, and measured evidence.

Every figure is a mean over equal processes, with its range; one process names nothing.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.model import SAMPLER_FORWARDS, TRAINING_STEPS, Ceilings, LoaderCeiling, Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.model import GpuProfile, Interval, Run, SyncPoint

FEWEST = 2
"""Runs that a figure needs."""


def ranged(
    runs: Sequence[Run],
    figure: Callable[[Run], float | None],
    shown: Callable[[float], str],
) -> str:
    """`41 % (40 % to 43 %, 2 runs)`; `not measured` where a run does not say."""
    values = [value for run in runs if (value := figure(run)) is not None]
    if len(values) < len(runs) or not values:
        return numbers.NOT_MEASURED
    bounds = f"{shown(min(values))} to {shown(max(values))}, {len(values)} runs"
    return f"{shown(statistics.fmean(values))} ({bounds})"


def mean_of(values: Sequence[float | None]) -> float | None:
    """Mean of the values; None where one of them was not measured."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


WAITING = 0.10
"""A share of the window above which waiting for data is worth naming."""
HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The bottleneck of one configuration."""

    name: str
    """data, sampling steps, small batch, host code, launch, transfer, synchronisation, compute,
    other"""
    sentence: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerBatch:
    """What a larger batch alone was proven to gain."""

    batch: float
    gain: Interval


def typical(runs: Sequence[Run]) -> Run:
    """One run with the mean figures of several equal ones, and the highest memory."""
    last = runs[-1]
    shares = {
        part: mean
        for part in Shares.__dataclass_fields__
        if (mean := mean_of([getattr(run.shares, part) for run in runs])) is not None
    }
    return replace(
        last,
        units_per_s=statistics.fmean(run.units_per_s for run in runs),
        tokens_per_s=mean_of([run.tokens_per_s for run in runs]),
        wait_share=mean_of([run.wait_share for run in runs]),
        step_ms=mean_of([run.step_ms for run in runs]),
        startup_s=mean_of([run.startup_s for run in runs]),
        shares=Shares(**shares),
        ceilings=above(ceilings_of(runs), runs),
        flops=next((run.flops for run in runs if run.flops is not None), None),
        footprint=next((run.footprint for run in runs if run.footprint is not None), None),
        peak_mem_gib=max((r.peak_mem_gib for r in runs if r.peak_mem_gib), default=None),
    )


def diagnose(
    runs: Sequence[Run],
    *,
    larger_batch: LargerBatch | None = None,
    profile: GpuProfile | None = None,
) -> Diagnosis | None:
    """Name the bottleneck of equal runs; None with fewer than two of them.

    Only a larger batch that was proven to be faster shows that small kernels were the limit.
    """
    if len(runs) < FEWEST:
        return None
    run = typical(runs)
    wait = run.wait_share
    forwards = run.effects.forwards_per_unit or 1.0
    units = numbers.plural(run.unit)
    rate = ranged(runs, lambda r: r.units_per_s, numbers.number)
    waited = ranged(runs, lambda r: r.wait_share, numbers.percent)
    evidence = [*_parts(run), *wasted(run), *isolated_lines(runs, run), *_device(run, profile)]
    without_waits = 1 / (1 - wait) if wait is not None and wait < 1 else math.inf
    ratio = larger_batch.gain.estimate if larger_batch is not None else 1.0
    outside = outside_the_model(run)
    idle = idle_cause(run)
    if (
        wait is not None
        and wait >= WAITING
        and without_waits >= ratio
        and (idle == "data_wait" or not on_device(run))
    ):
        name = "data"
        sentence = f"The program waits for data during {waited} of the time: " + (
            f"the loader, not the model, sets the rate of {rate} {units}/s."
            if wait > HALF
            else "a loader that never kept it waiting could give that back at most; "
            "the model takes the larger part."
        )
    elif larger_batch is not None and ratio > 1:
        gain = larger_batch.gain
        name = "small batch"
        sentence = (
            f"A batch of {numbers.count(run.effects.batch)} leaves the device with too little "
            f"work a call: at a batch of {numbers.count(larger_batch.batch)} the same model did "
            f"{gain.estimate:.2f}x ({gain.low:.2f} to {gain.high:.2f}) the {units}."
        )
    elif idle is not None and idle != "data_wait":
        name = IDLE[idle].name
        sentence = _without_work(runs, idle, f"{rate} {units}/s")
    elif forwards >= SAMPLER_FORWARDS:
        step = ranged(runs, lambda r: r.step_ms, lambda ms: numbers.duration(ms / 1000, 3))
        name = "sampling steps"
        sentence = (
            f"Each {run.unit} needs {forwards:.0f} forwards; one of a batch of "
            f"{numbers.count(run.effects.batch or 1)} takes {step}, so its time is that product "
            "and nothing else of size."
        )
    elif outside is not None:
        name = "host code"
        compute = ranged(runs, lambda r: r.shares.compute, numbers.percent)
        other = ranged(runs, lambda r: r.shares.other, numbers.percent)
        sentence = (
            f"Code outside the model's calls takes {other} of the time, the model {compute}: "
            f"the loop around it sets the rate of {rate} {units}/s."
        )
    elif on_device(run):
        name = "compute"
        worked = ranged(runs, lambda r: r.shares.compute, numbers.percent)
        sentence = f"The GPU had work during {worked} of the time: the model sets the rate."
    elif run.shares.compute is not None:
        name = "compute"
        compute = ranged(runs, lambda r: r.shares.compute, numbers.percent)
        rest = (
            f"host code between steps {ranged(runs, lambda r: r.shares.other, numbers.percent)}"
            if wait is None
            else f"waiting for data only {waited}"
        )
        sentence = (
            f"The model's forwards, backwards and updates take {compute} of the time; {rest}."
        )
    else:
        name = "other"
        sentence = f"The parts could not be told apart; the whole ran at {rate} {units}/s."
    if wait is not None and wait >= WAITING and name != "data":
        evidence.append(f"It waited for data during {waited} of the time.")
    if forwards >= SAMPLER_FORWARDS and name != "sampling steps":
        evidence.append(
            f"Each {run.unit} needs {forwards:.0f} forwards, so its cost is linear in the steps."
        )
    return Diagnosis(name=name, sentence=sentence, evidence=tuple(evidence))


def outside_the_model(run: Run) -> float | None:
    """Share of the host's code where that is more than the model's; None where it is not.

    With work in flight on a GPU the host may only be waiting for it, so there the card must have
    been seen idle.
    """
    other, compute = run.shares.other, run.shares.compute
    if other is None or compute is None or other <= compute or on_device(run):
        return None
    util_pct = run.telemetry.gpu_util_pct
    if run.on_gpu and (util_pct is None or util_pct > 100 * (1 - WAITING) / 2):
        return None
    return other


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a GPU had nothing to do."""

    name: str
    because: str
    """Completes `The GPU had nothing to do during 60 % of the time, `."""
    helps: str


IDLE = {
    "data_wait": Cause(
        name="data",
        because="while the program waited for its loader",
        helps="Feed the data faster.",
    ),
    "host_to_device": Cause(
        name="transfer",
        because="while data was copied to it, or because the copy held up what comes after",
        helps="Pinned memory with non-blocking copies lets both go on at once; copying less, such "
        "as bytes in place of floats, helps always.",
    ),
    "launch": Cause(
        name="launch",
        because="as it did each small kernel faster than the host launched the next",
        helps="A larger batch gives each kernel more to do; compilation and CUDA graphs launch "
        "fewer.",
    ),
    "sync": Cause(
        name="synchronisation",
        because="because the host had waited for it (`.item()`, `.cpu()`, a printed loss) instead "
        "of queueing the next step meanwhile",
        helps="Read such numbers once in many steps.",
    ),
    "other": Cause(
        name="host code",
        because="while the host ran code outside the model's calls",
        helps="Move that code off the loop, or into loader workers.",
    ),
}
"""Fields of Shares in which the GPU had nothing to do."""
WORTH_NAMING = 0.15
"""Share of the time in one such part from which on it is the bottleneck."""


def on_device(run: Run) -> bool:
    """Whether the parts tell what a device did, and not only its host."""
    return run.shares.launch is not None


def idle_cause(run: Run) -> str | None:
    """The field of Shares that a GPU lost most of its time to; None where it had enough to do, or
    where that was not measured. Compute is no bottleneck of a GPU that idles half of the time."""
    if not on_device(run):
        return None
    lost = {name: getattr(run.shares, name) or 0.0 for name in IDLE}
    worst = max(lost, key=lambda name: lost[name])
    mostly_idle = (run.shares.compute or 0.0) < HALF and sum(lost.values()) > WAITING
    return worst if lost[worst] >= WORTH_NAMING or mostly_idle else None


def _without_work(runs: Sequence[Run], part: str, rate: str) -> str:
    cause = IDLE[part]
    lost = ranged(runs, lambda r: getattr(r.shares, part), numbers.percent)
    worked = ranged(runs, lambda r: r.shares.compute, numbers.percent)
    return (
        f"The GPU had nothing to do during {lost} of the time, {cause.because}; it worked during "
        f"{worked}. That sets the rate of {rate}. {cause.helps}"
    )


def member(run: Run) -> str:
    """What one of the run's `ranks` is called: without a process group it is none."""
    return "rank" if (run.effects.group_size or 1) > 1 else "process"


def _parts(run: Run) -> list[str]:
    lines = []
    if run.step_ms is not None:
        took = numbers.duration(run.step_ms / 1000, 3)
        lines.append(f"One {run.step_kind or 'step'} took {took}{_of_batches(run)}.")
    if run.startup_s is not None:
        lines.append(
            f"The first step came {run.startup_s:.1f} s after the start (not in the rate)."
        )
    return lines


def _of_batches(run: Run) -> str:
    """` for 4 batches of 8 on each of 2 ranks`: what one step goes through; empty where the batch
    is not known."""
    if not run.effects.batch:
        return ""
    batch, many = numbers.count(run.effects.batch), 1.0
    if run.step_kind in TRAINING_STEPS:
        many = run.effects.accumulation or 1.0
    of = f"a batch of {batch}" if many == 1 else f"{numbers.count(many)} batches of {batch}"
    if run.ranks == 1:
        return f" for {of}"
    return f" for {of} on each of {run.ranks} {numbers.plural(member(run))}"


def _filled(run: Run, profile: GpuProfile | None) -> list[str]:
    """How full the chip was: operations that were counted, over the card's rate."""
    if run.flops is None:
        return []
    achieved = run.achieved_tflops
    if achieved is None:
        why = f": {run.flops.why}" if run.flops.why else ""
        return [f"How full the chip was is not measured{why}."]
    seen = run.effects
    least = "at least " if run.flops.uncounted else ""
    line = (
        f"Counted on one step, the matrix products, convolutions and attention of the model came "
        f"to {least}{numbers.measure(achieved, 3)} TFLOP/s, waits included"
    )
    rate = profile.tflops(seen.dtype, tf32=bool(seen.tf32)) if profile else None
    if rate and profile:
        kind = "TF32" if seen.dtype == "float32" and seen.tf32 else seen.dtype
        line += (
            f": {achieved / rate:.2%} of the {rate:g} that {profile.title} has at {kind} by its "
            "datasheet"
        )
        if kind == "float32" and profile.tf32_tflops:
            line += f", where convolutions may run at the {profile.tf32_tflops:g} of TF32"
    if run.flops.uncounted:
        line += f"; {', '.join(run.flops.uncounted)} could not be counted"
    return [line + "."]


def _device(run: Run, profile: GpuProfile | None) -> list[str]:
    lines = []
    seen = run.telemetry
    lines += _filled(run, profile)
    if on_device(run) and run.shares.compute is not None:
        lines.append(
            f"By events in its stream the GPU had work during {run.shares.compute:.0%} of the "
            "window."
        )
    if seen.gpu_util_pct is not None:
        lines.append(
            f"The GPU had work during {seen.gpu_util_pct:.0f} % of the samples; that is time with "
            "any kernel running, not how full the chip was."
        )
    if run.peak_device_gib is not None:
        whole = profile.memory_gib if profile else run.cards[0].total_gib if run.cards else None
        of = "" if whole is None else f" of {whole:.0f}"
        lines.append(
            f"The program peaked at {run.peak_device_gib:.2f}{of} GiB that the card had to give, "
            f"{run.peak_mem_gib or 0:.2f} GiB of it in tensors."
        )
    if seen.gpu_util_pct is None and seen.cpu_util_pct is not None:
        none = "" if run.on_gpu else "; there is no GPU to fill"
        lines.append(f"The CPUs were {seen.cpu_util_pct:.0f} % busy{none}.")
    for name, share in seen.event_reasons:
        if share > 0.01 and name not in {"idle", "none"}:
            lines.append(f"The GPU held its clocks down for {name} in {share:.0%} of the samples.")
    return lines


# --- parts alone ------------------------------------------------------------------------


def ceilings_of(runs: Sequence[Run]) -> Ceilings | None:
    """Mean ceilings of the runs that have some; None with fewer than two of them."""
    known = [run.ceilings for run in runs if run.ceilings is not None]
    if len(known) < FEWEST:
        return None
    loader: dict[int, list[float]] = {}
    for ceilings in known:
        for each in ceilings.loader:
            loader.setdefault(each.workers, []).append(each.units_per_s)
    return Ceilings(
        compute_units_per_s=mean_of([ceilings.compute_units_per_s for ceilings in known]),
        loader=tuple(
            LoaderCeiling(workers=workers, units_per_s=statistics.fmean(rates))
            for workers, rates in sorted(loader.items())
        ),
    )


def is_ceiling(rate: float, runs: Sequence[Run], workers: int | None = None) -> bool:
    """Whether a part that did `rate` alone may bound the whole: it is not slower than the whole was
    in any run. `workers`: it is the loader, which with other workers than these runs had may be."""
    if workers is not None and workers != runs[-1].effects.workers:
        return True
    return rate >= min(run.units_per_s for run in runs)


def above(found: Ceilings | None, runs: Sequence[Run]) -> Ceilings | None:
    """Those that are ceilings."""
    if found is None:
        return None
    compute = found.compute_units_per_s
    return Ceilings(
        compute_units_per_s=compute if compute and is_ceiling(compute, runs) else None,
        loader=tuple(
            each for each in found.loader if is_ceiling(each.units_per_s, runs, each.workers)
        ),
    )


def below_the_whole(runs: Sequence[Run]) -> dict[str, float]:
    """Mean rates of the parts that were slower alone than the whole, by name."""
    found = ceilings_of(runs) or Ceilings()
    rates = {
        f"loader alone, {numbers.many(each.workers, 'worker')}": each.units_per_s
        for each in found.loader
        if not is_ceiling(each.units_per_s, runs, each.workers)
    }
    compute = found.compute_units_per_s
    if compute is not None and not is_ceiling(compute, runs):
        rates = {"compute alone": compute, **rates}
    return rates


def isolated_lines(runs: Sequence[Run], run: Run) -> list[str]:
    """What they did, for the evidence; `run`: the typical one, with what bounds it."""
    found = run.ceilings
    if found is None:
        return []
    measured = [r for r in runs if r.ceilings is not None]
    units = numbers.plural(run.unit)
    said = [
        f"{name[0].upper()}{name[1:]} did {numbers.number(rate)} {units}/s, less than the whole: "
        "its ceiling is not told apart from what the whole did."
        for name, rate in below_the_whole(runs).items()
    ]
    if found.compute_units_per_s:
        alone = ranged(
            measured,
            lambda r: r.ceilings.compute_units_per_s if r.ceilings else None,
            numbers.number,
        )
        said.append(f"With the loader bypassed the model alone did {alone} {units}/s.")
    if found.loader:
        best = max(found.loader, key=lambda c: c.units_per_s).workers

        def rate(r: Run) -> float | None:
            each = {c.workers: c.units_per_s for c in r.ceilings.loader} if r.ceilings else {}
            return each.get(best)

        alone = ranged(measured, rate, numbers.number)
        workers = numbers.many(best, "worker")
        said.append(f"The loader alone did up to {alone} {units}/s, with {workers}.")
    return said


# --- wasted work ------------------------------------------------------------------------


MOST_SHOWN = 4
OPERATORS = {"__bool__": "if", "__float__": "float()", "__int__": "int()", "__index__": "an index"}


def wasted(run: Run) -> list[str]:
    """A sentence for what of it was seen."""
    return [*_padding(run), *_syncs(run)]


def _padding(run: Run) -> list[str]:
    share = run.effects.padding_share
    if share is None or share < numbers.WORTH_SAYING:
        return []
    compute = run.shares.compute
    most = f", at most {numbers.percent(share * compute)} of the time" if compute else ""
    return [
        (
            f"Of the positions of its batches {100 * share:.1f} % are padding, on which the model "
            f"works for nothing{most}: every batch was counted."
        )
    ]


def _syncs(run: Run) -> list[str]:
    """On a device with what each costs; on a CPU as what they would be on a device."""
    found = [point for point in run.syncs if point.ms is None or _share(run, point) is not None]
    if not found:
        return []
    sites = list(dict.fromkeys(point.site for point in found))
    shown = ", ".join(
        f"`{site}` ({'; '.join(_sync_point(run, point) for point in found if point.site == site)})"
        for site in sites[:MOST_SHOWN]
    )
    left = len(sites) - MOST_SHOWN
    more = f", and at {numbers.many(left, 'other line')}" if left > 0 else ""
    if found[0].ms is None:
        return [
            (
                f"Numbers go from tensors to the host at {shown}{more}. On a CPU that waits for "
                "nothing; on a GPU the host would wait there until all that was queued is done."
            )
        ]
    return [f"The host waits for the GPU at {shown}{more}."]


def _sync_point(run: Run, point: SyncPoint) -> str:
    call = OPERATORS.get(point.call, f".{point.call}()")
    times = (
        "once" if round(point.per_step, 1) == 1 else f"{numbers.measure(point.per_step, 3)} times"
    )
    told = f"`{call}`, {times} a step"
    if point.ms is not None:
        each = numbers.duration(point.ms / 1000, 3)
        told += f", {each} each, {numbers.percent(_share(run, point))} of the time"
    return told


def _share(run: Run, point: SyncPoint) -> float | None:
    """Part of the time that the host waits there; None where that is not known."""
    if point.ms is None or not run.step_ms:
        return None
    return min(1.0, point.per_step * point.ms / run.step_ms)
