"""Trials of one knob's values in turn; sampling steps among them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from advisor import knobs, numbers
from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.knobs import precision_choices
from advisor.knobs.registry import KINDS, LOADER_ARGUMENTS, REGISTRY, KnobSpec, switches
from advisor.model import Candidate, DecisionCause, Failure, JsonScalar, Knob, Run, leaf_of
from advisor.tuner import policy, reserves
from advisor.tuner.baseline import tidy_steps
from advisor.tuner.effects import is_ignored, set_ignored
from advisor.tuner.moves import with_value
from advisor.tuner.outcomes import OUT_OF_TIME, NearMiss, Objection
from advisor.tuner.quality_gate import (
    Missing,
    QualityVerdict,
    confirm_quality,
    measure_reference,
    passes_gate,
    screen,
)
from advisor.tuner.search import is_count, is_turn_of, leave_out, plain_reason, unusable
from advisor.tuner.stages import Stage, Trials, make_request, run_trial
from advisor.tuner.state import TunerState, change_of


class ValueTrials(NamedTuple):
    """What the trials of a knob's values have shown so far."""

    ignored: tuple[Candidate, Run] | None = None
    """Candidate and run of the latest value that had no effect."""
    followed: bool = False
    """A value had an effect, or failed."""
    refusal: str = ""
    """Clause on the latest value that was faster and not taken: see `Judged.reason`."""
    unconfirmed: str = ""
    """Sentence on the latest value that more runs could still judge."""
    outcomes: tuple[str, ...] = ()
    """Clause on each value that the program followed: what it ran at, or how it failed."""


def try_values(
    state: TunerState,
    knob: Knob,
    values: Sequence[JsonScalar],
    *,
    kept_s: float | None = None,
) -> Stage:
    """Try values from the smallest; a later one must be faster than the best by more than a tie.

    A gated knob takes the first faster one inside the tolerance. The program ignores it
    only if no value had an effect. `kept_s`: time kept beside a trial, by default the reserve.
    """
    gated = is_gated(state, knob)
    start, tried = state, ValueTrials()
    for number, value in enumerate(values, 1):
        candidate = with_value(state, knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            state = state.set_verdict(knob, "invalid", f"{plain_reason(candidate)}.")
            continue
        (request,) = requests_of(state, knob, [value])
        beside_s = gated_kept_s(state, request, number) if gated else kept_s
        more_s = policy.GATED_PROCESSES * request.expected_s if gated else 0.0
        ahead = requests_of(state, knob, values[number:])
        state, trial = yield from run_trial(
            state, request, kept_s=beside_s, more_s=more_s, ahead=ahead
        )
        if trial is None:
            if not (tried.ignored or tried.followed or start.verdict_on(knob)):
                return state.set_verdict(knob, "out-of-budget", OUT_OF_TIME)
            break
        run = trial.run
        if run is not None and is_ignored(knob, candidate, start.incumbent_run, run):
            tried = tried._replace(ignored=(candidate, run))
            continue
        outcomes = (*tried.outcomes, outcome_of(state, value, trial))
        tried = tried._replace(followed=True, outcomes=outcomes)
        if run is None or not state.beats_incumbent(run):
            state = with_near_miss(state, run, knob, value)
            continue
        state, judged = yield from judge(state, knob, value, request.variant, run)
        if not judged.taken:
            unconfirmed = judged.unconfirmed or tried.unconfirmed
            tried = tried._replace(refusal=judged.reason, unconfirmed=unconfirmed)
            continue
        state = state.adopt(candidate, run)
        if gated:
            return state.set_verdict(knob, "faster", judged.reason)
    return with_verdict(state, start, knob, tried)


def with_verdict(
    state: TunerState, start: TunerState, knob: Knob, tried: ValueTrials
) -> TunerState:
    """State with a verdict on a knob whose values were tried, from `start` on.

    An earlier verdict stays where no value had an effect, or where it was a better value already.
    """
    if tried.ignored and not tried.followed:
        return set_ignored(state, knob, *tried.ignored)
    before, adopted = start.verdict_on(knob), state.best.key != start.best.key
    if adopted and change_of(state.best, knob) is not None:
        reason = f"Faster by itself by more than {state.tie_percent}; the smallest value that was."
        return state.set_verdict(knob, "faster", reason)
    was_faster_before = before is not None and before.outcome == "found"
    if not adopted and (was_faster_before or not tried.followed):
        return state
    if tried.unconfirmed:
        return state.set_verdict(knob, "not-proven", tried.unconfirmed)
    reason = f"No value tested was faster by more than {state.tie_percent}{tried.refusal}."
    if tried.outcomes:
        reason = f"{reason} {'; '.join(tried.outcomes)}."
    return state.set_verdict(knob, "not-faster", reason)


def gated_kept_s(state: TunerState, request: TrialRequest, number: int) -> float:
    """Time kept beside the `number`-th run of a gated value: for its proof.

    Where that has no room, the first value of a config's setting runs all the same: it may be
    slower, and then nothing is left to prove.
    """
    proof_s = reserves.gated_reserve_s(state)
    has_no_room = request.expected_s + proof_s > state.remaining_s
    runs_anyhow = number == 1 and not state.by_hand and not state.is_unproven
    return 0.0 if has_no_room and runs_anyhow else proof_s


class Judged(NamedTuple):
    """Whether a faster value may be taken."""

    taken: bool
    reason: str = ""
    """Of a refused value, a clause that follows `faster by more than 2 %`; of a gated value that is
    taken, a sentence on its results."""
    unconfirmed: str = ""
    """Sentence on a value that more runs could still judge; else empty."""


def judge(
    state: TunerState, knob: Knob, value: JsonScalar, variant: Variant, run: Run
) -> Trials[Judged]:
    """Judge a faster value by its work and, where it may change results, by those.

    What only the user may write and is refused is kept for the report.
    """
    if against := unusable(state, run) or misread(state, knob, run):
        if state.by_hand:
            told = against._replace(clause=f". It {against.clause}.")
            state = leave_out(state, variant, run, told)
        return state, Judged(taken=False, reason=f" and usable: {value} {against.clause}")
    if not is_gated(state, knob):
        return state, Judged(taken=True)
    state, verdict = yield from passes_gate(state, variant, run)
    if verdict.inside:
        return state, Judged(taken=True, reason=f"Inside its tolerance{verdict.figures}.")
    reason = f"{verdict.figures}. {verdict.reason}"
    if state.by_hand:
        against = Objection(verdict.cause, reason)
        state = leave_out(state, variant, run, against, is_open=not verdict.refuted)
    return state, Judged(
        taken=False,
        reason=f" inside its tolerance{reason}".rstrip(". "),
        unconfirmed="" if verdict.refuted else f"`{value}` was faster{reason}",
    )


def outcome_of(state: TunerState, value: JsonScalar, trial: TrialResult) -> str:
    """Clause on one run of a value: "`bf16` ran at 0.61x", or how it failed."""
    if isinstance(trial.result, Failure):
        return f"`{value}` failed: {trial.result.kind}"
    return f"`{value}` ran at {numbers.ratio(state.gain_over_incumbent(trial.result))}"


def requests_of(
    state: TunerState, knob: Knob, values: Sequence[JsonScalar]
) -> Iterator[TrialRequest]:
    """Requests of values for `knob`; steps are timed over a whole item."""
    whole_batches = int(knob.kind == "timesteps")
    for value in values:
        candidate = with_value(state, knob, value)
        if isinstance(candidate, Candidate):
            variant = Variant(
                candidate=candidate, extra_s=extra_start_s(candidate, state.best)
            )
            yield make_request(
                state, variant, ran=state.best_run, whole_batches=whole_batches
            )


def is_gated(state: TunerState, knob: Knob) -> bool:
    """True if its values have to stay inside a declared tolerance.

    Of what stands in the code the user decides: only what is known to round otherwise is judged.
    """
    if state.in_code(knob):
        return "tolerance" in REGISTRY[knob.kind].needs
    return knob.knob_class == "numeric"


def extra_start_s(candidate: Candidate, beside: Candidate) -> float:
    """Seconds that `candidate` is expected to start later than `beside`: a switch may compile."""
    moved = {change.kind for change in candidate.moved_from(beside)}
    return sum(
        spec.switch.start_s for spec in switches() if spec.kind in moved and spec.switch
    )


def misread(state: TunerState, knob: Knob, run: Run) -> Objection | None:
    """What is against a rate under a switch whose batch was read otherwise.

    A switch of torch leaves the batch alone. Where the batch that was seen is another share of
    the one asked of the loader, it and the rate were misread, as in compiled code. Batches that
    vary between runs are not compared.
    """
    shares = {batch_share(other) for other in state.incumbent_runs}
    is_switch = REGISTRY[knob.kind].switch is not None
    if not is_switch or len(shares) > 1 or batch_share(run) in shares:
        return None
    clause = "hides the size of its batches, so its rate is not known"
    return Objection("misread-batch", clause)


def batch_share(run: Run) -> float | None:
    """Observed batch over the one asked of the loader, if any."""
    return run.effects.batch and run.effects.batch / (run.effects.batch_asked or 1)


def with_near_miss(
    state: TunerState, run: Run | None, knob: Knob, value: JsonScalar
) -> TunerState:
    """State that keeps a value for rounds, if it was faster and by less than equal runs differ."""
    if run is None or state.context.objective.broken(run) or unusable(state, run):
        return state
    gain = state.gain_over_incumbent(run)
    if gain <= 1 + state.context.smallest_gain:
        return state
    near = NearMiss(knob, value, gain)
    others = (other for other in state.near_misses if other[:2] != near[:2])
    return replace(state, near_misses=(*others, near))


def tune_loader(state: TunerState) -> Stage:
    """Tune loader arguments but workers, where the program waits or copies."""
    for argument in LOADER_ARGUMENTS:
        may_gain = state.waits or ("gpu" in argument.needs and state.copies)
        for knob in state.tunable(argument.kind) if may_gain else []:
            effects = state.incumbent_run.effects
            current = state.current(knob)
            values = argument.values_to_try(
                current, argument.observed(effects), by_hand=state.by_hand
            )
            if not values or not is_turn_of(state, knob):
                continue
            if "workers" in argument.needs and not effects.workers:
                reason = "The loader has no workers, so this has no effect."
                state = state.set_verdict(knob, "no-need", reason)
                continue
            if "gpu" in argument.needs and not state.context.has_gpu:
                continue
            state = yield from try_values(state, knob, values)
    return state


def tune_memory_savers(state: TunerState) -> Stage:
    """Try to switch off what computes activations twice to save memory."""
    for knob in state.tunable("grad_checkpoint"):
        if knob.value == 1 and state.incumbent_run.effects.recomputes:
            state = yield from try_values(state, knob, [as_written(knob, False)])
            continue
        reason = "Nothing was seen to be computed twice by torch, so off is no faster."
        state = state.set_verdict(knob, "no-need", reason)
    return state


GROUPED: dict[JsonScalar, JsonScalar] = {
    "random": "group_by_length",
    "shuffle": "group_by_length",
}
"""Words for a way to draw samples, and the one that draws items of like length together."""


def tune_length_grouping(state: TunerState) -> Stage:
    """Try batches of items of like length, where padding fills many positions.

    A pass holds the same items and an update as many of them, yet other ones together. That is
    the user's to decide: it is only suggested. It comes before the batch, which gains by it. One
    run tells much where no time is left to prove it: what it gained is the first thing to do next.
    """
    padded = state.incumbent_run.effects.padding_share
    for knob in state.tunable("length_grouping"):
        if isinstance(knob.value, str):
            value = GROUPED.get(knob.value.lower())
        else:
            value = as_written(knob, True) if knob.value in (False, 0) else None
        if value is None:
            continue
        if not state.pads:
            share = "was not seen" if padded is None else f"fills {numbers.percent(padded)}"
            reason = f"Padding of batches {share}, so items of like length gain little."
            state = state.set_verdict(knob, "no-need", reason)
            continue
        state = yield from try_values(state, knob, [value], kept_s=0.0)
        verdict = state.verdict_on(knob)
        if verdict is not None and verdict.cause == "out-of-budget":
            wasted = f"Padding fills {numbers.percent(padded)} of the positions"
            reason = f"{wasted}; `{value}` saves most of that work. {verdict.reason}"
            state = state.set_verdict(knob, verdict.cause, reason)
    for knob in state.tunable("packing"):
        if state.pads and knob.value in (False, 0):
            reason = (
                f"Padding fills {numbers.percent(padded)} of the positions; this fills them with "
                "further texts. It changes what an update sees, so it was not tried."
            )
            state = state.set_verdict(knob, "never-alone", reason)
    return state


def tune_precision(state: TunerState) -> Stage:
    """Try the precisions that this card computes in, as the config's own words name them."""
    for knob in state.tunable("precision"):
        choices = precision_choices(knob).items()
        values = dict.fromkeys(
            word for dtype, word in choices if dtype in state.context.precisions
        )
        if values:
            state = yield from try_with_consent(state, knob, list(values))
            continue
        here = ", ".join(state.context.precisions)
        reason = (
            f"No other value is known to compute in one of {here}, as this target does."
        )
        state = state.set_verdict(knob, "no-value-known", reason)
    return state


def tune_flags(state: TunerState) -> Stage:
    """Switch on what a config holds and may be faster; what is cheapest to try comes first."""
    for spec in (spec for spec in KINDS if spec.flag):
        for knob in state.tunable(spec.kind):
            quicker = [
                as_written(knob, quick)
                for slow, quick in spec.flag
                if repr(knob.value) == repr(as_written(knob, slow))  # True is no 1
            ]
            cause: DecisionCause = "no-value-known"
            if not quicker:
                reason = f"No value is known to be quicker than {knob.value!r}."
            elif reason := no_need(state, spec):
                cause = "no-need"
            else:
                state = yield from try_with_consent(state, knob, quicker)
                continue
            state = state.set_verdict(knob, cause, reason)
    return state


def no_need(state: TunerState, spec: KnobSpec) -> str:
    """Why a switch would do nothing for this program; empty where it may."""
    run = state.incumbent_run
    computes = (
        run.on_gpu
        or run.shares.compute is None
        or run.shares.compute >= policy.WORTH_COMPUTE_SHARE
    )
    if "gpu" in spec.needs and not run.on_gpu:
        return "It does something on a GPU only, and the model is not on one."
    if "training" in spec.needs and not state.trains:
        return "It does something in a training only."
    if "compute" in spec.needs and not computes:
        share = numbers.percent(run.shares.compute)
        return f"Calls of the model take {share} of the time: too little to gain."
    return ""


def as_written(knob: Knob, value: JsonScalar) -> JsonScalar:
    """Value of a flag, as 0 or 1 where the config has a number."""
    return int(value) if isinstance(value, bool) and type(knob.value) is int else value


def try_with_consent(state: TunerState, knob: Knob, values: Sequence[JsonScalar]) -> Stage:
    """Try values that change rounding, if the user declared a tolerance."""
    if state.context.consents:
        return (yield from try_values(state, knob, values))
    names = ", ".join(str(value) for value in values)
    reason = (
        f"{names} not tried: no numeric-tolerance or quality measure is declared for this workload "
        "in gpu-advisor.toml."
    )
    return state.set_verdict(knob, "needs-consent", reason)


def tune_steps(state: TunerState) -> Stage:
    """Try fewer sampling steps, if the user declared a quality measure to judge the results by."""
    for knob in state.tunable("timesteps"):
        cause: DecisionCause = "no-count"
        if not is_count(knob.value, minimum=2):
            reason = f"{str(knob.value)!r} is no plain count; it is left as it is."
        elif not state.context.workload.quality:
            cause = "needs-quality"
            reason = (
                "Fewer steps change the result, and no quality measure is declared in "
                "gpu-advisor.toml. A measure with a tolerance is the consent to trade."
            )
        else:
            state = yield from shorten(state, knob)
            continue
        state = state.set_verdict(knob, cause, reason)
    return state


def shorten(state: TunerState, knob: Knob) -> Stage:
    """Bisect for the fewest confirmed steps inside the tolerance, and time them.

    Quality is taken to fall with the steps, so half of the counts need no run. One pair screens a
    count. What passes by luck is refused by other seeds, and then the next larger count is tried,
    MOST_STEP_COUNTS in all. A count without time for its confirmation ends the search.
    """
    state, reference = yield from measure_reference(state)
    if isinstance(reference, Missing):
        if reference.out_of_time:
            reason = f"Not tried: {reference.clause}."
            return state.set_verdict(knob, "out-of-budget", reason)
        reason = f"The original's quality could not be measured: {reference.clause}."
        return state.set_verdict(knob, "not-judged", reason)
    counts, stop = step_counts(state, knob)
    variants = [
        (Variant(candidate=candidate), f"{steps} steps") for steps, candidate in counts
    ]
    screened: dict[int, QualityVerdict] = {}
    low, high, fewest = 0, len(counts) - 1, -1  # places in `counts`; -1: none passed
    while low <= high:
        at = (low + high + 1) // 2
        state, screened[at] = yield from screen(state, reference, *variants[at])
        if screened[at].inside:
            fewest, low = at, at + 1
        else:
            stop, high = screened[at].reason, at - 1
    for at in range(fewest, max(-1, fewest - policy.MOST_STEP_COUNTS), -1):
        variant, name = variants[at]
        if at not in screened:
            state, screened[at] = yield from screen(state, reference, variant, name)
        state, verdict = yield from confirm_quality(
            state, reference, variant, screened[at], name
        )
        if verdict.inside:
            return (yield from time_steps(state, knob, *counts[at], stop))
        stop = verdict.reason
        if not verdict.refuted:
            break
    return state.set_verdict(knob, "outside-tolerance", f"Kept. {stop}")


def step_counts(state: TunerState, knob: Knob) -> tuple[list[tuple[int, Candidate]], str]:
    """Smaller step counts with their candidates, most steps first, and why there are no fewer."""
    original = int(str(knob.value))
    counts: dict[int, Candidate] = {}
    stop = "No smaller step count was tried."
    for share in policy.STEP_SHARES:
        steps = tidy_steps(original * share)
        candidate = with_value(state, knob, steps)
        if isinstance(candidate, knobs.InvalidChange):
            stop = f"The search stopped because {plain_reason(candidate)}."
            break
        if steps < original:
            counts[steps] = candidate
    return list(counts.items()), stop


def time_steps(
    state: TunerState, knob: Knob, steps: int, candidate: Candidate, stop: str
) -> Stage:
    """Time a whole item with the chosen steps; `stop`: why no fewer are chosen, for the report."""
    state = yield from try_values(state, knob, [steps])
    verdict = state.verdict_on(knob)
    if verdict is None or verdict.outcome != "found":
        return state
    linked = (c for c in candidate.changes if c.kind == "schedule")
    along = ", ".join(f"{leaf_of(c.path)} {c.old} to {c.new}" for c in linked)
    schedule = f"; the linked schedule moved: {along}" if along else ""
    reason = (
        "The bounds of every quality measure are inside its tolerance, on seeds that did not "
        f"choose it{schedule}. {stop}"
    )
    return state.set_verdict(knob, "faster", reason)
