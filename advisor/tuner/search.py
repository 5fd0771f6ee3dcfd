"""Search of batch and workers together, guided by a model.

A slow loader hides the gain of a larger batch, and the other way round, so both are one search. It
ends when no point that did not run promises more than a tie.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.comparison import COLLAPSED
from advisor.executor.requests import Variant
from advisor.tuner import output_check
from advisor.tuner.confirm import confirm
from advisor.tuner.effects import is_ignored, set_ignored
from advisor.tuner.prices import LEAST_STEPS
from advisor.tuner.state import (
    FEWEST_ROUNDS,
    MIN_STEPS,
    Result,
    SearchStep,
    Stage,
    Suggestion,
    TunerState,
    change_of,
    key_of,
    make_request,
    run_trial,
)
from advisor.tuner.throughput_model import Forecast, Point, ThroughputModel, fitted
from advisor.tuner.training import (
    alters_training,
    is_only_suggested,
    learning_rate_advice,
    samples_per_update,
    training_sign,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from advisor.executor.requests import TrialRequest, TrialResult
    from advisor.model import Candidate, Knob, Run

DOUBLINGS = 10
LEAP = 8
"""Largest growth of the batch at once; less where memory would not hold it."""
LEAST_GAIN = 0.01
"""An expected gain below this ends the search, and so much closer rates tie."""
NOTHING = -1e3
"""Logarithm of less than any run is worth."""
DEAREST = 4.0
"""Usual windows, or processes, that the window of a large batch may take."""
FEWEST_STEPS = 4
"""Steps that a batch must leave of a pass over the data in a training."""
FAR_AHEAD = 1.5
"""Gain of one run from which on the first confirmation begins at once."""
SURE = 2.0
"""Deviations by which the model alone may speak for a worker count."""

FLAT = "The search stopped because the rate is flat."
OUT_OF_BUDGET = "The search stopped because the budget was spent."
OTHER_DRAWS = (
    " Its random draws depend on the batch: items follow the same distribution, with other draws."
)

GridPoint = tuple[int, int]
"""Batch and workers; 0 stands for a knob that is not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridState:
    """Runs and bounds of one search over the grid."""

    batch: Knob | None
    workers: Knob | None
    start: GridPoint
    start_score: float
    """Median score where the search began."""
    runs: Mapping[GridPoint, tuple[Candidate, Run]]
    points: tuple[Point, ...]
    most: int
    """Largest batch that is tried."""
    stop: str = FLAT
    refused: frozenset[GridPoint] = field(default_factory=frozenset)
    aside: Mapping[GridPoint, tuple[Candidate, Run]] = field(default_factory=dict)
    """A run far below its forecast that no other run supports."""

    def bounded(self, most: int, stop: str) -> GridState:
        """With no batch above `most`, and the reason."""
        return replace(self, most=min(most, self.most), stop=stop)

    def with_point(self, point: Point) -> GridState:
        """With one more run for the model."""
        return replace(self, points=(*self.points, point))


# --- stages -------------------------------------------------------------------------------------


def tune_batch_and_workers(state: TunerState) -> Stage:
    """Tune every batch knob and worker count.

    The batch of a training is tuned alone.
    """
    batches = []
    for knob in state.tunable("batch_size"):
        value = state.current(knob)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            batches += [] if is_only_suggested(state, knob) else [knob]
        else:
            reason = f"{str(value)!r} is no plain count; it is left as it is."
            state = state.set_verdict(key_of(knob), "listed", reason)
    workers = worker_knobs(state)
    if batches and not state.trains:
        state = yield from explore(state, batches.pop(0), workers.pop(0) if workers else None)
    turns: tuple[Knob | None, ...] = (None, *batches)
    for turn in turns:  # in training: the workers before each batch, and after the last
        if turn is not None:
            state = yield from explore(state, turn, None)
        if state.waits:
            for each in workers:
                state = yield from explore(state, None, each)
    return state


def tune_workers(state: TunerState) -> Stage:
    """The worker counts alone."""
    for knob in worker_knobs(state):
        state = yield from explore(state, None, knob)
    return state


def try_training_batches(state: TunerState) -> Stage:
    """Suggest batches that would change the training."""
    for knob in state.tunable("batch_size"):
        if is_only_suggested(state, knob):
            state = yield from explore(state, knob, None)
    return state


def training_batch_promise(state: TunerState) -> float:
    """Expected gain of `try_training_batches`."""
    gains = [0.0]
    for knob in state.tunable("batch_size"):
        if is_only_suggested(state, knob):
            found = start_grid(state, knob, None)
            model = fit(state, found)
            gains.append(most_promising(state, found, model, state.rounds_s(FEWEST_ROUNDS))[1])
    return 1.0 + max(gains)


def worker_knobs(state: TunerState) -> list[Knob]:
    """Worker knobs with a plain count."""
    found = state.tunable("num_workers")
    return [k for k in found if isinstance(v := state.current(k), int) and not isinstance(v, bool)]


# --- the loop -----------------------------------------------------------------------------------


def explore(state: TunerState, batch: Knob | None, workers: Knob | None) -> Stage:
    """Run promising points, then decide on both knobs."""
    found = start_grid(state, batch, workers)
    suggested = batch is not None and is_only_suggested(state, batch)
    while True:
        model = fit(state, found)
        few = suggested or bool(state.best.changes and state.confirmations)
        kept_s = state.rounds_s(FEWEST_ROUNDS) if few else state.reserve_s
        point, promise = most_promising(state, found, model, kept_s)
        if point is None:
            break
        candidate = candidate_at(state, found, point)
        if isinstance(candidate, knobs.InvalidChange):
            found = with_refusal(found, point, candidate)
            continue
        if point[0] != found.start[0] and (why := memory_refusal(state, found, point[0])):
            found = found.bounded(point[0] - 1, why)
            continue
        request = make_request(state, candidate, moved=moved_knobs(found, point))
        request = replace(request, expected_s=price_at(state, found, point, model))
        matters = promise > state.context.smallest_gain and not suggested
        is_outlier = partial(fell_short, state, found, model, point)
        state, trial = yield from run_checked(
            state, request, is_outlier, kept_s=kept_s, matters=matters
        )
        if trial is None:
            if found.stop == FLAT:  # else a bound was found that says more
                found = replace(found, stop=OUT_OF_BUDGET)
            break
        run = trial.run
        if run is not None:
            for each in (batch, workers):
                if each is not None and is_ignored(each, candidate, state.incumbent_run, run):
                    state = set_ignored(state, each, candidate, run)
                    return (yield from explore_others(state, each, batch, workers))
        answered = with_trial(state, found, point, candidate, trial)
        if run is not None and is_outlier(run):
            answered = reject_outlier(state, found, answered, point)
        found = answered
        if run is not None and not suggested and is_far_ahead(state, found, point, run):
            state = yield from confirm(state.adopt(candidate, run), candidate, early=True)
    largest, items = max(point[0] for point in found.runs), state.original.effects.data_items
    if found.stop == FLAT and items and 2 * largest > largest_batch(state, found.start[0]):
        stop = f"The search stopped because the dataset has {items} items."
        found = replace(found, stop=stop)
    return (yield from conclude(state, found))


def is_far_ahead(state: TunerState, found: GridState, point: GridPoint, run: Run) -> bool:
    """True if the first confirmation begins early."""
    first = not state.confirmations and point in found.runs
    fits = state.rounds_s(FEWEST_ROUNDS) < state.remaining_s
    candidate, _ = found.runs.get(point, (None, None))
    if not first or not fits or candidate is None or alters_training(state, candidate, run):
        return False
    return state.gain_over_incumbent(run) >= FAR_AHEAD


def start_grid(state: TunerState, batch: Knob | None, workers: Knob | None) -> GridState:
    """Start the grid of both knobs at the best point."""
    start = (count_of(state, batch), count_of(state, workers))
    score = state.context.objective.score
    found = GridState(
        batch=batch,
        workers=workers,
        start=start,
        start_score=statistics.median(map(score, state.incumbent_runs)),
        runs={start: (state.best, state.incumbent_run)},
        points=tuple(point_of(state, run, start) for run in state.incumbent_runs),
        most=largest_batch(state, start[0]),
    )
    return outside_constraints(state, found, start, state.incumbent_run) or found


def fit(state: TunerState, found: GridState) -> ThroughputModel:
    """The model of all runs so far."""
    return fitted(found.points, loader_rates(state), state.noise / 2)


def with_refusal(found: GridState, point: GridPoint, why: knobs.InvalidChange) -> GridState:
    """Without a point that a linked setting refuses."""
    found = replace(found, refused=found.refused | {point})
    if point[0] == found.start[0]:
        return found
    return replace(found, stop=f"The search stopped because {plain_reason(why.reason)}.")


def plain_reason(reason: str) -> str:
    """Strip the prefix of a knob that cannot be edited."""
    return reason.rpartition("not editable: ")[2].rstrip(".")


def moved_knobs(found: GridState, point: GridPoint) -> tuple[tuple[str, str], ...]:
    """Every knob that the trial at `point` moves."""
    pairs = zip((found.batch, found.workers), point, found.start, strict=True)
    return tuple(key_of(knob) for knob, value, old in pairs if knob is not None and value != old)


def largest_batch(state: TunerState, batch: int) -> int:
    """Largest batch that the data can fill.

    A training keeps a few steps of a pass.
    """
    most: int = max(1, batch) * 2**DOUBLINGS
    items, per_step = state.original.effects.data_items, state.original.effects.batch
    if not items or not batch or per_step != batch:
        return most
    return max(batch, min(most, items // FEWEST_STEPS if state.trains else items))


def run_checked(
    state: TunerState,
    request: TrialRequest,
    is_outlier: Callable[[Run], bool],
    *,
    kept_s: float | None,
    matters: bool,
) -> Generator[SearchStep, Result, tuple[TunerState, TrialResult | None]]:
    """Run `request`, and once more if it is an outlier."""
    state, trial = yield from run_trial(state, request, kept_s=kept_s, matters=matters)
    if trial is None or trial.run is None or not is_outlier(trial.run):
        return state, trial
    again = replace(request, fresh=True, series="again")
    state, other = yield from run_trial(state, again, kept_s=kept_s, matters=matters)
    return state, other if other is not None and other.run else trial


def reject_outlier(
    state: TunerState, found: GridState, answered: GridState, point: GridPoint
) -> GridState:
    """Drop a point far below its forecast.

    From a run that collapsed the fit would learn that everything near it is slow.
    """
    if point not in answered.runs:
        return answered
    if not found.aside:
        aside = {point: answered.runs[point]}
        return replace(found, refused=found.refused | {point}, aside=aside)
    for other, (_, run) in found.aside.items():
        answered = answered.with_point(point_of(state, run, other))
    return replace(answered, runs={**found.aside, **answered.runs}, aside={})


def explore_others(state: TunerState, ignored: Knob, *axes: Knob | None) -> Stage:
    """The search without the knob that the program ignores."""
    left = [None if axis is ignored else axis for axis in axes]
    return (yield from explore(state, *left)) if any(left) else state


def with_trial(
    state: TunerState, found: GridState, point: GridPoint, candidate: Candidate, trial: TrialResult
) -> GridState:
    """With one more run, or a bound."""
    run, moved = trial.run, point[0] != found.start[0]
    below = found.bounded(point[0] - 1, found.stop) if moved else found
    below = replace(below, refused=found.refused | {point})
    value = point[0]
    if run is None:
        kind, evidence = trial.result.kind, trial.result.evidence  # type: ignore[union-attr]
        stop = f"The search stopped because {value} failed: {kind}. {evidence}"
        return replace(below, stop=stop if moved else found.stop)
    if lost := output_check.output_regression(state.originals, run):
        return replace(below, stop=f"The search stopped at {value}. {lost}")
    peak_gib = run.held_gib
    if peak_gib is not None and peak_gib > state.context.memory_limit_gib:
        stop = (
            f"The search stopped because {value} peaked at {peak_gib:.2f} GiB, more than is usable."
        )
        return replace(below, stop=stop)
    seen = run.effects.batch
    if seen is not None and seen < value:
        stop = (
            f"The search stopped because the program never filled a batch of {value}: it saw "
            f"{seen:g}."
        )
        fills = found.start[0] * 2 ** math.ceil(math.log2(seen / found.start[0]))
        if any(r.effects.batch == seen for _, r in found.runs.values()):
            return below.bounded(fills, stop)  # the same work as at a smaller value
        found = found.bounded(fills, stop)
        if fills < value:
            return found.with_point(point_of(state, run, point))
    found = found.with_point(point_of(state, run, point))
    if not_allowed := outside_constraints(state, found, point, run):
        return replace(not_allowed, refused=found.refused | {point})
    return replace(found, runs={**found.runs, point: (candidate, run)})


def outside_constraints(
    state: TunerState, found: GridState, point: GridPoint, run: Run
) -> GridState | None:
    """Bounds from a broken constraint; None where all hold."""
    broken = state.context.objective.broken(run)
    if not broken:
        return None
    seen = broken[0].value(run)
    shown = "not measured" if seen is None else f"{seen:.4g}"
    stop = f"The search stopped because {point[0]} was outside of {broken[0].text}: {shown}."
    if found.batch is not None and any(each.grows_with_batch for each in broken):
        return found.bounded(point[0] - 1, stop)
    return replace(found, stop=stop)


def count_of(state: TunerState, knob: Knob | None) -> int:
    """Current count of a knob; 0 without one."""
    value = state.current(knob) if knob is not None else 0
    return value if isinstance(value, int) else 0


def candidate_at(
    state: TunerState, found: GridState, point: GridPoint
) -> Candidate | knobs.InvalidChange:
    """Best candidate with knobs and links at `point`."""
    for knob, value in zip((found.batch, found.workers), point, strict=True):
        if knob is not None and value != state.current(knob):
            moved = state.with_value(knob, value)
            if isinstance(moved, knobs.InvalidChange):
                return moved
            state = replace(state, best=moved)
    return state.best


# --- the next point -----------------------------------------------------------------------------


def most_promising(
    state: TunerState, found: GridState, model: ThroughputModel, kept_s: float
) -> tuple[GridPoint | None, float]:
    """Point with the largest expected gain.

    Without one, a smaller point that ties. Points that fit into the budget beside `kept_s` come
    first. None when nothing is worth it.
    """
    forecast = {point: worth(state, model, point) for point in grid_points(state, found)}
    ran = {point: worth(state, model, point) for point in allowed_points(state, found)}
    top = max((each.log_rate for each in ran.values()), default=NOTHING)
    new = [
        point
        for point in forecast
        if point not in found.runs and window_s(state, point, model) <= longest_s(state)
    ]
    gains = {point: forecast[point].improvement(top) for point in new}
    room_s = state.remaining_s - kept_s
    fits = [p for p in new if price_at(state, found, p, model) <= room_s]
    worthy = [point for point in fits if gains[point] >= tie(state)]
    best = max(worthy or new, key=lambda point: (gains[point], -point[0], -point[1]), default=None)
    if best is None or gains[best] >= tie(state):
        return best, gains[best] if best is not None else 0.0
    if found.start in ran and top - ran[found.start].log_rate <= tie(state):
        return None, 0.0
    chosen = smallest_level(state, found, ran)
    fewer = [p for p in new if p[0] == chosen[0] and found.start[1] <= p[1] < chosen[1]]
    may_do = [p for p in fewer if forecast[p].log_rate + forecast[p].sd >= top - tie(state)]
    return min(may_do, default=None), 0.0


def worth(
    state: TunerState, model: ThroughputModel, point: GridPoint, *, ran: bool = False
) -> Forecast:
    """Log worth of a point to the objective."""
    batch = batch_of(point)
    found = model.seen_at(batch, point[1]) if ran else model.at(batch, point[1])
    return replace(found, log_rate=state.context.objective.log_worth(found.log_rate, batch))


def allowed_points(state: TunerState, found: GridState) -> list[GridPoint]:
    """Points that ran inside the constraints."""
    broken = state.context.objective.broken
    return [point for point, (_, run) in found.runs.items() if not broken(run)]


def window_s(state: TunerState, point: GridPoint, model: ThroughputModel) -> float:
    """Time of the fewest steps of a window there."""
    forwards = state.original.effects.forwards_per_unit if state.iterative else 1.0
    pace = state.context.objective.pace(state.original) / state.original.units_per_s
    rate = math.exp(model.at(batch_of(point), point[1]).log_rate) / pace
    step_s = batch_of(point) / rate / (forwards or 1.0)
    return MIN_STEPS * step_s


def price_at(
    state: TunerState, found: GridState, point: GridPoint, model: ThroughputModel
) -> float:
    """Wall time of a process at this point."""
    there_s, here_s = (window_s(state, each, model) for each in (point, found.start))
    whole = LEAST_STEPS / MIN_STEPS
    return state.price_s + max(0.0, whole * there_s - max(whole * here_s, state.context.measure_s))


def longest_s(state: TunerState) -> float:
    """Longest window worth its gain."""
    return DEAREST * max(state.context.measure_s, state.price_s)


def smallest_level(
    state: TunerState, found: GridState, ran: Mapping[GridPoint, Forecast]
) -> GridPoint:
    """Smallest point that ties with the best.

    It is not below the config's own. Smaller ones count where the objective asks for them.
    """
    top = max(each.log_rate for each in ran.values())
    level = [point for point, each in ran.items() if each.log_rate >= top - tie(state)]
    if state.context.objective.better_below(found.runs[found.start][1]):
        return min(level)
    return min([point for point in level if not_below(point, found.start)] or level)


def grid_points(state: TunerState, found: GridState) -> list[GridPoint]:
    """Points that may still be tried, and those that ran."""
    most = min(found.most, leap(state, found) * max(batch for batch, _ in found.runs))
    batches = [found.start[0] * 2**n for n in range(DOUBLINGS + 1)] if found.batch else [0]
    if found.batch and state.context.objective.better_below(found.runs[found.start][1]):
        batches += [found.start[0] >> n for n in range(1, found.start[0].bit_length())]
    workers = {found.start[1]}
    workers |= worker_counts(state, found.start[1]) if found.workers else set()
    return [
        (batch, count)
        for batch in batches
        if batch <= most or not found.batch
        for count in sorted(workers)
        if (batch, count) not in found.refused
    ]


def worker_counts(state: TunerState, current: object) -> set[int]:
    """Worker counts that may be as fast as the best."""
    cpus = state.context.cpus
    values = {0, 1, 2, cpus // 2, cpus - 1, cpus} | ({4, 8, 16} if cpus >= 8 else set())
    values = {v for v in values if 0 <= v <= cpus and v != current}
    rates = state.loader_alone
    if state.context.has_gpu:
        # With the compute on the GPU, a loader slower than the whole cannot make it faster.
        values = {v for v in values if rates.get(v, 1e30) > state.incumbent_run.units_per_s}
    return values


def leap(state: TunerState, found: GridState) -> int:
    """Growth of the batch that surely fits memory."""
    peaks = {batch: run.held_gib for (batch, _), (_, run) in found.runs.items()}
    first = peaks[found.start[0]]
    if len(peaks) > 1 or not first:
        return LEAP
    return max(2, min(LEAP, int(state.context.memory_limit_gib / first)))


def not_below(point: GridPoint, start: GridPoint) -> bool:
    """True if neither knob is below the config's own value."""
    return point[0] >= start[0] and point[1] >= start[1]


def tie(state: TunerState) -> float:
    """Relative difference below which smoothed rates are equal."""
    return max(LEAST_GAIN, state.noise / 20)


def fell_short(
    state: TunerState, found: GridState, model: ThroughputModel, point: GridPoint, run: Run
) -> bool:
    """True if `run` is too far below its forecast.

    Where little is certain, a run slower than the start is repeated at half of the forecast.
    """
    forecast, start = model.at(batch_of(point), point[1]), math.log(found.points[0].rate)
    rate, half = math.log(state.context.objective.pace(run)), math.log(COLLAPSED)
    sure = forecast.log_rate - max(half, 4 * forecast.sd)
    slower = min(forecast.log_rate - half, start - math.log1p(state.tie_threshold))
    return rate < max(sure, start - half, slower)


def loader_rates(state: TunerState) -> tuple[tuple[int, float], ...]:
    """Rate of the loader alone by workers, in units/s.

    It is an estimate from waiting where unmeasured; empty for energy.
    """
    if not state.context.objective.metric.time_only:
        return ()
    if state.loader_alone:
        return tuple(sorted(state.loader_alone.items()))
    run = state.original
    if not run.wait_share or run.effects.workers is None:
        return ()
    waited = run.units_per_s if run.effects.workers else run.units_per_s / run.wait_share
    one = waited / max(1, run.effects.workers)
    return tuple((count, one * max(1, count)) for count in range(state.context.cpus + 1))


def point_of(state: TunerState, run: Run, point: GridPoint) -> Point:
    """Model point of `run`, if its batch was filled."""
    batch = min(run.effects.batch or math.inf, batch_of(point))
    share = (run.wait_share or 0.0) if state.context.objective.metric.time_only else 0.0
    pace = state.context.objective.pace(run)
    return Point(batch=batch, workers=point[1], rate=pace, wait_share=share)


def batch_of(point: GridPoint) -> float:
    """Batch of a point; 1 where it is not moved."""
    return float(max(1, point[0]))


def memory_refusal(state: TunerState, found: GridState, batch: int) -> str:
    """Sentence on a `batch` that cannot fit; else empty."""
    runs = {point[0]: run for point, (_, run) in found.runs.items()}
    peaks = [(b, run.held_gib) for b, run in sorted(runs.items()) if run.held_gib]
    if not peaks:
        return ""
    (last, high) = peaks[-1]
    slope = (high - peaks[-2][1]) / (last - peaks[-2][0]) if len(peaks) > 1 else 0.0
    expected = high + max(slope, 0.0) * (batch - last)
    limit_gib = state.context.memory_limit_gib
    if expected <= limit_gib:
        return ""
    shown = ", ".join(f"{b}: {p:.2f} GiB" for b, p in peaks[-2:])
    return (
        f"The search stopped because {batch} needs about {expected:.2f} GiB by the peaks measured "
        f"so far ({shown}), more than the {limit_gib:.2f} GiB usable."
    )


# --- the decision -------------------------------------------------------------------------------


def conclude(state: TunerState, found: GridState) -> Stage:
    """Take the smallest point that ties with the fastest."""
    allowed = allowed_points(state, found) or [found.start]
    apart = [p for p in allowed if found.batch and alters_training(state, *found.runs[p])]
    hopeful = [p for p in allowed if found.start not in allowed or not_slower(state, found, p)]
    plain = [point for point in hopeful if point not in apart] or [found.start]
    chosen = choose(state, found, plain)
    state, found, chosen = yield from check_workers(state, found, chosen)
    model = fit(state, found)
    smooth = {p: worth(state, model, p, ran=True) for p in {*allowed, found.start, chosen}}
    proven = next((p for p, (c, _) in found.runs.items() if is_proven(state, c)), None)
    if proven in smooth and smooth[chosen].log_rate - smooth[proven].log_rate <= tie(state):
        chosen = proven
    elif chosen != found.start:
        state = state.adopt(*found.runs[chosen])
    if found.batch is not None:
        state = decide_batch(state, found, chosen)
    state = decide_workers(state, found, chosen)
    apart = [point for point in apart if point in hopeful]
    if not apart:
        return state
    other = smallest_level(state, found, {point: smooth[point] for point in apart})
    least = math.log1p(state.context.smallest_gain)
    better = smooth[other].log_rate - smooth[chosen].log_rate > least
    return suggest_batch(state, found, other) if better or chosen not in allowed else state


def choose(state: TunerState, found: GridState, plain: list[GridPoint]) -> GridPoint:
    """Choose the smallest of the fastest of `plain`."""
    model = fit(state, found)
    smooth = {point: worth(state, model, point, ran=True) for point in {*plain, found.start}}
    chosen = smallest_level(state, found, {point: smooth[point] for point in plain})
    gained = smooth[chosen].log_rate - smooth[found.start].log_rate
    inside = found.start in allowed_points(state, found)
    return found.start if inside and gained <= math.log1p(state.context.smallest_gain) else chosen


def is_proven(state: TunerState, candidate: Candidate) -> bool:
    """True if `candidate` is confirmed and the best."""
    return bool(candidate.changes) and bool(state.confirmations) and candidate.key == state.best.key


def check_workers(
    state: TunerState, found: GridState, chosen: GridPoint
) -> Generator[SearchStep, Result, tuple[TunerState, GridState, GridPoint]]:
    """Keep the config's workers unless their own change is supported.

    A larger batch may carry a worker count that gains nothing. Where the runs leave that open, the
    chosen batch runs once with the config's own workers.
    """
    own = (chosen[0], found.start[1])
    if found.workers is None or found.batch is None or chosen == own or own == found.start:
        return state, found, chosen
    if own not in found.runs:
        model = fit(state, found)
        forecast = worth(state, model, own)
        ahead = worth(state, model, chosen, ran=True).log_rate - forecast.log_rate
        if ahead > SURE * forecast.sd + math.log1p(state.level_threshold):
            return state, found, chosen
        candidate = candidate_at(state, found, own)
        if isinstance(candidate, knobs.InvalidChange):
            return state, found, chosen
        request = make_request(state, candidate, moved=moved_knobs(found, own))
        state, trial = yield from run_trial(state, request, matters=False)
        if trial is None or trial.run is None:
            return state, found, chosen if trial is not None else found.start
        found = with_trial(state, found, own, candidate, trial)
        if own not in found.runs:
            return state, found, chosen
    gain = state.gain(found.runs[chosen][1], found.runs[own][1])
    fewer = chosen[1] < own[1] and gain >= 1
    supported = gain > 1 + state.level_threshold or fewer
    return state, found, chosen if supported else own


def not_slower(state: TunerState, found: GridState, point: GridPoint) -> bool:
    """True if its run matched the start's usual rate."""
    score = state.context.objective.score(found.runs[point][1])
    gain: float = state.context.objective.gain(found.start_score, score)
    return point == found.start or gain >= 1


def decide_batch(state: TunerState, found: GridState, chosen: GridPoint) -> TunerState:
    """With the verdict on the batch."""
    assert found.batch is not None
    key = key_of(found.batch)
    if chosen[0] != found.batch.value:
        draws = ""
        if state.iterative and not state.trains:
            same = output_check.same_items(state.originals, found.runs[chosen][1])
            draws = "" if same else OTHER_DRAWS
        reason = (
            "By the curve fitted to all runs, the smallest batch within a tie of the fastest."
            f"{draws} {found.stop}"
        )
        return state.set_verdict(key, "found", reason)
    if len(found.runs) == 1 and found.stop == OUT_OF_BUDGET:
        known = state.verdict_on(found.batch)
        return state if known else state.set_verdict(key, "skipped", OUT_OF_TIME)
    reason = f"No larger batch was faster by more than {percent(state)}. {found.stop}"
    return state.set_verdict(key, "kept", reason)


def decide_workers(state: TunerState, found: GridState, chosen: GridPoint) -> TunerState:
    """Set the verdict on the workers."""
    if found.workers is None:
        return state
    key = key_of(found.workers)
    if chosen[1] != found.workers.value:
        reason = "By the curve fitted to all runs, the smallest count that was as fast."
        return state.set_verdict(key, "found", reason)
    if {point[1] for point in found.runs} - {found.start[1]}:
        reason = f"No value tested was faster by more than {percent(state)}."
        return state.set_verdict(key, "kept", reason)
    if state.waits and state.skipped:
        return state.set_verdict(key, "skipped", OUT_OF_TIME)
    return state


OUT_OF_TIME = "The budget was spent before another value could run."


def percent(state: TunerState) -> str:
    """The tie threshold, in percent."""
    return f"{100 * state.tie_threshold:.2g} %"


def suggest_batch(state: TunerState, found: GridState, chosen: GridPoint) -> TunerState:
    """Suggest a batch that changes the training."""
    assert found.batch is not None
    candidate, run = found.runs[chosen]
    key, old, new = key_of(found.batch), found.start[0], chosen[0]
    times = samples_per_update(candidate) or 1.0
    sign = training_sign(state)
    suggestion = Suggestion(
        kind="training-batch",
        title=f"{found.batch.path}: {found.batch.value} to {new}",
        variant=Variant(candidate=candidate),
        run=run,
        gain=state.gain_over_incumbent(run),
        reason=f"{sign}{learning_rate_advice(state, times)}",
        knob=key,
    )
    others = tuple(each for each in state.suggestions if each.knob != key)
    state = replace(state, suggestions=(*others, suggestion))
    if change_of(state.best, key) is not None:
        return state
    reason = (
        f"{sign}{new} was faster in the search, but one update would average over {new} samples "
        f"instead of {old}. No accumulation makes up for it, and the learning rate was chosen for "
        f"{old}."
    )
    return state.set_verdict(key, "advised", reason)
