"""Steps of a training by updates.

A step ends with an update of the parameters. Its units are the items of the train loaders'
batches that it was trained on, or without a loader those of the forwards. Batches that were
loaded and skipped are no units: a program that swallows an error and goes on would look faster.

Which loader trains, how many backwards an update gathers and which batches are skipped can only
be seen while every hook is in. Later steps are counted by one event each, and take over what
the hooked part of the log has shown.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple, TypeVar

from advisor.analysis.events import (
    BatchFetch,
    EventLog,
    ForwardCall,
    Span,
    typed,
)
from advisor.analysis.loaders import train_loaders, worked_items
from advisor.analysis.step_series import (
    FORWARD_SOURCE,
    OPTIMIZER,
    UPDATE,
    StepSeries,
    dominant_module,
    most_common,
)
from advisor.model import SAMPLER_FORWARDS

T = TypeVar("T")

# By judgement: shares and not all, as the first and last rounds of a loop are unlike the others.
EVALUATIONS_SHARE = 0.2
"""Calls without gradients in more of the steps belong to the steps."""
MOST_ROLLOUTS = 0.5
"""So do those that come with more of the updates: of a learner that acts and learns in turn."""
WHOLE_PASSES = 0.02
"""Largest distance of the times that a rollout's samples are trained on from a whole number.

Judgement: smaller misses rollouts whose last batch drops a few rows. Larger takes a validation's
rows for a rollout's."""
SAME_ROWS = 0.9
"""Least share of the rows trained on that a rollout showed: padding may be among them.

Judgement: smaller takes a validation on some of the train data for a rollout, larger misses
rollouts in padded batches."""
ROLLOUT_PATIENCE = 10.0
"""A second rollout is waited for so many times as long as the first one took.

Judgement: smaller ends while the network is still trained on the first, larger waits for a program
that acts once."""
ROLLOUT_PATIENCE_S = 10.0, 300.0
"""At least and at most, in seconds after the first rollout."""


class Fed(NamedTuple):
    """Batch that was trained on."""

    time: float
    items: float


class Update(NamedTuple):
    """Update of parameters; `ends_round`: with it a step is over."""

    start: float
    end: float
    ends_round: bool


def detect(log: EventLog) -> StepSeries | None:
    """Detect training steps; None before the first update."""
    updates = _updates(log)
    if not updates:
        return None
    hooked = log.hooked()
    series = StepSeries(OPTIMIZER if log.updates else UPDATE, counted="update")
    series.bounds = [update.end for update in updates if update.ends_round]
    series.root = dominant_module(hooked)
    clusters = _passes_of_steps(log, updates)
    counts = [len(cluster) for cluster in clusters[1:] if cluster]
    series.accumulation = float(median(counts)) if counts else None
    fed = _from_loaders(log, series) or _from_forwards(log, series, clusters)
    series.source += f", at {series.kind}s"
    series.finished_batches = bisect.bisect_right(
        [batch.time for batch in fed], series.bounds[-1]
    )
    series.whole_units = sum(batch.items for batch in fed[: series.finished_batches])
    series.units = _items_by_step(series.bounds, fed)
    batches = _items_by_step(series.bounds, [Fed(batch.time, 1.0) for batch in fed])
    series.batches_per_step = sum(batches) / len(batches) if batches else 1.0
    if series.loader is not None:
        if log.loader(series.loader).guessed:
            series.count_steps()
        series.marks = _restarts(log, series)
        series.aside = list(_other_loaders(log, series))
    else:
        _without_loaders(log, series)
    series.set_clock(first_start(log, series))
    return series


def _updates(log: EventLog) -> list[Update]:
    """Updates of all optimizers, and which of them ends a round.

    Networks that train each other (a generator and its critic) have an optimizer each, and update
    in turn. One round of them is one step. The optimizer that steps most sets the pace; of
    several that do, the last one ends the round.

    An optimizer that first steps after another's last step takes that one's place: a program
    makes it anew for each phase, and the phases are one training.

    Without torch's optimizers the program updates by itself after its backward, so each
    backward is an update. The last of a running program may not have been applied yet.
    """
    if not log.updates:
        passes = log.passes if log.ended else log.passes[:-1]
        return [Update(backward.end, backward.end, ends_round=True) for backward in passes]
    spans: dict[int, list[int]] = {}
    for at, update in enumerate(log.updates):
        spans.setdefault(update.optimizer, [at, at])[1] = at
    place: dict[int, int] = {}
    last: dict[int, int] = {}
    for optimizer, (first, end) in spans.items():  # in order of first updates
        lead = next((lead for lead, until in last.items() if until < first), optimizer)
        place[optimizer], last[lead] = lead, end
    counts = Counter(place[update.optimizer] for update in log.updates)
    main = max(key for key, count in counts.items() if count >= max(counts.values()) - 1)
    return [
        Update(step.start, step.end, ends_round=place[step.optimizer] == main)
        for step in log.updates
    ]


def _items_by_step(bounds: list[float], moments: list[Fed]) -> list[float]:
    sums = [0.0] * max(0, len(bounds) - 1)
    for time, items in moments:
        step = bisect.bisect_left(bounds, time) - 1
        if 0 <= step < len(sums):
            sums[step] += items
    return sums


def _restarts(log: EventLog, series: StepSeries) -> list[int]:
    """Steps that hold the first batch of a new pass."""
    site = log.loader(series.loader).site  # also of one made anew for each pass
    loaders = {loader for loader in series.loaders if log.loader(loader).site == site}
    fetches = [fetch for fetch in log.fetches if fetch.loader in loaders]
    return _steps_at(series, [new.end for old, new in pairwise(fetches) if old.ended_pass])


def first_start(log: EventLog, series: StepSeries) -> float | None:
    """Seconds of the loader's first start, if each pass repeats it; sets a pass's steps.

    Workers that do not persist start again with each pass. A short trial sees the first start
    only, which then stands for those to come, spread over the steps of a pass.
    """
    facts = log.loader(series.loader)
    units = sum(series.units)
    repeats = facts.workers and not typed(facts.arguments, "persistent_workers", bool)
    if series.marks or not repeats or not facts.pass_items or not units:
        return None
    series.cycle_steps = facts.pass_items * series.steps / units
    return next(f.end - f.start for f in log.fetches if f.loader == series.loader)


def _steps_at(series: StepSeries, times: list[float]) -> list[int]:
    """Numbers of the steps that were under way at `times`, each once."""
    steps = {bisect.bisect_right(series.bounds, time) - 1 for time in times}
    return sorted(step for step in steps if 0 <= step < series.steps)


def _from_loaders(log: EventLog, series: StepSeries) -> list[Fed]:
    """Trained batches of train loaders; none where steps go on without them.

    A program may fill a buffer from its loader and train on that: the loader's batches are then
    over long before the steps, and say nothing of them.

    Where another thread fetches ahead, the order of events does not tell which batches were
    skipped. Each step is then given an equal whole number of them.
    """
    feeding = train_loaders(log.hooked())
    if feeding is None:
        return []
    batches = log.batches(feeding.in_turn)
    if log.loader(feeding.lead).other_thread:
        passes = round(series.accumulation or 1.0)
        many = passes * max(1, round(len(batches) / passes / len(series.bounds)))
        ends = [bound for bound in series.bounds for _ in range(many)]
        fed = [Fed(end, batch.items) for end, batch in zip(ends, batches, strict=False)]
    else:
        items = _worked_items(log, batches)
        series.skips = any(
            some < batch.items for some, batch in zip(items, batches, strict=True)
        )
        fed = [Fed(batch.end, some) for some, batch in zip(items, batches, strict=True)]
    steps = len(series.bounds)
    if not fed or (steps >= 4 and fed[-1].time < series.bounds[steps // 2]):
        return []
    series.loader, series.loaders = feeding.lead, feeding.all
    series.source = "items of the train loader's batches"
    series.batch = most_common([batch.items for batch in log.batches({feeding.lead})])
    return fed


def _worked_items(log: EventLog, batches: list[BatchFetch]) -> list[float]:
    """Items of batches that went through a forward, as far as that was recorded.

    While updates alone are counted no backward is recorded, so nothing tells which of the later
    batches were worked on: all of them count.
    """
    hooked, watched = log.hooked(), batches
    if hooked is not log and len(hooked.passes) == len(log.passes):
        until = log.counting_since or 0.0
        watched = [batch for batch in batches if batch.end <= until]
    work = [backward.start for backward in log.passes]
    calls = [
        call for call in log.calls if call.graded and log.module(call.module).parameters
    ]
    rest = [batch.items for batch in batches[len(watched) :]]
    return worked_items(log, watched, work, calls) + rest


def _passes_of_steps(log: EventLog, updates: list[Update]) -> list[list[int]]:
    """Indices of backwards applied by each step.

    Those before another optimizer's update in the same round are that one's, and count only
    where the update that ends the round has none of its own. An optimizer that is given a
    closure, as L-BFGS is, calls it again and again for one batch: of the backwards inside an
    update the last one stands for all.
    """
    starts = [backward.start for backward in log.passes]
    by_step: list[list[int]] = []
    cluster: list[int] = []
    position = 0
    for update in updates:
        before = bisect.bisect_left(starts, update.start)
        after = bisect.bisect_left(starts, update.end)
        fresh = [*range(position, before), *range(max(position, before), after)[-1:]]
        cluster = fresh or cluster
        position = max(position, after)
        if update.ends_round:
            by_step.append(cluster)
            cluster = []
    return by_step


def _from_forwards(
    log: EventLog, series: StepSeries, clusters: list[list[int]]
) -> list[Fed]:
    """Trained batches, by forwards with backwards; else a step per update.

    The last forward before each backward pass tells its batch: earlier ones of a critic saw the
    same. Of many forwards it is unknown which are the batch: they may be steps of an episode,
    or of a sequence.
    """
    heavy = [c for c in log.calls if log.module(c.module).parameters] or log.calls
    mine = [call for call in heavy if call.graded] or heavy
    passes = log.passes
    ends = [call.end for call in mine]
    fed: list[Fed] = []
    many: list[int] = []
    for cluster in clusters:
        for index in cluster:
            since = passes[index - 1].end if index else float("-inf")
            low = bisect.bisect_left(ends, since)
            high = bisect.bisect_right(ends, passes[index].start)
            batch_calls = [call for call in mine[low:high] if call.module == series.root]
            batch_calls = batch_calls or mine[low:high]
            if batch_calls:
                fed.append(Fed(passes[index].end, batch_calls[-1].items))
                many.append(len(batch_calls))
    fed = fed or [Fed(call.end, call.items) for call in mine if call.module == series.root]
    series.source = FORWARD_SOURCE
    series.batch = most_common([batch.items for batch in fed])
    if fed and (not many or median(many) < SAMPLER_FORWARDS):
        return fed
    series.counted = "step"
    series.source = "steps, of which no layer tells how many samples they hold"
    return [Fed(passes[cluster[-1]].end, 1.0) for cluster in clusters if cluster]


def _other_loaders(log: EventLog, series: StepSeries) -> Iterator[Span]:
    """Stretches of other loaders' turns, to the next request of a batch.

    If a step ends before, its batch was loaded ahead: their last fetch is the end.
    """
    for others, after in _runs(
        log.fetches, lambda fetch: fetch.loader not in series.loaders
    ):
        end = others[-1].end
        at = bisect.bisect_right(series.bounds, end)
        asked = after[0].start if after else end
        ahead = at < len(series.bounds) and series.bounds[at] <= asked
        yield Span(others[0].start, end if ahead else asked)


def _runs(events: Sequence[T], aside: Callable[[T], bool]) -> list[tuple[list[T], list[T]]]:
    """Runs of events `aside`, each with the other events behind it."""
    runs = [list(run) for _, run in groupby(events, aside)]
    return [(before, after) for before, after in pairwise([*runs, []]) if aside(before[0])]


def _without_loaders(log: EventLog, series: StepSeries) -> None:
    """Set apart validation, or find the rollouts of a reinforcement learner.

    Such calls in every step belong to the steps. Rollouts come before the first update, and the
    network trains on just their samples, a whole number of times: then the unit is a step of the
    environment, and only whole cycles are a window. A first stretch of calls with other rows
    than those trained on may be a rollout, too: the second one tells.
    """
    calls = [call for call in log.calls if call.module == series.root]
    runs = _runs(calls, lambda call: not call.graded)
    many = sum(call.graded for call in calls)
    if not runs or len(runs) > MOST_ROLLOUTS * many:
        return
    stretches = [
        Span(ungraded[0].start, after[0].start if after else ungraded[-1].end)
        for ungraded, after in runs
    ]
    acts = _acts(log, stretches[0], calls) or (
        not calls[0].graded and _comes_again(log, *runs[0])
    )
    if repeats := _repeats(runs) if acts else 0.0:
        series.marks = _steps_at(series, [stretch.start for stretch in stretches])
        series.counted = "rollout"
        series.source = (
            f"steps of the environment, of whole rollouts with their {series.kind}s"
        )
        series.units = [units / repeats for units in series.units]
        series.whole_units /= repeats
    elif len(runs) < EVALUATIONS_SHARE * many:
        series.aside = stretches
        if len(runs) == 1 and acts:
            series.undecided = _may_come_again(log, stretches[0])


def _acts(log: EventLog, first: Span, calls: Sequence[ForwardCall]) -> bool:
    """True if a first stretch of calls may be a rollout.

    It comes before the first update, and has a row for each environment. A validation has a
    loader, or mostly the rows of the training.
    """
    rows = {call.items for call in calls if call.graded}
    fed = any(first.start <= fetch.end <= first.end for fetch in log.fetches)
    return not calls[0].graded and calls[0].items not in rows and not fed


def _comes_again(
    log: EventLog, ungraded: Sequence[ForwardCall], after: Sequence[ForwardCall]
) -> bool:
    """True if the network is trained on what it was shown in calls before.

    Environments may be as many as the rows of a batch: then only the rows themselves tell a
    rollout from a validation.
    """
    rows_shown = {row for call in ungraded for row in log.rows.get(call.end, ())}
    trained = [row for call in after for row in log.rows.get(call.end, ())]
    return bool(trained) and sum(row in rows_shown for row in trained) >= SAME_ROWS * len(
        trained
    )


def _may_come_again(log: EventLog, first: Span) -> bool:
    """True while the second rollout may still come."""
    least_s, most_s = ROLLOUT_PATIENCE_S
    wait_s = min(most_s, max(least_s, ROLLOUT_PATIENCE * (first.end - first.start)))
    now = log.last_time() or first.end
    return not log.ended and now < first.end + wait_s


def _repeats(runs: Sequence[tuple[Sequence[ForwardCall], Sequence[ForwardCall]]]) -> float:
    """Times that the samples of most rollouts are trained on; 0 where they are none."""
    times = [_times_trained(ungraded, after) for ungraded, after in runs[:-1]]
    usual = most_common(times) or 0.0
    return usual if times.count(usual) > len(times) / 2 else 0.0


def _times_trained(rollout: Sequence[ForwardCall], after: Sequence[ForwardCall]) -> float:
    """Times that the samples of a rollout are trained on; 0 if not a whole number.

    The value of what follows the last step takes one call more, of the same rows.
    """
    trained, rows = sum(call.items for call in after), rollout[-1].items
    seen = sum(call.items for call in rollout)
    for steps in (seen, seen - rows):
        times = trained / steps if steps > 0 else 0.0
        if round(times) >= 1 and abs(times - round(times)) <= WHOLE_PASSES:
            return float(round(times))
    return 0.0
