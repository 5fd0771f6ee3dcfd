"""Batch: doubled until the rate flattens, memory says no, or the document's own constraint does."""

from __future__ import annotations

from advisor import knobs
from advisor.model import Candidate, Failure, Knob, Run
from advisor.tuning import effects
from advisor.tuning.attempts import decide_ignored
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import Search, shown


def tune_batch(search: Search) -> None:
    """Double until the rate flattens, memory says no, or the document's own constraint does."""
    for knob in search.tunable("batch_size"):
        value = search.current(knob)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            search.decide(knob, "listed", f"{value!r} is no plain count; left alone.")
        else:
            climb(search, knob, value)


def climb(search: Search, knob: Knob, start_value: int) -> None:
    """One batch knob, upwards by doubling."""
    assert search.best is not None
    start = search.best
    rates: dict[int, tuple[Candidate, Run]] = {start_value: (search.best_candidate, start)}
    evidence, ids, reason = [f"{start_value}: {shown(start)}"], [], ""
    value, misses, fastest = start_value * 2, 0, start
    # One bad draw on a noisy machine must not end the climb before it gained anything.
    while misses < (2 if fastest is not start else 3):
        candidate = search.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            reason = candidate.reason
            break
        too_big = memory_refusal(search, rates, value)
        if too_big:
            reason = too_big
            break
        try:
            result = search.run(candidate)
        except OverBudgetError as problem:
            search.over_budget(knob.path, problem)
            reason = "the budget was spent"
            break
        ids.append(search.last_id())
        if isinstance(result, Failure):
            reason = f"{value} failed: {result.kind}. {result.evidence}"
            evidence.append(f"{value}: {result.kind}")
            break
        change = next(c for c in candidate.changes if c.path == knob.path)
        seen = result.effects.batch
        if effects.verdict(change, start, result) == "ignored":
            decide_ignored(search, knob, result, ids)
            return
        lost = effects.unprocessed(search.original, result)
        if lost is not None:  # a larger batch leaves out as many or more
            reason = lost
            break
        evidence.append(f"{value}: {shown(result)}")
        if result.peak_mem_gib is not None and result.peak_mem_gib > search.memory_limit_gib:
            reason = (
                f"{value} peaked at {result.peak_mem_gib:.2f} GiB, above the "
                f"{search.memory_limit_gib:.2f} GiB usable on {search.memory_owner}"
            )
            break
        unfilled = seen is not None and seen < value
        if unfilled:
            reason = f"the program never filled a batch of {value}: it saw {seen:g}"
        if unfilled and any(run.effects.batch == seen for _, run in rates.values()):
            break  # the same work as at a smaller value
        rates[value] = (candidate, result)
        if search.faster(result, fastest):
            fastest, misses = result, 0
        else:
            misses += 1
        if unfilled:
            break
        value *= 2
    reason = reason or "the rate is flat"
    if not ids and search.cut_short:
        search.decide(knob, "skipped", "The budget was spent before another batch could run.")
    else:
        settle_batch(search, knob, start_value, rates, evidence, ids, reason)


def settle_batch(
    search: Search,
    knob: Knob,
    start_value: int,
    rates: dict[int, tuple[Candidate, Run]],
    evidence: list[str],
    ids: list[str],
    reason: str,
) -> None:
    """The smallest batch within a tie of the fastest wins; the original if it is among them."""
    assert search.best is not None
    top = max(run.units_per_s for _, run in rates.values())
    level = [v for v, (_, run) in rates.items() if run.units_per_s * (1 + search.level) >= top]
    value = min(level)
    start = rates[start_value][1]
    if value == start_value and start_value != knob.value:
        earlier = search.decisions[(knob.document, knob.path)]
        search.decide(knob, "changed", earlier.why, new=value, evidence=evidence, trials=ids)
        return
    if value == start_value:
        search.decide(
            knob,
            "kept",
            f"No larger batch was faster by more than a tie ({search.band:.0%}); "
            f"the search stopped because {reason}.",
            evidence=evidence,
            trials=ids,
        )
        return
    gain = f"{value} ran {rates[value][1].units_per_s / start.units_per_s:.2f}x as fast"
    if alters_training(search, rates[value][0]):
        search.advisable.append((knob, value, rates[value][1]))
        search.decide(
            knob,
            "advised",
            f"{gain}, but one update would average over {value} samples instead "
            f"of {start_value}, no accumulation makes up for it, and the learning rate was chosen "
            f"for {start_value}.",
            evidence=evidence,
            trials=ids,
        )
        return
    search.adopt(*rates[value])
    for change in search.best_candidate.changes:
        linked = next(
            (
                k
                for k in search.all_knobs
                if (k.document, k.path) == (change.document, change.path) and k != knob
            ),
            None,
        )
        if linked is not None and linked.kind in {"grad_accum", "batch_size"}:
            search.decide(
                linked,
                "changed",
                f"Moves with {knob.path}, so that their product stays.",
                new=change.new,
                trials=ids,
            )
    search.decide(
        knob,
        "changed",
        f"{gain}; the smallest batch within a tie of the fastest; "
        f"the search stopped because {reason}.",
        new=value,
        evidence=evidence,
        trials=ids,
    )


def alters_training(search: Search, candidate: Candidate) -> bool:
    """Whether the program trains and `candidate` moves its effective batch."""
    kinds = [change.kind for change in candidate.changes]
    return search.trains and "batch_size" in kinds and "grad_accum" not in kinds


def memory_refusal(
    search: Search, rates: dict[int, tuple[Candidate, Run]], value: int
) -> str | None:
    """Why `value` must not even be tried, from the memory of the two largest batches that ran."""
    peaks = [(v, run.peak_mem_gib) for v, (_, run) in sorted(rates.items()) if run.peak_mem_gib]
    if not peaks:
        return None
    (last, high) = peaks[-1]
    slope = (high - peaks[-2][1]) / (last - peaks[-2][0]) if len(peaks) > 1 else 0.0
    expected = high + max(slope, 0.0) * (value - last)
    if expected <= search.memory_limit_gib:
        return None
    return (
        f"{value} needs about {expected:.2f} GiB by the peaks measured so far "
        f"({', '.join(f'{v}: {p:.2f} GiB' for v, p in peaks[-2:])}), more than the "
        f"{search.memory_limit_gib:.2f} GiB usable on {search.memory_owner}"
    )
