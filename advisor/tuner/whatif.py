"""What is not ours to write: tried on top of what was proven, and put up for pairs of its own.

Mostly what no config key holds, tried from inside the process; and a training batch whose change
nothing makes up for. What one run suggests is told to nobody before pairs have proven it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.comparison import AFTER, Comparison
from advisor.executor.requests import ABTest, MinimumEffect, Variant
from advisor.tuner import results
from advisor.tuner.asking import SearchStep, Stage, tried
from advisor.tuner.facts import Suggestion
from advisor.tuner.grid import promise_of_training, tune_training
from advisor.tuner.loader import worker_counts
from advisor.tuner.proof import planned_rounds, side
from advisor.tuner.rounding import within
from advisor.tuner.standing import (
    FEWEST_ROUNDS,
    GOOD_ROUNDS,
    MARGIN,
    Result,
    TunerState,
    change_of,
    key_of,
)
from advisor.tuner.switches import SWITCHES, Switch, applies, whatifs
from advisor.tuner.whatif_words import joined, of_loader

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from advisor.model import Run
    from advisor.tuner.facts import Data

MOST_ADVISED = 4
"""Proposals that get pairs of their own, the most promising first."""
WORTH_BUCKETS = 0.1
"""Part of the batches that must be padding for other batches to be worth a process."""


def advise(now: TunerState) -> Stage:
    """Try what fits into the budget, what promises most first, each with its pairs at once: where
    these refute what one run suggested, what comes next is tried as if it had not.

    What waiting and padding cost bounds what could be gained there, and of a batch of the training
    the runs so far tell what to expect: these come first, the largest gain before the others, and
    of two that are equal the one that leaves the training as it is. Nothing tells what a switch of
    the code will gain, so those follow; what takes long to try (compilation) waits until the rest
    has its proofs.
    """
    padding = now.front.effects.padding_share or 0.0
    foreseen = (
        (now.without_waiting, try_loader_arguments),
        (1 / max(1e-9, 1 - padding), try_buckets),
        (promise_of_training(now), tune_training),
    )
    by_promise = sorted(foreseen, key=lambda each: -each[0])
    worth = [gain > 1 + now.facts.smallest_gain for gain, _ in by_promise]
    for number, (_, stage) in enumerate(by_promise, 1):
        now = yield from stage(now)
        now = yield from prove_best(now, later=sum(worth[number:]))
    may_round = now.facts.consents and now.facts.allows("numeric")
    wanted = [
        (switch, whatifs(now, switch))
        for switch in SWITCHES
        if applies(now, switch) and (may_round or not switch.guarded)
    ]
    for dear in (False, True):
        for switch, names in wanted:
            if (switch.extra_s > now.price_s) is dear:
                now = yield from try_switch(now, switch, names)
        now = yield from prove_best(now)
    if together := all_at_once(now):
        now = replace(now, proposals=(*now.proposals, together))
        now = yield from settle(now, together)
    return now


def prove_best(now: TunerState, later: int = 0) -> Stage:
    """Pairs for the most promising of what has none yet, as far as the budget goes; for each of so
    many `later` ones that are still to be tried, the least that an answer takes is kept back."""
    without = sorted((p for p in now.proposals if p.outcome is None), key=lambda p: -p.gain)
    for number, proposal in enumerate(without[:MOST_ADVISED], 1):
        known = min(len(without), MOST_ADVISED) - number + (len(without) > 1)
        kept_s = known * now.rounds_s(FEWEST_ROUNDS) + later * now.fewest_s
        now = yield from settle(now, proposal, kept_s)
    return now


def settle(now: TunerState, proposal: Suggestion, later_s: float = 0.0) -> Stage:
    """Pairs of what was proven and of what is proposed on top of it; `later_s` are kept back, if
    this one gets its own fewest."""
    variant = proposal.variant
    if proposal.kind == "training-batch":
        knob = next(knob for knob in now.all_knobs if key_of(knob) == proposal.knob)
        candidate = now.with_value(knob, dict(proposal.data)["to"])
        if isinstance(candidate, knobs.InvalidChange):
            return now
        variant = replace(variant, candidate=candidate)
    round_s = now.rounds_s(1) + MARGIN * variant.extra_s
    spare_s = max(0.0, now.remaining_s - GOOD_ROUNDS * round_s)
    rounds = planned_rounds(now, proposal.gain, round_s, kept_s=min(spare_s, later_s))
    if rounds < FEWEST_ROUNDS:
        return now.skip(proposal.title, FEWEST_ROUNDS * round_s, matters=False)
    minimum_effect = MinimumEffect(objective=now.facts.objective, gain=now.facts.smallest_gain)
    ab_test = ABTest(
        purpose="whatif",
        title=proposal.title,
        requests=(
            side(now, Variant(candidate=now.best), "whatif"),
            side(now, variant, "whatif"),
        ),
        rounds=rounds,
        minimum_effect=None if proposal.kind == "together" else minimum_effect,
        sigma=now.sigma,
    )
    answer = yield SearchStep(request=ab_test, standing=now)
    assert isinstance(answer, Comparison)
    now = now.heard(answer)
    if answer.cut_short:
        rest_s = max(1, rounds - len(answer.counted)) * round_s
        alone = not any(holds(now, each) for each in now.proposals)
        now = now.skip(f"the rest of the pairs of {proposal.title}", rest_s, matters=alone)
    runs = answer.runs(AFTER)
    besides = tuple(p for p in now.proposals if p is not proposal)
    settled = replace(proposal, variant=variant, outcome=answer)
    now = replace(now, proposals=(*besides, settled))
    if proposal.knob is None or answer.proven(now.facts.objective, now.facts.smallest_gain):
        return now
    if change_of(now.best, proposal.knob) is not None:
        return now
    data = {**dict(proposal.data), "pairs": len(runs)}
    return now.settle(proposal.knob, "kept", "training-batch-unproven", **data)


def sound(now: TunerState, run: Run) -> bool:
    """Whether what was tried in `run` took effect, is inside all bounds, and loses no results."""
    applied = run.whatif is None or run.whatif.applied
    fits = (run.held_gib or 0.0) <= now.facts.memory_limit_gib
    inside = fits and not now.facts.objective.broken(run)
    return applied and inside and not results.lost(now.originals, run)


def all_at_once(now: TunerState) -> Suggestion | None:
    """What was proven each by itself, together; None where that is less than two."""
    objective = now.facts.objective
    proven = [each for each in now.proposals if holds(now, each) and each.kind != "training-batch"]
    if len(proven) < 2:
        return None
    gains = [each.outcome.interval(objective) for each in proven if each.outcome]
    product = math.prod(gain.estimate for gain in gains if gain)
    changes = [change for each in proven for change in each.variant.candidate.changes]
    variant = Variant(
        candidate=now.best.with_changes(*changes),
        whatif=joined([each.variant.whatif for each in proven if each.variant.whatif]),
        extra_s=max(each.variant.extra_s for each in proven),
    )
    return Suggestion(
        kind="together",
        title="All of these together",
        variant=variant,
        run=proven[0].run,
        gain=product,
        data=(("product", product), ("parts", "\n".join(each.title for each in proven))),
    )


def holds(now: TunerState, proposal: Suggestion) -> bool:
    """Whether its pairs proved it."""
    outcome = proposal.outcome
    return outcome is not None and outcome.proven(now.facts.objective, now.facts.smallest_gain)


def faster_run(
    now: TunerState, variant: Variant
) -> Generator[SearchStep, Result, tuple[TunerState, Run | None]]:
    """The run of `variant`, if its what-if applied and beat the best by more than
    one standard deviation: pairs decide.

    It is not begun where the budget does not hold the pairs that would prove it, beside those of
    what was faster already: what one run suggests is told to nobody.
    """
    fewest_s = FEWEST_ROUNDS * now.rounds_s(1)
    needed_s = now.price_s + variant.extra_s + fewest_s + FEWEST_ROUNDS * MARGIN * variant.extra_s
    needed_s += fewest_s if any(each.outcome is None for each in now.proposals) else 0.0
    if needed_s > now.remaining_s:
        return now.skip(variant.label, needed_s, matters=False), None
    now, attempt = yield from tried(now, side(now, variant, "whatif"), kept_s=0.0, matters=False)
    run = attempt.run if attempt else None
    if run is None or run.whatif is None:
        return now, None
    return now, run if sound(now, run) and now.gain_over_usual(run) > 1 + now.level else None


def try_switch(now: TunerState, switch: Switch, names: tuple[str, ...]) -> Stage:
    """Run `switch` by each of `names`; a proposal if it was faster and, where it needs one, inside
    its guard."""
    whatif = ""
    run: Run | None = None
    for each in names:
        variant = Variant(candidate=now.best, whatif=each, extra_s=switch.extra_s)
        now, faster = yield from faster_run(now, variant)
        if faster is not None and (run is None or now.faster(faster, run)):
            whatif, run = each, faster
    if run is None:
        return now
    variant = Variant(candidate=now.best, whatif=whatif, extra_s=switch.extra_s)
    seen: Data = ()
    if switch.guarded:
        now, inside, seen = yield from within(now, variant, run)
        if not inside:
            return now
    proposal = Suggestion(
        kind="switch",
        title=whatif,
        variant=variant,
        run=run,
        gain=now.gain_over_usual(run),
        data=seen,
    )
    return replace(now, proposals=(*now.proposals, proposal))


# --- arguments of the DataLoader call that stand in the code ------------------------------


def try_loader_arguments(now: TunerState) -> Stage:
    """Each argument on top of those that were faster: together they are one proposal."""
    best = now.front
    if best.effects.workers is None:
        return now
    site = best.effects.loader_site
    chosen: dict[str, int | bool] = {}
    fastest: Run | None = None
    for name, values in loader_values(now):
        for value in values:
            if needs_workers(name) and not chosen.get("num_workers", best.effects.workers):
                continue
            whatif = of_loader({**chosen, name: value}, site)
            now, run = yield from faster_run(now, Variant(candidate=now.best, whatif=whatif))
            if run is None and name == "batch_size":
                break
            if run is None or (fastest is not None and not now.faster(run, fastest)):
                continue
            fastest, chosen = run, {**chosen, name: value}
    if fastest is None:
        return now
    proposal = Suggestion(
        kind="loader",
        title="DataLoader arguments: " + ", ".join(f"{n}={v!r}" for n, v in chosen.items()),
        variant=Variant(candidate=now.best, whatif=of_loader(chosen, site)),
        run=fastest,
        gain=now.gain_over_usual(fastest),
        data=tuple(chosen.items()),
    )
    return replace(now, proposals=(*now.proposals, proposal))


def try_buckets(now: TunerState) -> Stage:
    """Batches of items of like length, where enough of the batches is padding."""
    seen = now.front.effects
    if (seen.padding_share or 0.0) < WORTH_BUCKETS:
        return now
    variant = Variant(candidate=now.best, whatif=of_loader({"buckets": 1}, seen.loader_site))
    now, run = yield from faster_run(now, variant)
    if run is None:
        return now
    proposal = Suggestion(
        kind="buckets",
        title="Batches of items of like length",
        variant=variant,
        run=run,
        gain=now.gain_over_usual(run),
    )
    return replace(now, proposals=(*now.proposals, proposal))


def loader_values(now: TunerState) -> Iterable[tuple[str, list[int] | list[bool]]]:
    """Arguments worth trying and their values, in the order in which they build on each other."""
    seen = now.front.effects
    if now.waiting_shows:
        if not now.held_by_config("num_workers"):
            yield "num_workers", worker_counts(now, seen.workers)
        if not now.held_by_config("prefetch_factor") and (seen.prefetch_factor or 2) < 4:
            yield "prefetch_factor", [4]
        if not now.held_by_config("persistent_workers") and not seen.persistent_workers:
            yield "persistent_workers", [True]
    if now.front.on_gpu and not now.held_by_config("pin_memory") and seen.pin_memory is False:
        yield "pin_memory", [True]
    if not now.trains and not now.held_by_config("batch_size") and seen.batch:
        yield "batch_size", [int(seen.batch) * times for times in (2, 4, 8, 16)]


def needs_workers(name: str) -> bool:
    return name in {"prefetch_factor", "persistent_workers"}
