"""Run of a trial, from the records of its processes and its output.

Rates of ranks add up, and rank 0 speaks for the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from advisor.analysis.events import NO_LOADER
from advisor.analysis.facts import typed
from advisor.model import TRAINING_STEPS, Ceilings, Effects, Run, RunPhase, Shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from advisor.analysis.measurement import Measured
    from advisor.model import MeasurePlan, Trial
    from advisor.runner.monitor import TrialExit
    from advisor.runner.process_records import ProcessRecord

T = TypeVar("T")

NOTHING = Run(
    trial_id="",
    purpose="",
    label="",
    unit="sample",
    units=0.0,
    units_per_s=0.0,
    rate_source="",
    window_start=0.0,
    window_end=0.0,
)
"""A run in which nothing was measured yet."""


class Rank(NamedTuple):
    """Working process or rank, with its window."""

    record: ProcessRecord
    window: Measured


def measured_run(trial: Trial, ending: TrialExit) -> Run | None:
    """Run by pattern, probe or whole run, or None.

    One trial always uses one way, because rates of two ways do not compare.
    """
    nothing = replace(NOTHING, unit=trial.unit)
    probed = probed_run(ending.processes, trial.plan, nothing)
    known = probed or nothing
    if trial.plan.unit_regex is not None:
        run = _counted(replace(known, unit=trial.unit), trial, ending)
    elif probed is not None and probed.units_per_s:
        run = probed
    elif trial.plan.mode == "whole" and ending.end == "exited" and ending.exit_code == 0:
        source = "time of the whole run: neither steps nor matching output lines were seen"
        run = _over_all(replace(known, unit="run"), ending, 1.0, source)
    else:
        return None
    if run is None:
        return None
    # sampled outside or self-reported; both count shared pages once
    host = max(ending.peak_host_gib or 0.0, run.peak_host_gib or 0.0) or None
    on_device = run.peak_device_gib is not None
    return replace(
        run,
        peak_host_gib=host,
        peak_mem_gib=run.peak_mem_gib if on_device else host,
        host_growth_gib_per_min=ending.host_growth_gib_per_min,
        phases=_to_the_end(run.phases, ending.wall_s),
    )


def _to_the_end(phases: Sequence[RunPhase], wall_s: float) -> tuple[RunPhase, ...]:
    """Add the time after the last event, so that the phases sum to the wall time."""
    inside = [phase for phase in phases if phase.name != "ending"]
    left_s = wall_s - sum(phase.seconds for phase in inside)
    ending = RunPhase(name="ending", seconds=max(0.0, left_s), times=1)
    return (*inside, ending) if inside else ()


def _counted(run: Run, trial: Trial, ending: TrialExit) -> Run | None:
    """Rate by matching output lines; None with too few.

    The first line ends work that began before anybody watched, so it only starts the clock. A
    single line counts for the whole run, if it finished.
    """
    marks, pattern = ending.count.marks, trial.plan.unit_regex
    if ending.count.lines >= 3 and marks[-1].time > marks[0].time:
        first, last = marks[0], marks[-1]
        units = last.units - first.units
        return replace(
            run,
            units=units,
            units_per_s=units / (last.time - first.time),
            rate_source=f"output lines that match {pattern!r}",
            window_start=first.time,
            window_end=last.time,
            windows=ending.count.rates,
        )
    if not marks or ending.end != "exited" or ending.wall_s <= 0:
        return None
    source = f"units of lines that match {pattern!r} over the time of the whole run"
    return _over_all(run, ending, marks[-1].units, source)


def _over_all(run: Run, ending: TrialExit, units: float, source: str) -> Run:
    return replace(
        run,
        units=units,
        units_per_s=units / ending.wall_s,
        rate_source=source,
        window_start=ending.started,
        window_end=ending.ended,
        windows=(),
    )


def probed_run(
    processes: Sequence[ProcessRecord], plan: MeasurePlan, nothing: Run = NOTHING
) -> Run | None:
    """Run as the probe measured it, or None."""
    able = [Rank(p, p.measured) for p in processes if p.measured is not None]
    if not able:
        return None
    ranks = _of_one_job(able)
    first, lead = ranks[0].record, ranks[0].window
    rates = tuple(rank.window.units_per_s for rank in ranks)
    silent = max(0, first.world_size - len(ranks))
    rate = sum(rates) * (1 + silent / len(ranks))
    counted = sum(rank.window.units / rank.window.seconds for rank in ranks)
    memories = [rank.record.memory for rank in ranks]
    allocated = max(_known(memory.allocated_gib for memory in memories), default=0.0)
    reserved = max(_known(memory.reserved_gib for memory in memories), default=None)
    host = sum(memory.host_gib for memory in memories) or None
    on_device = allocated > 0
    waits = _known(rank.window.wait_share for rank in ranks)
    starts = _known(process.boot_time for process in processes)
    steps = _known(rank.record.first_step_time for rank in ranks)
    return replace(
        nothing,
        units=counted * (1 + silent / len(ranks)) * lead.seconds,
        units_per_s=rate,
        unit=lead.unit or nothing.unit,
        tokens_per_s=_tokens_per_s(ranks),
        rate_source=lead.source,
        window_start=lead.window_start,
        window_end=lead.window_end,
        windows=tuple(map(sum, zip(*(rank.window.part_rates for rank in ranks), strict=False))),
        step_ms=lead.step_ms,
        step_kind=lead.kind,
        latency_p50_ms=lead.latency_p50_ms,
        latency_p95_ms=lead.latency_p95_ms,
        wait_share=sum(waits) / len(waits) if waits else None,
        shares=lead.shares or Shares(),
        stages=lead.stages,
        phases=_from_the_start(lead, starts) if len(ranks) == 1 else (),
        whole_units=sum(rank.window.whole_units for rank in ranks),
        peak_mem_gib=allocated if on_device else host,
        peak_host_gib=host,
        peak_device_gib=reserved if on_device else None,
        losses=first.losses,
        effects=_effects(ranks[0], len(ranks)),
        ceilings=_ceilings(ranks),
        flops=first.flops,
        syncs=first.measurement.syncs,
        footprint=first.footprint,
        trace=first.trace,
        whatif=first.whatif,
        cards=tuple(_known(rank.record.card for rank in ranks)),
        ranks=len(ranks),
        rank_units_per_s=rates if len(ranks) > 1 else (),
        startup_s=min(steps) - min(starts) if starts and steps else None,
        notes=tuple(dict.fromkeys(_notes(ranks, len(able) - len(ranks), plan))),
    )


def _from_the_start(window: Measured, starts: Sequence[float]) -> tuple[RunPhase, ...]:
    """Phases with the time to the first step; none where a start is not known."""
    if not starts or not window.phases:
        return ()
    start_s = max(0.0, window.first_step - min(starts))
    return (RunPhase(name="start", seconds=start_s, times=1), *window.phases)


def loader_effects(processes: Sequence[ProcessRecord]) -> Effects | None:
    """Return the loader of a failed program, or None."""
    began = [process for process in processes if process.measurement.loader != NO_LOADER]
    if not began:
        return None
    loader = max(began, key=lambda process: process.steps).measurement.loader
    workers = loader.workers if loader.iterated else None
    return Effects(batch_asked=typed(loader.arguments, "batch_size", int), workers=workers)


def _tokens_per_s(ranks: Sequence[Rank]) -> float | None:
    """Tokens per second of all ranks, padding excluded where known."""
    rates = []
    for rank in ranks:
        found, window = rank.record.measurement, rank.window
        tokens = found.loader.tokens_per_item or found.module.tokens_per_item
        if tokens is None or window.unit is not None:
            return None
        rates.append(tokens * window.units_per_s)
    return sum(rates)


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _ceilings(ranks: Sequence[Rank]) -> Ceilings | None:
    """Ceilings of a single process; one alone sets none for several."""
    alone = ranks[0].record.ceilings
    return Ceilings(loader=alone.loader) if alone is not None and len(ranks) == 1 else None


def _of_one_job(able: Sequence[Rank]) -> list[Rank]:
    """The working process, or all ranks in order.

    Training comes before inference, then the longer window.
    """
    best = max(able, key=lambda each: (each.window.kind in TRAINING_STEPS, each.window.seconds))
    ranks = [each for each in able if each is best or _side_by_side(each, best)]
    if best.record.world_size > 1:
        by_rank = {each.record.rank: each for each in ranks}
        ranks = [by_rank[number] for number in sorted(by_rank)]
    return ranks


def _side_by_side(one: Rank, best: Rank) -> bool:
    """Ranks of one job, or concurrent sibling processes."""
    mine, its = one.window, best.window
    world = best.record.world_size
    if mine.kind != its.kind or one.record.world_size != world:
        return False
    overlap = min(mine.window_end, its.window_end) - max(mine.window_start, its.window_start)
    together = overlap > min(mine.seconds, its.seconds) / 2
    return together and (world > 1 or one.record.ppid == best.record.ppid)


def _effects(rank: Rank, ranks: int) -> Effects:
    record, found = rank.record, rank.record.measurement
    loader, module, flags = found.loader, found.module, found.module.flags
    model_dtype, compute_dtype, autocast_dtype = (
        typed(flags, name, str) for name in ("model_dtype", "compute_dtype", "autocast_dtype")
    )
    if autocast_dtype is None and compute_dtype != model_dtype:
        autocast_dtype = compute_dtype  # entered inside the forward
    return Effects(
        batch=rank.window.batch,
        batch_asked=typed(loader.arguments, "batch_size", int),
        workers=loader.workers if loader.iterated else None,
        data_items=loader.pass_items,
        left_out=loader.left_out,
        padding_share=loader.padding_share,
        prefetch_factor=typed(loader.arguments, "prefetch_factor", int),
        persistent_workers=typed(loader.arguments, "persistent_workers", bool),
        pin_memory=typed(loader.arguments, "pin_memory", bool),
        loader_arguments=tuple(loader.arguments.items()),
        dtype=compute_dtype or autocast_dtype or model_dtype,
        autocast_dtype=autocast_dtype,
        tf32=typed(flags, "tf32", bool),
        cudnn_benchmark=typed(flags, "cudnn_benchmark", bool),
        threads=typed(flags, "threads", int),
        compiled=typed(flags, "compiled", bool),
        channels_last=typed(flags, "channels_last", bool),
        accumulation=found.accumulation,
        trains=found.trains,
        world_size=max(ranks, record.world_size),
        group_size=record.world_size,
        forwards_per_unit=rank.window.forwards_per_unit,
        input_shapes=module.shapes,
        device=typed(flags, "device", str),
        fused=record.fused,
        recomputes=record.recomputes,
        optimizers=record.optimizers,
        loader_passed=tuple(loader.passed.items()),
        loader_site=loader.site,
        model_site=module.site,
        inputs=module.inputs,
        outputs=module.outputs,
        arguments=tuple(record.arguments.items()),
        defaulted_arguments=record.defaulted,
    )


# --- notes for the reader -------------------------------------------------------------------


def _notes(ranks: Sequence[Rank], others: int, plan: MeasurePlan) -> Iterator[str]:
    if others:
        yield f"other processes that ran steps and were not counted: {others}"
    finished, wanted = max(rank.window.finished_batches for rank in ranks), plan.whole_batches
    if finished < wanted:
        yield f"{finished} batches were finished to the end, {wanted} were asked for"
    for record, window in ranks:
        if window.unit is not None:
            yield f"rates are in {window.unit}s: the samples of a step are not known"
        if window.shrunk_from is not None:
            yield (
                f"memory ran out at a batch of {window.shrunk_from:g}, and the program went "
                f"on with {window.batch:g} by itself: that is what was measured"
            )
        if retries := record.memory.alloc_retries:
            yield (
                f"the allocator gave cached blocks back and tried again {retries} times: the card "
                "is nearly full"
            )
        if times := record.skipped_updates:
            yield (
                f"the GradScaler skipped {times} of {record.steps + times} updates: their "
                "gradients were not finite in half precision"
            )
        yield from (*record.notes, *window.notes)
        if record.unread:
            yield f"parts of the record of process {record.pid} were left out: {record.unread}"
    world = ranks[0].record.world_size
    if len(ranks) < world:
        yield f"{len(ranks)} of {world} ranks have a window: the rate is {world} times their mean"
