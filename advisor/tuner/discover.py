"""Knobs by experiment: values that equal what was seen are moved, and what the program follows is
a knob, whatever it is called. At most two processes, and none where names told of everything."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.executor.requests import TrialRequest, Variant
from advisor.knobs import discovery
from advisor.knobs.discovery import joined
from advisor.model import Candidate, Change, Effects, Failure
from advisor.tuner.asking import SearchStep, Stage, tried

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from advisor.knobs.discovery import Move, Outcome, Suspect
    from advisor.knobs.findings import Followed
    from advisor.model import MeasurePlan, Phase
    from advisor.tuner.standing import Result, TunerState

MOST_PROCESSES = 2
"""Short ones, beside those that the search needs anyhow."""
SHORT_S = 1.0
"""Window of a run that only shows what is followed."""
LEAST_S = 8.0
"""A moved run may step so long, or about as long as the original did; then it is read as it is."""
FEW_STEPS = 4
CRASHES = ("crash-start", "crash-step", "config-rejected")
"""Failures of values that do not go together; after others they were too large."""

Doubts = dict["Suspect", frozenset[str]]
"""What each suspect may still decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What the experiment showed."""

    followed: tuple[Followed, ...] = ()
    unfollowed: tuple[Suspect, ...] = ()
    """What they might have decided is decided elsewhere."""
    unsettled: tuple[Suspect, ...] = ()
    """Not moved, or moved in runs that told nothing of them."""
    processes: int = 0


def discover(now: TunerState) -> Stage:
    """The knobs that no name told of join the others, so that the later stages tune them."""
    now, found = yield from experiment(now, worth_a_process(now))
    return with_followed(now, found.followed)


def worth_a_process(now: TunerState) -> tuple[str, ...]:
    """Kinds that the search could tune, were they found."""
    facts = now.facts
    kinds = ["batch_size", "num_workers", "grad_accum"]
    kinds += ["timesteps"] * bool(facts.workload.quality)
    kinds += ["precision"] * (facts.consents and len(facts.precisions) > 1)
    return tuple(kinds)


def experiment(
    now: TunerState, kinds: Iterable[str]
) -> Generator[SearchStep, Result, tuple[TunerState, Discovery]]:
    """Suspects of `kinds` moved to values of their own, all at once; then what that left open.

    A run that fails tells no more than what it came to.
    """
    seen = now.original.effects
    sources = [(source.document, source.findings) for source in now.facts.sources]
    aspects = discovery.open_aspects((f for _, f in sources), seen, kinds, phases(now))
    left = discovery.find_suspects(sources, seen, aspects)
    doubts: Doubts = {suspect: suspect.kinds for suspect in left}
    followed: list[Followed] = []
    moved: list[Move] = []
    failed: Failure | None = None
    processes = 0
    while left and processes < MOST_PROCESSES:
        moved = planned(now, left, moved, failed)
        if not moved:
            break
        now, attempt = yield from tried(now, ask_to_move(now, moved))
        if attempt is None:
            break
        processes += 1
        asked = [each for each in aspects if any(each.kind in open_ for open_ in doubts.values())]
        failed = attempt.result if isinstance(attempt.result, Failure) else None
        reading = discovery.read_outcome(moved, seen, attempt.result.effects or Effects(), asked)
        if failed is not None:  # that something did not change yet says nothing
            reading = replace(reading, unclear=frozenset(each.kind for each in asked))
        followed += reading.followed
        doubts = after(doubts, moved, reading)
        left = next_ones(left, moved, doubts, failed)
    return now, Discovery(
        followed=tuple(followed),
        unfollowed=tuple(suspect for suspect, open_ in doubts.items() if not open_),
        unsettled=tuple(suspect for suspect, open_ in doubts.items() if open_),
        processes=processes,
    )


def planned(
    now: TunerState, left: Sequence[Suspect], before: Sequence[Move], failed: Failure | None
) -> list[Move]:
    """What to move `left` to: the other way round after a crash, less of it after too much."""
    crashed = failed is not None and failed.kind in CRASHES

    def moves(those: Sequence[Suspect], *, lower: bool) -> list[Move]:
        seen = now.original.effects
        found = discovery.trial_values(those, seen, room=room(now), lower=lower, backwards=crashed)
        return [
            move
            for move in found
            if now.facts.source(move.suspect.document).document.takes(move.suspect.path, move.new)
        ]

    moved = moves(left, lower=failed is not None and not crashed)
    if crashed and set(moved) == set(before):  # nothing can be turned round
        moved = moves(discovery.fewer(left), lower=True)
    return moved


def next_ones(
    left: Sequence[Suspect], moved: Sequence[Move], doubts: Doubts, failed: Failure | None
) -> tuple[Suspect, ...]:
    """Those in doubt that were not moved yet, and the better half of those that were.

    After a crash it is all of them but those whose values its message names: which of two must
    divide the other is not known.
    """
    again = [move.suspect for move in moved if doubts.get(move.suspect)]
    if failed is None:
        tried_ = [move.suspect for move in moved]
        others = (each for each in left if doubts.get(each) and each not in tried_)
        return (*others, *discovery.better_half(again, doubts))
    if failed.kind not in CRASHES:
        return tuple(again)
    named = set(re.findall(r"\d+", failed.evidence))
    blamed = [move.suspect for move in moved if str(move.new) in named]
    return tuple(each for each in again if each not in blamed) or tuple(again)


def after(doubts: Doubts, moved: Sequence[Move], reading: Outcome) -> Doubts:
    """What is still in doubt: not what is followed, nor of a moved value what did not change."""
    found = {(each.document, each.path) for each in reading.followed}
    decided = {each.shown_in for each in reading.followed}
    tried_ = [move.suspect for move in moved]
    return {
        suspect: (open_ & reading.unclear if suspect in tried_ else open_) - decided
        for suspect, open_ in doubts.items()
        if (suspect.document, suspect.path) not in found
    }


def ask_to_move(now: TunerState, moved: Sequence[Move]) -> TrialRequest:
    """One short process with all of `moved`; to the end of an item where its steps are in doubt."""
    changes = (
        Change(
            document=move.suspect.document,
            path=move.suspect.path,
            kind=min(move.suspect.kinds),
            knob_class="quality",
            old=move.suspect.value,
            new=move.new,
        )
        for move in moved
    )
    candidate = Candidate().with_changes(*changes)
    plan = short_plan(now)
    if any("timesteps" in move.suspect.kinds for move in moved):
        plan = replace(plan, forwards_per_unit=None, whole_batches=1)
    return TrialRequest(
        variant=Variant(candidate=candidate), purpose="effects", plan=plan, expected_s=now.price_s
    )


def short_plan(now: TunerState) -> MeasurePlan:
    """Of a run that only shows what is followed."""
    plan = now.plan(Candidate(), measure_s=min(SHORT_S, now.facts.measure_s), min_steps=FEW_STEPS)
    original = now.original
    stepping_s = original.wall_s - (original.startup_s or 0.0)
    # A power of two: the same in the next call, which then finds this run in its history.
    return replace(plan, longest_s=2.0 ** math.ceil(math.log2(max(LEAST_S, stepping_s))))


def phases(now: TunerState) -> tuple[Phase, ...]:
    """Phases whose knobs this program may use."""
    if now.facts.workload.phase != "any":
        return now.facts.workload.phase, "any"
    return ("train", "any") if now.trains else ("train", "eval", "test", "any")


def phase_of(now: TunerState) -> Phase:
    """The phase that this program runs."""
    declared = now.facts.workload.phase
    return "train" if now.trains else "test" if declared == "any" else declared


def room(now: TunerState) -> float:
    """How many times what the original took would fit."""
    peak_gib = now.original.peak_mem_gib
    return now.facts.memory_limit_gib / peak_gib if peak_gib else discovery.MULTIPLES[-1]


def with_followed(now: TunerState, followed: Sequence[Followed]) -> TunerState:
    """What the program follows is among the knobs from now on, with its links."""
    if not followed:
        return now
    phase = phase_of(now)
    sources = tuple(
        replace(source, findings=joined(source.document, source.findings, followed, phase))
        for source in now.facts.sources
    )
    return replace(now, facts=replace(now.facts, sources=sources))
