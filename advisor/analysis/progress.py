"""Progress of a process: count, stop or diagnose.

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
"""Time to watch inference of a program about to train."""
ROLLOUT_PATIENCE_S = 300.0
"""The same without a loader: a reinforcement learner acts for long before its first update."""
RECORDED_STEPS = 12
"""Steps after warm-up recorded in full, before steps are only counted."""
RECORDED_S = 0.15
"""Time of those steps, at least."""
AHEAD_S = 0.6
"""The ranks' common stop comes so long after its decision."""


@dataclass(frozen=True, slots=True)
class NextPhase:
    """Next phase, and when to look again."""

    phase: Literal["count", "full"] | None
    need_s: float
    """Best guess of the time until the next phase."""
    calls: bool = True
    """Counting needs forwards and passes."""
    cut_short: bool = False
    """The plan's longest time was over before the window was full."""
    series: StepSeries | None = None


def advise(
    log: EventLog, plan: MeasurePlan, now: float, *, optimizers_built: bool = False
) -> NextPhase:
    """Next phase of a process, from all that it has recorded by `now` of its own clock.

    `optimizers_built`: the program made an optimizer, and so is about to train. What it does until
    then may be a validation or a rollout: were that taken for an inference, the trial would be
    stopped before the training has begun.
    """
    starts = [fetch.end for fetch in log.fetches[:1]]
    starts += [call.start for call in log.calls[:1]]
    starts += [backward.start for backward in log.passes[:1]]
    if not starts:
        return NextPhase(None, 0.1)
    began = min(starts)
    left_s = math.inf
    if plan.mode == "window" and plan.longest_s is not None:
        left_s = began + plan.longest_s - now
    log = measured_part(log, plan)
    series = detect_steps(log, plan)
    if left_s <= 0 and not plan.trace:
        return NextPhase("full", 0.0, cut_short=True, series=series)
    if series is None:
        return NextPhase(None, 0.2)
    if (
        optimizers_built
        and plan.trains is not False
        and log.validations is None
        and _about_to_train(log, series, now - began)
    ):
        return NextPhase(None, 0.5, series=series)
    if series.undecided:
        return NextPhase(None, 0.2, series=series)
    countable = series.steps > 0 and not (series.iterative and not series.forwards_per_unit)
    if left_s <= 0 and countable:  # a step is traced once its kind is known
        return NextPhase("full", 0.0, cut_short=True, series=series)
    counting = bool(log.hooks) and log.hooks[-1].counting
    if not counting and _is_known(log, series, plan):
        calls = series.loader is None or series.skips or series.kind == FORWARD
        return NextPhase("count", 0.0, calls=calls, series=series)
    if plan.mode != "window":
        return NextPhase(None, 1.0, series=series)
    _, need_s = find_window(log, series, plan, now=now)
    if not need_s:
        return NextPhase("full", 0.0, series=series)
    if not counting and series.typical_s < QUICK_STEP_S:
        need_s = min(need_s, 0.1)
    return NextPhase(None, min(need_s, plan.measure_s, left_s), series=series)


def _about_to_train(log: EventLog, series: StepSeries, since_s: float) -> bool:
    """Return True before the first step of a built optimizer."""
    patience_s = TRAINING_PATIENCE_S if log.loaders else ROLLOUT_PATIENCE_S
    if series.kind == OPTIMIZER or since_s >= patience_s:
        return False
    # it may gather the gradients of many passes, or validate first
    return series.kind == UPDATE or has_unread_data(log)


def has_unread_data(log: EventLog) -> bool:
    """Return True unless every loader was iterated."""
    return not log.loaders or any(not facts.iterated for facts in log.loaders.values())


def _is_known(log: EventLog, series: StepSeries, plan: MeasurePlan) -> bool:
    """Return True if enough steps were recorded for the rest to be only counted.

    Never for long steps: the hooks cost them nothing that shows, and go on recording.
    """
    if series.typical_s >= QUICK_STEP_S:
        return False
    first = warm_up(log, series, plan.measure_s)
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
    """Event kind and count where all ranks stop, as they step together.

    `now`: on the process's clock. `more_s`: time for the word to come.
    """
    kind, events = step_ends(log, series)
    recent = events[-RECENT:]  # start-up was slower
    elapsed_s = max(now - recent[0].end, 1e-3)
    ahead = max(3, math.ceil((AHEAD_S + more_s) * len(recent) / elapsed_s))
    return kind, len(events) + ahead
