"""Batch: multiplied until the rate flattens, memory says no, or the document's own constraint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.experiments.attempts import Arm
from advisor.strategy import effects
from advisor.strategy.facts import Proposal
from advisor.strategy.loader import settle_ignored, unfollowed
from advisor.strategy.standing import Stage, Standing, ask_for, key_of, tried

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.model import Candidate, JsonScalar, Knob, Run
    from advisor.strategy.facts import Data

STRIDES = ((8, 2), (4, 4), (0, 8))
"""With so many processes to spend, the factor from one batch to the next."""
OWN_STEPS = ("backward", "gradients", "moved", "asked")
"""Signs of a training without an optimizer of torch's."""
ENOUGH = 2
"""Larger values in a row that gained nothing."""

Rungs = dict[int, tuple["Candidate", "Run"]]


def tune_batch(now: Standing) -> Stage:
    """Every batch knob of the phase, upwards."""
    for knob in now.tunable("batch_size"):
        value = now.current(knob)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            now = now.settle(key_of(knob), "listed", "no-plain-count", value=str(value))
        else:
            now = yield from climb(now, knob, value)
    return now


def climb(now: Standing, knob: Knob, start_value: int) -> Stage:
    """One batch knob, upwards from where it stands in the best candidate."""
    start = fastest = now.front
    rungs: Rungs = {start_value: (now.best, start)}
    stride = next(factor for tries, factor in STRIDES if now.tries >= tries)
    value, misses, ran = start_value * stride, 0, 0
    stop: Data = (("stop", "flat"),)
    # One bad draw on a noisy machine must not end the climb before it gained anything.
    while misses < (ENOUGH if fastest is not start else ENOUGH + 1):
        candidate = now.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            stop = (("stop", "refused"), ("why", candidate.reason))
            break
        if too_big := memory_refusal(now, rungs, value):
            stop = too_big
            break
        # What two larger values did not gain is no loss to leave at that.
        ask = ask_for(now, candidate, knob=knob)
        now, attempt = yield from tried(now, ask, matters=misses < ENOUGH)
        if attempt is None:
            stop = (("stop", "budget"),)
            break
        ran += 1
        run = attempt.run
        if run is None:
            kind, evidence = attempt.result.kind, attempt.result.evidence  # type: ignore[union-attr]
            stop = (("stop", "failed"), ("value", value), ("kind", kind), ("why", evidence))
            break
        if unfollowed(knob, candidate, start, run):
            return settle_ignored(now, knob, run)
        if lost := effects.lost_results(now.original, run):  # a larger batch loses as many
            stop = (*lost, ("value", value))
            break
        peak_gib = run.peak_mem_gib
        if peak_gib is not None and peak_gib > now.facts.memory_limit_gib:
            stop = (("stop", "memory-peaked"), ("value", value), ("peak_gib", peak_gib))
            break
        seen = run.effects.batch
        unfilled = seen is not None and seen < value
        if unfilled:
            stop = (("stop", "unfilled"), ("value", value), ("seen", seen))
        if unfilled and any(r.effects.batch == seen for _, r in rungs.values()):
            break  # the same work as at a smaller value
        rungs[value] = (candidate, run)
        if now.faster(run, fastest):
            fastest, misses = run, 0
        else:
            misses += 1
        if unfilled:
            break
        value *= stride
    if not ran and stop == (("stop", "budget"),):
        word = now.word_on(knob)
        return now if word else now.settle(key_of(knob), "skipped", "budget")
    return settle_batch(now, knob, start_value, rungs, stop)


def settle_batch(now: Standing, knob: Knob, start_value: int, rungs: Rungs, stop: Data) -> Standing:
    """The smallest batch within a tie of the fastest wins; the original if it is among them."""
    objective = now.facts.objective
    top = max(objective.score(run) for _, run in rungs.values())
    level = [
        value
        for value, (_, run) in rungs.items()
        if objective.gain(objective.score(run), top) <= 1 + now.level
    ]
    value = min(level)
    key, facts = key_of(knob), dict(stop)
    if value == start_value:
        if start_value != knob.value:
            return now.settle(key, "found", "batch", **facts)
        return now.settle(key, "kept", "batch-flat", band=now.band, **facts)
    candidate, run = rungs[value]
    if alters_training(now, candidate, run):
        proposal = Proposal(
            kind="training-batch",
            title=f"{knob.path}: {knob.value} to {value}",
            arm=Arm(candidate=candidate),
            run=run,
            gain=now.gain(run, now.front),
            data=(("from", start_value), ("to", value), ("trains", sign(now))),
            knob=key,
        )
        others = tuple(p for p in now.proposals if p.knob != key)
        now = replace(now, proposals=(*others, proposal))
        return now.settle(key, "advised", "training-batch", **dict(proposal.data))
    return now.adopt(candidate, run).settle(key, "found", "batch", **facts)


def alters_training(now: Standing, candidate: Candidate, run: Run) -> bool:
    """Whether the program trains and `candidate`, as it ran, moves its effective batch.

    An accumulation that moves along makes up for it, unless the program was seen not to follow;
    of one that steps by itself it must be seen that it does.
    """
    if not (now.trains or run.trains) or all(c.kind != "batch_size" for c in candidate.changes):
        return False
    along = [change for change in candidate.changes if change.kind == "grad_accum"]
    doubt = {"ignored", "unknown"} if run.effects.trains in OWN_STEPS else {"ignored"}
    return not along or any(effects.verdict(c, now.original, run) in doubt for c in along)


def sign(now: Standing) -> str | None:
    """What was seen that speaks for a training, where no optimizer of torch's stepped."""
    told = now.original.effects.trains
    return told if told in OWN_STEPS else None


def memory_refusal(now: Standing, rungs: Mapping[int, tuple[Candidate, Run]], value: int) -> Data:
    """Why `value` must not even be tried, from the memory of the two largest batches that ran."""
    peaks = [(v, run.peak_mem_gib) for v, (_, run) in sorted(rungs.items()) if run.peak_mem_gib]
    if not peaks:
        return ()
    (last, high) = peaks[-1]
    slope = (high - peaks[-2][1]) / (last - peaks[-2][0]) if len(peaks) > 1 else 0.0
    expected = high + max(slope, 0.0) * (value - last)
    if expected <= now.facts.memory_limit_gib:
        return ()
    told: dict[str, JsonScalar] = {
        "stop": "memory-expected",
        "value": value,
        "expected_gib": expected,
        "limit_gib": now.facts.memory_limit_gib,
        "peaks": ", ".join(f"{v}: {p:.2f} GiB" for v, p in peaks[-2:]),
    }
    return tuple(told.items())
