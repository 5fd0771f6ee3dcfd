"""Discovery of knobs by experiment, whatever their names.

At most two processes, and none where names explain everything that was seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.executor.requests import TrialRequest, Variant
from advisor.knobs import discovery
from advisor.knobs.default_arguments import mappings
from advisor.knobs.discovery import joined
from advisor.model import Candidate, Change, Effects, Failure
from advisor.tuner.state import SearchStep, Stage, run_trial

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from advisor.config import Document
    from advisor.knobs.discovery import Move, Outcome, Suspect
    from advisor.knobs.findings import Followed
    from advisor.model import JsonScalar, Phase
    from advisor.tuner.context import Source
    from advisor.tuner.state import Result, TunerState

MOST_PROCESSES = 2
"""Short ones, beside those that the search needs anyhow."""
CRASHES = ("crash-start", "crash-step", "config-rejected")
"""Failures of values that do not go together; after others they were too large."""

Doubts = dict["Suspect", frozenset[str]]
"""Kinds that each suspect may still be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Result of the experiment."""

    followed: tuple[Followed, ...] = ()
    unfollowed: tuple[Suspect, ...] = ()
    """Suspects that decide nothing that was seen."""
    unsettled: tuple[Suspect, ...] = ()
    """Suspects without an answer."""
    processes: int = 0


def discover_knobs(state: TunerState) -> Stage:
    """Add knobs that no name shows."""
    state = without_unused_arguments(state)
    state, found = yield from experiment(state, worth_a_process(state))
    return with_followed(state, found.followed)


def worth_a_process(state: TunerState) -> tuple[str, ...]:
    """Kinds that the search could tune, were they found."""
    context = state.context
    kinds = ["batch_size", "num_workers", "grad_accum"]
    kinds += ["timesteps"] * bool(context.workload.quality)
    kinds += ["precision"] * (context.consents and len(context.precisions) > 1)
    return tuple(kinds)


def experiment(
    state: TunerState, kinds: Iterable[str]
) -> Generator[SearchStep, Result, tuple[TunerState, Discovery]]:
    """Move all suspects of `kinds` to distinct values.

    A run that fails tells no more than what it came to.
    """
    seen = state.original.effects
    sources = [(source.document, source.findings) for source in state.context.sources]
    aspects = discovery.open_aspects((f for _, f in sources), seen, kinds, phases(state))
    left = discovery.find_suspects(sources, seen, aspects)
    doubts: Doubts = {suspect: suspect.kinds for suspect in left}
    followed: list[Followed] = []
    moved: list[Move] = []
    failed: Failure | None = None
    processes = 0
    while left and processes < MOST_PROCESSES:
        moved = planned(state, left, moved, failed)
        if not moved:
            break
        state, trial = yield from run_trial(state, ask_to_move(state, moved))
        if trial is None:
            break
        processes += 1
        asked = [each for each in aspects if any(each.kind in open_ for open_ in doubts.values())]
        failed = trial.result if isinstance(trial.result, Failure) else None
        reading = discovery.read_outcome(moved, seen, trial.result.effects or Effects(), asked)
        if failed is not None:  # that something did not change yet says nothing
            reading = replace(reading, unclear=frozenset(each.kind for each in asked))
        followed += reading.followed
        doubts = after(doubts, moved, reading)
        left = next_ones(left, moved, doubts, failed)
    return state, Discovery(
        followed=tuple(followed),
        unfollowed=tuple(suspect for suspect, open_ in doubts.items() if not open_),
        unsettled=tuple(suspect for suspect, open_ in doubts.items() if open_),
        processes=processes,
    )


def planned(
    state: TunerState, left: Sequence[Suspect], before: Sequence[Move], failed: Failure | None
) -> list[Move]:
    """Values for the suspects in `left`.

    They are reversed after a crash, and smaller after an out-of-memory.
    """
    crashed = failed is not None and failed.kind in CRASHES

    def moves(those: Sequence[Suspect], *, lower: bool) -> list[Move]:
        seen = state.original.effects
        found = discovery.trial_values(
            those, seen, room=room(state), lower=lower, backwards=crashed
        )
        return [
            move
            for move in found
            if state.context.source(move.suspect.document).document.takes(
                move.suspect.path, move.new
            )
        ]

    moved = moves(left, lower=failed is not None and not crashed)
    if crashed and set(moved) == set(before):  # nothing can be turned round
        moved = moves(discovery.fewer(left), lower=True)
    return moved


def takes(state: TunerState, move: Move) -> bool:
    """True if the document can hold the new value."""
    document = state.context.source(move.suspect.document).document
    return document.takes(move.suspect.path, move.new)


def next_ones(
    left: Sequence[Suspect], moved: Sequence[Move], doubts: Doubts, failed: Failure | None
) -> tuple[Suspect, ...]:
    """Suspects of the next experiment.

    Those in doubt that were not moved yet, and the better half of those that were. After a crash it
    is all of them but those whose values its message names: which of two must divide the other is
    not known.
    """
    again = [move.suspect for move in moved if doubts.get(move.suspect)]
    if failed is None:
        tested = [move.suspect for move in moved]
        others = (each for each in left if doubts.get(each) and each not in tested)
        return (*others, *discovery.better_half(again, doubts))
    if failed.kind not in CRASHES:
        return tuple(again)
    named = set(re.findall(r"\d+", failed.evidence))
    blamed = [move.suspect for move in moved if str(move.new) in named]
    return tuple(each for each in again if each not in blamed) or tuple(again)


def after(doubts: Doubts, moved: Sequence[Move], reading: Outcome) -> Doubts:
    """Doubts left after an experiment."""
    found = {(each.document, each.path) for each in reading.followed}
    decided = {each.shown_in for each in reading.followed}
    tested = [move.suspect for move in moved]
    return {
        suspect: (open_ & reading.unclear if suspect in tested else open_) - decided
        for suspect, open_ in doubts.items()
        if (suspect.document, suspect.path) not in found
    }


def ask_to_move(state: TunerState, moved: Sequence[Move]) -> TrialRequest:
    """Request one short process with `moved` values.

    It runs to the end of an item where its steps are in doubt.
    """
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
    plan = state.short_plan()
    if any("timesteps" in move.suspect.kinds for move in moved):
        plan = replace(plan, forwards_per_unit=None, whole_batches=1)
    return TrialRequest(
        variant=Variant(candidate=candidate), purpose="effects", plan=plan, expected_s=state.price_s
    )


def phases(state: TunerState) -> tuple[Phase, ...]:
    """Phases whose knobs this program may use."""
    if state.context.workload.phase != "any":
        return state.context.workload.phase, "any"
    return ("train", "any") if state.trains else ("train", "eval", "test", "any")


def phase_of(state: TunerState) -> Phase:
    """The phase that this program runs."""
    declared = state.context.workload.phase
    return "train" if state.trains else "test" if declared == "any" else declared


def room(state: TunerState) -> float:
    """Times the original's memory that would fit."""
    peak_gib = state.original.peak_mem_gib
    return state.context.memory_limit_gib / peak_gib if peak_gib else discovery.MULTIPLES[-1]


def with_followed(state: TunerState, followed: Sequence[Followed]) -> TunerState:
    """Add the knobs that the program follows, with their links."""
    if not followed:
        return state
    phase = phase_of(state)
    sources = tuple(
        replace(source, findings=joined(source.document, source.findings, followed, phase))
        for source in state.context.sources
    )
    return replace(state, context=replace(state.context, sources=sources))


# --- loader arguments that the config lacks -------------------------------------------------------


def without_unused_arguments(state: TunerState) -> TunerState:
    """Drop loader arguments that no DataLoader was given."""
    passed = dict(state.original.effects.loader_passed)
    sources = tuple(_without_others(source, passed) for source in state.context.sources)
    return replace(state, context=replace(state.context, sources=sources))


def _without_others(source: Source, passed: dict[str, JsonScalar]) -> Source:
    given = passed_on(source.document, passed)
    gone = {each.path for each in source.document.absent if each.beside not in given}
    if not gone:
        return source
    findings = replace(
        source.findings,
        knobs=tuple(knob for knob in source.findings.knobs if knob.path not in gone),
        links=tuple(link for link in source.findings.links if not gone & set(link.paths)),
        traps=tuple(trap for trap in source.findings.traps if trap.path not in gone),
    )
    return replace(source, findings=findings)


def passed_on(document: Document, passed: dict[str, JsonScalar]) -> set[str]:
    """Paths of values in mappings given to a DataLoader."""
    scalars = document.written
    return {
        path
        for members in mappings(document).values()
        if all(
            key in passed and _same(scalars[path].value, passed[key])
            for key, path in members.items()
        )
        for path in members.values()
    }


def _same(one: JsonScalar, other: JsonScalar) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
