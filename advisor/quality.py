"""Quality of a candidate against the original's, with bounds.

A run prints one figure a measure, or one an item. Runs of both arms with one seed are a
pair, and so is each item. The wider bounds count, over seeds or items. An item may be
unlucky in all seeds, and a seed for all items.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal

from advisor import stats
from advisor.model import Effects, Interval, OutputPattern, digest_of
from advisor.settings import QualityMeasure

Values = Mapping[str, tuple[float, ...]]
"""Figures by item of each printed measure."""
Pair = tuple[Values, Values]
"""Original's and candidate's run, with one seed."""

QualityStage = Literal["chosen", "confirmed"]
FEWEST_LOSSES = 8
"""Losses that both runs must have told before their courses are compared, by their last half.

Judgement: fewer compare what a model says at its start, more need a longer run of each candidate.
"""
LARGEST = 1e100
"""Largest figure or loss: the sum of many stays finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityJudgement:
    """Judgement of one measure, over paired seeds and items."""

    measure: str
    value: float | None
    """Mean of the candidate's figures; None: a run did not print it."""
    reference: float | None
    """Mean of the original's figures, with the same seeds; 0 for a drift."""
    limit: float | None
    """The worst value that the tolerance accepts."""
    low: float | None = None
    """95 % bounds of the value, the original's taken as it is; None: one run has none."""
    high: float | None = None
    runs: int
    """Seeds that were different in what came out."""
    items: int
    """Figures of a run that could be paired."""
    stage: QualityStage
    within: bool
    """Chosen: the value is inside the limit. Confirmed: the whole of its bounds is, and they are
    no wider than the tolerance."""


def patterns(measures: Mapping[str, QualityMeasure]) -> tuple[OutputPattern, ...]:
    """What a run of `measures` looks for in all that it prints."""
    return tuple(
        OutputPattern(name=name, pattern=measure.pattern, matches=measure.matches)
        for name, measure in measures.items()
    )


def read_measures(
    measures: Mapping[str, QualityMeasure], printed: Mapping[str, Sequence[str]]
) -> Values:
    """Read figures by measure; those beyond LARGEST or not finite count as unmeasured."""
    values = {}
    for name in measures:
        with contextlib.suppress(ValueError):  # no number
            figures = tuple(map(float, printed.get(name, ())))
            if figures and all(abs(figure) <= LARGEST for figure in figures):
                values[name] = figures
    return values


def means(values: Values) -> dict[str, float]:
    return {name: fmean(figures) for name, figures in values.items()}


def seeds_matter(pairs: Sequence[Pair]) -> bool:
    """False if seeds give equal figures: then all runs count as one."""
    return len(pairs) < 2 or any(pair != pairs[0] for pair in pairs)


def differences(pairs: Iterable[Pair], measure: str, sign: float) -> list[list[float]]:
    """Loss of the candidate by run and item; unpaired items are one."""
    losses = []
    for before, after in pairs:
        old, new = before[measure], after[measure]
        if len(old) != len(new):
            old, new = (fmean(old),), (fmean(new),)
        losses.append([sign * (b - a) for a, b in zip(old, new, strict=True)])
    return losses


def bounds(runs: Sequence[Sequence[float]]) -> Interval:
    """Mean loss, with the wider bounds over runs or items.

    `runs`: losses of each run by item. Neither runs nor items alone are a sample of what a user
    will meet: all items of a run share its seed, and an item shares its difficulty in all runs.
    """
    intervals = [stats.paired_interval([fmean(items) for items in runs])]
    if len({len(items) for items in runs}) == 1:
        intervals.append(
            stats.paired_interval([fmean(same) for same in zip(*runs, strict=True)])
        )
    some = [interval for interval in intervals if interval.n > 1] or intervals
    return Interval(
        estimate=fmean(map(fmean, runs)),
        low=min(interval.low for interval in some),
        high=max(interval.high for interval in some),
        n=max(interval.n for interval in intervals),
    )


def spread_of_a_run(runs: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of a run's mean, the larger by runs and by items."""
    deviations = [stdev(items) / math.sqrt(len(items)) for items in runs if len(items) > 1]
    if len(runs) > 1:
        deviations.append(stdev([fmean(items) for items in runs]))
    return max(deviations, default=None)


def rounds_needed(spread: float, gap: float, limit: int) -> int | None:
    """Runs a side that bounds half of `gap` need; None: more than `limit`."""
    for rounds in range(2, limit + 1):
        if (
            stats.t_quantile(1 - stats.ALPHA, rounds - 1) * spread / math.sqrt(rounds)
            <= gap / 2
        ):
            return rounds
    return None


def judge(
    measures: Mapping[str, QualityMeasure],
    pairs: Sequence[Pair],
    stage: QualityStage,
    spent: Mapping[str, float] | None = None,
) -> list[QualityJudgement]:
    """Judge each declared measure over `pairs`.

    One unprinted by a run is out of tolerance. `spent`: share of each that past calls used.
    """
    used = pairs if seeds_matter(pairs) else pairs[:1]
    return [
        _judged(n, m, used, stage, (spent or {}).get(n, 0.0)) for n, m in measures.items()
    ]


def _judged(
    name: str,
    measure: QualityMeasure,
    pairs: Sequence[Pair],
    stage: QualityStage,
    spent: float,
) -> QualityJudgement:
    """Judgement of one measure.

    Where candidates are chosen the estimate has to be inside the tolerance. Where the chosen one
    is confirmed its bound has to be inside, too, before it may be written.
    """
    old = [means(before)[name] for before, _ in pairs if name in before]
    reference = fmean(old) if old else None
    missing = QualityJudgement(
        measure=name,
        value=None,
        reference=reference,
        limit=None if reference is None else measure.limit(reference),
        runs=len(pairs),
        items=0,
        stage=stage,
        within=False,
    )
    if reference is None or not all(name in run for pair in pairs for run in pair):
        return missing
    sign = measure.sign
    by_run = differences(pairs, name, sign)
    worse = bounds(by_run)
    slack = max(0.0, 1.0 - spent) * measure.slack(reference)
    worst_case = (
        worse.estimate
        if stage == "chosen"
        else max(worse.high, worse.high - worse.estimate)
    )
    interval = sorted(reference + sign * bound for bound in (worse.low, worse.high))
    low, high = interval if math.isfinite(worse.high) else (None, None)
    return replace(
        missing,
        value=reference + sign * worse.estimate,
        limit=reference + sign * slack,
        low=low,
        high=high,
        items=min(map(len, by_run)),
        within=worst_case <= slack,
    )


def moved(measures: Mapping[str, QualityMeasure], pairs: Sequence[Pair]) -> bool:
    """True if a measure surely left its tolerance."""
    random = seeds_matter(pairs)
    for name, measure in measures.items():
        by_run = differences(pairs, name, measure.sign)
        slack = measure.slack(fmean(means(before)[name] for before, _ in pairs))
        worse = bounds(by_run)
        if (worse.low if random else worse.estimate) > slack:
            return True
    return False


def given_away(
    measures: Mapping[str, QualityMeasure],
    first: Mapping[str, float],
    latest: Mapping[str, float],
) -> dict[str, float]:
    """Share of each tolerance that `latest` used of the `first` original's."""
    losses = {}
    for name, measure in measures.items():
        if name not in first or name not in latest:
            continue
        slack = measure.slack(first[name])
        worse = (latest[name] - first[name]) * measure.sign
        losses[name] = max(0.0, worse / slack) if slack else 0.0
    return losses


def measure_key(measures: Mapping[str, QualityMeasure], command: tuple[str, ...]) -> str:
    """Key of a measure; equal keys share a reference."""
    facts = [list(command), {name: [m.pattern, m.matches] for name, m in measures.items()}]
    return digest_of(facts)


def judge_drift(
    drifts: Sequence[Sequence[float]], tolerance: float, stage: QualityStage
) -> QualityJudgement:
    """Judge relative differences of losses or outputs, either way, by pair and step."""
    finite = all(math.isfinite(drift) for pair in drifts for drift in pair) and all(drifts)
    judgement = (
        bounds(drifts)
        if finite
        else Interval(estimate=math.inf, low=math.inf, high=math.inf, n=1)
    )
    value, bound = abs(judgement.estimate), max(abs(judgement.low), abs(judgement.high))
    return QualityJudgement(
        measure="drift",
        value=value,
        reference=0.0,
        limit=tolerance,
        high=bound if stage == "confirmed" else None,
        runs=len(drifts),
        items=min(map(len, drifts), default=0),
        stage=stage,
        within=(value if stage == "chosen" else bound) <= tolerance,
    )


def loss_drifts(
    reference: tuple[float, ...], losses: tuple[float, ...]
) -> tuple[float, ...]:
    """Relative differences of losses in the last half of the common steps."""
    steps = min(len(reference), len(losses))
    if steps < FEWEST_LOSSES:
        return ()
    half = steps // 2  # losses before it are still those of the start
    before, after = reference[half:steps], losses[half:steps]
    if not all(abs(loss) <= LARGEST for loss in (*before, *after)):
        return (math.inf,) * len(before)
    scale = abs(fmean(before))
    if scale == 0:
        return (math.inf,) * len(before)
    return tuple((b - a) / scale for a, b in zip(before, after, strict=True))


ALIKE = 0.02
"""Relative distance of inputs that are the same, rounded.

Judgement: bfloat16 rounds a number by up to 0.4 %; much more than this is another item."""


def output_errors(before: Effects, after: Effects) -> tuple[float, ...]:
    """Relative errors of outputs by forward, while inputs are alike."""
    errors = []
    seen = zip(before.inputs, after.inputs, before.outputs, after.outputs, strict=False)
    for old_in, new_in, old, new in seen:
        if len(old) != len(new) or not old or apart(old_in, new_in) > ALIKE:
            break
        errors.append(apart(old, new))
    return tuple(errors)


def apart(old: Sequence[float], new: Sequence[float]) -> float:
    """Relative distance; inf if not comparable."""
    if len(old) != len(new) or not all(map(math.isfinite, (*old, *new))):
        return math.inf
    size = math.hypot(*old)
    length = math.dist(old, new)
    return length / size if size else (0.0 if not length else math.inf)
