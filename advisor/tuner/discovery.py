"""Discovery of knobs by experiment, whatever their names.

At most two processes, and none where names explain everything that was seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from advisor.executor.requests import TrialRequest, Variant
from advisor.knobs import discovery
from advisor.knobs.discovery import Followed, Move, Suspect
from advisor.model import Candidate, Change, Effects, Failure, Phase
from advisor.tuner.state import Stage, TunerState, run_trial

MOST_PROCESSES = 2
"""Short ones, beside those that the search needs anyhow."""
CRASHES = ("crash-start", "crash-step", "config-rejected")
"""Failures of values that do not go together; after others they were too large."""


def discover_knobs(state: TunerState) -> Stage:
    """Add knobs that no name shows: all suspects move to distinct values.

    A run that fails tells no more than what it came to.
    """
    seen = state.original.effects
    sources = [(source.document, source.findings) for source in state.context.sources]
    findings = [each for _, each in sources]
    kinds = discovery.open_kinds(findings, seen, worth_a_process(state), phases(state))
    left = discovery.find_suspects(sources, seen, kinds)
    doubts = {suspect: suspect.kinds for suspect in left}
    followed: list[Followed] = []
    moved: Sequence[Move] = ()
    failed: Failure | None = None
    for _ in range(MOST_PROCESSES):
        moved = planned(state, left, moved, failed)
        if not moved:
            break
        state, trial = yield from run_trial(state, ask_to_move(state, moved))
        if trial is None:
            break
        asked = [kind for kind in kinds if any(kind in open_ for open_ in doubts.values())]
        failed = trial.result if isinstance(trial.result, Failure) else None
        outcome = discovery.read_outcome(moved, seen, trial.result.effects or Effects(), asked)
        followed += outcome.followed
        found = {each.move.suspect for each in outcome.followed}
        decided = {each.trace.shown_in for each in outcome.followed}
        tested = [move.suspect for move in moved]
        for suspect in list(doubts):
            if suspect in tested and failed is None:
                doubts[suspect] &= outcome.unclear
            doubts[suspect] -= decided
            if suspect in found or not doubts[suspect]:
                del doubts[suspect]
        again = tuple(each for each in tested if each in doubts)
        if failed is None:
            others = (each for each in left if each in doubts and each not in tested)
            left = (*others, *discovery.better_half(again, doubts))
        else:  # values that the message names stay as they are
            named = set(re.findall(r"\d+", failed.evidence)) if failed.kind in CRASHES else set()
            blamed = [move.suspect for move in moved if str(move.new) in named]
            left = tuple(each for each in again if each not in blamed) or again
    return with_followed(state, followed)


def worth_a_process(state: TunerState) -> tuple[str, ...]:
    """Kinds that the search could tune, were they found."""
    context = state.context
    kinds = ["batch_size", "num_workers", "grad_accum"]
    kinds += ["timesteps"] * bool(context.workload.quality)
    return tuple(kinds)


def planned(
    state: TunerState, left: Sequence[Suspect], before: Sequence[Move], failed: Failure | None
) -> Sequence[Move]:
    """Values for the suspects in `left`.

    They are reversed after a crash, and smaller after an out-of-memory.
    """
    seen = state.original.effects
    crashed = failed is not None and failed.kind in CRASHES
    lower = failed is not None and not crashed
    peak_gib = state.original.peak_mem_gib
    room = state.context.memory_limit_gib / peak_gib if peak_gib else discovery.MULTIPLES[-1]
    moves = discovery.trial_values(left, seen, room=room, lower=lower, backwards=crashed)
    if crashed and set(moves) == set(before):  # nothing can be turned round
        few = left[: (len(left) + 1) // 2]
        moves = discovery.trial_values(few, seen, room=room, lower=True, backwards=True)
    documents = {source.document.name: source.document for source in state.context.sources}
    return [m for m in moves if documents[m.suspect.document].takes(m.suspect.path, m.new)]


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


def with_followed(state: TunerState, followed: Sequence[Followed]) -> TunerState:
    """Add the knobs that the program follows, with their links."""
    declared = state.context.workload.phase
    phase: Phase = "train" if state.trains else "test" if declared == "any" else declared
    sources = tuple(
        replace(each, findings=discovery.joined(each.document, each.findings, followed, phase))
        for each in state.context.sources
    )
    context = replace(state.context, sources=sources)
    return replace(state, context=context, followed=tuple(followed))
