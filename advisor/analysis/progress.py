"""Progress of a process: whether to record, only count, or end its window.

A process goes through three phases, and this module says when the next one begins:

    everything recorded      until the kind of steps is known and enough of them were seen
    steps only counted       one event a step, since full hooks slow a short step noticeably
    diagnosed                the window is full: what costs too much inside it is done now
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from advisor.analysis.events import EventLog
from advisor.analysis.step_detection import detect_steps, measured_part
from advisor.analysis.step_series import (
    FORWARD,
    GENERATION,
    LOADER,
    OPTIMIZER,
    RECENT,
    UPDATE,
    StepSeries,
)
from advisor.analysis.window import QUICK_STEP_S, burst, find_window, warm_up
from advisor.model import MeasurePlan

# By judgement: a trial that ends too early has measured the wrong thing, patience costs seconds.
TRAINING_PATIENCE_S = 30.0
"""Longest time to watch a program that built an optimizer without an update, over a loader."""
ROLLOUT_PATIENCE_S = 300.0
"""That time without a loader: a reinforcement learner acts for long before its first update."""
RECORDED_STEPS = 12
"""Steps after warm-up recorded in full, before steps are only counted."""
RECORDED_S = 0.15
"""Time of those steps, at least."""
AHEAD_S = 0.6
"""Seconds from the decision to the ranks' common stop."""
LEAST_AHEAD = 3
"""Steps that the stop lies ahead at least.

Judgement: fewer let a rank pass the stop before it knows of it, more lengthen trials of long steps.
"""
# Seconds to the next look where the log does not tell how long the wait will be, by judgement.
NO_EVENT_S = 0.1
"""Nothing was recorded yet."""
NO_KIND_S = 0.2
"""The kind of step is unknown or undecided."""
NO_TRAINING_S = 0.5
"""A training is awaited."""
NO_WINDOW_S = 1.0
"""Seconds to the next look where there is no window to fill.

Judgement: shorter wakes a thread for nothing, longer is late to see that the program changed its
step."""
SOON_S = 0.1
"""Quick steps recorded in full: soon there are enough, and the rest is only counted."""


@dataclass(frozen=True, slots=True)
class NextPhase:
    """What a process does next, and when to look at its log again."""

    phase: Literal["count", "full"] | None
    """count: record steps alone; full: the window is full, so the caller stops the process or has
    it diagnosed; None: go on as now."""
    look_in_s: float
    """Seconds to the next look: a guess of when the phase ends, or a fixed time without one."""
    calls: bool = True
    """Of `count`: go on recording forwards and backward passes, by which units are counted."""
    cut_short: bool = False
    """The plan's longest time was over before the window was full."""
    series: StepSeries | None = None
    """Steps seen so far; None: there are none yet."""


def advise(
    log: EventLog, plan: MeasurePlan, now: float, *, optimizers_built: bool = False
) -> NextPhase:
    """Next phase of a process, from all that it has recorded by `now` of its own clock.

    `optimizers_built`: the program made an optimizer, and so is about to train. What it does until
    then may be a validation or a rollout: were that taken for an inference, the trial would be
    stopped before the training has begun.
    """
    began = _first_sign(log)
    if began is None:
        return NextPhase(None, NO_EVENT_S)
    left_s = math.inf
    if plan.mode == "window" and plan.longest_s is not None:
        left_s = began + plan.longest_s - now
    log = measured_part(log, plan)
    series = detect_steps(log, plan)
    time_is_up = left_s <= 0
    # what is to be traced must be a known kind of step, so such a plan waits for that
    if time_is_up and not plan.trace:
        return NextPhase("full", 0.0, cut_short=True, series=series)
    if series is None:
        return NextPhase(None, NO_KIND_S)
    if (
        optimizers_built
        and plan.trains is not False
        and log.validations is None
        and _about_to_train(log, series, now - began)
    ):
        return NextPhase(None, NO_TRAINING_S, series=series)
    if series.undecided:
        return NextPhase(None, NO_KIND_S, series=series)
    is_traceable = series.steps > 0 and not (
        series.iterative and not series.forwards_per_unit
    )
    if time_is_up and is_traceable:
        return NextPhase("full", 0.0, cut_short=True, series=series)
    counting = bool(log.hooks) and log.hooks[-1].counting
    if not counting and _enough_recorded(log, series, plan):
        calls = series.loader is None or series.skips or series.kind == FORWARD
        return NextPhase("count", 0.0, calls=calls, series=series)
    if plan.mode != "window":
        return NextPhase(None, NO_WINDOW_S, series=series)
    _, missing_s = find_window(log, series, plan, now=now)
    if not missing_s:
        return NextPhase("full", 0.0, series=series)
    if not counting and series.typical_s < QUICK_STEP_S:
        missing_s = min(missing_s, SOON_S)
    return NextPhase(None, min(missing_s, plan.measure_s, left_s), series=series)


def _first_sign(log: EventLog) -> float | None:
    """Time of the first event of a loop; None before it. A fetch counts from its end."""
    signs = [fetch.end for fetch in log.fetches[:1]]
    signs += [call.start for call in log.calls[:1]]
    signs += [backward.start for backward in log.passes[:1]]
    return min(signs, default=None)


def _about_to_train(log: EventLog, series: StepSeries, watched_s: float) -> bool:
    """True if an update may still come, of a program that built an optimizer.

    Until then, backward passes may be an accumulation, and forwards a validation or a rollout.
    A program that goes on without an update for longer than the patience is taken as it is.
    """
    patience_s = TRAINING_PATIENCE_S if log.loaders else ROLLOUT_PATIENCE_S
    if series.kind == OPTIMIZER or watched_s >= patience_s:
        return False
    return series.kind == UPDATE or has_unread_data(log)


def has_unread_data(log: EventLog) -> bool:
    """True if data may still come: a loader was not iterated, or the program has none."""
    return not log.loaders or any(not facts.iterated for facts in log.loaders.values())


def _enough_recorded(log: EventLog, series: StepSeries, plan: MeasurePlan) -> bool:
    """Return True if enough steps were recorded for the rest to be only counted.

    Never for long steps: the hooks cost them nothing that shows, and go on recording.
    """
    first = warm_up(log, series, plan.measure_s)
    warm_s = series.clock[first:]
    # the mean of all, as the latest alone are quick or slow by where a short pass stands
    if len(warm_s) < 2 or warm_s[-1] - warm_s[0] >= QUICK_STEP_S * (len(warm_s) - 1):
        return False
    # hooks recorded everything again only from here on
    since = log.hooks[-1].time if log.hooks else -math.inf
    recorded = [bound for bound in series.bounds[first:] if bound > since]
    wanted = max(RECORDED_STEPS, 2 * burst(log, series))
    return len(recorded) > wanted and recorded[-1] - recorded[0] >= RECORDED_S


def step_ends(log: EventLog, series: StepSeries) -> tuple[str, Sequence[Any]]:
    """Kind of event that ends a step, and those events."""
    ends: dict[str, tuple[str, Sequence[Any]]] = {
        OPTIMIZER: ("step", log.updates),
        UPDATE: ("backward" if log.backwards else "gradient", log.passes),
        LOADER: ("batch", log.batches(log.loaders.keys())),
        FORWARD: ("call", log.calls),
        GENERATION: ("call", log.calls),
    }
    return ends[series.kind]


def stop_point(
    log: EventLog, series: StepSeries, now: float, more_s: float = 0.0
) -> tuple[str, int]:
    """Kind of event, and its count, at which all ranks stop.

    It lies ahead of them, so that the order reaches each rank before the step does. `now`: on the
    process's clock. `more_s`: seconds that the order takes to ranks of other nodes.
    """
    kind, events = step_ends(log, series)
    recent = events[-RECENT:]  # start-up was slower
    elapsed_s = max(now - recent[0].end, 1e-3)
    ahead = max(LEAST_AHEAD, math.ceil((AHEAD_S + more_s) * len(recent) / elapsed_s))
    return kind, len(events) + ahead
