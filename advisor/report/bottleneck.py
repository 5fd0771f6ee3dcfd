"""Bottleneck of equal runs, with measured evidence: ranges over processes."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from advisor import numbers
from advisor.machine.readings import GIB
from advisor.model import SAMPLER_FORWARDS, GpuProfile, Run, Shares, SyncPoint
from advisor.report.schema import Bottleneck

FEWEST = 2
"""Runs that a figure needs.

Judgement: one shows no range, by which a figure is told, and three would leave short calls without
any."""
WAITING = 0.10
"""Share of the window from which waiting for data is named.

Judgement: to end it gains 11 %; a smaller wait is tried all the same (`policy.MIN_WAIT_SHARE`)."""
WORTH_NAMING = 0.15
"""Share of the time that a bottleneck must take from a GPU.

Judgement: below, the card computes most of the time, and its own work is the better remedy."""
MOST_SITES = 4
"""Lines of the program at which the card waits that a diagnosis names."""
ALONE_FASTER = 1.1
"""Ratio by which the loader alone must be faster with another count of workers to speak for it.

Judgement: two readings of a second each differ by less on a quiet machine."""
GROWS_WITH = {
    "model": "the parameters",
    "gradients": "the parameters",
    "optimizer": "the parameters: twice for Adam, once for SGD with momentum",
    "activations": "batch, depth and input size; gradient checkpointing holds fewer",
}


class TimePart(NamedTuple):
    """Part of the time, in words."""

    name: str
    how: str
    """Means to shorten it."""


FASTER_LOADING = "faster transforms or storage"
PARTS = {
    "data_wait": TimePart("waiting for data", f"more loader workers, {FASTER_LOADING}"),
    "host_to_device": TimePart(
        "copying to the device with all waits behind it",
        "pinned, non-blocking copies or fewer bytes",
    ),
    "launch": TimePart(
        "launching small kernels", "compiling, CUDA graphs or a larger batch"
    ),
    "sync": TimePart(
        "synchronisation with the GPU", "fewer `.item()`, `.cpu()` and prints"
    ),
    "exchange": TimePart(
        "waiting for other ranks and exchanging with them",
        "a larger batch a rank, or an exchange only at updates (`no_sync`)",
    ),
    "compute": TimePart("compute", "a larger batch, a lower precision or compilation"),
    "other": TimePart(
        "host code between steps", "fewer conversions and prints, or worker processes"
    ),
    "saving": TimePart("saving", "rarer or asynchronous checkpoints"),
}
"""Words for each field of Shares."""
IDLE = ("data_wait", "host_to_device", "launch", "sync", "exchange", "other")
"""Fields of Shares in which a GPU had too little to do."""


def ranged(
    runs: Sequence[Run],
    figure: Callable[[Run], float | None],
    text_of: Callable[[float], str],
) -> str:
    """Range of a figure: `40 % to 43 %`, or `not measured`."""
    values = [value for run in runs if (value := figure(run)) is not None]
    if len(values) < len(runs):
        return numbers.NOT_MEASURED
    return " to ".join(dict.fromkeys((text_of(min(values)), text_of(max(values)))))


def typical(runs: Sequence[Run]) -> Run:
    """Mean run of equal ones, with the highest memory."""

    def values(name: str) -> list[Any]:
        return [getattr(run, name) for run in runs]

    def mean(of: Sequence[Any]) -> float | None:
        return None if None in of else statistics.fmean(of)

    measured = ("units_per_s", "tokens_per_s", "wait_share", "step_ms")
    facts: dict[str, Any] = {name: mean(values(name)) for name in measured}
    for name in ("peak_mem_gib", "peak_device_gib"):
        peaks = [gib for gib in values(name) if gib is not None]
        facts[name] = max(peaks, default=None)
    for name in ("flops", "footprint"):
        facts[name] = next(filter(None, values(name)), None)
    shares = {part: mean([getattr(run.shares, part) for run in runs]) for part in PARTS}
    return replace(runs[-1], shares=Shares(**shares), **facts)


def part_share(run: Run, part: str) -> float | None:
    """Share of one part; waiting falls back to the loader's own."""
    share: float | None = getattr(run.shares, part)
    return run.wait_share if share is None and part == "data_wait" else share


def part_name(run: Run, part: str) -> str:
    """Name of a field of Shares in `run`."""
    waits = part == "other" and run.on_gpu and run.shares.launch is None
    return PARTS[part].name + (", or waiting for the GPU" if waits else "")


def member(run: Run) -> str:
    """`rank`, or `process` without a process group."""
    return "rank" if (run.effects.group_size or 1) > 1 else "process"


def parts_of_time(runs: Sequence[Run]) -> list[str]:
    """Lines on parts of the time, with the largest gain without each.

    A share s gives at most 1 / (1 - s) (Amdahl); compute is at most twice as fast.
    """
    run, lines = typical(runs), []
    for name, share in largest_first(asdict(run.shares)):
        words = PARTS[name]
        how = loading_remedy(run) if name == "data_wait" else words.how
        line = f"{numbers.percent(share):>7}  {part_name(run, name)}"
        saved, speed = share, "without it"
        if name == "compute":
            saved, speed = share / 2, "at twice the speed"
        if numbers.WORTH_SAYING <= saved < 1:
            line += f": at most {numbers.ratio(1 / (1 - saved))} {speed}. Try {how}."
        lines.append(line)
    return lines


def loading_remedy(run: Run, *, more_workers: bool = True) -> str:
    """Means to shorten the waiting, by what the loader alone did with other counts of workers.

    The loader ran alone with at most as many workers as CPUs: a program with more is held against
    the most of those. More workers are named unless larger counts ran alone and were no faster, or
    `more_workers` is False. Fewer are named where the loader alone was faster with them, since to
    hand an item over may cost more than to read it. Without any worker the program loads between
    its steps: that speaks for fewer only if load and step in turn would be faster than it is now.
    """
    alone = {ceiling.workers: ceiling.units_per_s for ceiling in run.ceilings}
    workers = run.effects.workers
    ran = [count for count in alone if workers is not None and count <= workers]
    if not workers or not ran:
        return PARTS["data_wait"].how if more_workers else FASTER_LOADING
    reference = max(ran)
    threshold = ALONE_FASTER * alone[reference]
    fewer = [rate for count, rate in alone.items() if 0 < count < reference]
    more = [rate for count, rate in alone.items() if count > reference]
    is_flat = bool(more or fewer) and (
        max(more) < threshold if more else alone[reference] < ALONE_FASTER * max(fewer)
    )
    if without := alone.get(0):
        busy_s = (1 - (run.wait_share or 0.0)) / run.units_per_s
        if 1 / (busy_s + 1 / without) > run.units_per_s:
            fewer.append(without)
    if max(fewer, default=0.0) > max([threshold, *more]):
        return f"fewer loader workers, {FASTER_LOADING}"
    return PARTS["data_wait"].how if more_workers and not is_flat else FASTER_LOADING


def largest_first(shares: Mapping[str, float | None]) -> list[tuple[str, float]]:
    """Measured parts of the time, the largest first; equal ones in the order of PARTS."""
    of_parts = [(name, shares.get(name)) for name in PARTS]
    measured = [(name, share) for name, share in of_parts if share is not None]
    return sorted(measured, key=lambda part: -part[1])


def networks(run: Run) -> list[str]:
    """Lines of networks that take turns, with their shares."""
    lines = []
    for stage in run.stages:
        calls = f"{numbers.number(stage.calls_per_unit)} calls {numbers.one(run.unit)}"
        at_once = f", {numbers.count(stage.batch)} at once" if stage.batch else ""
        site = f" at {stage.site}" if stage.site else ""
        lines.append(
            f"{numbers.percent(stage.share):>7}  {stage.name}{site}: {calls}{at_once}"
        )
    return lines


def footprint_lines(run: Run) -> list[str]:
    """Lines of a step's peak memory, by part; none where unmeasured."""
    if run.footprint is None or not run.footprint.whole:
        return []
    return [
        f"{numbers.gib(size / GIB):>10}  {name} ({numbers.percent(size / run.footprint.whole)}; "
        f"grows with {GROWS_WITH[name]})"
        for name, size in asdict(run.footprint).items()
    ]


def diagnose(
    runs: Sequence[Run],
    *,
    profile: GpuProfile | None = None,
    more_workers: bool = True,
) -> Bottleneck | None:
    """Name the bottleneck of equal runs; None with fewer than two.

    `more_workers`: they may help, as far as is known.
    """
    if len(runs) < FEWEST:
        return None
    run = typical(runs)
    part = bottleneck_part(run)
    rate = ranged(runs, lambda run: run.units_per_s, numbers.number)
    rate = f"{rate} {numbers.plural(run.unit)}/s in {len(runs)} runs"
    forwards = run.effects.forwards_per_unit or 1.0
    if part is None:
        name, text = (
            "unknown",
            f"The parts could not be separated; the whole ran at {rate}.",
        )
    elif part == "compute" and forwards >= SAMPLER_FORWARDS:
        step = ranged(runs, lambda run: run.step_ms, _milliseconds)
        batch = numbers.count(run.effects.batch or 1)
        name = "sampling steps"
        text = (
            f"Each {run.unit} needs {forwards:.0f} forwards, and one of a batch of {batch} takes "
            f"{step}: their product is its time."
        )
    else:
        how = PARTS[part].how
        if part == "data_wait":
            how = loading_remedy(run, more_workers=more_workers)
        name, text = part, f"{_sentence(runs, run, part, rate)} Shorter by {how}."
        if part == "compute" and run.shares.launch is None:
            text += _waiting_too(runs, run, more_workers=more_workers)
    text += _padding(run)
    evidence = [*_step(run), *_waste(run), *_isolated(runs), *_device(run, profile)]
    return Bottleneck(name=name, sentence=text, evidence=evidence)


def _sentence(runs: Sequence[Run], run: Run, part: str, rate: str) -> str:
    by_events = run.shares.launch is not None
    bound = "at least " if by_events and part == "compute" else ""
    share = ranged(runs, lambda r: part_share(r, part), numbers.percent)
    name = part_name(run, part)
    text = f"{name[0].upper()}{name[1:]} takes {bound}{share} of the time, at {rate}."
    if by_events and part != "compute":
        worked = ranged(runs, lambda run: run.shares.compute, numbers.percent)
        text += f" The GPU computed during at least {worked}."
    return text + _driver_saw(runs) if by_events else text


def _driver_saw(runs: Sequence[Run]) -> str:
    """Sentence with NVML's figure: it sees kernels between launches, which events do not.

    It also takes a moment with a few short kernels for one of work, so neither is the other.
    None where others used the card, or the driver gave no figure.
    """
    utils = [run.telemetry.gpu_util_pct for run in runs if not run.telemetry.foreign_pids]
    if None in utils or len(utils) < len(runs):
        return ""
    seen = ranged(
        runs,
        lambda run: (run.telemetry.gpu_util_pct or 0.0) / 100,
        numbers.percent,
    )
    several = runs[0].ranks > 1  # its figure is of all cards, the shares are of one rank's
    return f" NVML saw {'the cards' if several else 'it'} at work in {seen}."


def _waiting_too(runs: Sequence[Run], run: Run, *, more_workers: bool) -> str:
    """Sentence on the waiting beside a larger part; empty where it is little."""
    if (run.wait_share or 0.0) < WAITING:
        return ""
    share = ranged(runs, lambda r: part_share(r, "data_wait"), numbers.percent)
    how = loading_remedy(run, more_workers=more_workers)
    return f" Waiting for data takes another {share}, shorter by {how}."


def bottleneck_part(run: Run) -> str | None:
    """Field of Shares that sets the rate; None for unknown parts.

    On a GPU: the part that starved it, if large or the card was idle half the time.
    """
    compute, other = run.shares.compute, run.shares.other
    if run.shares.launch is not None:
        lost = {name: part_share(run, name) or 0.0 for name in IDLE}
        worst = max(lost, key=lambda name: lost[name])
        mostly_idle = (compute or 0.0) < 0.5 and sum(lost.values()) > WAITING
        return worst if lost[worst] >= WORTH_NAMING or mostly_idle else "compute"
    waited = run.wait_share or 0.0
    if waited >= WAITING and (run.on_gpu or waited >= (compute or 0.0)):
        return "data_wait"
    # With work in flight the host may wait for a card that was not seen idle.
    util_pct = run.telemetry.gpu_util_pct
    host_waits = run.on_gpu and (util_pct is None or util_pct > 100 * (1 - WAITING) / 2)
    if other is not None and compute is not None and other > compute and not host_waits:
        return "other"
    return None if compute is None else "compute"


def _step(run: Run) -> Iterator[str]:
    """Lines on the length of a step, on ranks that do less, and on the one that comes late."""
    if run.step_ms is not None:
        facts = {"batch": run.effects.batch, "accumulation": run.effects.accumulation}
        listed = [
            f"{name} {numbers.count(value)}" for name, value in facts.items() if value
        ]
        if run.ranks > 1:
            listed.append(numbers.many(run.ranks, member(run)))
        beside = f" ({', '.join(listed)})" if listed else ""
        yield f"One {run.step_kind or 'step'} took {_milliseconds(run.step_ms)}{beside}."
    rates = run.rank_units_per_s
    if run.ranks > 1 and rates and min(rates) < max(rates) * (1 - numbers.WORTH_SAYING):
        slowest = (
            f"{member(run).capitalize()} {rates.index(min(rates))} does the least work"
        )
        yield f"{slowest}: {min(rates) / max(rates):.0%} of the rate of the one that does most."
    if late := run.straggler:
        on_card = run.shares.exchange is not None
        left_out = "without the exchange" if on_card else "outside of its backward pass"
        took = f"{_milliseconds(late.own_ms)} of a step {left_out}"
        yield (
            f"Rank {late.rank} holds the others up: {took}, {_milliseconds(late.others_ms)} on the "
            f"others. Most of that is {part_name(run, late.part)}. The shares are its own."
        )
    memory = run.rank_mem_gib
    if memory and min(memory) < max(memory) * (1 - numbers.WORTH_SAYING):
        yield f"Peak memory by rank: {', '.join(map(numbers.gib, memory))}."


def _milliseconds(value: float) -> str:
    return numbers.duration(value / 1000, 3)


def _padding(run: Run) -> str:
    """Sentence on positions without an item in them; empty where they are few."""
    padded = run.effects.padding_share or 0.0
    if padded < numbers.WORTH_SAYING:
        return ""
    return (
        f" Padding fills {100 * padded:.1f} % of the positions of its batches. Batches of items "
        "of like length (length bucketing) save that work."
    )


def _waste(run: Run) -> Iterator[str]:
    """Numbers read from tensors."""
    costly = [point for point in run.syncs if _share_of(run, point) >= numbers.WORTH_SAYING]
    if costly:
        sites = ", ".join(_sync_point(run, point) for point in costly[:MOST_SITES])
        yield f"The host waits for the GPU at {sites}."


def _share_of(run: Run, point: SyncPoint) -> float:
    """Share of the time in a waiting line; 1 where steps have no time."""
    return min(1.0, point.per_step * point.ms / run.step_ms) if run.step_ms else 1.0


def _sync_point(run: Run, point: SyncPoint) -> str:
    """``train.py:83` (`.item()`, 2 a step, 5.00 ms each, 4.0 % of the time)`."""
    often = f"{numbers.measure(point.per_step, 3)} a step"
    if point.per_step < 1:
        often = f"once in {numbers.number(round(1 / point.per_step))} steps"
    text = f"`{point.site}` (`.{point.call}()`, {often}"
    if run.step_ms:
        share = numbers.percent(_share_of(run, point))
        text += f", {_milliseconds(point.ms)} each, {share} of the time"
    return f"{text})"


def _isolated(runs: Sequence[Run]) -> Iterator[str]:
    """Rates of the loader alone; one slower than the whole bounds nothing."""
    slowest = min(run.units_per_s for run in runs)
    for workers in [ceiling.workers for ceiling in runs[-1].ceilings]:
        rates = [
            c.units_per_s for run in runs for c in run.ceilings if c.workers == workers
        ]
        if len(rates) == len(runs) and max(rates) >= slowest:
            span = " to ".join(dict.fromkeys(map(numbers.number, (min(rates), max(rates)))))
            units = numbers.plural(runs[-1].unit)
            many = numbers.many(workers, "worker")
            yield f"The loader alone, with {many}, did {span} {units}/s."


def _achieved(run: Run, tflops: float, profile: GpuProfile | None) -> str:
    """Sentence on the counted operations, beside what the data sheet says that the card can.

    The share is the time that the data sheet's rates need for them, each at the dtype it was
    computed in, over the time of the step. Convolutions run in TF32 by default, where matrix
    products of the same step do not: against one rate for both the share could pass 1.
    """
    text = "Matrix products, convolutions and attention came to"
    plain = f"{text} at least {numbers.measure(tflops, 3)} TFLOP/s, waits included"
    counted = dict(run.flops.by_dtype) if run.flops else {}
    if run.flops and not counted:  # of a record that did not tell them apart
        wide = run.effects.dtype == "float32" and run.effects.tf32
        dtype = "tf32" if wide else run.effects.dtype or ""
        counted = {dtype: run.flops.per_step or 0.0}
    rates = {dtype: _rate(profile, dtype) for dtype in counted} if profile else {}
    known_rates = {dtype: rate for dtype, rate in rates.items() if rate is not None}
    if profile is None or len(known_rates) < len(counted) or not run.step_ms:
        return f"{plain}."
    needed_s = sum(counted[dtype] / (rate * 1e12) for dtype, rate in known_rates.items())
    share = needed_s / (run.step_ms / 1000)
    if share < numbers.WORTH_SAYING:
        return f"{text} less than 1 % of what {profile.title} can, waits included."
    listed = " and ".join(f"{rate:g} at {dtype}" for dtype, rate in known_rates.items())
    return f"{plain}: {numbers.percent(share)} of what {profile.title} can ({listed})."


def _rate(profile: GpuProfile, dtype: str) -> float | None:
    """Peak TFLOP/s; a card without TF32 computes those products in float32."""
    return profile.tflops(dtype) or (profile.fp32_tflops if dtype == "tf32" else None)


def _device(run: Run, profile: GpuProfile | None) -> Iterator[str]:
    """Counted operations and clocks of the card; CPUs without one."""
    seen = run.telemetry
    if run.achieved_tflops is not None and run.on_gpu:
        yield _achieved(run, run.achieved_tflops, profile)
    if seen.gpu_util_pct is None and run.disturbance.own_cpus is not None:
        yield f"The program kept {run.disturbance.own_cpus:.1f} CPUs busy."
    for name, share_held in seen.event_reasons:
        if share_held > numbers.WORTH_SAYING:
            yield f"The GPU held its clocks down for {name} in {share_held:.0%} of the samples."
