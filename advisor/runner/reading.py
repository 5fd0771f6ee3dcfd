"""Conversion of process records to measured run fields."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from advisor.analysis.events import NO_LOADER
from advisor.model import (
    TRAINING_STEPS,
    Card,
    Ceilings,
    Effects,
    Flops,
    Footprint,
    Shares,
    Stage,
    SyncPoint,
    WhatIfOutcome,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.analysis.measurement import Measured
    from advisor.analysis.window_parts import Part
    from advisor.model import BatchPlace, MeasurePlan
    from advisor.model.kinds import JsonScalar
    from advisor.runner.records import ProcessRecord

    Flags = Mapping[str, JsonScalar]

T = TypeVar("T")

UNTOLD = {
    "token": "which dimension of its token ids is the batch",
    "step": "how many samples a step holds",
}
"""Why a unit is no sample."""
FORWARD = "root forward"
LOSSES_DIGESTED = 3
STRAGGLES = 0.05
"""Difference in the ranks' shares of backward, in which they wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Measured fields of an `advisor.model.Run`."""

    units: float
    units_per_s: float
    unit: str | None = None
    """`token` or `step` where samples are unknown; None: the trial's unit."""
    tokens_per_s: float | None = None
    rate_source: str
    window_start: float
    window_end: float
    parts: tuple[tuple[Part, ...], ...] = ()
    """Of each process' window, in the order of the ranks."""
    step_ms: float
    step_kind: str
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    wait_share: float | None = None
    shares: Shares = field(default_factory=Shares)
    stages: tuple[Stage, ...] = ()
    whole_units: float = 0.0
    peak_mem_gib: float | None = None
    peak_host_gib: float | None = None
    peak_device_gib: float | None = None
    """Memory reserved by the device allocator; None without a device."""
    alloc_retries: int | None = None
    losses: tuple[float, ...] = ()
    effects: Effects = field(default_factory=Effects)
    ceilings: Ceilings | None = None
    flops: Flops | None = None
    syncs: tuple[SyncPoint, ...] = ()
    footprint: Footprint | None = None
    whatif: WhatIfOutcome | None = None
    cards: tuple[Card, ...] = ()
    ranks: int = 1
    rank_units_per_s: tuple[float, ...] = ()
    startup_s: float | None = None
    """From the first process's start to the first step."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """Working process or rank, with its window."""

    record: ProcessRecord
    window: Measured


def read(processes: Sequence[ProcessRecord], plan: MeasurePlan) -> Reading | None:
    """Return one reading of all processes, or None.

    Rates of ranks add up, and rank 0 speaks for the rest.
    """
    able = [_Rank(record=p, window=p.measured) for p in processes if p.measured is not None]
    if not able:
        return None
    ranks = _of_one_job(able)
    first, lead = ranks[0].record, ranks[0].window
    rates = tuple(rank.window.units_per_s for rank in ranks)
    silent = max(0, first.world_size - len(ranks))
    rate = sum(rates) * (1 + silent / len(ranks))
    memories = [rank.record.memory for rank in ranks]
    allocated = max(_known(memory.allocated_gib for memory in memories), default=0.0)
    reserved = max(_known(memory.reserved_gib for memory in memories), default=None)
    host = sum(memory.host_gib for memory in memories) or None
    on_device = allocated > 0
    waits = _known(rank.window.wait_share for rank in ranks)
    starts = _known(process.boot_time for process in processes)
    steps = _known(rank.record.first_step_time for rank in ranks)
    return Reading(
        units=rate * lead.seconds,
        units_per_s=rate,
        unit=lead.unit,
        tokens_per_s=_tokens_per_s(ranks),
        rate_source=lead.source,
        window_start=lead.window_start,
        window_end=lead.window_end,
        parts=tuple(rank.window.parts for rank in ranks),
        step_ms=lead.step_ms,
        step_kind=lead.kind,
        latency_p50_ms=lead.latency_p50_ms,
        latency_p95_ms=lead.latency_p95_ms,
        wait_share=sum(waits) / len(waits) if waits else None,
        shares=lead.shares or Shares(),
        stages=lead.stages,
        whole_units=sum(rank.window.whole_units for rank in ranks),
        peak_mem_gib=allocated if on_device else host,
        peak_host_gib=host,
        peak_device_gib=reserved if on_device else None,
        alloc_retries=sum(_known(m.alloc_retries for m in memories)) if on_device else None,
        losses=first.losses,
        effects=_effects(ranks[0], len(ranks), plan.batch_at),
        ceilings=_ceilings(ranks),
        flops=first.flops,
        syncs=first.measurement.syncs,
        footprint=first.footprint,
        whatif=first.whatif,
        cards=tuple(_known(rank.record.card for rank in ranks)),
        ranks=len(ranks),
        rank_units_per_s=rates if len(ranks) > 1 else (),
        startup_s=min(steps) - min(starts) if starts and steps else None,
        notes=tuple(dict.fromkeys(_notes(ranks, len(able) - len(ranks), plan))),
    )


def glimpse(processes: Sequence[ProcessRecord]) -> Effects | None:
    """Return the loader of a failed program, or None."""
    began = [process for process in processes if process.measurement.loader != NO_LOADER]
    if not began:
        return None
    loader = max(began, key=lambda process: process.steps).measurement.loader
    workers = loader.workers if loader.iterated else None
    return Effects(batch_asked=loader.asked_batch, workers=workers)


def _tokens_per_s(ranks: Sequence[_Rank]) -> float | None:
    """Tokens per second of all ranks, padding excluded where known."""
    rates = []
    for rank in ranks:
        found, window = rank.record.measurement, rank.window
        tokens = found.loader.tokens_per_item or found.module.tokens_per_item
        each = 1.0 if window.unit == "token" else tokens if window.unit is None else None
        if each is None:
            return None
        rates.append(each * window.units_per_s)
    return sum(rates)


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _ceilings(ranks: Sequence[_Rank]) -> Ceilings | None:
    """Ceilings of a single process.

    Parts measured alone set no ceiling for several concurrent processes.

    One process alone sets no ceiling for several together.
    """
    alone, window = ranks[0].record.ceilings, ranks[0].window
    if alone is None or len(ranks) > 1:
        return None
    compute = alone.compute_units_per_s
    forward = window.kind == FORWARD  # of which no batch is replayed
    if compute is None and forward and window.wait_share is not None and window.wait_share < 1.0:
        compute = window.units_per_s / (1.0 - window.wait_share)  # the window without its waits
    return Ceilings(compute_units_per_s=compute, loader=alone.loader)


# --- which process was the workload --------------------------------------------------------


def _of_one_job(able: Sequence[_Rank]) -> list[_Rank]:
    """The working process, or all ranks in order.

    Training comes before inference, then the longer window.
    """
    best = max(able, key=lambda each: (each.window.kind in TRAINING_STEPS, each.window.seconds))
    ranks = [each for each in able if each is best or _side_by_side(each, best)]
    if best.record.world_size > 1:
        by_rank = {each.record.rank: each for each in ranks}
        ranks = [by_rank[number] for number in sorted(by_rank)]
    return ranks


def _side_by_side(one: _Rank, best: _Rank) -> bool:
    """Ranks of one job, or concurrent sibling processes."""
    mine, its = one.window, best.window
    world = best.record.world_size
    if mine.kind != its.kind or one.record.world_size != world:
        return False
    overlap = min(mine.window_end, its.window_end) - max(mine.window_start, its.window_start)
    together = overlap > min(mine.seconds, its.seconds) / 2
    return together and (world > 1 or one.record.ppid == best.record.ppid)


# --- what it did ---------------------------------------------------------------------------


def _effects(rank: _Rank, ranks: int, place: BatchPlace | None) -> Effects:
    record, found = rank.record, rank.record.measurement
    loader, module, flags = found.loader, found.module, found.module.flags
    model_dtype, compute_dtype = _text(flags, "model_dtype"), _text(flags, "compute_dtype")
    autocast_dtype = _text(flags, "autocast_dtype")
    if autocast_dtype is None and compute_dtype != model_dtype:
        autocast_dtype = compute_dtype  # entered inside the forward
    return Effects(
        batch=rank.window.batch,
        batch_asked=loader.asked_batch,
        workers=loader.workers if loader.iterated else None,
        data_items=loader.pass_items,
        left_out=loader.left_out,
        padding_share=loader.padding_share,
        prefetch_factor=loader.prefetch,
        persistent_workers=loader.persistent,
        pin_memory=loader.pinned,
        loader_arguments=tuple(loader.arguments.items()),
        dtype=compute_dtype or autocast_dtype or model_dtype,
        autocast_dtype=autocast_dtype,
        tf32=_switch(flags, "tf32"),
        cudnn_benchmark=_switch(flags, "cudnn_benchmark"),
        threads=_count(flags, "threads"),
        compiled=_switch(flags, "compiled"),
        channels_last=_switch(flags, "channels_last"),
        accumulation=found.accumulation,
        trains=record.trains,
        world_size=max(ranks, record.world_size),
        group_size=record.world_size,
        forwards_per_unit=rank.window.forwards_per_unit,
        input_shapes=module.shapes,
        input_dims=module.dims,
        batch_at=place,
        device=_text(flags, "device"),
        fused=record.fused,
        recomputes=record.recomputes,
        optimizers=record.learning.optimizers,
        learning_rates=record.learning.learning_rates,
        update_share=found.update_share,
        set_to_none=record.set_to_none,
        loader_passed=tuple(loader.passed.items()),
        loader_site=loader.site,
        model_site=module.site,
        fingerprint=fingerprint(module.outputs, record.losses),
        inputs=module.inputs,
        outputs=module.outputs,
        arguments=tuple(record.arguments.items()),
        defaulted_arguments=record.defaulted,
    )


def _text(flags: Flags, name: str) -> str | None:
    value = flags.get(name)
    return value if isinstance(value, str) else None


def _switch(flags: Flags, name: str) -> bool | None:
    value = flags.get(name)
    return value if isinstance(value, bool) else None


def _count(flags: Flags, name: str) -> int | None:
    value = flags.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def fingerprint(outputs: Sequence[Sequence[float]], losses: Sequence[float]) -> str | None:
    """Digest of first outputs and losses, rounded."""
    if not outputs and not losses:
        return None
    digest = hashlib.sha256()
    for value in (*(number for each in outputs for number in each), *losses[:LOSSES_DIGESTED]):
        digest.update(f"{value:.3g} ".encode())
    return digest.hexdigest()[:16]


# --- what a reader should know of it -------------------------------------------------------


def _notes(ranks: Sequence[_Rank], others: int, plan: MeasurePlan) -> Iterable[str]:
    if others:
        many = "1 other process" if others == 1 else f"{others} other processes"
        yield f"{many} ran steps too, not counted: less of the work, or at another time"
    finished = max(rank.window.finished_batches for rank in ranks)
    if finished < plan.whole_batches:
        wanted = plan.whole_batches
        yield f"{finished} batches were finished to the end, {wanted} were asked for"
    for rank in ranks:
        record, loader = rank.record, rank.record.measurement.loader
        tokens_per_item = rank.record.measurement.module.tokens_per_item
        if rank.window.unit is not None:
            what = UNTOLD[rank.window.unit]
            yield f"rates are in {rank.window.unit}s: {what} cannot be told from its layers"
        if loader.tokens_per_item is not None:
            rate = loader.tokens_per_item * rank.window.units_per_s
            tokens = f"{loader.tokens_per_item:.1f} tokens a unit"
            yield f"{tokens}, {rate:,.0f} tokens/s without padding"
        elif tokens_per_item is not None and rank.window.unit is None:
            rate = tokens_per_item * rank.window.units_per_s
            yield f"{tokens_per_item:g} tokens a sample, {rate:,.0f} tokens/s"
        if loader.padding_share:
            yield f"{loader.padding_share:.1%} of the positions of its batches were padding"
        if rank.window.shrunk_from is not None:
            yield (
                f"memory ran out at a batch of {rank.window.shrunk_from:g}, and the program went "
                f"on with {rank.window.batch:g} by itself: that is what was measured"
            )
        if record.skipped_updates:
            steps, times = record.steps, record.skipped_updates
            yield (
                f"the GradScaler skipped {times} of {steps + times} updates: their gradients were "
                "not finite in half precision"
            )
        yield from (*record.notes, *rank.window.notes)
        yield from record.ceilings.notes if record.ceilings and len(ranks) == 1 else ()
        if record.unread:
            yield f"left out of what the probe told of process {record.pid}: {record.unread}"
    world = ranks[0].record.world_size
    if len(ranks) < world:
        yield (
            f"{len(ranks)} of {world} ranks told of a window: the rate is {world} times their mean"
        )
    if len(ranks) > 1:
        yield from _of_ranks(ranks)


def _of_ranks(ranks: Sequence[_Rank]) -> Iterable[str]:
    """Loader workers against CPUs, and the slowest rank.

    Ranks that reduce gradients step together; the one that never waits in
    its backward is the one that the others wait for. On a GPU they wait in its stream, so there it
    is the one whose card works least.
    """
    if any(rank.record.ceilings for rank in ranks):
        yield f"no ceiling of a part is told: {len(ranks)} processes worked side by side"
    workers = [rank.record.measurement.loader.workers for rank in ranks]
    if any(workers):
        cpus = ranks[0].record.cpus
        each = f"{workers[0]} in each" if len(set(workers)) == 1 else ", ".join(map(str, workers))
        of = f"{len(ranks)} {'ranks' if ranks[0].record.world_size > 1 else 'processes'}"
        yield f"{sum(workers)} loader workers, {each} of {of}, on {cpus} CPUs"
    if ranks[0].record.world_size < 2:  # a single rank never waits
        return
    works = _known(rank.window.shares.compute for rank in ranks if rank.window.shares is not None)
    apart = all(r.window.shares is not None and r.window.shares.launch is not None for r in ranks)
    shares = works if apart else _known(rank.window.backward_share for rank in ranks)
    if len(shares) == len(ranks) and max(shares) - min(shares) >= STRAGGLES:
        slow, share = ranks[shares.index(min(shares))], max(shares) - min(shares)
        number = slow.record.rank
        yield f"rank {number} is the straggler: others wait for it {share:.0%} of the time"
