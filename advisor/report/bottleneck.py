"""Bottleneck of equal runs, with measured evidence.

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
WAITING = 0.10
"""Share of the window from which on waiting for data is named."""
HALF = 0.5
WORTH_NAMING = 0.15
"""Share of the time without work on the GPU from which on its cause is the bottleneck."""
MOST_SITES = 4
OPERATORS = {"__bool__": "if", "__float__": "float()", "__int__": "int()", "__index__": "an index"}
"""Methods that read a number from a tensor, as they look in code."""


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
    """The proven gain of a larger batch alone."""

    batch: float
    gain: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A reason for an idle GPU."""

    name: str
    because: str
    """Completes `The GPU was idle during 60 % of the time, `."""
    helps: str


IDLE = {
    "data_wait": Cause(
        name="data", because="while the program waited for its loader", helps="Feed data faster."
    ),
    "host_to_device": Cause(
        name="transfer",
        because="while data was copied to it, or behind such a copy",
        helps="Pinned memory with non-blocking copies overlaps both; copying less, such as bytes "
        "in place of floats, helps always.",
    ),
    "launch": Cause(
        name="launch",
        because="as it finished each small kernel before the host launched the next",
        helps="A larger batch gives each kernel more work; compilation and CUDA graphs launch "
        "fewer.",
    ),
    "sync": Cause(
        name="synchronisation",
        because="because the host had waited for it (`.item()`, `.cpu()`, a printed loss) instead "
        "of queueing the next step",
        helps="Read such numbers once in many steps.",
    ),
    "other": Cause(
        name="host code",
        because="while the host ran code outside the model's calls",
        helps="Move that code off the loop, or into loader workers.",
    ),
}
"""Fields of Shares in which the GPU was idle."""


# --- equal runs ---------------------------------------------------------------------------


def ranged(
    runs: Sequence[Run], figure: Callable[[Run], float | None], shown: Callable[[float], str]
) -> str:
    """Format a mean with its range.

    `41 % (40 % to 43 %, 2 runs)`; `not measured` where a run lacks the figure.
    """
    values = [value for run in runs if (value := figure(run)) is not None]
    if len(values) < len(runs) or not values:
        return numbers.NOT_MEASURED
    bounds = f"{shown(min(values))} to {shown(max(values))}, {len(values)} runs"
    return f"{shown(statistics.fmean(values))} ({bounds})"


def share_of(runs: Sequence[Run], part: str) -> str:
    """One field of Shares over equal runs."""
    return ranged(runs, lambda run: getattr(run.shares, part), numbers.percent)


def mean_of(values: Sequence[float | None]) -> float | None:
    """Mean of the values; None if any is missing."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def typical(runs: Sequence[Run]) -> Run:
    """Mean run of equal ones, with the highest memory."""
    shares = {
        part: mean
        for part in Shares.__dataclass_fields__
        if (mean := mean_of([getattr(run.shares, part) for run in runs])) is not None
    }
    return replace(
        runs[-1],
        units_per_s=statistics.fmean(run.units_per_s for run in runs),
        tokens_per_s=mean_of([run.tokens_per_s for run in runs]),
        wait_share=mean_of([run.wait_share for run in runs]),
        step_ms=mean_of([run.step_ms for run in runs]),
        startup_s=mean_of([run.startup_s for run in runs]),
        shares=Shares(**shares),
        ceilings=above(ceilings_of(runs), runs),
        flops=next((run.flops for run in runs if run.flops is not None), None),
        footprint=next((run.footprint for run in runs if run.footprint is not None), None),
        peak_mem_gib=max((run.peak_mem_gib for run in runs if run.peak_mem_gib), default=None),
    )


def on_device(run: Run) -> bool:
    """Tell whether the parts are a device's."""
    return run.shares.launch is not None


def member(run: Run) -> str:
    """`rank`, or `process` where there is no process group."""
    return "rank" if (run.effects.group_size or 1) > 1 else "process"


# --- the bottleneck -----------------------------------------------------------------------


def diagnose(
    runs: Sequence[Run],
    *,
    larger_batch: LargerBatch | None = None,
    profile: GpuProfile | None = None,
) -> Diagnosis | None:
    """Name the bottleneck of equal runs.

    None with fewer than two of them. Only a larger batch that was proven to be faster shows that
    small kernels were the limit.
    """
    if len(runs) < FEWEST:
        return None
    run = typical(runs)
    name, sentence = (
        _data(runs, run, larger_batch)
        or _small_batch(run, larger_batch)
        or _idle_gpu(runs, run)
        or _sampling(runs, run)
        or _host_code(runs, run)
        or _compute(runs, run)
    )
    evidence = [*_parts(run), *wasted(run), *isolated_lines(runs, run), *_device(run, profile)]
    if (run.wait_share or 0.0) >= WAITING and name != "data":
        evidence.append(f"It waited for data during {_waited(runs)} of the time.")
    forwards = run.effects.forwards_per_unit or 1.0
    if forwards >= SAMPLER_FORWARDS and name != "sampling steps":
        evidence.append(f"Each {run.unit} needs {forwards:.0f} forwards: cost is linear in them.")
    return Diagnosis(name=name, sentence=sentence, evidence=tuple(evidence))


Verdict = tuple[str, str] | None
"""Name and sentence of a bottleneck."""


def _data(runs: Sequence[Run], run: Run, larger_batch: LargerBatch | None) -> Verdict:
    wait = run.wait_share
    if wait is None or wait < WAITING:
        return None
    without_waits = 1 / (1 - wait) if wait < 1 else math.inf
    proven = larger_batch.gain.estimate if larger_batch is not None else 1.0
    if without_waits < proven or (on_device(run) and idle_cause(run) != "data_wait"):
        return None
    rest = (
        f"the loader, not the model, sets the rate of {_rate(runs)}."
        if wait > HALF
        else "a faster loader gives back that at most; the model takes the larger part."
    )
    return "data", f"The program waits for data during {_waited(runs)} of the time: {rest}"


def _small_batch(run: Run, larger_batch: LargerBatch | None) -> Verdict:
    if larger_batch is None or larger_batch.gain.estimate <= 1:
        return None
    gain = larger_batch.gain
    return "small batch", (
        f"A batch of {numbers.count(run.effects.batch)} leaves the device with too little work a "
        f"call: at a batch of {numbers.count(larger_batch.batch)} the same model did "
        f"{gain.estimate:.2f}x ({gain.low:.2f} to {gain.high:.2f}) the {numbers.plural(run.unit)}."
    )


def _idle_gpu(runs: Sequence[Run], run: Run) -> Verdict:
    part = idle_cause(run)
    if part is None or part == "data_wait":
        return None
    cause = IDLE[part]
    return cause.name, (
        f"The GPU had nothing to do during {share_of(runs, part)} of the time, {cause.because}; "
        f"it worked during {share_of(runs, 'compute')}. That sets the rate of {_rate(runs)}. "
        f"{cause.helps}"
    )


def _sampling(runs: Sequence[Run], run: Run) -> Verdict:
    forwards = run.effects.forwards_per_unit or 1.0
    if forwards < SAMPLER_FORWARDS:
        return None
    step = ranged(runs, lambda r: r.step_ms, lambda ms: numbers.duration(ms / 1000, 3))
    batch = numbers.count(run.effects.batch or 1)
    return "sampling steps", (
        f"Each {run.unit} needs {forwards:.0f} forwards, and one of a batch of {batch} takes "
        f"{step}: their product is its time."
    )


def _host_code(runs: Sequence[Run], run: Run) -> Verdict:
    if outside_the_model(run) is None:
        return None
    return "host code", (
        f"Code outside the model's calls takes {share_of(runs, 'other')} of the time, the model "
        f"{share_of(runs, 'compute')}: the loop around it sets the rate of {_rate(runs)}."
    )


def _compute(runs: Sequence[Run], run: Run) -> tuple[str, str]:
    worked = share_of(runs, "compute")
    if on_device(run):
        return "compute", f"The GPU had work during {worked} of the time: the model sets the rate."
    if run.shares.compute is None:
        return "other", f"The parts could not be separated; the whole ran at {_rate(runs)}."
    rest = f"host code between steps {share_of(runs, 'other')}"
    if run.wait_share is not None:
        rest = f"waiting for data only {_waited(runs)}"
    return "compute", (
        f"The model's forwards, backwards and updates take {worked} of the time; {rest}."
    )


def _rate(runs: Sequence[Run]) -> str:
    rate = ranged(runs, lambda run: run.units_per_s, numbers.number)
    return f"{rate} {numbers.plural(runs[-1].unit)}/s"


def _waited(runs: Sequence[Run]) -> str:
    return ranged(runs, lambda run: run.wait_share, numbers.percent)


def outside_the_model(run: Run) -> float | None:
    """Share of the host's code beyond the model's.

    With work in flight on a GPU the host may only be waiting for it, so the card must have been
    seen idle.
    """
    other, compute = run.shares.other, run.shares.compute
    if other is None or compute is None or other <= compute or on_device(run):
        return None
    util_pct = run.telemetry.gpu_util_pct
    if run.on_gpu and (util_pct is None or util_pct > 100 * (1 - WAITING) / 2):
        return None
    return other


def idle_cause(run: Run) -> str | None:
    """Field of Shares that idled a GPU most.

    None where it had enough to do. Compute is no bottleneck of a GPU that idles half of the time.
    """
    if not on_device(run):
        return None
    lost = {name: getattr(run.shares, name) or 0.0 for name in IDLE}
    worst = max(lost, key=lambda name: lost[name])
    mostly_idle = (run.shares.compute or 0.0) < HALF and sum(lost.values()) > WAITING
    return worst if lost[worst] >= WORTH_NAMING or mostly_idle else None


# --- evidence -----------------------------------------------------------------------------


def _parts(run: Run) -> list[str]:
    lines = []
    if run.step_ms is not None:
        took = numbers.duration(run.step_ms / 1000, 3)
        lines.append(f"One {run.step_kind or 'step'} took {took}{_of_batches(run)}.")
    if run.startup_s is not None:
        lines.append(f"The first step came {run.startup_s:.1f} s after the start, not counted.")
    rates = run.rank_units_per_s
    if run.ranks > 1 and rates and min(rates) < max(rates) * (1 - numbers.WORTH_SAYING):
        slowest = rates.index(min(rates))
        lines.append(
            f"{member(run).capitalize()} {slowest} is the slowest: "
            f"{min(rates) / max(rates):.0%} of the fastest one's rate."
        )
    return lines


def _of_batches(run: Run) -> str:
    """Batches as text; empty if unknown.

    ` for 4 batches of 8 on each of 2 ranks`
    """
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
    """Lines on counted operations, against the card's rate."""
    if run.flops is None:
        return []
    achieved = run.achieved_tflops
    if achieved is None:
        why = f": {run.flops.why}" if run.flops.why else ""
        return [f"The load of the chip is not measured{why}."]
    seen = run.effects
    least = "at least " if run.flops.uncounted else ""
    line = (
        f"Matrix products, convolutions and attention of one step came to {least}"
        f"{numbers.measure(achieved, 3)} TFLOP/s, waits included"
    )
    rate = profile.tflops(seen.dtype, tf32=bool(seen.tf32)) if profile else None
    if rate and profile:
        kind = "TF32" if seen.dtype == "float32" and seen.tf32 else seen.dtype
        line += f": {achieved / rate:.2%} of the {rate:g} of {profile.title} at {kind}"
        if kind == "float32" and profile.tf32_tflops:
            line += f", where convolutions may run at the {profile.tf32_tflops:g} of TF32"
    if run.flops.uncounted:
        line += f"; {', '.join(run.flops.uncounted)} could not be counted"
    return [line + "."]


def _device(run: Run, profile: GpuProfile | None) -> list[str]:
    seen = run.telemetry
    lines = _filled(run, profile)
    if on_device(run) and run.shares.compute is not None:
        lines.append(
            f"By events in its stream the GPU worked {run.shares.compute:.0%} of the time."
        )
    if seen.gpu_util_pct is not None:
        lines.append(
            f"NVML's utilisation was {seen.gpu_util_pct:.0f} %: time with any kernel running, not "
            "the load of the chip."
        )
    if run.peak_device_gib is not None:
        whole = profile.memory_gib if profile else run.cards[0].total_gib if run.cards else None
        of = "" if whole is None else f" of {whole:.0f}"
        lines.append(
            f"The program peaked at {run.peak_device_gib:.2f}{of} GiB of the card, "
            f"{run.peak_mem_gib or 0:.2f} GiB of it in tensors."
        )
    if seen.gpu_util_pct is None and seen.cpu_util_pct is not None:
        none = "" if run.on_gpu else "; there is no GPU to fill"
        lines.append(f"The CPUs were {seen.cpu_util_pct:.0f} % busy{none}.")
    return lines + [
        f"The GPU held its clocks down for {name} in {share:.0%} of the samples."
        for name, share in seen.event_reasons
        if share > 0.01 and name not in {"idle", "none"}
    ]


# --- parts alone --------------------------------------------------------------------------


def ceilings_of(runs: Sequence[Run]) -> Ceilings | None:
    """Mean ceilings of the runs that have some.

    None with fewer than two of them.
    """
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
    """Tell whether a part alone may bound the whole.

    `workers`: the part is the loader; with other workers than these runs had it may be slower.
    """
    if workers is not None and workers != runs[-1].effects.workers:
        return True
    return rate >= min(run.units_per_s for run in runs)


def above(found: Ceilings | None, runs: Sequence[Run]) -> Ceilings | None:
    """The rates that are ceilings."""
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
    """Mean rates of parts slower than the whole."""
    found = ceilings_of(runs) or Ceilings()
    rates = (
        {} if found.compute_units_per_s is None else {"compute alone": found.compute_units_per_s}
    )
    slower = {name: rate for name, rate in rates.items() if not is_ceiling(rate, runs)}
    return slower | {
        f"loader alone, {numbers.many(each.workers, 'worker')}": each.units_per_s
        for each in found.loader
        if not is_ceiling(each.units_per_s, runs, each.workers)
    }


def isolated_lines(runs: Sequence[Run], run: Run) -> list[str]:
    """Lines on the rates of isolated parts.

    `run` is the typical one, with its ceilings.
    """
    found = run.ceilings
    if found is None:
        return []
    measured = [r for r in runs if r.ceilings is not None]
    units = numbers.plural(run.unit)
    lines = [
        f"{name[0].upper()}{name[1:]} did {numbers.number(rate)} {units}/s, less than the whole: "
        "so it has no ceiling of its own."
        for name, rate in below_the_whole(runs).items()
    ]
    if found.compute_units_per_s:
        alone = ranged(
            measured,
            lambda r: r.ceilings.compute_units_per_s if r.ceilings else None,
            numbers.number,
        )
        lines.append(f"With the loader bypassed the model alone did {alone} {units}/s.")
    if found.loader:
        best = max(found.loader, key=lambda ceiling: ceiling.units_per_s).workers
        alone = ranged(measured, lambda r: _loader_rate(r, best), numbers.number)
        workers = numbers.many(best, "worker")
        lines.append(f"The loader alone did up to {alone} {units}/s, with {workers}.")
    return lines


def _loader_rate(run: Run, workers: int) -> float | None:
    found = run.ceilings.loader if run.ceilings else ()
    return next((each.units_per_s for each in found if each.workers == workers), None)


# --- wasted work --------------------------------------------------------------------------


def wasted(run: Run) -> list[str]:
    """Padding, and numbers that are read from tensors."""
    lines = []
    share = run.effects.padding_share
    if share is not None and share >= numbers.WORTH_SAYING:
        compute = run.shares.compute
        most = f", at most {numbers.percent(share * compute)} of the time" if compute else ""
        lines.append(f"Padding fills {100 * share:.1f} % of the positions of its batches{most}.")
    points = [point for point in run.syncs if point.ms is None or _sync_share(run, point)]
    if not points:
        return lines
    sites = list(dict.fromkeys(point.site for point in points))
    shown = ", ".join(
        f"`{site}` ({'; '.join(_sync(run, point) for point in points if point.site == site)})"
        for site in sites[:MOST_SITES]
    )
    if (left := len(sites) - MOST_SITES) > 0:
        shown += f", and at {numbers.many(left, 'other line')}"
    if points[0].ms is not None:
        return [*lines, f"The host waits for the GPU at {shown}."]
    line = f"Numbers go from tensors to the host at {shown}. A CPU waits for nothing there; the "
    line += "host of a GPU would wait until all queued work is done."
    return [*lines, line]


def _sync(run: Run, point: SyncPoint) -> str:
    call = OPERATORS.get(point.call, f".{point.call}()")
    many = numbers.measure(point.per_step, 3)
    times = "once" if round(point.per_step, 1) == 1 else f"{many} times"
    text = f"`{call}`, {times} a step"
    if point.ms is None:
        return text
    each = numbers.duration(point.ms / 1000, 3)
    return f"{text}, {each} each, {numbers.percent(_sync_share(run, point))} of the time"


def _sync_share(run: Run, point: SyncPoint) -> float | None:
    """Share of the time that the host waits there.

    None where that is not known.
    """
    if point.ms is None or not run.step_ms:
        return None
    return min(1.0, point.per_step * point.ms / run.step_ms)
