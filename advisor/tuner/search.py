"""Search of batch and workers together, guided by a model.

A slow loader hides a larger batch's gain, a small batch a loader's: both are one search.
It ends when no point promises more than a tie.

Each run is a fresh process of many seconds, so a run is chosen by what it may gain, by a model of
the rate (`throughput_model.py`), and not along a grid. The model only chooses what runs next, and
which of the runs ties: what is taken has itself run faster, and is proven later by rounds.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

from advisor import knobs, numbers
from advisor.analysis import trend
from advisor.executor.comparison import COLLAPSED
from advisor.executor.requests import TrialRequest, Variant
from advisor.machine.readings import GIB
from advisor.model import UNFINISHED, Candidate, Failure, Knob, Run, WorkDifference
from advisor.tuner import output_check, policy, run_length, same_work, sleeping_workers
from advisor.tuner.effects import (
    alters_training,
    is_ignored,
    is_only_suggested,
    set_ignored,
)
from advisor.tuner.state import (
    OUT_OF_TIME,
    LeftOut,
    Stage,
    TunerState,
    make_request,
    run_trial,
)
from advisor.tuner.throughput_model import Forecast, Point, fitted


class Ended(NamedTuple):
    """Why a search tried no larger batch."""

    cause: Literal["flat", "budget", "refused"]
    """refused: one failed, did other work or broke a bound."""
    why: str


FLAT = Ended("flat", "the rate is flat")
OUT_OF_BUDGET = Ended("budget", "the rest of the budget was kept for the proof")
OTHER_DRAWS = (
    " Where its random draws depend on the batch, items have other draws of the same"
    " distribution."
)

OTHER_ORDER = (
    " Items come in another order: mind it where results are written by their place."
)

GridPoint = tuple[int, int]
"""Batch and workers; 0: the knob is not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Runs and bounds of one search over batch and workers."""

    knobs: tuple[Knob | None, Knob | None]
    start: GridPoint
    runs: Mapping[GridPoint, tuple[Candidate, Run]]
    """Runs to choose from, and the start's."""
    points: tuple[Point, ...]
    """All runs, for the model."""
    loads: tuple[tuple[int, float], ...]
    """Units/s of the loader alone, by workers; empty for energy."""
    sigma: float
    most: int
    stop: Ended = FLAT
    workers_stop: str = ""
    """Why no other number of workers may be written; empty if they may."""
    refused: frozenset[GridPoint] = frozenset()

    def forecast(self, point: GridPoint) -> Forecast:
        model = fitted(self.points, self.loads, self.sigma)
        return model.at(batch_of(point), point[1])

    def without(self, point: GridPoint, why: str, *, larger: bool | None = None) -> Self:
        """Without `point`, or larger batches where it moved the batch."""
        larger = point[0] != self.start[0] if larger is None else larger
        grid = replace(self, refused=self.refused | {point})
        most = min(self.most, point[0] - 1)
        return replace(grid, most=most, stop=Ended("refused", why)) if larger else grid


def tune_batch_and_workers(state: TunerState) -> Stage:
    """Tune every batch knob and worker count, the first of both together.

    What may only be suggested is left for its own turn, which takes up again what is beside
    it: a batch gains with the workers, whoever writes either.
    """
    batches: list[Knob] = []
    for knob in state.tunable("batch_size"):
        if not is_count(state.current(knob)):
            reason = f"{str(knob.value)!r} is no plain count; it is left as it is."
            state = state.set_verdict(knob, "no-count", reason)
        elif unfinished := UNFINISHED.get(state.original.counted or "update"):
            reason = (
                f"Not tuned: {unfinished}. Count lines of output instead: set unit-regex in "
                "gpu-advisor.toml."
            )
            state = state.set_verdict(knob, "unfinished-items", reason)
        elif state.by_hand and state.context.workload.validation:
            reason = "Left as it is: the training may use it too, and its validation was measured."
            state = state.set_verdict(knob, "validation", reason)
        elif state.by_hand or not is_only_suggested(state, knob):
            batches.append(knob)
    workers = worker_knobs(state)
    for turn in batches:
        beside = workers.pop(0) if workers else None
        waited_for = beside is not None and state.waits and is_turn_of(state, beside)
        if is_turn_of(state, turn) or waited_for:
            state = yield from explore(state, turn, beside)
    return (yield from tune_workers(state, workers))


def is_turn_of(state: TunerState, knob: Knob) -> bool:
    """True unless only the user's settings are tuned now, and this one may be written.

    A batch has its turn again with items of like length: less padding, and a larger one pays.
    """
    if not state.by_hand or state.in_code(knob) or is_only_suggested(state, knob):
        return True
    is_grouped = any(change.kind == "length_grouping" for change in state.best.changes)
    return is_grouped and knob.kind == "batch_size"


def tune_workers(state: TunerState, workers: Sequence[Knob]) -> Stage:
    """Worker counts alone, while the program waits for data."""
    for knob in workers:
        if state.waits and is_turn_of(state, knob):
            state = yield from explore(state, None, knob)
    return state


def worker_knobs(state: TunerState) -> list[Knob]:
    return [k for k in state.tunable("num_workers") if is_count(state.current(k), least=0)]


def is_count(value: object, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def explore(state: TunerState, batch: Knob | None, workers: Knob | None) -> Stage:
    """Run promising points, then take the smallest that ties with the fastest.

    A run at half of its forecast is repeated once, as one stray run would hide the point for
    good. A point that failed, did other work or broke a bound is taken out, and larger batches
    with it where the batch was at fault.
    """
    length = run_length.length_of(state, batch) if batch is not None else None
    if batch is not None and length and "counters" not in state.context.workload.accept:
        state, by_batches = yield from run_length.counts_batches(state, length)
        if by_batches:
            state = state.set_verdict(
                batch, "counts-batches", run_length.why_kept(state, length, batch)
            )
            return (yield from explore(state, None, workers)) if workers else state
    grid = start_grid(state, batch, workers)
    while True:
        point, promise = most_promising(state, grid)
        if point is None:
            break
        candidate = candidate_at(state, grid, point)
        if isinstance(candidate, knobs.InvalidChange):
            grid = grid.without(point, plain_reason(candidate))
            continue
        request = request_at(state, grid, point, candidate)
        matters = promise > state.context.smallest_gain
        ahead = next_requests(state, grid, point)
        kept_s = kept_for_proof_s(state, grid)
        state, trial = yield from run_trial(
            state, request, kept_s=kept_s, matters=matters, ahead=ahead
        )
        if trial is not None and trial.run and is_outlier(state, grid, point, trial.run):
            again = replace(request, fresh=True, series="again")
            state, other = yield from run_trial(
                state, again, kept_s=kept_s, matters=matters
            )
            trial = other if other is not None and other.run else trial
        if trial is None:
            grid = replace(grid, stop=OUT_OF_BUDGET) if grid.stop.cause == "flat" else grid
            break
        run = trial.result
        if isinstance(run, Failure):
            why = f"{point[0]} failed: {run.kind}. {run.evidence}".rstrip(".")
            grid = grid.without(point, why)
            continue
        for knob in filter(None, grid.knobs):
            if is_ignored(knob, candidate, state.incumbent_run, run):
                state = set_ignored(state, knob, candidate, run)
                left = [None if each is knob else each for each in grid.knobs]
                return (yield from explore(state, *left)) if any(left) else state
        grid = replace(grid, points=(*grid.points, point_of(state, run, point)))
        differs = other_work(state, run)
        if differs is not None and differs.of_workers and point[1] != grid.start[1]:
            state = leave_out(state, request.variant, run, f". {differs.sentence}")
            why = f"{differs.sentence}{accepting(differs)}"
            grid = replace(grid.without(point, why, larger=False), workers_stop=why)
        elif why := refusal(state, point, candidate, run):
            why += moved_along(state, grid, point, differs)
            state = (
                state
                if differs is None
                else leave_out(state, request.variant, run, f". {why}.")
            )
            grid = grid.without(point, why)
        elif state.context.objective.broken(run):
            grid = outside_constraint(state, grid, point, run)
        else:
            grid = replace(grid, runs={**grid.runs, point: (candidate, run)})
    return conclude(state, grid)


def kept_for_proof_s(state: TunerState, grid: Grid) -> float:
    """Time kept beside the next trial; the whole proof's once a point was faster than the start."""
    start = grid.runs[grid.start][1]
    ahead = any(
        state.is_faster(grid.runs[point][1], start) for point in allowed_points(state, grid)
    )
    return state.search_reserve_s(found=state.is_unproven or ahead)


def moved_along(
    state: TunerState, grid: Grid, point: GridPoint, differs: WorkDifference | None
) -> str:
    """What else a batch moves that the user may want all the same; else empty."""
    if differs is None or differs.refused or point[0] <= grid.start[0]:
        return ""
    also = run_length.also_moves(state, point[0] / grid.start[0])
    return f".{also}".rstrip(".")


def request_at(
    state: TunerState, grid: Grid, point: GridPoint, candidate: Candidate
) -> TrialRequest:
    """Request of a point. A large batch's window takes longer, which its expected time tells."""
    request = make_request(state, Variant(candidate=candidate))
    return replace(request, expected_s=state.price_s + extra_s(state, grid, point))


def next_requests(
    state: TunerState, grid: Grid, point: GridPoint
) -> Iterator[TrialRequest]:
    """Requests that follow `point` if each runs as fast as hoped."""
    candidate = candidate_at(state, grid, point)
    while isinstance(candidate, Candidate):
        run = replace(grid.runs[grid.start][1], peak_mem_gib=None)
        hoped = grid.forecast(point)
        rate = math.exp(hoped.log_rate + hoped.sd)
        guess = grid.points[0]._replace(batch=batch_of(point), workers=point[1], rate=rate)
        runs = {**grid.runs, point: (candidate, run)}
        grid = replace(grid, runs=runs, points=(*grid.points, guess))
        following, _ = most_promising(state, grid)
        if following is None:
            return
        point, candidate = following, candidate_at(state, grid, following)
        if isinstance(candidate, Candidate):
            yield request_at(state, grid, point, candidate)


def start_grid(state: TunerState, batch: Knob | None, workers: Knob | None) -> Grid:
    """Grid around the present values, at which the incumbent has run already."""
    values = [state.current(knob) if knob is not None else 0 for knob in (batch, workers)]
    start = (int(str(values[0])), int(str(values[1])))
    loads = () if state.context.objective.metric.from_card else hoped_loads(state).items()
    grid = Grid(
        knobs=(batch, workers),
        start=start,
        runs={start: (state.best, state.incumbent_run)},
        points=tuple(point_of(state, run, start) for run in state.incumbent_runs),
        loads=tuple(sorted(loads)),
        sigma=state.noise / 2,
        most=largest_batch(state, state.incumbent_run, start[0]),
    )
    return outside_constraint(state, grid, start, state.incumbent_run)


def hoped_loads(state: TunerState) -> dict[int, float]:
    """The loader's units/s by workers: as it ran alone, else as much as workers may gain.

    A loader that deals its items by the config's own count fails alone at any other. Unknown is
    no proof of none: each worker up to the CPUs is then hoped to load as fast as one does, and
    the first trial tells. Nothing is hoped where the program does not wait for its data.
    """
    known, run = state.loader_alone, state.original
    own = run.effects.workers
    if own is None or not state.waits or any(each != own and each for each in known):
        return known
    waited = run.wait_share or 1.0
    alone = known.get(own) or (run.units_per_s if own else run.units_per_s / waited)
    hoped = {
        count: alone * count / max(own, 1) for count in range(1, state.context.cpus + 1)
    }
    return {**hoped, **known, own: alone}


def candidate_at(
    state: TunerState, grid: Grid, point: GridPoint
) -> Candidate | knobs.InvalidChange:
    """Best candidate with the values of `point`, or why they cannot be set together."""
    for knob, value in zip(grid.knobs, point, strict=True):
        if knob is not None and value != state.current(knob):
            moved = state.with_value(knob, value)
            if isinstance(moved, knobs.InvalidChange):
                return moved
            state = replace(state, best=moved)
    return state.best


def plain_reason(why: knobs.InvalidChange) -> str:
    return why.reason.rstrip(".")


def largest_batch(state: TunerState, run: Run, batch: int) -> int:
    """Largest batch that the data fill, by a run at `batch`; a training keeps a few steps."""
    most: int = max(1, batch) * 2**policy.MOST_DOUBLINGS
    items = state.original.effects.data_items
    if not items or not batch or run.effects.batch != batch:
        return most
    return max(
        batch, min(most, items // policy.FEWEST_STEPS_A_PASS if state.trains else items)
    )


def is_outlier(state: TunerState, grid: Grid, point: GridPoint, run: Run) -> bool:
    """True if at half its forecast, and not level with the start."""
    rate = math.log(state.context.objective.pace(run))
    is_level = abs(rate - math.log(grid.points[0].rate)) <= math.log1p(state.tie_threshold)
    return rate < grid.forecast(point).log_rate - math.log(COLLAPSED) and not is_level


def other_work(state: TunerState, run: Run) -> WorkDifference | None:
    """Worst way in which `run` did other work than the original; None if it did the same.

    What the user accepted is none. Where a change is only suggested, neither is what a larger
    batch does to a training: the suggestion names it.
    """
    accepted = state.context.workload.accept
    for each in same_work.differences(state.originals, run):
        is_named = state.by_hand and not each.refused and not each.of_workers
        if each.cause not in accepted and not is_named:
            return each
    return None


def unusable(state: TunerState, run: Run) -> str:
    """Reason against any candidate that ran so; else empty."""
    if run.way != state.original.way:
        return (
            f"was counted by {run.way}, the original by {state.original.way}: such rates do not "
            "compare"
        )
    return later_items(state, state.originals, run) or _unusable(state, run)


def later_items(state: TunerState, originals: Sequence[Run], run: Run) -> str:
    """Reason against a rate that cheaper items explain; else empty."""
    ahead = math.expm1(trend.head_start(originals, run))
    if ahead <= state.tie_threshold:
        return ""
    return (
        f"was measured on later items, which cost less: {numbers.percent(ahead)} of its rate may "
        "be theirs"
    )


def _unusable(state: TunerState, run: Run) -> str:
    """Reason against its results, or its memory; else empty."""
    if lost := output_check.output_regression(state.originals, run):
        return f"would change results. {lost}".rstrip(".")
    if other := other_work(state, run):
        return f"would do other work. {other.sentence}{accepting(other)}".rstrip(".")
    limit_gib = state.context.memory_limit_gib
    if (run.peak_mem_gib or 0.0) > limit_gib:
        return f"peaked at {run.peak_mem_gib:.2f} GiB, of {limit_gib:.2f} GiB usable"
    return ""


def accepting(other: WorkDifference) -> str:
    """How to have it all the same, if a user may want that."""
    if other.refused:
        return ""
    return f' To accept it: `accept = ["{other.cause}"]` in gpu-advisor.toml.'


def leave_out(
    state: TunerState, variant: Variant, run: Run, why: str, *, is_open: bool = False
) -> TunerState:
    """Keep a faster variant for the report, and the reason against it."""
    gain = state.gain_over_incumbent(run)
    if gain <= 1 + state.tie_threshold:
        return state
    entry = LeftOut(variant.label, gain, why, is_open)
    return replace(state, left_out=(*state.left_out, entry))


def refusal(state: TunerState, point: GridPoint, candidate: Candidate, run: Run) -> str:
    """Reason against choosing the candidate of `run`; else empty."""
    if why := unusable(state, run):
        return f"{point[0]} {why}"
    seen = run.effects.batch
    if seen is not None and seen < point[0]:
        return f"the program never filled a batch of {point[0]}: it saw {seen:g}"
    accepted = state.by_hand or "update-samples" in state.context.workload.accept
    if not accepted and alters_training(state, candidate, run):
        return f"{point[0]} would change the samples of each update"
    return ""


def outside_constraint(state: TunerState, grid: Grid, point: GridPoint, run: Run) -> Grid:
    """Without a point that breaks a constraint, or larger batches beyond it."""
    for each in state.context.objective.broken(run):
        seen = each.metric.read(run)
        shown = "not measured" if seen is None else f"{seen:.4g}"
        why = f"{point[0]} was outside of {each.text}: {shown}"
        larger = each.relation == "<=" and grid.knobs[0] is not None
        grid = replace(grid.without(point, why, larger=larger), stop=Ended("refused", why))
    return grid


def most_promising(state: TunerState, grid: Grid) -> tuple[GridPoint | None, float]:
    """Point to run next, and the gain expected of it; None where none is worth a process.

    Rules, of which the first that finds a point decides; points within the budget come first:

    1. The largest expected gain, if it is worth a process. Of its batch the config's own workers
       are taken, unless others promise more by that much. A first run moves one knob alone,
       where the budget holds a few more (`first_alone`).
    2. Twice the batch was all that ran, and showed nothing: a larger one, as noise hides what a
       doubling gains.
    3. The best moved both knobs: one of them alone, if it may be as fast. Else the gain of one
       would carry the other through its proof.
    4. Fewer workers than the best has, if they may tie.

    By rules 2 to 4 a point is worth seeing with no gain expected of it, which is told as 0.
    """
    ran = {point: worth(state, grid, point) for point in allowed_points(state, grid)}
    top = max((each.log_rate for each in ran.values()), default=-math.inf)
    new = {point: worth(state, grid, point) for point in grid_points(state, grid)}
    extras_s = {point: extra_s(state, grid, point) for point in new}
    most_s = policy.DEAREST_WINDOW * max(state.context.measure_s, state.price_s)
    new = {point: each for point, each in new.items() if extras_s[point] <= most_s}
    new = first_alone(state, grid, new, top)
    room_s = state.remaining_s - kept_for_proof_s(state, grid) - state.price_s
    gains = {point: each.improvement(max(top, -1e3)) for point, each in new.items()}
    fits = [point for point in new if extras_s[point] <= room_s]
    best = max(fits or new, key=lambda p: (gains[p], -p[0], -p[1]), default=None)
    if best is not None:  # other workers only where they promise more
        own, least = (best[0], grid.start[1]), tie(state)
        best = own if gains.get(own, 0.0) >= max(least, gains[best] - least) else best
        if gains[best] >= least:
            return best, gains[best]
    if not ran:
        return None, 0.0
    larger = [p for p in new if p[0] > 2 * grid.start[0] and p[1] == grid.start[1]]
    if larger and max(point[0] for point in grid.runs) == 2 * grid.start[0]:
        return max(larger), 0.0  # noise hides what twice the batch gains
    batch, most = level = smallest_level(state, grid, ran)
    for alone in filter(new.__contains__, moved_alone(grid, level)):
        hoped = new[alone]._replace(log_rate=new[alone].log_rate + new[alone].sd)
        if within_noise(state, hoped, ran[level]):
            return alone, 0.0
    fewer = (
        point for point in new if point[0] == batch and grid.start[1] <= point[1] < most
    )
    may_tie = [
        point for point in fewer if new[point].log_rate + new[point].sd >= top - tie(state)
    ]
    return min(may_tie, default=None), 0.0


def first_alone(
    state: TunerState, grid: Grid, new: dict[GridPoint, Forecast], top: float
) -> dict[GridPoint, Forecast]:
    """Before anything ran, the points that move one knob, if one of them promises a gain.

    A first run of a larger batch with more workers may be slow for either, and nobody could say
    for which. Where only both together promise anything, they need each other; where the budget
    holds few trials, what promises most has to be among them.
    """
    trials = (state.remaining_s - state.proof_s) / max(state.price_s, 1e-9)
    if trials < policy.ROOM_TO_LEARN or {*grid.runs, *grid.refused} - {grid.start}:
        return new
    alone = {p: each for p, each in new.items() if p in moved_alone(grid, p)}
    gains = any(each.improvement(max(top, -1e3)) >= tie(state) for each in alone.values())
    return alone if gains else new


def worth(state: TunerState, grid: Grid, point: GridPoint) -> Forecast:
    """Forecast by which points are compared: of a latency the rate of batches, else of units."""
    found = grid.forecast(point)
    if not state.context.objective.metric.of_batch:
        return found
    return found._replace(log_rate=found.log_rate - math.log(batch_of(point)))


def allowed_points(state: TunerState, grid: Grid) -> list[GridPoint]:
    """Points that ran inside every bound."""
    broken = state.context.objective.broken
    return [point for point, (_, run) in grid.runs.items() if not broken(run)]


def extra_s(state: TunerState, grid: Grid, point: GridPoint) -> float:
    """Time of the window at `point` beyond the usual."""
    run = grid.runs[grid.start][1]
    step_s = run.step_ms / 1000.0 if run.step_ms else batch_of(grid.start) / run.units_per_s
    usual_s = 1.5 * policy.MIN_STEPS * step_s
    slower = grid.forecast(grid.start).log_rate - grid.forecast(point).log_rate
    longer = math.exp(slower) * batch_of(point) / batch_of(grid.start)
    return max(0.0, longer * usual_s - max(usual_s, state.context.measure_s))


def smallest_level(
    state: TunerState, grid: Grid, ran: Mapping[GridPoint, Forecast]
) -> GridPoint:
    """Smallest point that ties with the best, down to the config's own."""
    top = max(each.log_rate for each in ran.values())
    level = [point for point, each in ran.items() if each.log_rate >= top - tie(state)]
    if state.context.objective.better_below(grid.runs[grid.start][1]):
        return min(level)
    above = [p for p in level if p[0] >= grid.start[0] and p[1] >= grid.start[1]]
    return min(above or level)


def grid_points(state: TunerState, grid: Grid) -> list[GridPoint]:
    """Points to try, without those that ran."""
    batch, workers = grid.start
    batches = [batch]
    if grid.knobs[0] is not None:
        batches = [batch * 2**n for n in range(policy.MOST_DOUBLINGS + 1)]
        if state.context.objective.better_below(grid.runs[grid.start][1]):
            batches += [batch >> n for n in range(1, batch.bit_length())]
    most = min(grid.most, policy.LARGEST_LEAP * max(point[0] for point in grid.runs))
    limit_gib = state.context.memory_limit_gib
    batches = [b for b in batches if b <= most and expected_gib(grid.runs, b) <= limit_gib]
    counts = {workers}
    if grid.knobs[1] is not None and not (grid.workers_stop or never_waits(grid)):
        counts |= worker_counts(state, workers)
    found = [(each, count) for each in {*batches, batch} for count in sorted(counts)]
    return [point for point in found if point not in {*grid.refused, *grid.runs}]


def never_waits(grid: Grid) -> bool:
    """True if another worker count ran, and no run waited for its data.

    No count shortens what nobody waits for. One other is tried all the same, as workers may take
    the CPUs that the model computes on; on a noisy machine four more were, for nothing.
    """
    tried = any(point[1] != grid.start[1] for point in grid.runs)
    waits = [run.wait_share for _, run in grid.runs.values()]
    return tried and all(
        wait is not None and wait <= policy.MIN_WAIT_SHARE for wait in waits
    )


def expected_gib(runs: Mapping[GridPoint, tuple[Candidate, Run]], batch: int) -> float:
    """Memory of a batch in GiB, grown as between the last two smaller peaks; 0 if it is tried.

    Of a single peak only the activations grow, where the run told them apart; else all of it.
    Twice the batch of a single peak is always tried: it is what tells how memory grows.
    """
    seen = {point[0]: run for point, (_, run) in sorted(runs.items())}
    known = [(each, run.peak_mem_gib) for each, run in seen.items() if run.peak_mem_gib]
    peaks = [(0, 0.0), *known]
    single = seen[peaks[-1][0]].footprint if len(peaks) == 2 else None
    if single is not None:
        peaks[0] = (0, peaks[1][1] - single.activations / GIB)
    last, high = peaks[-1]
    if batch <= last or len(peaks) == 1 or (len(peaks) == 2 and batch <= 2 * last):
        return 0.0
    before, low = peaks[-2]
    return high + max(0.0, (high - low) / (last - before)) * (batch - last)


def worker_counts(state: TunerState, current: object) -> set[int]:
    """Worker counts that may be as fast as the best."""
    cpus = state.context.cpus
    values = {0, 1, 2, cpus // 2, cpus - 1, cpus} | ({4, 8, 16} if cpus >= 8 else set())
    values = {v for v in values if 0 <= v <= cpus}
    values = (values | sleeping_workers.faster(state)) - {current}
    rates = state.loader_alone
    if state.context.has_gpu:
        # beside a GPU, a loader slower than the whole cannot make it faster
        values = {
            v for v in values if rates.get(v, math.inf) > state.incumbent_run.units_per_s
        }
    return values


def tie(state: TunerState) -> float:
    """Relative difference below which smoothed rates tie."""
    return max(policy.LEAST_LOG_GAIN, state.noise / 20)


def point_of(state: TunerState, run: Run, point: GridPoint) -> Point:
    """Model point of `run`, by its filled batch."""
    batch = min(run.effects.batch or math.inf, batch_of(point))
    share = 0.0 if state.context.objective.metric.from_card else run.wait_share or 0.0
    pace = state.context.objective.pace(run)
    return Point(batch=batch, workers=point[1], rate=pace, wait_share=share)


def batch_of(point: GridPoint) -> float:
    """Batch of a point; 1 if not moved."""
    return float(max(1, point[0]))


def conclude(state: TunerState, grid: Grid) -> TunerState:
    """Take the smallest point that ties with the fastest.

    Smaller batches and fewer workers leave room for other work, and are safer. Of points that moved
    both knobs and one, the one is taken where noise cannot tell them apart.
    """
    allowed = allowed_points(state, grid)
    if grid.start in allowed:  # a run, not only the model, must have been faster
        faster = (
            p for p in allowed if state.gain(grid.runs[p][1], grid.runs[grid.start][1]) > 1
        )
        allowed = [grid.start, *faster]
    hopeful = allowed or [grid.start]
    smooth = {point: worth(state, grid, point) for point in {*hopeful, grid.start}}
    chosen = smallest_level(state, grid, {point: smooth[point] for point in hopeful})
    alone = [each for each in moved_alone(grid, chosen) if each in allowed]
    enough = [each for each in alone if within_noise(state, smooth[each], smooth[chosen])]
    chosen = max(enough, key=lambda each: smooth[each].log_rate, default=chosen)
    gained = smooth[chosen].log_rate - smooth[grid.start].log_rate
    if grid.start in allowed and gained <= math.log1p(state.context.smallest_gain):
        chosen = grid.start
    if chosen != grid.start:
        state = state.adopt(*grid.runs[chosen])
    if grid.knobs[0] is not None:
        state = decide_batch(state, grid, grid.knobs[0], chosen)
    return decide_workers(state, grid, grid.knobs[1], chosen) if grid.knobs[1] else state


def moved_alone(grid: Grid, point: GridPoint) -> tuple[GridPoint, GridPoint]:
    """Points that move one knob: one's gain would carry the other through its proof."""
    return (point[0], grid.start[1]), (grid.start[0], point[1])


def within_noise(state: TunerState, one: Forecast, other: Forecast) -> bool:
    """True if `other` is faster than `one` by no more than noise."""
    least = max(state.context.smallest_gain, state.noise / 2)
    return other.log_rate - one.log_rate <= math.log1p(least)


def stop_reason(state: TunerState, grid: Grid) -> str:
    """Why no larger batch was tried, in words: data, memory, or what the runs showed."""
    beyond = 2 * max(point[0] for point in grid.runs)
    start = grid.runs[grid.start][1]
    flat = grid.stop.cause == "flat"
    if flat and beyond > largest_batch(state, start, grid.start[0]):
        return f"the dataset has {state.original.effects.data_items} items"
    needed_gib, limit_gib = expected_gib(grid.runs, beyond), state.context.memory_limit_gib
    if flat and needed_gib > limit_gib:
        return (
            f"{beyond} needs about {needed_gib:.2f} GiB by the peaks measured so far, more than "
            f"the {limit_gib:.2f} GiB usable"
        )
    return grid.stop.why


def ran_alone(grid: Grid, axis: int) -> bool:
    """True if two runs differ by their batch (axis 0) or workers (axis 1) only."""
    return any(
        one[axis] != other[axis] and one[1 - axis] == other[1 - axis]
        for one, other in itertools.combinations(grid.runs, 2)
    )


def decide_batch(
    state: TunerState, grid: Grid, knob: Knob, chosen: GridPoint
) -> TunerState:
    stop = stop_reason(state, grid)
    ended = f"The search stopped because {stop}."
    if chosen[0] != knob.value:
        draws = OTHER_DRAWS if state.iterative and not state.trains else ""
        fastest = "By the curve fitted to all runs, the smallest batch within a tie of the fastest."
        return state.set_verdict(knob, "faster", f"{fastest}{draws} {ended}")
    if len(grid.runs) == 1 and grid.stop.cause == "budget":
        known = state.verdict_on(knob)
        return state if known else state.set_verdict(knob, "out-of-budget", OUT_OF_TIME)
    tested = "No usable larger batch was faster"
    if len(grid.runs) > 1 and not ran_alone(grid, 0):
        tested = (
            "Larger batches ran only with other worker counts, and no such pair was faster"
        )
    reason = f"{tested} by more than {state.tie_percent}. {ended}"
    return state.set_verdict(knob, "not-faster", reason)


def rates_of_workers(state: TunerState, grid: Grid) -> str:
    """What runs of other worker counts showed, beside runs of the same batch; else empty."""
    shown = []
    for (batch, count), (_, run) in sorted(grid.runs.items()):
        beside = grid.runs.get((batch, grid.start[1]))
        if count != grid.start[1] and beside is not None:
            where = f" with batch {batch}" if grid.knobs[0] is not None else ""
            ratio = numbers.ratio(state.gain(run, beside[1]))
            shown.append(f"{numbers.many(count, 'worker')}{where} ran at {ratio}")
    return f" {'; '.join(shown)}." if shown else ""


def decide_workers(
    state: TunerState, grid: Grid, knob: Knob, chosen: GridPoint
) -> TunerState:
    if chosen[1] != knob.value:
        ran = ", ".join(map(str, sorted({point[1] for point in grid.runs})))
        reason = f"By the curve fitted to all runs, the smallest count as fast, of {ran} that ran."
        if not state.trains and same_work.is_reordered(
            state.original, grid.runs[chosen][1]
        ):
            reason += OTHER_ORDER
        if chosen[1] > state.context.cpus:
            cpus = numbers.many(state.context.cpus, "CPU")
            reason += (
                f" They sleep most of the time, so {cpus} serve more workers than that."
            )
        return state.set_verdict(knob, "faster", reason)
    if grid.workers_stop:
        return state.set_verdict(knob, "refuted", f"Not written: {grid.workers_stop}")
    if {point[1] for point in grid.runs} - {grid.start[1]}:
        tested = "No value tested was faster"
        if not ran_alone(grid, 1):
            tested = "Other counts ran only with other batches, and no such pair was faster"
        reason = (
            f"{tested} by more than {state.tie_percent}.{rates_of_workers(state, grid)}"
        )
        return state.set_verdict(knob, "not-faster", reason)
    if not state.waits:
        return state
    if state.skipped:
        return state.set_verdict(knob, "out-of-budget", OUT_OF_TIME)
    cpus = numbers.many(state.context.cpus, "CPU")
    reason = f"The program waits for data, and no other count promises more on {cpus}."
    return state.set_verdict(knob, "no-value-known", reason)
