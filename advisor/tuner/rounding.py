"""Rounding: a narrower precision or another kernel must leave losses and outputs where they were.

The same guard with other figures: losses of a short training with equal seeds, or an inference's
outputs for the same inputs; where neither can be had, the declared quality measures.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from advisor.executor.comparison import AFTER, BEFORE, Comparison
from advisor.executor.requests import ABTest, Variant
from advisor.quality import bounds, loss_drifts, output_errors, rounds_needed, seeds_matter
from advisor.tuner.asking import SearchStep, ask_for
from advisor.tuner.guard import (
    CONFIRMING,
    FIRST_QUALITY,
    MOST_RUNS,
    anchored,
    beyond,
    chosen,
    confirmed,
    one_run,
)
from advisor.tuner.standing import MARGIN, Result, TunerState

if TYPE_CHECKING:
    from collections.abc import Generator

    from advisor.executor.requests import TrialRequest
    from advisor.model import Run
    from advisor.tuner.facts import Data


def within(
    now: TunerState, variant: Variant, run: Run
) -> Generator[SearchStep, Result, tuple[TunerState, bool, Data]]:
    """Whether `run` of `variant` stayed inside the declared tolerance, and what was seen.

    Nothing to compare is not inside.
    """
    workload, best = now.facts.workload, now.best
    drifts = drifts_of(now.front, run)
    if drifts and workload.numeric_tolerance is not None:
        return (yield from hardly_moved(now, variant, drifts, workload.numeric_tolerance))
    if not workload.quality:
        return now, False, (("unseen", "losses"),)
    now, anchor, _ = yield from anchored(now)
    if anchor is None or now.best != best:
        return now, False, (("unseen", "quality"),)
    now, rung = yield from chosen(now, anchor, variant, FIRST_QUALITY * now.price_s)
    if rung is None:
        return now, False, (("unseen", "quality"),)
    if not rung.inside:
        return now, False, beyond(rung.judgements)
    return (yield from confirmed(now, anchor, rung))


def drifts_of(before: Run, after: Run) -> tuple[float, ...]:
    """Relative differences, step by step of a training or output by output of an inference."""
    return loss_drifts(before.losses, after.losses) or output_errors(before.effects, after.effects)


def hardly_moved(
    now: TunerState, variant: Variant, drifts: tuple[float, ...], tolerance: float
) -> Generator[SearchStep, Result, tuple[TunerState, bool, Data]]:
    """Whether the mean drift lies inside `tolerance`: of runs of both arms with equal seeds, other
    ones than the run that was faster had."""
    drift = fmean(drifts)
    seen: Data = (("drift", abs(drift)), ("tolerance", tolerance))
    if not abs(drift) <= tolerance or one_run(now):
        looked: Data = (("proof", now.facts.workload.quality_proof),) if one_run(now) else ()
        return now, abs(drift) <= tolerance, (*seen, *looked)
    spread = max(abs(drift), stdev(drifts) / math.sqrt(len(drifts)) if len(drifts) > 1 else 0.0)
    rounds = rounds_needed(spread, tolerance - abs(drift), MOST_RUNS)
    if rounds is None:
        room = tolerance - abs(drift)
        noise: Data = (("measure", "it"), ("spread", spread), ("room", room), ("most", MOST_RUNS))
        return now, False, (("stop", "too-noisy"), *seen, *noise)
    needed_s = 2 * rounds * MARGIN * now.price_s
    if needed_s > now.remaining_s - now.reserve_s:
        title = f"the loss parity of {variant.label}"
        now = now.skip(title, needed_s, kept_s=now.reserve_s)
        return now, False, (*seen, ("stop", "confirm-over-budget"), ("rounds", rounds))
    ab_test = ABTest(
        purpose="quality",
        title=f"rounding of {variant.label}",
        requests=(short_run(now, Variant(candidate=now.best)), short_run(now, variant)),
        rounds=rounds,
        reseeded=True,
    )
    answer = yield SearchStep(request=ab_test, standing=now)
    assert isinstance(answer, Comparison)
    now = now.heard(answer)
    runs = list(zip(answer.runs(BEFORE), answer.runs(AFTER), strict=True))
    by_run = [drifts_of(before, after) for before, after in runs]
    if answer.cut_short or answer.failure is not None or not by_run or not all(by_run):
        return now, False, (*seen, ("stop", "not-judged"))
    if not all(math.isfinite(each) for drift_of_run in by_run for each in drift_of_run):
        return now, False, (("drift", math.inf), ("tolerance", tolerance))
    pairs = [((("loss", a.losses),), (("loss", b.losses),)) for a, b in runs]
    if seeds_matter(pairs) is False:
        by_run = by_run[:1]
    found = bounds(by_run)
    most = max(abs(found.low), abs(found.high))
    told: Data = (("drift", abs(found.estimate)), ("tolerance", tolerance), ("drift_most", most))
    return now, most <= tolerance, (*told, ("runs", len(by_run)))


def short_run(now: TunerState, variant: Variant) -> TrialRequest:
    """The user's own command with a seed that nothing was chosen by."""
    return replace(ask_for(now, variant.candidate, "quality"), variant=variant, repeat=CONFIRMING)
