"""Batch and workers together: each process goes where most is to be gained, by all that ran.

A loader that is too slow hides what a larger batch would gain, and the other way round, so both
knobs are one search. It ends when nothing that was not run promises more than a tie.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.tuner import results
from advisor.tuner.asking import SearchStep, Stage, ask_for, tried
from advisor.tuner.cells import (
    DOUBLINGS,
    FLAT,
    GridPoint,
    GridState,
    collapsed,
    loader_of,
    memory_refusal,
    most_promising,
    point_of,
    price_of,
)
from advisor.tuner.grid_settled import settle_grid
from advisor.tuner.loader import settle_ignored, unfollowed
from advisor.tuner.standing import FEWEST_ROUNDS, Result, TunerState, key_of
from advisor.tuner.surface import fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from advisor.executor.requests import TrialRequest, TrialResult
    from advisor.model import Candidate, Knob, Run
    from advisor.tuner.facts import Data

FEWEST_STEPS = 4
"""Of a pass over the data in a training."""


def tune_grid(now: TunerState) -> Stage:
    """Every batch knob of the phase and every worker count; a batch of a training alone."""
    batches = []
    for knob in now.tunable("batch_size"):
        value = now.current(knob)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            batches += [] if only_advised(now, knob) else [knob]
        else:
            now = now.settle(key_of(knob), "listed", "no-plain-count", value=str(value))
    workers = worker_knobs(now)
    if batches and not now.trains:
        now = yield from explore(now, batches.pop(0), workers.pop(0) if workers else None)
    turns: tuple[Knob | None, ...] = (None, *batches)
    for turn in turns:  # in training: the workers before each batch, and after the last
        if turn is not None:
            now = yield from explore(now, turn, None)
        if now.waits:
            for each in workers:
                now = yield from explore(now, None, each)
    return now


def tune_training(now: TunerState) -> Stage:
    """Batches that would change how the model is trained: for advice, so after all else."""
    for knob in now.tunable("batch_size"):
        if only_advised(now, knob):
            now = yield from explore(now, knob, None)
    return now


def promise_of_training(now: TunerState) -> float:
    """How many times faster `tune_training` is expected to get at best, by what ran so far; 1 where
    it has nothing to try."""
    gains = [0.0]
    for knob in now.tunable("batch_size"):
        if only_advised(now, knob):
            found = begun(now, knob, None)
            surface = fitted(found.points, loader_of(now), now.noise / 2)
            gains.append(most_promising(now, found, surface, now.rounds_s(FEWEST_ROUNDS))[1])
    return 1.0 + max(gains)


def only_advised(now: TunerState, knob: Knob) -> bool:
    """Whether a larger batch alone would move that of each update, with nothing to make up."""
    value = now.current(knob)
    if not now.trains or not isinstance(value, int):
        return False
    larger = now.with_value(knob, 2 * value)
    return not isinstance(larger, knobs.InvalidChange) and all(
        change.kind != "grad_accum" for change in larger.changes
    )


def tune_workers(now: TunerState) -> Stage:
    """The worker counts alone."""
    for knob in worker_knobs(now):
        now = yield from explore(now, None, knob)
    return now


def worker_knobs(now: TunerState) -> list[Knob]:
    """Those with a plain count."""
    found = now.tunable("num_workers")
    return [k for k in found if isinstance(v := now.current(k), int) and not isinstance(v, bool)]


def explore(now: TunerState, batch: Knob | None, workers: Knob | None) -> Stage:
    """Ask for the most promising cell until none is, then settle both knobs."""
    found = begun(now, batch, workers)
    start = found.start
    advised = batch is not None and only_advised(now, batch)
    while True:
        surface = fitted(found.points, loader_of(now), now.noise / 2)
        kept_s = now.rounds_s(FEWEST_ROUNDS) if advised else now.reserve_s
        cell, promise = most_promising(now, found, surface, kept_s)
        if cell is None:
            break
        candidate = candidate_at(now, found, cell)
        if isinstance(candidate, knobs.InvalidChange):
            found = replace(found, refused=found.refused | {cell})
            if cell[0] != start[0]:
                found = replace(found, stop=(("stop", "refused"), ("why", candidate.reason)))
            continue
        if cell[0] != start[0] and (too_big := memory_refusal(now, found, cell[0])):
            found = found.bounded(cell[0] - 1, *too_big)
            continue
        knob = batch if cell[0] != start[0] else workers
        request = ask_for(now, candidate, knob=knob)
        request = replace(request, expected_s=price_of(now, found, cell, surface))
        matters = promise > now.facts.smallest_gain and not advised
        doubted = partial(collapsed, now, found, surface, cell)
        now, attempt = yield from seen_twice(now, request, doubted, kept_s=kept_s, matters=matters)
        if attempt is None:
            if found.stop == FLAT:  # else something was found out before that says more
                found = replace(found, stop=(("stop", "budget"),))
            break
        run = attempt.run
        if run is not None:
            for each in (batch, workers):
                if each is not None and unfollowed(each, candidate, now.front, run):
                    now = settle_ignored(now, each, candidate, run)
                    return (yield from explore_others(now, each, batch, workers))
        answered = with_answer(now, found, cell, candidate, attempt)
        if run is not None and doubted(run):
            answered = weighed(now, found, answered, cell)
        found = answered
    largest, items = max(cell[0] for cell in found.runs), now.original.effects.data_items
    if found.stop == FLAT and items and 2 * largest > most_worth(now, start[0]):
        found = replace(found, stop=(("stop", "few-items"), ("items", items)))
    return settle_grid(now, found, fitted(found.points, loader_of(now), now.noise / 2))


def begun(now: TunerState, batch: Knob | None, workers: Knob | None) -> GridState:
    """The search over both knobs, with the cell that the best so far stands on."""
    start = (count_of(now, batch), count_of(now, workers))
    found = GridState(
        batch=batch,
        workers=workers,
        start=start,
        runs={start: (now.best, now.front)},
        points=tuple(point_of(now, run, start) for run in now.front_runs),
        most=most_worth(now, start[0]),
    )
    return outside(now, found, start, now.front) or found


def most_worth(now: TunerState, batch: int) -> int:
    """No batch that the data cannot fill; of a training none that leaves a pass a few steps, as a
    window then sees little but what happens between passes."""
    most: int = max(1, batch) * 2**DOUBLINGS
    items, per_step = now.original.effects.data_items, now.original.effects.batch
    if not items or not batch or per_step != batch:
        return most
    return max(batch, min(most, items // FEWEST_STEPS if now.trains else items))


def seen_twice(
    now: TunerState,
    request: TrialRequest,
    doubted: Callable[[Run], bool],
    *,
    kept_s: float | None,
    matters: bool,
) -> Generator[SearchStep, Result, tuple[TunerState, TrialResult | None]]:
    """The answer to `request`; a run that is doubted is run again, and that one counts."""
    now, attempt = yield from tried(now, request, kept_s=kept_s, matters=matters)
    if attempt is None or attempt.run is None or not doubted(attempt.run):
        return now, attempt
    again = replace(request, fresh=True, series="again")
    now, other = yield from tried(now, again, kept_s=kept_s, matters=matters)
    return now, other if other is not None and other.run else attempt


def weighed(now: TunerState, found: GridState, answered: GridState, cell: GridPoint) -> GridState:
    """`answered`, but what lies far below the promise in one cell alone is left aside: from runs
    that collapsed there the fit would learn that everything near it is slow. A second such cell is
    believed, and the first one with it."""
    if cell not in answered.runs:
        return answered
    if not found.aside:
        aside = {cell: answered.runs[cell]}
        return replace(found, refused=found.refused | {cell}, aside=aside)
    for other, (_, run) in found.aside.items():
        answered = answered.learned(point_of(now, run, other))
    return replace(answered, runs={**found.aside, **answered.runs}, aside={})


def explore_others(now: TunerState, ignored: Knob, *axes: Knob | None) -> Stage:
    """The search over without the knob that the program does not follow."""
    left = [None if axis is ignored else axis for axis in axes]
    return (yield from explore(now, *left)) if any(left) else now


def with_answer(
    now: TunerState, found: GridState, cell: GridPoint, candidate: Candidate, attempt: TrialResult
) -> GridState:
    """With what came of `cell`: one more run, or a bound."""
    run, moved = attempt.run, cell[0] != found.start[0]
    below = found.bounded(cell[0] - 1, *found.stop) if moved else found
    below = replace(below, refused=found.refused | {cell})
    if run is None:
        kind, evidence = attempt.result.kind, attempt.result.evidence  # type: ignore[union-attr]
        told: Data = (("stop", "failed"), ("value", cell[0]), ("kind", kind), ("why", evidence))
        return replace(below, stop=told if moved else found.stop)
    if lost := results.lost(now.originals, run):
        return replace(below, stop=(*lost, ("value", cell[0])))
    peak_gib = run.held_gib
    if peak_gib is not None and peak_gib > now.facts.memory_limit_gib:
        told = (("stop", "memory-peaked"), ("value", cell[0]), ("peak_gib", peak_gib))
        return replace(below, stop=told)
    seen = run.effects.batch
    if seen is not None and seen < cell[0]:
        told = (("stop", "unfilled"), ("value", cell[0]), ("seen", seen))
        fills = found.start[0] * 2 ** math.ceil(math.log2(seen / found.start[0]))
        if any(r.effects.batch == seen for _, r in found.runs.values()):
            return below.bounded(fills, *told)  # the same work as at a smaller value
        found = found.bounded(fills, *told)
        if fills < cell[0]:
            return found.learned(point_of(now, run, cell))
    found = found.learned(point_of(now, run, cell))
    if not_allowed := outside(now, found, cell, run):
        return replace(not_allowed, refused=found.refused | {cell})
    return replace(found, runs={**found.runs, cell: (candidate, run)})


def outside(now: TunerState, found: GridState, cell: GridPoint, run: Run) -> GridState | None:
    """What `run` bounds by being outside of a constraint; None where it is inside of all."""
    broken = now.facts.objective.broken(run)
    if not broken:
        return None
    told: Data = (
        ("stop", "constraint"),
        ("value", cell[0]),
        ("constraint", broken[0].text),
        ("seen", broken[0].value(run)),
    )
    if found.batch is not None and any(each.grows_with_batch for each in broken):
        return found.bounded(cell[0] - 1, *told)
    return replace(found, stop=told)


def count_of(now: TunerState, knob: Knob | None) -> int:
    value = now.current(knob) if knob is not None else 0
    return value if isinstance(value, int) else 0


def candidate_at(
    now: TunerState, found: GridState, cell: GridPoint
) -> Candidate | knobs.InvalidChange:
    """The best with both knobs moved to `cell`, and what is linked to them."""
    for knob, value in zip((found.batch, found.workers), cell, strict=True):
        if knob is not None and value != now.current(knob):
            moved = now.with_value(knob, value)
            if isinstance(moved, knobs.InvalidChange):
                return moved
            now = replace(now, best=moved)
    return now.best
