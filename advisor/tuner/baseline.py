"""Baseline, and settings that its runs show to be followed.

Two runs of the original tell what equal runs differ by, which every later step needs. A third is
run where those two disagree, and none beyond the first where the budget holds few processes, since
the confirmation repeats the original anyhow.
"""

import re
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import replace

from advisor import knobs
from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.knobs import discovery
from advisor.knobs.discovery import Followed, Move, Suspect
from advisor.model import Candidate, Change, Effects, Failure, Phase, Run
from advisor.tuner import policy, reserves, sleeping_workers
from advisor.tuner.effects import LOADER_KINDS
from advisor.tuner.moves import with_value
from advisor.tuner.stages import SearchStep, Stage, Trials, run_trial
from advisor.tuner.state import TunerState


def measure_baseline(state: TunerState) -> Trials[TrialResult | None]:
    """Run the original until two processes agree; ends with the result of one that failed.

    The first process of a sampler may be given up before its first item is done. Then the network
    calls of one item (`forwards`) are counted with fewer sampling steps, so that the next process
    can stop inside an item.
    """
    forwards: float | None = None
    for number in range(policy.MOST_BASELINES):
        if number and state.originals and not needs_another(state):
            break
        request = baseline_request(state, number, forwards)
        result = yield SearchStep(request=request, state=state)
        state = state.with_result(result)
        if not isinstance(result, TrialResult):
            if state.originals or forwards:
                break  # the budget ended it
            state, forwards = yield from forwards_by_few_steps(state)
            if forwards is None:
                break
            continue
        if result.run is None:
            return state, result
        run = (
            with_parts_of(state.originals[0], result.run) if state.originals else result.run
        )
        state = replace(state, originals=(*state.originals, run))
    return state, None


def with_parts_of(first: Run, run: Run) -> Run:
    """`run` with what only the first baseline looked at, after its window."""
    ceilings = (*first.ceilings, *run.ceilings)
    return replace(run, ceilings=ceilings, flops=first.flops, footprint=first.footprint)


def baseline_request(
    state: TunerState, number: int, forwards: float | None
) -> TrialRequest:
    """Request of baseline `number`: a window of the original with at least one finished item.

    With known `forwards` of an item no item has to end. Else a sampler that could take fewer
    steps is given up after FIRST_ITEM_SHARE of the budget. After its window the first process
    also runs the loader alone, with several numbers of workers. That takes longer than the window,
    so later processes do it only for more workers than CPUs, where workers sleep.
    """
    cpus = state.context.cpus
    workers_alone = sleeping_workers.counts(state)
    if not state.originals:
        workers_alone = tuple(sorted({0, 1, min(2, cpus), cpus}))
    plan = state.plan(
        Candidate(),
        whole_batches=0 if forwards else 1,
        forwards_per_unit=forwards,
        ceilings_workers=workers_alone,
        ceilings_s=policy.CEILINGS_S,
    )
    may_be_given_up = not (forwards or number) and with_few_steps(state).changes
    return TrialRequest(
        variant=Variant(),
        purpose="baseline",
        plan=plan,
        fresh=True,
        series=f"{number}",
        limit_s=policy.FIRST_ITEM_SHARE * state.context.budget_s
        if may_be_given_up
        else None,
    )


def forwards_by_few_steps(state: TunerState) -> Trials[float | None]:
    """Forwards of an item of the original, counted with fewer sampling steps and scaled up."""
    few = with_few_steps(state)
    steps = next((c for c in few.changes if c.kind == "timesteps"), None)
    if steps is None or not isinstance(steps.old, int) or not isinstance(steps.new, int):
        return state, None
    plan = state.plan(few, whole_batches=1)
    variant = Variant(candidate=few)
    request = TrialRequest(
        variant=variant,
        purpose="effects",
        plan=plan,
        expected_s=policy.FEWEST_SAMPLING_STEPS_S,
    )
    result = yield SearchStep(request=request, state=state)
    run = result.run if isinstance(result, TrialResult) else None
    seen = run.effects.forwards_per_unit if run is not None else None
    return state.with_result(result), None if seen is None else seen * steps.old / steps.new


def with_few_steps(state: TunerState) -> Candidate:
    """Candidate with the fewest sampling steps that the config's constraints allow."""
    for knob in state.of_kind("timesteps"):
        if not isinstance(knob.value, int) or not knob.editable:
            continue
        for share in reversed(policy.STEP_SHARES):
            steps = max(
                tidy_steps(knob.value * share),
                min(policy.FEWEST_SAMPLING_STEPS, knob.value),
            )
            fewer = with_value(state, knob, steps)
            if not isinstance(fewer, knobs.InvalidChange):
                return fewer
    return state.best


def tidy_steps(steps: float) -> int:
    """A count as people write it: two significant digits."""
    return max(1, round(float(f"{steps:.2g}")))


def needs_another(state: TunerState) -> bool:
    """True if one more baseline is to run: a second where there is room, a third to settle two.

    A second one also runs where the budget is too small for any candidate: what is left can be
    spent on nothing better than a firmer figure of the original.
    """
    affordable = state.remaining_s > policy.SECOND_BASELINE_PROCESSES * state.costs.price_s
    if len(state.originals) == 1:
        return not is_too_small(state) and (
            affordable or state.remaining_s < reserves.fewest_s(state)
        )
    rates = [state.context.objective.score(run) for run in state.originals]
    return affordable and max(rates) / min(rates) - 1 > state.context.smallest_gain


def is_too_small(state: TunerState) -> bool:
    """True if the budget holds no candidate with confirmation."""
    if len(state.originals) > 1:
        return reserves.fewest_s(state) > state.remaining_s
    # The first process may have met cold caches, shown only by its start-up.
    run = state.original
    stepping = 1.0 - min(1.0, (run.startup_s or 0.0) / max(run.wall_s, 1e-9))
    return stepping * reserves.fewest_s(state) > state.remaining_s


def worth_trying(state: TunerState) -> bool:
    """True if a knob or a loader may be tuned."""
    return bool(
        state.tunable(*LOADER_KINDS, "grad_checkpoint", "precision", "timesteps")
    ) or (state.original.effects.workers is not None)


CRASHES = ("crash-start", "crash-step", "config-rejected")
"""Failures that come of values which clash. After any other failure they were too large."""


def discover_knobs(state: TunerState) -> Stage:
    """Add knobs that no name shows: all suspects move to distinct values.

    One process tests them all at once. Each suspect is given a value that no other setting has, so
    that the batch, the workers or the steps that are then observed name the setting that was
    followed. What stays open is halved and tested again, as a crash is by leaving out those that
    its message names.
    """
    seen = state.original.effects
    sources = state.context.sources
    findings = [source.findings for source in sources]
    tunable = ["batch_size", "num_workers", "grad_accum"]
    if state.context.workload.quality:
        tunable.append("timesteps")
    kinds = discovery.open_kinds(findings, seen, tunable, phases(state))
    left = discovery.find_suspects(sources, seen, kinds)
    doubts = {suspect: suspect.kinds for suspect in left}
    followed: list[Followed] = []
    failed: Failure | None = None
    for _ in range(policy.FOLLOWING_PROCESSES):
        moved = moves_of(state, left, failed)
        if not moved:
            break
        state, trial = yield from run_trial(state, ask_to_move(state, moved))
        if trial is None:
            break
        asked = [
            kind
            for kind in kinds
            if any(kind in open_kinds for open_kinds in doubts.values())
        ]
        failed = trial.result if isinstance(trial.result, Failure) else None
        effects = trial.result.effects or Effects()
        newly_followed, unclear = discovery.read_outcome(moved, seen, effects, asked)
        followed += newly_followed
        tested = [move.suspect for move in moved]
        doubts = open_doubts(
            doubts, tested if failed is None else (), newly_followed, unclear
        )
        again = tuple(suspect for suspect in tested if suspect in doubts)
        if failed is None:
            others = (s for s in left if s in doubts and s not in tested)
            left = (*others, *discovery.better_half(again, doubts))
        else:
            blamed = blamed_by(failed, moved)
            left = tuple(suspect for suspect in again if suspect not in blamed) or again
    return with_followed(state, followed)


def open_doubts(
    doubts: Mapping[Suspect, frozenset[str]],
    tested: Sequence[Suspect],
    followed: Sequence[Followed],
    unclear: AbstractSet[str],
) -> dict[Suspect, frozenset[str]]:
    """Kinds that each suspect may still be, once one process has told which were followed.

    A suspect that was `tested` may only be of a kind whose effect moved and was explained by no
    single one (`unclear`). A kind that was explained is nobody else's. Those that may be nothing
    more are left out.
    """
    explained = {one.sign.shown_in for one in followed}
    settled = {one.move.suspect for one in followed}
    still_open = {
        suspect: (kinds & unclear if suspect in tested else kinds) - explained
        for suspect, kinds in doubts.items()
        if suspect not in settled
    }
    return {suspect: kinds for suspect, kinds in still_open.items() if kinds}


def blamed_by(failed: Failure, moved: Sequence[Move]) -> list[Suspect]:
    """Suspects whose new value stands in the message of a crash; none after other failures."""
    if failed.kind not in CRASHES:
        return []
    numbers = set(re.findall(r"\d+", failed.evidence))
    return [move.suspect for move in moved if str(move.new) in numbers]


def moves_of(
    state: TunerState, left: Sequence[Suspect], failed: Failure | None
) -> Sequence[Move]:
    """New values of suspects: smaller after a failure, reversed too after a crash."""
    seen, lower = state.original.effects, failed is not None
    crashed = failed is not None and failed.kind in CRASHES
    peak_gib = state.original.peak_mem_gib
    room = (
        state.context.memory_limit_gib / peak_gib if peak_gib else discovery.MULTIPLES[-1]
    )
    moves = discovery.trial_values(left, seen, room=room, lower=lower, backwards=crashed)
    documents = {source.document.name: source.document for source in state.context.sources}
    return [
        move
        for move in moves
        if documents[move.suspect.document].takes(move.suspect.path, move.new)
    ]


def ask_to_move(state: TunerState, moved: Sequence[Move]) -> TrialRequest:
    """Request of one short process with all moves at once, to see which are followed.

    Where steps are among them, a whole item has to end: its forwards are what tells of steps.
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
        variant=Variant(candidate=candidate),
        purpose="effects",
        plan=plan,
        expected_s=state.costs.price_s,
    )


def phases(state: TunerState) -> tuple[Phase, ...]:
    """Phases whose settings the program may follow: the declared one, or those of what it does."""
    if state.context.workload.phase != "any":
        return state.context.workload.phase, "any"
    return ("train", "any") if state.trains else ("train", "eval", "test", "any")


def phase_of_program(state: TunerState) -> Phase:
    """Phase of a setting that was seen at work, with no name that tells it."""
    declared = state.context.workload.phase
    return "train" if state.trains else "test" if declared == "any" else declared


def with_followed(state: TunerState, followed: Sequence[Followed]) -> TunerState:
    """State whose sources hold the settings that were followed, as knobs like any other."""
    phase = phase_of_program(state)
    sources = tuple(
        source._replace(
            findings=discovery.joined(source.document, source.findings, followed, phase)
        )
        for source in state.context.sources
    )
    context = replace(state.context, sources=sources)
    return replace(state, context=context, followed=tuple(followed))
