"""Run of a trial, put together from the records of its processes.

Rates and units of ranks add up. The shares of the time are those of the straggler, if there is
one. All else is taken from the first rank.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, TypeVar

from advisor import numbers
from advisor.analysis import trend
from advisor.analysis.measurement import NO_RUN
from advisor.model import (
    TRAINING_STEPS,
    UNFINISHED,
    Counted,
    Effects,
    Run,
    RunPhase,
    Straggler,
    Trial,
    WorkFacts,
)
from advisor.runner.monitor import TrialExit
from advisor.runner.process_records import ProcessRecord

T = TypeVar("T")
FROM_FIRST_RECORD = ("losses", "flops", "footprint", "trace", "overrides")
"""Fields of the first rank's record that enter the run as they are."""
TREND = 0.2
"""Change of the rate within a window, as a share of it, above which a note tells it.

Judgement: less is the noise of many hosts, and the note would stand on most of their runs."""
UNWRITTEN_BATCHES = 2
"""Last batches of a run whose results may still be on their way to the disk."""
WRITTEN_SHARE = 0.9
"""Share of all rows that left a result, less the rows of those batches."""
FEWEST_RESULTS = 8
"""Fewest files or entries that may prove that each row left a result.

Judgement: fewer may be there by chance, and prove nothing. More leaves short runs without proof."""
HELD_UP = 0.05
"""Share of a step by which a rank's own time exceeds the others' median, to be a straggler.

Judgement: at this bound all ranks would gain 5 % without it; less is noise between equal ranks."""


class Rank(NamedTuple):
    """Working process or rank, with its own run."""

    record: ProcessRecord
    run: Run

    @property
    def seconds(self) -> float:
        """Length of the window, validation included."""
        return self.run.window_end - self.run.window_start


def measured_run(trial: Trial, ending: TrialExit) -> Run | None:
    """Run of an ended trial; None where nothing gives it a rate.

    With a pattern in the plan only its output lines are counted, even where the probe saw steps:
    trials of one plan then have rates of one kind. Without one the rate is the probe's. A program
    that ran to its end in mode `whole` without such a rate is one unit, the whole run. Effects
    and shares are the probe's in each case.
    """
    run = probed_run(ending.processes)
    if trial.plan.unit_regex is not None:
        run = _counted(replace(run or NO_RUN, unit=trial.unit), trial, ending)
    elif run is not None and run.units_per_s:
        if run.unit == NO_RUN.unit:  # a plain sample goes by the user's name for it
            run = replace(run, unit=trial.unit)
    elif trial.plan.mode == "whole" and ending.end == "exited" and ending.exit_code == 0:
        source = "time of the whole run: neither steps nor matching output lines were seen"
        run = replace(run or NO_RUN, unit="run")
        run = _rated(run, 1.0, source, ending.started, ending.ended, "whole run")
    else:
        return None
    if run is None:
        return None
    return replace(
        run,
        peak_host_gib=ending.peak_host_gib,
        peak_mem_gib=ending.peak_host_gib if run.peak_mem_gib is None else run.peak_mem_gib,
        host_growth_gib_per_min=ending.host_growth_gib_per_min,
        phases=_whole_phases(run, ending.wall_s),
    )


def _whole_phases(run: Run, wall_s: float) -> tuple[RunPhase, ...]:
    """Phases of the whole process, whose seconds sum to `wall_s`; none for several ranks.

    The log begins with the first finished step and ends with the last event. The time before it
    is the phase `start`, and what is left at last is `ending`.
    """
    if run.ranks > 1 or run.startup_s is None or not run.phases:
        return ()
    start = RunPhase(name="start", seconds=max(0.0, run.startup_s), times=1)
    inside = [start, *(phase for phase in run.phases if phase.name != "ending")]
    left_s = wall_s - sum(phase.seconds for phase in inside)
    return (*inside, RunPhase(name="ending", seconds=max(0.0, left_s), times=1))


def _counted(run: Run, trial: Trial, ending: TrialExit) -> Run | None:
    """Rate by matching output lines; None with too few.

    The first line ends work begun unwatched, so it only starts the clock. A single line
    counts for the whole run, if it finished.
    """
    count, pattern = ending.count, trial.plan.unit_regex
    if count.lines >= 3 and count.seconds > 0:
        first, last = count.marks[0], count.marks[-1]
        source = f"output lines that match {pattern!r}"
        rated = _rated(run, last.value - first.value, source, first.time, last.time)
        return rated and replace(rated, windows=count.rates)
    if not count.lines or ending.end != "exited" or ending.wall_s <= 0:
        return None
    source = f"units of lines that match {pattern!r} over the time of the whole run"
    return _rated(run, count.marks[-1].value, source, ending.started, ending.ended)


def _rated(
    run: Run,
    units: float,
    source: str,
    start: float,
    end: float,
    counted: Counted = "output line",
) -> Run | None:
    """`run` with the rate of `units` from `start` to `end`; None where nothing was done."""
    if units <= 0 or end <= start:
        return None
    return replace(
        run,
        units=units,
        units_per_s=units / (end - start),
        rate_source=source,
        counted=counted,
        window_start=start,
        window_end=end,
        windows=(),
    )


def probed_run(processes: Sequence[ProcessRecord]) -> Run | None:
    """Run of a job from the records of its processes; None where none has a window.

    Rates and units add up over ranks. Of memory the largest counts, since the fullest card is
    the one that ends a larger batch. The shares are those of the rank that the others wait for:
    on the others that wait would be told as their own work. All else is rank 0's.
    """
    with_window = [
        Rank(process, process.measurement.run)
        for process in processes
        if process.measurement.run is not None
    ]
    # a clock far off makes one moment of a window's start and end
    with_window = [rank for rank in with_window if rank.seconds > 0]
    if not with_window:
        return None
    ranks = _of_one_job(with_window)
    lead, first = ranks[0], ranks[0].record
    rates = tuple(rank.run.units_per_s for rank in ranks)
    # ranks without a window worked too: those with one stand for them
    ranks_a_window = max(1.0, first.world_size / len(ranks))
    # windows differ in length: units are brought to the one of the lead, validation included
    done_per_s = sum(rank.run.units / rank.seconds for rank in ranks)
    straggler = _straggler(ranks)
    slowest = lead if straggler is None else ranks[straggler.rank]
    memory = _known(rank.record.memory.get("allocated_gib") for rank in ranks)
    tokens = _known(rank.run.tokens_per_s for rank in ranks)
    # of all processes: the start of a launcher is part of the job's
    starts = _known(process.boot_time for process in processes)
    first_step = min(rank.record.measurement.first_step for rank in ranks)
    of_one: dict[str, Any] = {"ceilings": first.ceilings}
    of_several = {"rank_units_per_s": rates, "rank_mem_gib": tuple(memory)}
    return replace(
        lead.run,
        units=done_per_s * ranks_a_window * lead.seconds,
        units_per_s=sum(rates) * ranks_a_window,
        tokens_per_s=sum(tokens) if len(tokens) == len(ranks) else None,
        windows=tuple(map(sum, zip(*(rank.run.windows for rank in ranks), strict=False))),
        wait_share=slowest.run.wait_share,
        shares=slowest.run.shares,
        whole_units=sum(rank.run.whole_units for rank in ranks),
        peak_mem_gib=_largest(memory),
        peak_device_gib=_largest(rank.record.memory.get("reserved_gib") for rank in ranks),
        effects=_effects(lead, ranks),
        work=_work(lead),
        cards=tuple(_known(rank.record.card for rank in ranks)),
        ranks=len(ranks),
        straggler=straggler,
        startup_s=first_step - min(starts) if starts else None,
        window_ended_s=lead.run.window_end - min(starts) if starts else None,
        notes=tuple(dict.fromkeys(_notes(ranks, len(with_window) - len(ranks)))),
        **{name: getattr(first, name) for name in FROM_FIRST_RECORD},
        **(of_one if len(ranks) == 1 else of_several),
    )


def _straggler(ranks: Sequence[Rank]) -> Straggler | None:
    """Rank that the others wait for at the end of each backward pass; None without one.

    Ranks that update together have steps of equal length. The one with most time of its own
    comes last and need not wait. That is known only where the parts of every rank's step are,
    so not of a job over several nodes, and told only from HELD_UP of a step on.
    """
    parts = [_parts_ms(rank) for rank in ranks if rank.record.together]
    if len(parts) < max(2, ranks[0].record.world_size) or not all(parts):
        return None
    own_ms = [sum(part.values()) for part in parts]
    last = own_ms.index(max(own_ms))
    others = [n for n in range(len(ranks)) if n != last]
    others_ms = statistics.median_high(own_ms[n] for n in others)
    if own_ms[last] - others_ms < HELD_UP * (ranks[last].run.step_ms or 0.0):
        return None
    more = {
        name: ms - statistics.median_high(parts[n].get(name, 0.0) for n in others)
        for name, ms in parts[last].items()
    }
    part = max(more, key=lambda name: more[name])
    return Straggler(rank=last, own_ms=own_ms[last], others_ms=others_ms, part=part)


def _parts_ms(rank: Rank) -> dict[str, float]:
    """Milliseconds of a step by part, without waiting for other ranks; empty if unknown.

    On a card that waiting is a part of its own. On CPUs it lies in the backward passes, which are
    left out.
    """
    run = rank.run
    if run.step_ms is None or run.backward_share is None:
        return {}
    by_part = {name: share or 0.0 for name, share in asdict(run.shares).items()}
    del by_part["exchange"]
    if run.shares.exchange is None:
        by_part["compute"] = max(0.0, by_part["compute"] - run.backward_share)
    return {name: share * run.step_ms for name, share in by_part.items()}


def failed_effects(processes: Sequence[ProcessRecord]) -> Effects | None:
    """Effects of a failed trial: those of its process with most steps; None if none told any."""
    telling = [process for process in processes if process.measurement.effects is not None]
    furthest = max(telling, key=lambda process: process.steps, default=None)
    return None if furthest is None else furthest.measurement.effects


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _largest(values: Iterable[float | None]) -> float | None:
    return max(_known(values), default=None)


def _of_one_job(with_window: Sequence[Rank]) -> list[Rank]:
    """Ranks that did the job, one process a rank, in order.

    They are the process with the longest window, training before inference, and those beside it.
    Without a process group, so many single processes.
    """
    best = max(
        with_window, key=lambda rank: (rank.run.step_kind in TRAINING_STEPS, rank.seconds)
    )
    ranks = [rank for rank in with_window if rank is best or _side_by_side(rank, best)]
    if best.record.world_size > 1:
        by_rank = {rank.record.rank: rank for rank in ranks}
        ranks = [by_rank[number] for number in sorted(by_rank)]
    return ranks


def _side_by_side(one: Rank, best: Rank) -> bool:
    """True for another rank of the same job: like steps, at the same time.

    Of processes without a group, those that one parent started.
    """
    world = best.record.world_size
    if one.run.step_kind != best.run.step_kind or one.record.world_size != world:
        return False
    overlap = min(one.run.window_end, best.run.window_end)
    overlap -= max(one.run.window_start, best.run.window_start)
    at_once = overlap > min(one.seconds, best.seconds) / 2
    return at_once and (world > 1 or one.record.ppid == best.record.ppid)


def _effects(lead: Rank, ranks: Sequence[Rank]) -> Effects:
    record, together = lead.record, lead.record.together
    batches = _known(rank.run.effects.batch for rank in ranks)
    return replace(
        lead.run.effects,
        world_size=max(len(ranks), record.world_size),
        group_size=record.world_size if together else 1,
        group_batch=statistics.fmean(batches) * record.world_size
        if together and batches
        else None,
        fused=record.fused,
        recomputes=record.recomputes,
        arguments=tuple(record.arguments.items()),
    )


def _work(lead: Rank) -> WorkFacts | None:
    """Work of the rank that speaks for all, with the samples of all in an update."""
    work, record = lead.run.work, lead.record
    if work is None:
        return None
    ranks = record.world_size if record.together else 1
    samples = None if work.update_samples is None else work.update_samples * ranks
    return replace(
        work,
        updates=record.work,
        update_samples=samples,
        items_ms=record.items_ms,
        items_alike=record.items_alike,
        limits=record.limits,
    )


def joined(runs: Sequence[Run]) -> Run:
    """Run of a job over several nodes, from the run of each node.

    `probed_run` let each node's ranks stand for all ranks of the job. So each run is an estimate
    of the whole, and units and rates are averaged by the number of ranks, not added.
    """
    first, ranks = runs[0], sum(run.ranks for run in runs)
    weights = [run.ranks for run in runs]
    # the run of a single rank keeps no rates by rank: it is its share of the whole
    rates = [run.rank_units_per_s or (run.units_per_s * run.ranks / ranks,) for run in runs]
    # each node remarks on the ranks of the others: that is said of all nodes together
    world = max(run.effects.world_size or ranks for run in runs)
    of_nodes = {_partial(run.ranks, world) for run in runs}
    notes = [note for run in runs for note in run.notes if note not in of_nodes]
    if ranks < world:
        notes.append(_partial(ranks, world))
    return replace(
        first,
        units=statistics.fmean((run.units for run in runs), weights),
        units_per_s=statistics.fmean((run.units_per_s for run in runs), weights),
        ranks=ranks,
        rank_units_per_s=sum(rates, ()),
        rank_mem_gib=sum((run.rank_mem_gib for run in runs), ()),
        peak_mem_gib=_largest(run.peak_mem_gib for run in runs),
        peak_device_gib=_largest(run.peak_device_gib for run in runs),
        peak_host_gib=_largest(run.peak_host_gib for run in runs),
        cards=sum((run.cards for run in runs), ()),
        notes=tuple(dict.fromkeys(notes)),
    )


def unfinished_note(counted: Counted) -> str:
    """Remark on a rate whose units no one saw finished."""
    return (
        f"rates are in {numbers.plural(counted)}: {UNFINISHED[counted]}; unit-regex in "
        "gpu-advisor.toml counts lines of output instead"
    )


def finished_by_results(run: Run, unit: str) -> Run:
    """Count rows of forwards as finished items, if each row left a result.

    A forward shows that a row was computed, not that an item was finished. A file for each row of
    the window shows that, or a result file with an entry for each row of the whole run.
    """
    if run.counted != "row of a forward":
        return run
    unwritten = UNWRITTEN_BATCHES * (run.effects.batch or 1.0)
    results_and_rows = [(run.files_in_window or 0, run.units)]
    results_and_rows += [(file.items, run.whole_units) for file in run.results]
    if not any(
        results >= max(FEWEST_RESULTS, WRITTEN_SHARE * rows - unwritten)
        for results, rows in results_and_rows
    ):
        return run
    return replace(
        run,
        unit=unit,
        counted="written item",
        rate_source="rows of forwards, each of which left a file or an entry",
        notes=tuple(note for note in run.notes if note != unfinished_note(run.counted)),
    )


def _partial(ranks: int, world: int) -> str:
    return f"{ranks} of {world} ranks have a window: the rate is {world} times their mean"


def _notes(ranks: Sequence[Rank], others: int) -> Iterator[str]:
    if others:
        yield f"other processes that ran steps and were not counted: {others}"
    for record, run in ranks:
        if run.counted in UNFINISHED:
            yield unfinished_note(run.counted)
        if record.shrunk_from is not None:
            yield (
                f"memory ran out at a batch of {record.shrunk_from:g}, and the program went "
                f"on with {run.effects.batch:g} by itself. That is what was measured"
            )
        if retries := record.memory.get("alloc_retries"):
            yield (
                f"the allocator gave cached blocks back and tried again {retries:g} times: the "
                "card is nearly full"
            )
        if times := record.skipped_updates:
            yield (
                f"the GradScaler skipped {times} of {record.steps + times} updates: their "
                "gradients were not finite in half precision"
            )
        if abs(changed := trend.change(run)) > TREND:
            yield (
                f"the rate {'rose' if changed > 0 else 'fell'} by {numbers.percent(abs(changed))} "
                "within the window: later items cost other than earlier ones, or it warms up"
            )
        yield from (*record.notes, *run.notes)
        if record.unread:
            yield f"parts of the record of process {record.pid} were left out: {record.unread}"
    world = ranks[0].record.world_size
    if len(ranks) < world:
        yield _partial(len(ranks), world)
