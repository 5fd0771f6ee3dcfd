"""Quality gate of candidates that may change results.

Candidate and reference run in pairs of equal seeds. One pair chooses; pairs of other
seeds, and other items if their command is declared, decide by bounds inside the tolerance.

Choosing and deciding share no seed. Of several candidates the one that passes its first pair is
partly the lucky one, and on the same seeds it would pass again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev
from typing import NamedTuple

from advisor import numbers, quality
from advisor.executor.requests import (
    AFTER,
    BEFORE,
    ABTest,
    CommandName,
    TrialRequest,
    Variant,
)
from advisor.model import Candidate, Failure, LeftOutCause, MeasurePlan, Run
from advisor.tuner import output_check, policy, reserves
from advisor.tuner.outcomes import Task
from advisor.tuner.stages import Trials, run_comparison, run_trial
from advisor.tuner.state import TunerState, is_whole

CHOOSING, CONFIRMING = 1, 101
"""First repetition of each: they share no seed."""
BOTH_SIDES = 2**0.5
"""The difference of two independent means has sqrt(2) times the deviation of one. It stands in
where one pair alone could run; equal seeds can only lower it."""
SEEDS_IGNORED = (
    "other seeds gave the same figures, so nothing tells how far they may differ. Let the program "
    "follow GPU_ADVISOR_SEED or a {seed} in its quality-command. Or let it print a figure for each "
    "item, and declare other items as confirm-quality-command."
)

Pairs = list[tuple[Run, Run]]
"""Runs of reference and candidate with equal seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityVerdict:
    """Whether a candidate's results are inside the tolerance, and what was measured."""

    inside: bool
    figures: str = ""
    """Measured values: `: drift 0.2 % of 2 % allowed`."""
    reason: str = ""
    """Reason why it is not inside or not confirmed."""
    refuted: bool = True
    """Other runs or seeds would not help: the next candidate may be tried."""
    pairs: Pairs = field(default_factory=list)
    judgements: tuple[quality.QualityJudgement, ...] = ()

    @property
    def cause(self) -> LeftOutCause:
        """Why it is not taken: a figure was beyond its limit, or none settled it."""
        beyond = any(not judgement.within for judgement in self.judgements)
        return "outside-tolerance" if beyond else "not-judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Best free candidate, with its quality runs of choosing seeds."""

    variant: Variant
    runs: tuple[Run, ...] = ()
    """Empty where losses or outputs of the user's own command are compared."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Share of each tolerance that earlier calls spent."""


class Missing(NamedTuple):
    """Why a measure's runs are missing, or some of them."""

    clause: str
    """Clause for a person."""
    out_of_time: bool = False
    """More budget would have them."""


NO_TIME = Missing("the budget had no room for the runs that judge it", out_of_time=True)
NOTHING_TO_COMPARE = Missing("there was nothing to compare")


def passes_gate(state: TunerState, variant: Variant, run: Run) -> Trials[QualityVerdict]:
    """True if `variant`, run as `run`, stays inside the declared tolerance.

    Compares losses of a short training, outputs of an inference, or the declared quality
    measures. Nothing to compare is not inside.
    """
    workload, best = state.context.workload, state.best
    reference: Reference | Missing = NOTHING_TO_COMPARE
    if workload.numeric_tolerance is not None and drifts_of(state.incumbent_run, run):
        reference = Reference(variant=Variant(candidate=best))
        state, screening = assess(state, reference, variant, [(state.incumbent_run, run)])
        return (yield from confirm_quality(state, reference, variant, screening))
    if workload.quality:
        state, reference = yield from measure_reference(state)
    if isinstance(reference, Missing):
        if reference.out_of_time:
            reason = "The budget had no room to compare its results."
            return state, QualityVerdict(inside=False, reason=reason, refuted=False)
        return state, QualityVerdict(inside=False, figures=f": {reference.clause}")
    if state.best != best:
        figures = ": what it was compared with was given up"
        return state, QualityVerdict(inside=False, figures=figures)
    state, screening = yield from screen(state, reference, variant)
    return (yield from confirm_quality(state, reference, variant, screening))


def drifts_of(before: Run, after: Run) -> tuple[float, ...]:
    """Relative differences of losses by step, or of outputs."""
    of_losses = quality.loss_drifts(before.losses, after.losses)
    return of_losses or quality.output_errors(before.effects, after.effects)


def values_of(state: TunerState, run: Run) -> quality.Values:
    return quality.read_measures(state.context.workload.quality, run.figures)


def read_pairs(state: TunerState, pairs: Pairs) -> list[quality.Pair]:
    return [(values_of(state, before), values_of(state, after)) for before, after in pairs]


def judge_pairs(
    state: TunerState, reference: Reference, pairs: Pairs, stage: quality.QualityStage
) -> tuple[quality.QualityJudgement, ...]:
    workload = state.context.workload
    if reference.runs:
        figures = read_pairs(state, pairs)
        return tuple(quality.judge(workload.quality, figures, stage, reference.spent))
    drifts = [drifts_of(before, after) for before, after in pairs]
    losses = [({"loss": a.losses}, {"loss": b.losses}) for a, b in pairs]
    used = drifts if quality.seeds_matter(losses) else drifts[:1]
    return (quality.judge_drift(used, workload.numeric_tolerance or 0.0, stage),)


def assess(
    state: TunerState,
    reference: Reference,
    variant: Variant,
    pairs: Pairs,
    name: str = "It",
    stage: quality.QualityStage = "chosen",
) -> tuple[TunerState, QualityVerdict]:
    """Judge the pairs, and log the declared measures."""
    if not pairs:
        full = any(entry.task == Task("quality", variant.label) for entry in state.skipped)
        reason = "the budget had no room for the run" if full else "a run failed"
        reason = f"{name} could not be judged: {reason}."
        return state, QualityVerdict(inside=False, reason=reason, refuted=False)
    judgements = judge_pairs(state, reference, pairs, stage)
    if reference.runs:
        fresh = tuple((variant.label, judgement) for judgement in judgements)
        again = {
            (variant.label, judgement.measure, judgement.stage) for judgement in judgements
        }
        earlier = (
            (label, judgement)
            for label, judgement in state.quality.judgements
            if (label, judgement.measure, judgement.stage) not in again
        )
        log = replace(state.quality, judgements=(*earlier, *fresh))
        state = replace(state, quality=log)
    texts = (
        figure_of(judgement, declared=bool(reference.runs)) for judgement in judgements
    )
    figures = ": " + ", ".join(texts)
    verdict = QualityVerdict(
        inside=True, figures=figures, pairs=pairs, judgements=judgements
    )
    for judgement in judgements:
        if not judgement.within:
            verdict = replace(
                verdict, inside=False, reason=why_outside(judgement, name, stage)
            )
    return state, verdict


def why_outside(
    judgement: quality.QualityJudgement, name: str, stage: quality.QualityStage
) -> str:
    """Sentences on a measure that is not proven to be inside its tolerance."""
    measure, limit = judgement.measure, numbers.measure(judgement.limit)
    if stage == "confirmed" and judgement.high is None and is_inside(judgement):
        return (
            f"{name}: {measure} {numbers.measure(judgement.value)} lies inside its limit "
            f"{limit}, and one figure has no bounds. Let the program "
            "print a figure for each item, or follow GPU_ADVISOR_SEED."
        )
    when = "in screening"
    if stage == "confirmed":
        is_lower_limit = (judgement.limit or 0.0) < (judgement.reference or 0.0)
        bound = numbers.measure(judgement.low if is_lower_limit else judgement.high)
        when = f"after it passed screening; with other seeds its 95 % bound is {bound}"
    return (
        f"{name}: {measure} was beyond its limit {limit} {when} "
        f"(pairs of runs: {judgement.runs})."
    )


def is_inside(judgement: quality.QualityJudgement) -> bool:
    """True if the figure itself is inside its limit, whatever its bounds."""
    value, limit, reference = judgement.value, judgement.limit, judgement.reference
    if value is None or limit is None or reference is None:
        return False
    return value >= limit if limit < reference else value <= limit


def confirm_quality(
    state: TunerState,
    reference: Reference,
    variant: Variant,
    screening: QualityVerdict,
    name: str = "It",
) -> Trials[QualityVerdict]:
    """True if pairs of other seeds or items are inside the tolerance too.

    How many pairs that takes is told by the spread of those so far, before the first of them. If
    more than MOST_QUALITY_PAIRS would be needed none is run, and the candidate stays open or is
    refused. Where the budget holds a few less, those are run: their bounds are wider, and hold
    all the same.
    """
    state, screening = yield from pair_all_seeds(state, reference, variant, screening, name)
    if not screening.inside:
        return state, screening
    open_ = replace(screening, inside=False, refuted=False)
    unpaired = len(screening.pairs) < len(reference.runs) and seeds_followed(
        state, reference
    )
    rounds, reason = (
        (policy.FEWEST_ROUNDS, "")
        if unpaired
        else rounds_to_confirm(state, reference, screening)
    )
    if reason:
        return state, replace(
            open_, reason=f"{name} passed screening, and {reason}", refuted=rounds > 0
        )
    command: CommandName = "confirm-quality" if reference.runs else "own"
    sides = zip(
        (reference.variant, variant), zip(*screening.pairs, strict=True), strict=True
    )
    requests = tuple(
        seeded_request(state, side, command, CONFIRMING, median(run.wall_s for run in runs))
        for side, runs in sides
    )
    round_s = policy.ROUND_FACTOR * sum(request.expected_s for request in requests)
    kept_s = proof_s(state, variant)
    fitting = int((state.remaining_s - kept_s) / max(round_s, 1e-9))
    planned = rounds
    if rounds > fitting >= policy.FEWEST_QUALITY_PAIRS:
        rounds = fitting
    needed_s = rounds * round_s
    over_budget = (
        f"{name} passed screening, and the budget could not hold what would confirm it: {planned} "
        "runs a side."
    )
    task = Task("quality-confirmation", variant.label)
    # Without its pairs of other seeds nothing tells how many runs confirm it.
    if unpaired or needed_s > state.remaining_s - kept_s:
        state = state.skip(task, needed_s, kept_s=kept_s)
        return state, replace(open_, reason=over_budget)
    ab_test = ABTest(purpose="quality", requests=requests, rounds=rounds)
    state, result = yield from run_comparison(state, ab_test, task, round_s)
    if result.cut_short:
        return state, replace(open_, reason=over_budget)
    pairs = list(zip(result.runs(BEFORE), result.runs(AFTER), strict=True))
    if result.failure is not None:
        pairs = []
    state, verdict = assess(state, reference, variant, pairs, name, "confirmed")
    near = bool(verdict.judgements) and all(map(is_inside, verdict.judgements))
    if rounds < planned and not verdict.inside and near:
        state = state.skip(task, planned * round_s, kept_s=kept_s)
        return state, replace(open_, reason=over_budget)  # more of them might have
    if verdict.inside and reference.runs and not variant.candidate.in_code.changes:
        state = adopt_quality(state, reference, verdict.judgements)
    return state, verdict


def proof_s(state: TunerState, variant: Variant) -> float:
    """Time kept to time a gated candidate and to prove its speed, once its quality is confirmed.

    Steps cost a sampler its time in proportion. A gain of several times needs no more than the
    fewest rounds, and a third one's time is often what the confirmation lacks.
    """
    several = any(
        change.kind == "timesteps"
        and is_whole(change.old)
        and is_whole(change.new)
        and change.old >= policy.MANY_TIMES * change.new
        for change in variant.candidate.changes
    )
    fewest_s = min(
        reserves.gated_reserve_s(state), policy.FEWEST_ROUNDS * reserves.round_s(state)
    )
    return (fewest_s if several else reserves.gated_reserve_s(state)) + state.costs.price_s


def pair_all_seeds(
    state: TunerState,
    reference: Reference,
    variant: Variant,
    screening: QualityVerdict,
    name: str,
) -> Trials[QualityVerdict]:
    """Run a screened candidate with the reference's other choosing seeds too.

    A seed changes both arms alike where a program is deterministic but for its seed, so the
    differences of pairs vary far less than the figures do. Only pairs show that, and they decide
    how many runs confirm. The candidate is the quicker arm: its runs cost less than one more
    confirming pair would.
    """
    missing = len(reference.runs) - len(screening.pairs)
    if not screening.inside or missing <= 0 or not seeds_followed(state, reference):
        return state, screening
    runs = [after for _, after in screening.pairs]
    if missing * runs[0].wall_s > state.remaining_s - reserves.gated_reserve_s(state):
        return state, screening
    state, (others, _) = yield from run_seeds(
        state, variant, missing, runs[0].wall_s, first=CHOOSING + len(runs)
    )
    if not others:
        return state, screening
    pairs = list(zip(reference.runs, (*runs, *others), strict=False))
    return assess(state, reference, variant, pairs, name)


def seeds_followed(state: TunerState, reference: Reference) -> bool:
    """True if runs of the reference differed by their seeds."""
    return quality.seeds_matter([(values_of(state, run),) * 2 for run in reference.runs])


def rounds_to_confirm(
    state: TunerState, reference: Reference, screening: QualityVerdict
) -> tuple[int, str]:
    """Runs a side that confirm a candidate, and the reason if none do."""
    if not seeds_followed(state, reference):
        others = state.context.workload.confirm_quality_command is not None
        return (1, "") if others else (0, SEEDS_IGNORED)
    rounds = policy.GOOD_QUALITY_PAIRS if reference.runs else policy.FEWEST_ROUNDS
    for judgement in screening.judgements:
        spread, room = spread_and_room(state, reference, screening.pairs, judgement)
        limit = policy.MOST_QUALITY_PAIRS
        needed = quality.rounds_needed(spread, room, limit) if room > 0 else None
        if needed is None:
            return limit, (
                f"{judgement.measure} differs by {numbers.measure(spread, 2)} from run to run "
                f"where its tolerance leaves {numbers.measure(room, 2)}. More than {limit} "
                "runs a side would have to confirm it."
            )
        rounds = max(rounds, needed)
    return rounds, ""


def seeded_request(
    state: TunerState,
    variant: Variant,
    command: CommandName,
    repeat: int,
    expected_s: float,
) -> TrialRequest:
    """Request a quality command, or the user's own, with a seed."""
    whole = MeasurePlan(mode="whole")
    # pairs have seeds of their own
    own_plan = state.plan(variant.candidate, one_seed=False)
    plan = own_plan if command == "own" else whole
    return TrialRequest(
        variant=variant,
        purpose="quality",
        plan=replace(plan, figures=quality.patterns(state.context.workload.quality)),
        command=command,
        repeat=repeat,
        expected_s=expected_s or policy.QUALITY_RUN_PROCESSES * state.costs.price_s,
    )


def spread_and_room(
    state: TunerState,
    reference: Reference,
    pairs: Pairs,
    judgement: quality.QualityJudgement,
) -> tuple[float, float]:
    """Spread of a measure between runs, and what the tolerance leaves.

    Several pairs show what a seed changes in the difference itself. With one pair, what it
    changes in the reference stands in, for both sides.
    """
    name, limit = judgement.measure, judgement.limit or 0.0
    slack, left = (
        abs(limit - (figure or 0.0)) for figure in (judgement.reference, judgement.value)
    )
    if not reference.runs:
        drifts = drifts_of(*pairs[0])
        spread = stdev(drifts) / math.sqrt(len(drifts)) if len(drifts) > 1 else 0.0
        return max(judgement.value or 0.0, spread), left
    by_run = quality.differences(read_pairs(state, pairs), name, 1.0)
    by_item = quality.spread_of_a_run(by_run) or 0.0
    if len(pairs) > 1:  # it holds what a seed changes in the difference
        return by_item, min(slack, left)
    figures = [[quality.means(values_of(state, run))[name]] for run in reference.runs]
    by_seed = quality.spread_of_a_run(figures)
    if by_seed is None and not by_item:
        return math.inf, left
    return max(by_item, BOTH_SIDES * (by_seed or 0.0)), min(slack, left)


def figure_of(judgement: quality.QualityJudgement, *, declared: bool) -> str:
    """Value as text: `rmse 0.51`, or `drift 0.2 % (at most 0.4 %) of 2 % allowed`."""
    value, limit, high = judgement.value, judgement.limit, judgement.high
    if declared:
        beyond = "" if judgement.within else f", beyond its limit {numbers.measure(limit)}"
        return f"{judgement.measure} {numbers.measure(value)}{beyond}"
    bound = "" if high is None else f" (at most {numbers.percent(high)})"
    return f"drift {numbers.percent(value)}{bound} of {numbers.percent(limit)} allowed"


def run_seeds(
    state: TunerState,
    variant: Variant,
    count: int,
    expected_s: float = 0.0,
    *,
    first: int = CHOOSING,
    more: int = 0,
) -> Trials[tuple[tuple[Run, ...], Missing | None]]:
    """Quality runs with choosing seeds from `first`, and why some are missing.

    `more`: further ones without which these are worth nothing, as those that confirm.
    """
    runs: list[Run] = []
    for repeat in range(first, first + count):
        request = seeded_request(state, variant, "quality", repeat, expected_s)
        # The first tells what the others cost; a guess is no reason to leave out what decides.
        left = first + count - repeat + more if expected_s else 1
        needed_s, kept_s = left * request.expected_s, reserves.gated_reserve_s(state)
        if more and needed_s > state.remaining_s - kept_s:
            task = Task("quality-reference")
            state = state.skip(task, needed_s, kept_s=kept_s)
            return state, ((), NO_TIME)
        state, trial = yield from run_trial(state, request, kept_s=kept_s)
        if trial is None:
            return state, (tuple(runs), NO_TIME)
        result = trial.result
        if isinstance(result, Failure):
            clause = (
                f"the quality command failed ({result.kind}: {result.evidence.rstrip('.')})"
            )
            return state, (tuple(runs), Missing(clause))
        figures, declared = dict(values_of(state, result)), state.context.workload.quality
        if missing := [name for name in declared if name not in figures]:
            clause = f"the quality command printed no {' and no '.join(missing)}"
            return state, (tuple(runs), Missing(clause))
        runs.append(result)
        expected_s = result.wall_s
    return state, (tuple(runs), None)


def screen(
    state: TunerState, reference: Reference, variant: Variant, name: str = "It"
) -> Trials[QualityVerdict]:
    state, (runs, _) = yield from run_seeds(state, variant, 1, reference.runs[0].wall_s)
    pairs = list(zip(reference.runs, runs, strict=False))
    return assess(state, reference, variant, pairs, name)


def measure_reference(state: TunerState) -> Trials[Reference | Missing]:
    """Run the best free candidate's quality command; without figures the reason.

    The original runs beside it if that costs little. Changed results end the candidate.
    """
    free = Variant(candidate=state.best.only("free", "training"))
    if state.quality.best == free.candidate:
        return state, reference_of(state, free, state.quality.runs)
    state, (runs, missing) = yield from run_seeds(
        state, free, policy.REFERENCE_RUNS, more=policy.FEWEST_QUALITY_PAIRS
    )
    if not runs:
        return state, missing or NOTHING_TO_COMPARE
    originals = () if free.candidate.changes else runs
    slower = max(1.0, state.incumbent_run.units_per_s / state.original.units_per_s)
    run_s = slower * runs[0].wall_s
    room_s = state.remaining_s - reserves.gated_reserve_s(state)
    if not originals and len(runs) * run_s <= policy.CHECK_SHARE * room_s:
        state, (originals, _) = yield from run_seeds(state, Variant(), len(runs), run_s)
        if reason := changed_results(state, list(zip(originals, runs, strict=False))):
            if state.by_hand:  # a stack is refused; what is proven stays
                return state, Missing(reason.rstrip("."))
            return (yield from measure_reference(without_best(state, reason)))
    now, before = mean_values(state, runs), mean_values(state, originals)
    log = replace(
        state.quality,
        reference=tuple((before or now).items()),
        before=tuple(before.items()) or state.quality.before,
        best=free.candidate,
        runs=runs,
    )
    return replace(state, quality=log), reference_of(state, free, runs)


def reference_of(state: TunerState, variant: Variant, runs: tuple[Run, ...]) -> Reference:
    earlier = dict(state.context.quality_reference)
    now = mean_values(state, runs)
    spent = quality.given_away(state.context.workload.quality, earlier, now)
    return Reference(variant=variant, runs=runs, spent=spent)


def changed_results(state: TunerState, pairs: Pairs) -> str:
    """Reason why settings that should not change results did; else empty."""
    lost = [output_check.output_regression((before,), after) for before, after in pairs]
    reason, declared = max(lost, default=""), state.context.workload.quality
    if not reason and pairs and quality.moved(declared, read_pairs(state, pairs)):
        reason = (
            "It moved the declared quality, although such a setting should not change it."
        )
    return reason


def mean_values(state: TunerState, runs: Sequence[Run]) -> dict[str, float]:
    by_run = [quality.means(values_of(state, run)) for run in runs]
    return {
        name: fmean(figures[name] for figures in by_run)
        for name in (by_run[0] if by_run else ())
    }


def without_best(state: TunerState, reason: str) -> TunerState:
    for change in state.best.changes:
        state = state.set_verdict(change, "refuted", f"Not written. {reason}")
    return replace(state, best=Candidate(), best_run=None, confirmations=())


def adopt_quality(
    state: TunerState, reference: Reference, judgements: Sequence[quality.QualityJudgement]
) -> TunerState:
    """Adopt the candidate's figures, and what it was compared with on the same seeds and items."""
    compared = tuple(
        (j.measure, j.reference) for j in judgements if j.reference is not None
    )
    after = tuple((j.measure, j.value) for j in judgements if j.value is not None)
    before = state.quality.before
    if not reference.variant.candidate.changes:
        before = compared
    elif state.context.workload.confirm_quality_command is not None:
        before = ()
    log = replace(state.quality, before=before, compared=compared, after=after)
    return replace(state, quality=log)
