"""Which dimension of what a model is given is the batch, where neither a loader nor its layers
tell: the one that follows the batch's own setting when that is moved. One short process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import TrialRequest, Variant
from advisor.knobs.discovery import BATCH
from advisor.model import BatchPlace
from advisor.tuner.asking import SearchStep, tried
from advisor.tuner.discover import short_plan
from advisor.tuner.standing import Result, TunerState, change_of, key_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from advisor.model import Candidate, Effects, Knob

TIMES = (2, 0.5)
"""What the setting is moved by: the first that it may be."""


def place_of_batch(
    now: TunerState,
) -> Generator[SearchStep, Result, tuple[TunerState, BatchPlace | None]]:
    """Where the batch is, by one experiment; None where there is no doubt, no setting whose value
    could be a dimension, or none that follows it."""
    for knob in doubtful(now):
        moved = next(_moved(now, knob), None)
        if moved is None:
            continue
        request = TrialRequest(
            variant=Variant(candidate=moved),
            purpose="effects",
            plan=short_plan(now),
            expected_s=now.price_s,
        )
        now, attempt = yield from tried(now, request)
        run = attempt.run if attempt is not None else None
        change = change_of(moved, key_of(knob))
        if run is None or change is None:
            return now, None
        times = float(str(change.new)) / float(str(change.old))
        return now, followed(now.original.effects, run.effects, times)
    return now, None


def doubtful(now: TunerState) -> list[Knob]:
    """Settings of the batch, none of which explains the batch that was seen, and each of which may
    be a dimension of what the model was given. Empty where a loader tells."""
    seen = now.original.effects
    counts = [k for k in now.tunable("batch_size") if _is_count(k)]
    loaded = seen.workers is not None or seen.batch_asked is not None
    told = bool(BATCH.seen(seen)) and BATCH.known_from(counts, seen)
    if loaded or told or seen.model_site is None:
        return []
    dims = {float(size) for shape in seen.input_dims for size in shape}
    return [
        knob
        for knob in counts
        if any(relation.shown(_value(knob), seen) in dims for relation in BATCH.relations)
    ]


def followed(before: Effects, after: Effects, times: float) -> BatchPlace | None:
    """The first dimension that changed as the setting did."""
    assert before.model_site is not None
    pairs = enumerate(zip(before.input_dims, after.input_dims, strict=False))
    for number, (was, now) in pairs:
        for axis, (old, new) in enumerate(zip(was, now, strict=False)):
            if len(was) == len(now) and old != new == old * times:
                return BatchPlace(site=before.model_site, input=number, axis=axis)
    return None


def _moved(now: TunerState, knob: Knob) -> Iterator[Candidate]:
    for times in TIMES:
        value = _value(knob) * times
        if value >= 1 and value == int(value):
            moved = now.with_value(knob, int(value))
            if not isinstance(moved, knobs.InvalidChange):
                yield moved


def _is_count(knob: Knob) -> bool:
    return isinstance(knob.value, int) and not isinstance(knob.value, bool) and knob.value >= 1


def _value(knob: Knob) -> int:
    assert isinstance(knob.value, int)
    return knob.value
