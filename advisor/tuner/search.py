"""Search of batch and workers together, guided by a model.

A slow loader hides what a larger batch gains, and a small batch what a faster loader gains: so
both are one search. It ends when no point (a batch and a number of workers) promises more than a
tie.

Each run is a fresh process of many seconds. So points are not tried one after the other: the next
one is that which may gain most, by a model of the rate (`throughput_model.py`). The model only
chooses what runs next, and which of the runs tie: what is taken has itself run faster, and is
proven later by rounds.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

from advisor import knobs, numbers
from advisor.analysis import trend
from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.executor.rounds import COLLAPSED
from advisor.machine.readings import GIB
from advisor.model import UNFINISHED, Candidate, Failure, Knob, Run, WorkDifference
from advisor.tuner import (
    output_check,
    policy,
    reserves,
    run_length,
    same_work,
    sleeping_workers,
)
from advisor.tuner.effects import (
    alters_training,
    is_ignored,
    is_only_suggested,
    set_ignored,
)
from advisor.tuner.moves import with_value
from advisor.tuner.outcomes import OUT_OF_TIME, LeftOut, Objection
from advisor.tuner.same_work.items import is_reordered
from advisor.tuner.stages import Stage, Trials, make_request, run_trial
from advisor.tuner.state import TunerState
from advisor.tuner.throughput_model import Forecast, Point, fitted


class Ended(NamedTuple):
    """Why a search tried no larger batch."""

    cause: Literal["flat", "budget", "refused"]
    """flat: none promised more; budget: no time was left; refused: one failed, did other work or
    broke a bound."""
    clause: str
    """Clause for the report: `the rate is flat`."""


FLAT = Ended("flat", "the rate is flat")
OUT_OF_BUDGET = Ended("budget", "the rest of the budget was kept for the proof")
OTHER_DRAWS = (
    " Where its random draws depend on the batch, items have other draws of the same"
    " distribution."
)

OTHER_ORDER = (
    " Items come in another order: mind it where results are written by their place."
)


class GridPoint(NamedTuple):
    """Batch and number of workers that a trial can have; a batch of 0: no batch is searched."""

    batch: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Runs and bounds of one search over batch and workers."""

    knobs: tuple[Knob | None, Knob | None]
    """Knobs of batch and workers; None: that one is not searched."""
    start: GridPoint
    """Present values, with which the best so far has run."""
    runs: Mapping[GridPoint, tuple[Candidate, Run]]
    """Runs to choose from, and the start's, with their candidates."""
    points: tuple[Point, ...]
    """All runs as the model sees them, those of refused points too."""
    loads: tuple[tuple[int, float], ...]
    """Units/s of the loader alone, by workers; empty where none is known, or energy decides."""
    sigma: float
    """Relative standard deviation between equal processes."""
    batch_limit: int
    """Largest batch that may be tried."""
    on_cpus: bool = False
    """The model computes on the CPUs of the workers."""
    items: float = math.inf
    """Units of one pass over the data."""
    stop: Ended = FLAT
    """Why no larger batch is tried."""
    cut_short: bool = False
    """The budget had no room for a point that promised a gain."""
    workers_stop: str = ""
    """Why no other number of workers may be written; empty if they may."""
    refused: frozenset[GridPoint] = frozenset()
    """Points that are not tried again."""

    @property
    def start_run(self) -> Run:
        """Run of the best so far, at the start."""
        return self.runs[self.start][1]

    def forecast(self, point: GridPoint) -> Forecast:
        """Rate that the model expects at a point."""
        model = fitted(self.points, self.loads, self.sigma, items=self.items)
        return model.at(batch_of(point), point.workers)

    def without(self, point: GridPoint, clause: str, *, larger: bool | None = None) -> Self:
        """Grid in which `point` is refused, and if `larger` its batch and all larger ones.

        By default these are refused if the point moved the batch: then the batch was at fault.
        """
        larger = point.batch != self.start.batch if larger is None else larger
        grid = replace(self, refused=self.refused | {point})
        batch_limit = min(self.batch_limit, point.batch - 1)
        return (
            replace(grid, batch_limit=batch_limit, stop=Ended("refused", clause))
            if larger
            else grid
        )


def tune_batch_and_workers(state: TunerState) -> Stage:
    """Tune batches and numbers of workers in pairs, in their order; then the workers left over.

    A batch gains with the workers, whoever writes either. So where the batch is only suggested,
    in a later stage, the workers beside it are searched once more.
    """
    state, batches = batch_knobs(state)
    workers = worker_knobs(state)
    for turn in batches:
        beside = workers.pop(0) if workers else None
        waited_for = beside is not None and state.waits and is_turn_of(state, beside)
        if is_turn_of(state, turn) or waited_for:
            state = yield from explore(state, turn, beside)
    return (yield from tune_workers(state, workers))


def batch_knobs(state: TunerState) -> tuple[TunerState, list[Knob]]:
    """Batches to search in this stage, and the state with the reasons against others.

    One that may only be suggested is left for the stage of suggestions.
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
    return state, batches


def is_turn_of(state: TunerState, knob: Knob) -> bool:
    """True if `knob` is tuned in this stage: what can be written before what is only suggested.

    While suggestions are tuned (`by_hand`), a batch that was tuned before has another turn once
    batches hold items of like length: with less padding a larger one may pay.
    """
    if not state.by_hand or state.in_code(knob) or is_only_suggested(state, knob):
        return True
    is_grouped = any(change.kind == "length_grouping" for change in state.best.changes)
    return is_grouped and knob.kind == "batch_size"


def tune_workers(state: TunerState, workers: Sequence[Knob]) -> Stage:
    """Tune numbers of workers without a batch, while the program waits for its data."""
    for knob in workers:
        if state.waits and is_turn_of(state, knob):
            state = yield from explore(state, None, knob)
    return state


def tune_all_workers(state: TunerState) -> Stage:
    """Tune every number of workers, each at the present batch."""
    return (yield from tune_workers(state, worker_knobs(state)))


def worker_knobs(state: TunerState) -> list[Knob]:
    """Knobs of loader workers whose value is a plain count."""
    return [
        k for k in state.tunable("num_workers") if is_count(state.current(k), minimum=0)
    ]


def is_count(value: object, minimum: int = 1) -> bool:
    """True for a whole number of at least `minimum`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def explore(state: TunerState, batch: Knob | None, workers: Knob | None) -> Stage:
    """Run promising points, then take the smallest that ties with the fastest.

    A point that failed, did other work or broke a bound is taken out, and larger batches with it
    where the batch was at fault. The search begins anew without a knob that the program ignores,
    and without a batch that would change how many samples the whole run sees.
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
        state, trial = yield from run_point(state, grid, point, candidate, promise)
        if trial is None:
            stop = OUT_OF_BUDGET if grid.stop.cause == "flat" else grid.stop
            grid = replace(grid, stop=stop, cut_short=True)
            break
        run = trial.result
        if isinstance(run, Failure):
            clause = f"{point.batch} failed: {run.kind}. {run.evidence}".rstrip(".")
            grid = grid.without(point, clause)
            continue
        for knob in filter(None, grid.knobs):
            if is_ignored(knob, candidate, state.incumbent_run, run):
                state = set_ignored(state, knob, candidate, run)
                left = [None if other is knob else other for other in grid.knobs]
                return (yield from explore(state, *left)) if any(left) else state
        state, grid = with_run(state, grid, point, candidate, run)
    return conclude(state, grid)


def run_point(
    state: TunerState, grid: Grid, point: GridPoint, candidate: Candidate, promise: float
) -> Trials[TrialResult | None]:
    """Run `candidate` at `point`; None if the budget has no room. `promise`: the gain expected.

    A run at half of its forecast is repeated once, as one stray run would hide the point for good.
    """
    request = request_at(state, grid, point, candidate)
    matters = promise > state.context.smallest_gain
    ahead = next_requests(state, grid, point)
    kept_s = kept_for_proof_s(state, grid) + own_proof_s(extra_s(state, grid, point))
    state, trial = yield from run_trial(
        state, request, kept_s=kept_s, matters=matters, ahead=ahead
    )
    if trial is None or trial.run is None or not is_outlier(state, grid, point, trial.run):
        return state, trial
    again = replace(request, fresh=True, series="again")
    state, other = yield from run_trial(state, again, kept_s=kept_s, matters=matters)
    ran_again = other is not None and other.run is not None
    return state, other if ran_again else trial


def with_run(
    state: TunerState, grid: Grid, point: GridPoint, candidate: Candidate, run: Run
) -> tuple[TunerState, Grid]:
    """State and grid after `run` at `point`: one to choose from, or refused with its reason.

    Other work that comes of the workers refuses other numbers of them; any other reason speaks
    against the batch.
    """
    variant = Variant(candidate=candidate)
    if is_counted_alike(state, run):  # else its rate would bend the model
        grid = replace(grid, points=(*grid.points, point_of(state, run, point)))
    differs = other_work(state, run)
    moved_workers = point.workers != grid.start.workers
    if differs is not None and differs.of_workers and moved_workers:
        against = Objection("other-work", f". {differs.sentence}")
        state = leave_out(state, variant, run, against)
        clause = f"{differs.sentence}{accepting(differs)}"
        return state, replace(
            grid.without(point, clause, larger=False), workers_stop=clause
        )
    if refused := refusal(state, point, candidate, run):
        clause = refused.clause + moved_along(state, grid, point, differs)
        if differs is not None:
            state = leave_out(state, variant, run, Objection(refused.cause, f". {clause}."))
        return state, grid.without(point, clause)
    if state.context.objective.broken(run):
        return state, outside_constraint(state, grid, point, run)
    return state, replace(grid, runs={**grid.runs, point: (candidate, run)})


def kept_for_proof_s(state: TunerState, grid: Grid) -> float:
    """Seconds kept beside the next trial: for a whole proof once a point was faster than start."""
    to_prove = state.is_unproven or any(
        state.is_faster(grid.runs[point][1], grid.start_run)
        for point in allowed_points(state, grid)
    )
    return reserves.search_reserve_s(state, to_prove=to_prove)


def own_proof_s(extra_s: float) -> float:
    """Seconds that the fewest rounds of a point take beyond usual ones.

    Its processes take `extra_s` more each: a window has so many batches, however large they are.
    """
    return policy.FEWEST_ROUNDS * policy.ROUND_FACTOR * extra_s


def moved_along(
    state: TunerState, grid: Grid, point: GridPoint, differs: WorkDifference | None
) -> str:
    """Sentence on settings that would have to move with a larger batch; empty if none.

    It is told of a batch whose work differs in a way that the user may accept.
    """
    if differs is None or differs.refused or point.batch <= grid.start.batch:
        return ""
    also = run_length.also_moves(state, point.batch / grid.start.batch)
    return f".{also}".rstrip(".")


def request_at(
    state: TunerState, grid: Grid, point: GridPoint, candidate: Candidate
) -> TrialRequest:
    """Request of a trial at `point`, whose expected time holds a large batch's longer window."""
    request = make_request(state, Variant(candidate=candidate))
    return replace(request, expected_s=state.costs.price_s + extra_s(state, grid, point))


def next_requests(
    state: TunerState, grid: Grid, point: GridPoint
) -> Iterator[TrialRequest]:
    """Requests that follow `point` if each runs as fast as may be hoped.

    They are guesses, for further cards that would else wait.
    """
    candidate = candidate_at(state, grid, point)
    while isinstance(candidate, Candidate):
        run = replace(grid.start_run, peak_mem_gib=None)  # which no guess tells
        hoped = upper_end(grid.forecast(point))
        rate = math.exp(hoped.log_rate)
        guess = grid.points[0]._replace(
            batch=batch_of(point), workers=point.workers, rate=rate
        )
        runs = {**grid.runs, point: (candidate, run)}
        grid = replace(grid, runs=runs, points=(*grid.points, guess))
        following, _ = most_promising(state, grid)
        if following is None:
            return
        point, candidate = following, candidate_at(state, grid, following)
        if isinstance(candidate, Candidate):
            yield request_at(state, grid, point, candidate)


def start_grid(state: TunerState, batch: Knob | None, workers: Knob | None) -> Grid:
    """Grid that begins at the present values, with which the best so far has run."""
    values = [state.current(knob) if knob is not None else 0 for knob in (batch, workers)]
    start = GridPoint(*(int(str(value)) for value in values))
    loads = () if state.context.objective.metric.from_card else hoped_loads(state).items()
    grid = Grid(
        knobs=(batch, workers),
        start=start,
        runs={start: (state.best, state.incumbent_run)},
        points=tuple(point_of(state, run, start) for run in state.incumbent_runs),
        loads=tuple(sorted(loads)),
        sigma=state.noise / 2,  # noise is twice the standard deviation
        batch_limit=largest_batch(state, state.incumbent_run, start.batch),
        on_cpus=state.computes_on_cpus,
        items=state.original.effects.data_items or math.inf,
    )
    return outside_constraint(state, grid, start, state.incumbent_run)


def hoped_loads(state: TunerState) -> dict[int, float]:
    """The loader's units/s by number of workers: as it ran alone, else as much as may be hoped.

    A loader that deals its items by the config's own count fails alone at any other. What is not
    known may still gain: each worker up to the CPUs is then hoped to load as fast as one does, and
    the first trial tells. Nothing is hoped where the program does not wait for its data.
    """
    alone, run = state.loader_alone, state.original
    workers = run.effects.workers
    ran_at_other_counts = any(count not in {0, workers} for count in alone)
    if workers is None or not state.waits or ran_at_other_counts:
        return alone
    # without workers it loads only while the program waits; at its whole rate, if it never did
    loading_share = run.wait_share if run.wait_share and not workers else 1.0
    own_rate = alone.get(workers) or run.units_per_s / loading_share
    hoped = {
        count: own_rate * count / max(workers, 1)
        for count in range(1, state.context.cpus + 1)
    }
    return {**hoped, **alone, workers: own_rate}


def candidate_at(
    state: TunerState, grid: Grid, point: GridPoint
) -> Candidate | knobs.InvalidChange:
    """Best candidate so far with the values of `point`, or why they cannot be set together."""
    for knob, value in zip(grid.knobs, point, strict=True):
        if knob is not None and value != state.current(knob):
            moved = with_value(state, knob, value)
            if isinstance(moved, knobs.InvalidChange):
                return moved
            state = replace(state, best=moved)
    return state.best


def plain_reason(obstacle: knobs.InvalidChange) -> str:
    """Why a change is impossible, as a clause without a full stop."""
    return obstacle.reason.rstrip(".")


def largest_batch(state: TunerState, run: Run, batch: int) -> int:
    """Largest batch that a search may try: the data fill it, and a training keeps a few steps.

    The data bound it only if `run`, at `batch`, had as many items in a batch as that says.
    """
    limit: int = max(1, batch) * 2**policy.MOST_DOUBLINGS
    items = state.original.effects.data_items
    if not items or not batch or run.effects.batch != batch:
        return limit
    most_filled = items // policy.FEWEST_STEPS_A_PASS if state.trains else items
    return max(batch, min(limit, most_filled))


def is_outlier(state: TunerState, grid: Grid, point: GridPoint, run: Run) -> bool:
    """True if `run` is below half its forecast, and not level with the start.

    What was counted otherwise has a rate of something else, and would have it once more.
    """
    if not is_counted_alike(state, run):
        return False
    log_rate = math.log(state.context.objective.pace(run))
    from_start = abs(log_rate - math.log(grid.points[0].rate))
    is_level = from_start <= math.log1p(state.tie_threshold)
    collapsed = log_rate < grid.forecast(point).log_rate - math.log(COLLAPSED)
    return collapsed and not is_level


def other_work(state: TunerState, run: Run) -> WorkDifference | None:
    """Worst way in which `run` did other work than the original; None if it did the same.

    What the user accepted is none. Where a change is only suggested, neither is what a larger
    batch does to a training: the suggestion names it.
    """
    accepted = state.context.workload.accept
    for difference in same_work.differences(state.originals, run):
        is_users_choice = not difference.refused and not difference.of_workers
        is_named = state.by_hand and is_users_choice
        if difference.cause not in accepted and not is_named:
            return difference
    return None


def is_counted_alike(state: TunerState, run: Run) -> bool:
    """True if the rate of `run` counts what the original's does, so that they compare."""
    return run.way == state.original.way


def unusable(state: TunerState, run: Run) -> Objection | None:
    """What is against any candidate that ran so, whatever its rate; its clause follows `it`.

    Its rate does not compare, its results or work differ, or it takes too much memory.
    """
    if not is_counted_alike(state, run):
        clause = f"was counted by {run.way}, the original by {state.original.way}"
        return Objection("other-counting", f"{clause}: such rates do not compare")
    if later := later_items(state, state.originals, run):
        return Objection("later-items", later)
    if lost := output_check.output_regression(state.originals, run):
        return Objection("other-results", f"would change results. {lost}".rstrip("."))
    if other := other_work(state, run):
        clause = f"would do other work. {other.sentence}{accepting(other)}"
        return Objection("other-work", clause.rstrip("."))
    limit_gib = state.context.memory_limit_gib
    if (run.peak_mem_gib or 0.0) > limit_gib:
        clause = f"peaked at {run.peak_mem_gib:.2f} GiB, of {limit_gib:.2f} GiB usable"
        return Objection("too-much-memory", clause)
    return None


def later_items(state: TunerState, originals: Sequence[Run], run: Run) -> str:
    """Reason against a rate that cheaper items explain; empty if they do not.

    A run may have come further in data that are sorted by cost.
    """
    owed = math.expm1(trend.head_start(originals, run))
    if owed <= state.tie_threshold:
        return ""
    return (
        f"was measured on later items, which cost less: {numbers.percent(owed)} of its rate may "
        "be theirs"
    )


def accepting(other: WorkDifference) -> str:
    """Sentence on how to accept other work; empty where a user may not."""
    if other.refused:
        return ""
    return f' To accept it: `accept = ["{other.cause}"]` in gpu-advisor.toml.'


def leave_out(
    state: TunerState,
    variant: Variant,
    run: Run,
    against: Objection,
    *,
    is_open: bool = False,
) -> TunerState:
    """State that keeps a variant for the report if it was faster, with the reason against it.

    The reason follows `in one run`, so it begins with its punctuation. `is_open`: more runs could
    still judge its results.
    """
    gain = state.gain_over_incumbent(run)
    if gain <= 1 + state.tie_threshold:
        return state
    entry = LeftOut(variant.label, gain, against.cause, against.clause, is_open)
    return replace(state, left_out=(*state.left_out, entry))


def refusal(
    state: TunerState, point: GridPoint, candidate: Candidate, run: Run
) -> Objection | None:
    """What is against choosing the candidate that ran as `run` at `point`, as a clause."""
    if against := unusable(state, run):
        return against._replace(clause=f"{point.batch or candidate.label} {against.clause}")
    seen = run.effects.batch
    if seen is not None and seen < point.batch:
        clause = f"the program never filled a batch of {point.batch}: it saw {seen:g}"
        return Objection("unfilled-batch", clause)
    accepted = state.by_hand or "update-samples" in state.context.workload.accept
    if not accepted and alters_training(state, candidate, run):
        clause = f"{point.batch} would change the samples of each update"
        return Objection("other-work", clause)
    return None


def outside_constraint(state: TunerState, grid: Grid, point: GridPoint, run: Run) -> Grid:
    """Grid without `point` if it breaks a constraint.

    What has an upper bound, such as memory, is taken to grow with the batch: beyond one, larger
    batches are refused too.
    """
    for constraint in state.context.objective.broken(run):
        figure = constraint.metric.read(run)
        text = "not measured" if figure is None else f"{figure:.4g}"
        clause = f"{point.batch} was outside of {constraint.text}: {text}"
        larger = constraint.relation == "<=" and grid.knobs[0] is not None
        grid = replace(
            grid.without(point, clause, larger=larger), stop=Ended("refused", clause)
        )
    return grid


NOTHING_RAN = -1e3
"""Log rate that stands for the best one where no point may be chosen yet: finite, and below all.

Judgement: -745, the logarithm of the smallest positive float, is above it. Minus infinity would
make all gains infinite, and so alike."""


def most_promising(state: TunerState, grid: Grid) -> tuple[GridPoint | None, float]:
    """Point to run next, and the log gain expected of it; None where none is worth a process.

    Rules, of which the first that finds a point decides:

    1. The largest expected gain, if it is worth a process (`largest_gain`). A first run moves one
       knob alone, where the budget holds a few more (`first_alone`).
    2. Twice the batch was all that ran, and showed nothing: a larger one (`beyond_twice`).
    3. The best moved both knobs: one of them alone, if it may be as fast (`one_knob_alone`).
    4. Fewer workers than the best has, if they may tie (`fewer_workers`).
    5. The best waits for most of its time, and more workers never ran: the most promising number
       of them (`unchecked_workers`).
    6. The best has workers on the CPUs that compute, and none at all never ran (`no_workers`).

    By rules 2 to 6 a point is worth seeing with no gain expected of it, which is told as 0.
    """
    ran = {point: worth(state, grid, point) for point in allowed_points(state, grid)}
    top = max((forecast.log_rate for forecast in ran.values()), default=NOTHING_RAN)
    extras_s = {point: extra_s(state, grid, point) for point in grid_points(state, grid)}
    most_s = policy.DEAREST_WINDOW * max(state.context.measure_s, state.costs.price_s)
    new = {
        point: worth(state, grid, point)
        for point, more_s in extras_s.items()
        if more_s <= most_s
    }
    new = first_alone(state, grid, new, top)
    room_s = state.remaining_s - kept_for_proof_s(state, grid) - state.costs.price_s
    within_budget = [
        point for point in new if extras_s[point] + own_proof_s(extras_s[point]) <= room_s
    ]
    gains = {point: forecast.improvement(top) for point, forecast in new.items()}
    best = largest_gain(state, grid, gains, within_budget)
    if best is not None:
        return best, gains[best]
    if not ran:
        return None, 0.0
    level = smallest_level(state, grid, ran)
    point = (
        beyond_twice(grid, new)
        or one_knob_alone(state, grid, new, level, ran[level])
        or fewer_workers(state, grid, new, level, top)
        or unchecked_workers(grid, new, level)
        or no_workers(grid, new, level)
    )
    return point, 0.0


def largest_gain(
    state: TunerState,
    grid: Grid,
    gains: Mapping[GridPoint, float],
    within_budget: Sequence[GridPoint],
) -> GridPoint | None:
    """Point of the largest gain, if that is worth a process; of equal ones the smallest.

    Points within the budget come first: one beyond it is told as what the budget lacked. With the
    batch found, the present workers are kept unless others promise more by at least a tie.
    """
    threshold = tie(state)
    best = max(
        [point for point in within_budget if gains[point] >= threshold] or gains,
        key=lambda point: (gains[point], -point.batch, -point.workers),
        default=None,
    )
    if best is None:
        return None
    own_workers = GridPoint(best.batch, grid.start.workers)
    if gains.get(own_workers, 0.0) >= max(threshold, gains[best] - threshold):
        best = own_workers
    return best if gains[best] >= threshold else None


def beyond_twice(grid: Grid, new: Mapping[GridPoint, Forecast]) -> GridPoint | None:
    """Largest new batch where twice the batch was the largest that ran; None anywhere else.

    Noise hides what a doubling gains.
    """
    if max(point.batch for point in grid.runs) != 2 * grid.start.batch:
        return None
    larger = [
        point
        for point in new
        if point.batch > 2 * grid.start.batch and point.workers == grid.start.workers
    ]
    return max(larger, default=None)


def one_knob_alone(
    state: TunerState,
    grid: Grid,
    new: Mapping[GridPoint, Forecast],
    level: GridPoint,
    best: Forecast,
) -> GridPoint | None:
    """New point that moves one of the knobs as `level` does, and may be as fast; None without one.

    `level` is the smallest of the fastest points that ran, and `best` its forecast. Where it moved
    both knobs, the gain of one would carry the other through its proof.
    """
    for alone in moved_alone(grid, level):
        if alone in new and within_noise(state, upper_end(new[alone]), best):
            return alone
    return None


def fewer_workers(
    state: TunerState,
    grid: Grid,
    new: Mapping[GridPoint, Forecast],
    level: GridPoint,
    top: float,
) -> GridPoint | None:
    """New point of the batch of `level` with the fewest workers that may tie; None without one.

    Not below the present workers. `top`: log rate of the fastest point that ran.
    """
    may_tie = [
        point
        for point, forecast in new.items()
        if point.batch == level.batch
        and grid.start.workers <= point.workers < level.workers
        and upper_end(forecast).log_rate >= top - tie(state)
    ]
    return min(may_tie, default=None)


def unchecked_workers(
    grid: Grid, new: Mapping[GridPoint, Forecast], level: GridPoint
) -> GridPoint | None:
    """New point of the batch of `level` with more workers, where none ran; the most promising.

    None where the program does not wait for most of its time. The loader alone told that more gain
    nothing: one measurement, whose error no forecast knows. Once more ran and gained nothing, that
    is settled.
    """
    wait_share = grid.runs[level][1].wait_share
    if wait_share is None or wait_share < policy.MOST_WAIT_SHARE:
        return None
    if any(point.workers > level.workers for point in grid.runs):
        return None
    more = [
        point
        for point in new
        if point.batch == level.batch and point.workers > level.workers
    ]
    return max(more, key=lambda point: (new[point].log_rate, -point.workers), default=None)


def no_workers(
    grid: Grid, new: Mapping[GridPoint, Forecast], level: GridPoint
) -> GridPoint | None:
    """The batch of `level` without workers, where the model computes on their CPUs; else None.

    That a worker takes from the step what it saves in waiting shows in no run that has one. The
    loader alone does not tell it either: then nothing computes.
    """
    alone = GridPoint(level.batch, 0)
    return alone if may_take_cpus(grid) and alone in new else None


def upper_end(forecast: Forecast) -> Forecast:
    """The forecast as fast as may be hoped: by one standard deviation."""
    return forecast._replace(log_rate=forecast.log_rate + forecast.sd)


def first_alone(
    state: TunerState, grid: Grid, new: dict[GridPoint, Forecast], top: float
) -> dict[GridPoint, Forecast]:
    """Those of the new points that a search may begin with; all of them once anything ran.

    They move one knob, if one of them promises a gain. A first run of a larger batch with more
    workers may be slow for either, and nobody could say for which. Where only both together
    promise anything, they need each other; where the budget holds few trials, what promises most
    has to be among them.
    """
    trials = (state.remaining_s - reserves.proof_s(state)) / max(state.costs.price_s, 1e-9)
    has_begun = bool({*grid.runs, *grid.refused} - {grid.start})
    if has_begun or trials < policy.ROOM_TO_LEARN:
        return new
    alone = {
        point: forecast
        for point, forecast in new.items()
        if point in moved_alone(grid, point)
    }
    promises = any(forecast.improvement(top) >= tie(state) for forecast in alone.values())
    return alone if promises else new


def worth(state: TunerState, grid: Grid, point: GridPoint) -> Forecast:
    """Forecast by which points are compared: the rate of units, or of batches for a latency."""
    forecast = grid.forecast(point)
    if not state.context.objective.metric.of_batch:
        return forecast
    return forecast._replace(log_rate=forecast.log_rate - math.log(batch_of(point)))


def allowed_points(state: TunerState, grid: Grid) -> list[GridPoint]:
    """Points that ran, may be chosen and kept every constraint."""
    broken = state.context.objective.broken
    return [point for point, (_, run) in grid.runs.items() if not broken(run)]


def extra_s(state: TunerState, grid: Grid, point: GridPoint) -> float:
    """Seconds by which a window at `point` is expected to take longer than the usual one.

    A window has at least MIN_STEPS steps, which of a large batch take longer than its seconds.
    """
    run = grid.start_run
    step_s = run.step_ms / 1000.0 if run.step_ms else batch_of(grid.start) / run.units_per_s
    usual_s = 1.5 * policy.MIN_STEPS * step_s
    slower = grid.forecast(grid.start).log_rate - grid.forecast(point).log_rate
    longer = math.exp(slower) * batch_of(point) / batch_of(grid.start)
    return max(0.0, longer * usual_s - max(usual_s, state.context.measure_s))


def smallest_level(
    state: TunerState, grid: Grid, ran: Mapping[GridPoint, Forecast]
) -> GridPoint:
    """Smallest of the points that tie with the fastest: by its batch, then by its workers.

    Points below the present values are left out where others tie, unless a smaller batch may be
    better by the objective.
    """
    top = max(forecast.log_rate for forecast in ran.values())
    level = [
        point for point, forecast in ran.items() if forecast.log_rate >= top - tie(state)
    ]
    if state.context.objective.better_below(grid.start_run):
        return min(level)
    start = grid.start
    above = [p for p in level if p.batch >= start.batch and p.workers >= start.workers]
    return min(above or level)


def grid_points(state: TunerState, grid: Grid) -> list[GridPoint]:
    """Points to try: batches that are expected to fit and are no leap, with likely workers.

    Doublings of the present batch, and halvings where a smaller one may be better. Points that ran
    or were refused are left out.
    """
    batch, workers = grid.start
    batches = [batch]
    if grid.knobs[0] is not None:
        batches = [batch * 2**n for n in range(policy.MOST_DOUBLINGS + 1)]
        if state.context.objective.better_below(grid.start_run):
            batches += [batch >> n for n in range(1, batch.bit_length())]
    batch_limit = min(
        grid.batch_limit, policy.LARGEST_LEAP * max(point.batch for point in grid.runs)
    )
    limit_gib = state.context.memory_limit_gib
    batches = [
        b for b in batches if b <= batch_limit and expected_gib(grid.runs, b) <= limit_gib
    ]
    counts = {workers}
    if grid.knobs[1] is not None and not grid.workers_stop:
        if not never_waits(grid):
            counts |= worker_counts(state, workers)
        elif may_take_cpus(grid):
            counts |= {0}
    points = [GridPoint(b, count) for b in {*batches, batch} for count in sorted(counts)]
    return [point for point in points if point not in {*grid.refused, *grid.runs}]


def may_take_cpus(grid: Grid) -> bool:
    """True if workers may take the CPUs that the model computes on: no run without any told."""
    return grid.on_cpus and all(point.workers for point in grid.runs)


def never_waits(grid: Grid) -> bool:
    """True if no run waited for its data, and fewer workers are no question.

    No count shortens what nobody waits for. Where the program has workers, one other count is tried
    all the same, as they may take the CPUs that the model computes on; on a noisy machine four more
    were, for nothing. Without workers the waiting is all that any could take away.
    """
    tried = any(point.workers != grid.start.workers for point in grid.runs)
    tried = tried or grid.start.workers == 0
    waits = [run.wait_share for _, run in grid.runs.values()]
    return tried and all(
        wait is not None and wait <= policy.MIN_WAIT_SHARE for wait in waits
    )


def expected_gib(runs: Mapping[GridPoint, tuple[Candidate, Run]], batch: int) -> float:
    """GiB that a batch is expected to need; 0 where it is to be tried whatever it needs.

    Beyond the largest batch that ran, memory is taken to grow as between the last two. Of a single
    run only the activations grow, if it told them apart; else all of its memory. A batch that is no
    larger than one that ran is tried, and so is twice the batch of a single run, which tells how
    memory grows.
    """
    run_of_batch = {point.batch: run for point, (_, run) in sorted(runs.items())}
    peaks = [
        (size, run.peak_mem_gib) for size, run in run_of_batch.items() if run.peak_mem_gib
    ]
    if not peaks:
        return 0.0
    last, high_gib = peaks[-1]
    if batch <= last or (len(peaks) == 1 and batch <= 2 * last):
        return 0.0
    if len(peaks) > 1:
        before, low_gib = peaks[-2]
    else:
        footprint = run_of_batch[last].footprint
        before, low_gib = 0, 0.0
        if footprint is not None:
            low_gib = high_gib - footprint.activations / GIB
    gib_per_item = max(0.0, (high_gib - low_gib) / (last - before))
    return high_gib + gib_per_item * (batch - last)


def worker_counts(state: TunerState, current: object) -> set[int]:
    """Other numbers of workers that may be as fast as the best one."""
    cpus = state.context.cpus
    values = {0, 1, 2, cpus // 2, cpus - 1, cpus} | ({4, 8, 16} if cpus >= 8 else set())
    values = {v for v in values if 0 <= v <= cpus}
    return (values | sleeping_workers.faster(state)) - {current}


def tie(state: TunerState) -> float:
    """Difference of two expected log rates up to which they tie.

    It is smaller than that of two runs (`tie_threshold`): the model smooths all runs. A twentieth
    of the noise is a tenth of the standard deviation between equal processes.
    """
    return max(policy.LEAST_LOG_GAIN, state.noise / 20)


def point_of(state: TunerState, run: Run, point: GridPoint) -> Point:
    """A run as the model sees it, with the batch that it filled."""
    batch = min(run.effects.batch or math.inf, batch_of(point))
    share = 0.0 if state.context.objective.metric.from_card else run.wait_share or 0.0
    pace = state.context.objective.pace(run)
    return Point(batch=batch, workers=point.workers, rate=pace, wait_share=share)


def batch_of(point: GridPoint) -> float:
    """Batch of a point as the model counts it: 1 where no batch is searched."""
    return float(max(1, point.batch))


def conclude(state: TunerState, grid: Grid) -> TunerState:
    """Adopt the smallest point that ties with the fastest, and decide on both knobs.

    Smaller batches and fewer workers leave room for other work, and are safer. A point that moved
    one knob is taken before one that moved both, where noise cannot tell them apart. The start
    stays unless the gain is worth a change; if it broke a constraint, what keeps it is taken. A
    point whose rounds take longer than what is left proves nothing: others come before it.
    """
    start = grid.start
    allowed = allowed_points(state, grid)
    if start in allowed:  # a run, not only the model, must have been faster
        faster = (
            point
            for point in allowed
            if state.gain(grid.runs[point][1], grid.start_run) > 1
        )
        allowed = [start, *faster]
    provable = [point for point in allowed if is_provable(state, grid.runs[point][1])]
    hopeful = provable if set(provable) - {start} else allowed or [start]
    smooth = {point: worth(state, grid, point) for point in {*hopeful, start}}
    chosen = smallest_level(state, grid, {point: smooth[point] for point in hopeful})
    as_fast_alone = [
        point
        for point in moved_alone(grid, chosen)
        if point in allowed and within_noise(state, smooth[point], smooth[chosen])
    ]
    chosen = max(as_fast_alone, key=lambda point: smooth[point].log_rate, default=chosen)
    log_gain = smooth[chosen].log_rate - smooth[start].log_rate
    if start in allowed and log_gain <= math.log1p(state.context.smallest_gain):
        chosen = start
    if chosen != start:
        state = state.adopt(*grid.runs[chosen])
    if grid.knobs[0] is not None:
        state = decide_batch(state, grid, grid.knobs[0], chosen)
    return decide_workers(state, grid, grid.knobs[1], chosen) if grid.knobs[1] else state


def is_provable(state: TunerState, run: Run) -> bool:
    """True if the budget still holds the fewest rounds of what ran so."""
    adopted = replace(state, best_run=run)
    return policy.FEWEST_ROUNDS * reserves.round_s(adopted) <= state.remaining_s


def moved_alone(grid: Grid, point: GridPoint) -> tuple[GridPoint, GridPoint]:
    """Points that move the batch alone, and the workers alone, as far as `point` does."""
    start = grid.start
    return GridPoint(point.batch, start.workers), GridPoint(start.batch, point.workers)


def within_noise(state: TunerState, one: Forecast, other: Forecast) -> bool:
    """True if `other` is expected to be faster than `one` by no more than noise may make it.

    Half of the noise is the standard deviation between equal processes.
    """
    margin = max(state.context.smallest_gain, state.noise / 2)
    return other.log_rate - one.log_rate <= math.log1p(margin)


def stop_reason(state: TunerState, grid: Grid) -> str:
    """Why no larger batch was tried, as a clause: data, memory, or what the runs showed."""
    beyond = 2 * max(point.batch for point in grid.runs)
    flat = grid.stop.cause == "flat"
    if flat and beyond > largest_batch(state, grid.start_run, grid.start.batch):
        return f"the dataset has {state.original.effects.data_items} items"
    needed_gib, limit_gib = expected_gib(grid.runs, beyond), state.context.memory_limit_gib
    if flat and needed_gib > limit_gib:
        return (
            f"{beyond} needs about {needed_gib:.2f} GiB by the peaks measured so far, more than "
            f"the {limit_gib:.2f} GiB usable"
        )
    return grid.stop.clause


def ran_alone(grid: Grid, axis: int) -> bool:
    """True if two runs differ by their batch (axis 0) or workers (axis 1) only."""
    return any(
        one[axis] != other[axis] and one[1 - axis] == other[1 - axis]
        for one, other in itertools.combinations(grid.runs, 2)
    )


def decide_batch(
    state: TunerState, grid: Grid, knob: Knob, chosen: GridPoint
) -> TunerState:
    """State with a verdict on the batch, and why no larger one was tried."""
    ended = f"The search stopped because {stop_reason(state, grid)}."
    if chosen.batch != knob.value:
        draws = OTHER_DRAWS if state.iterative and not state.trains else ""
        fastest = "By the curve fitted to all runs, the smallest batch within a tie of the fastest."
        return state.set_verdict(knob, "faster", f"{fastest}{draws} {ended}")
    if len(grid.runs) == 1 and grid.stop.cause == "budget":
        verdict = state.verdict_on(knob)
        return state if verdict else state.set_verdict(knob, "out-of-budget", OUT_OF_TIME)
    tested = "No usable larger batch was faster"
    if len(grid.runs) > 1 and not ran_alone(grid, 0):
        tested = (
            "Larger batches ran only with other worker counts, and no such pair was faster"
        )
    if grid.stop.cause == "budget":  # nothing was found that a proof would need it for
        ended = "The search stopped because the budget had no room for another run."
    reason = f"{tested} by more than {state.tie_percent}. {ended}"
    return state.set_verdict(knob, "not-faster", reason)


def rates_of_workers(state: TunerState, grid: Grid) -> str:
    """Sentence on runs of other numbers of workers, beside runs of the same batch; else empty."""
    rates = []
    for (batch, count), (_, run) in sorted(grid.runs.items()):
        beside = grid.runs.get(GridPoint(batch, grid.start.workers))
        if count != grid.start.workers and beside is not None:
            where = f" with batch {batch}" if grid.knobs[0] is not None else ""
            ratio = numbers.ratio(state.gain(run, beside[1]))
            rates.append(f"{numbers.many(count, 'worker')}{where} ran at {ratio}")
    beside_what = numbers.many(grid.start.workers, "worker")
    return f" Beside {beside_what}, {'; '.join(rates)}." if rates else ""


def decide_workers(
    state: TunerState, grid: Grid, knob: Knob, chosen: GridPoint
) -> TunerState:
    """State with a verdict on the number of workers, if there is anything to say of it."""
    counts = {point.workers for point in grid.runs}
    if chosen.workers != knob.value:
        ran = ", ".join(map(str, sorted(counts)))
        reason = f"By the curve fitted to all runs, the smallest count as fast, of {ran} that ran."
        if not state.trains and is_reordered(state.original, grid.runs[chosen][1]):
            reason += OTHER_ORDER
        if chosen.workers > state.context.cpus:
            cpus = numbers.many(state.context.cpus, "CPU")
            reason += (
                f" They sleep most of the time, so {cpus} serve more workers than that."
            )
        return state.set_verdict(knob, "faster", reason)
    if grid.workers_stop:
        return state.set_verdict(knob, "refuted", f"Not written: {grid.workers_stop}")
    if counts - {grid.start.workers}:
        tested = "No value tested was faster"
        if not ran_alone(grid, 1):
            tested = "Other counts ran only with other batches, and no such pair was faster"
        reason = (
            f"{tested} by more than {state.tie_percent}.{rates_of_workers(state, grid)}"
        )
        return state.set_verdict(knob, "not-faster", reason)
    if not state.waits:
        return state
    if grid.cut_short:
        return state.set_verdict(knob, "out-of-budget", OUT_OF_TIME)
    cpus = numbers.many(state.context.cpus, "CPU")
    reason = f"The program waits for data, and no other count promises more on {cpus}."
    return state.set_verdict(knob, "no-value-known", reason)
