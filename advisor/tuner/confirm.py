"""Confirmation in interleaved rounds, and of memory by a whole pass.

The search takes the fastest of many single runs, which is partly the luckiest: its rate may not be
told as a gain. So the candidate runs anew, in rounds with the original, and those alone count.
Numbers of rounds are fixed before the first one, by the gain that is expected and the noise that
was seen: a comparison that stops once it looks good proves too much.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from advisor import stats
from advisor.executor.comparison import Comparison
from advisor.executor.requests import AFTER, BEFORE, ABTest, Variant
from advisor.executor.rounds import MOST_COLLAPSED
from advisor.model import Candidate, Failure, Run, TaskKind
from advisor.tuner import output_check, policy, reserves
from advisor.tuner.outcomes import Objection, Task
from advisor.tuner.search import accepting, later_items, other_work, unusable
from advisor.tuner.stages import Stage, make_request, run_comparison, run_trial
from advisor.tuner.state import TunerState, change_of

OUTLIVING_ROUNDS = stats.pairs_that_outlive(1)
"""Fewest rounds whose exact bounds outlive a wrong one: 13."""


def confirm(state: TunerState, share_s: float | None = None) -> Stage:
    """Compare the best candidate with its base, twice if open; drop it unconfirmed.

    What changes rounding or the product is compared with what is proven, all else with the
    original.
    `share_s`: time that its rounds may take where others wait for theirs; None: all that is left.
    """
    proven, winner = proven_candidate(state), state.best
    if winner.key == proven.key or state.best_run is None:
        return back_to(state, proven)
    base = proven if winner.only("numeric", "quality").changes else Candidate()
    expected = state.gain(state.best_run, proven_run(state, base))
    round_s, finish_s = reserves.round_s(state), to_finish_s(state)
    if finish_s + policy.FEWEST_ROUNDS * round_s > state.remaining_s and finish_s:
        task = Task("whole-batch", winner.label)
        state, finish_s = state.skip(task, finish_s, matters=False), 0.0
    for again in (False, True):
        wanted = wanted_rounds(state, base, expected, again=again)
        wanted = min(wanted, most_rounds(state, base, expected, again=again))
        fewest = policy.GOOD_ROUNDS if again else policy.FEWEST_ROUNDS
        room_s = state.remaining_s - finish_s
        left_s = room_s - later_s(state, winner)
        room_s = left_s if left_s >= policy.GOOD_ROUNDS * round_s else room_s
        if share_s is not None:
            wanted = min(wanted, max(policy.GOOD_ROUNDS, int(share_s / max(round_s, 1e-9))))
        rounds = min(wanted, int(room_s / max(round_s, 1e-9)))
        if rounds < fewest:
            kind: TaskKind = "second-confirmation" if again else "confirmation"
            state = state.skip(Task(kind, winner.label), fewest * round_s)
            state = replace(state, likely=True)
            break
        ab_test = ABTest(
            purpose="confirm",
            requests=(
                make_request(state, Variant(candidate=base), "confirm"),
                make_request(
                    state, Variant(candidate=winner), "confirm", ran=state.incumbent_run
                ),
            ),
            rounds=rounds,
            max_rounds=wanted,
            finish_once=finish_s > 0,
            sigma=state.sigma_of(base),
        )
        task = Task("confirmation", winner.label)
        state, result = yield from run_comparison(state, ab_test, task, round_s)
        state = with_comparison(state, winner, result)
        if not state.likely or result.cut_short or result.collapsed(AFTER) > MOST_COLLAPSED:
            break
    return back_to(state, proven_candidate(state))


def later_s(state: TunerState, winner: Candidate) -> float:
    """Time that a good proof of sampling steps leaves for one run of a precision not yet tried.

    One run tells that a precision is slower here, which is all that most machines without a card
    have to say of it. It comes after the steps, as it is tried on top of them.
    """
    if all(change.kind != "timesteps" for change in winner.changes):
        return 0.0
    untried = [k for k in state.tunable("precision") if state.verdict_on(k) is None]
    return policy.ROUND_FACTOR * state.costs.again_s(state.best_run) if untried else 0.0


def most_rounds(
    state: TunerState, base: Candidate, expected_gain: float, *, again: bool
) -> int:
    """Rounds that leave time for what may gain most and comes later.

    These are precision and sampling steps on a busy card, and items of like length in a text. A
    large gain is proven in fewer rounds, so that the others have their time. Sampling steps need
    most of it: their quality is judged in a dozen runs. On an unsteady machine six rounds of a
    batch worth 5x left none of five minutes to confirm steps that were worth 20x. No fewer than
    four: three of 6.4x, 3.5x and 4.9x proved 1.03x and no more, and nothing was written at all.
    """
    gated = state.context.consents and state.tunable("precision", "timesteps")
    grouping = state.pads and state.tunable("length_grouping")
    if base.changes or not (gated or grouping):
        return policy.MOST_ROUNDS
    if again:  # a suggestion is worth no open proof
        return 0 if gated else policy.MOST_ROUNDS
    large = expected_gain >= policy.LARGE_GAIN
    if large and reserves.judges_steps(state):
        return policy.GOOD_ROUNDS
    fewest_rounds = policy.GOOD_ROUNDS if grouping and large else policy.MOST_RESERVED
    return max(
        fewest_rounds, int(state.remaining_s / 2 / max(reserves.round_s(state), 1e-9))
    )


def objection(state: TunerState, result: Comparison) -> Objection | None:
    """What is against the compared: its way to count, its items, results or work; a sentence."""
    after = result.runs(AFTER)
    ways = sorted({run.way for arm in (BEFORE, AFTER) for run in result.runs(arm)})
    if len(ways) > 1:
        clause = f"was counted in more than one way: {'; '.join(ways)}"
        return Objection("other-counting", f"{clause}. Such rates do not compare.")
    later = [
        clause for run in after if (clause := later_items(state, result.runs(BEFORE), run))
    ]
    if len(later) > len(after) / 2:
        return Objection("later-items", f"{max(later)}.")
    lost = [output_check.output_regression(state.originals, run) for run in after]
    if any(lost):
        return Objection("other-results", f"loses or changes results. {max(lost)}")
    others = [other for run in after if (other := other_work(state, run))]
    if others:
        worst = max(others, key=lambda difference: difference.refused)
        clause = f"would do other work. {worst.sentence}{accepting(worst)}"
        return Objection("other-work", clause, ())
    return None


def with_comparison(state: TunerState, winner: Candidate, result: Comparison) -> TunerState:
    """With `winner`'s rounds, unless its runs object."""
    state = replace(state, likely=False)
    if against := objection(state, result):
        return refuse(state, winner, against.clause, against.kinds)
    state = replace(state, confirmations=(*state.confirmations, result))
    if result.failure is not None or is_significant(state, result):
        return state
    interval = result.interval(state.context.objective)
    gain = interval.estimate if interval else state.gain_over_incumbent(state.incumbent_run)
    return replace(state, likely=gain > 1 + state.context.smallest_gain)


def refuse_batch(state: TunerState, winner: Candidate, clause: str) -> TunerState:
    """Without `winner`'s confirmations, with the reason against its batch."""
    return refuse(state, winner, clause, ("batch_size",))


def refuse(
    state: TunerState, winner: Candidate, clause: str, kinds: Sequence[str] = ()
) -> TunerState:
    """Without `winner`'s confirmations, with the reason against its changes of `kinds`."""
    for change in winner.changes:
        if change.kind in (kinds or {change.kind}):
            reason = f"Not written: {change.new} {clause}"
            state = state.set_verdict(change, "refuted", reason)
    confirmed = state.confirmations
    others = (c for c in confirmed if c.ab_test.after.candidate.key != winner.key)
    return replace(state, confirmations=tuple(others))


def to_finish_s(state: TunerState) -> float:
    """Time of a whole item batch; 0 if processes finish one anyhow."""
    run = state.incumbent_run
    if not state.iterative or run.whole_units or state.context.workload.quality:
        return 0.0
    return policy.ROUND_FACTOR * (run.effects.batch or 1.0) / run.units_per_s


def is_significant(state: TunerState, comparison: Comparison) -> bool:
    """True if the gain is large enough, inside every constraint."""
    objective = state.context.objective
    if any(objective.broken(run) for run in comparison.runs(AFTER)):
        return False
    if restores_constraints(state, comparison.runs(BEFORE)):
        whole = comparison.failure is None and not comparison.cut_short
        return whole and len(comparison.runs(AFTER)) >= policy.FEWEST_ROUNDS
    return comparison.proven(objective, state.context.smallest_gain)


def restores_constraints(state: TunerState, before: Sequence[Run]) -> bool:
    """True if only this side keeps every constraint."""
    return bool(before) and all(state.context.objective.broken(run) for run in before)


def proven_confirmations(state: TunerState) -> tuple[Comparison, ...]:
    """Confirmations from the original to the best, each on top of the one before.

    A later one against the original begins the chain anew.
    """
    chain: tuple[Comparison, ...] = ()
    for comparison in state.confirmations:
        before = comparison.ab_test.before.candidate
        if not is_significant(state, comparison):
            continue
        if not before.changes:
            chain = (comparison,)
        elif chain and chain[-1].ab_test.after.candidate.key == before.key:
            chain = (*chain, comparison)
    return chain


def proven_candidate(state: TunerState) -> Candidate:
    """Best proven candidate, else the original."""
    chain = proven_confirmations(state)
    return chain[-1].ab_test.after.candidate if chain else Candidate()


def proven_run(state: TunerState, candidate: Candidate) -> Run:
    runs = state.confirmation_runs(candidate)
    return state.context.objective.best(runs) if runs else state.original


def back_to(state: TunerState, candidate: Candidate) -> TunerState:
    run = proven_run(state, candidate) if candidate.changes else None
    return replace(state, best=candidate, best_run=run)


def wanted_rounds(
    state: TunerState, base: Candidate, expected_gain: float, *, again: bool = False
) -> int:
    """Rounds that settle a gain of this size over `base`.

    They make Student's bounds half as wide as the gain, and a large gain needs few, however
    noisy. Fixed beforehand.
    """
    fewest_rounds = policy.GOOD_ROUNDS if state.context.consents else policy.MOST_RESERVED
    fewest_rounds = OUTLIVING_ROUNDS if again else fewest_rounds
    if restores_constraints(state, state.originals):
        return fewest_rounds
    least_gain = 1 + state.context.smallest_gain
    gap = math.log(expected_gain / least_gain)
    round_limit = (
        max(fewest_rounds, policy.ROUNDS_OF_LARGE_GAINS)
        if expected_gain >= policy.LARGE_GAIN
        else policy.MOST_ROUNDS
    )
    sigma = state.sigma_of(base)
    for rounds in range(fewest_rounds, round_limit):
        if stats.half_width(rounds, sigma) <= gap / 2:
            return rounds
    return round_limit


INCONCLUSIVE = {"timeout", "interrupted"}
"""Failures that say nothing about the batch."""


def check_memory(state: TunerState) -> Stage:
    """Run a card's proven batch through a pass: validation may need more."""
    winner = proven_candidate(state)
    run = proven_run(state, winner)
    grown = [knob for knob in state.of_kind("batch_size") if change_of(winner, knob)]
    if not grown or not run.on_gpu:
        return state
    note = memory_caveat(state, run)
    if run.effects.data_items:
        pass_s = policy.VALIDATION_FACTOR * run.effects.data_items / run.units_per_s
        variant = Variant(candidate=winner)
        request = replace(
            make_request(state, variant, "effects", measure_s=pass_s, longest_s=pass_s),
            expected_s=state.costs.price_s + pass_s,
            title=f"one pass over the data with {winner.label}",
        )
        kept_s = reserves.proof_s(state) if state.context.consents else 0.0
        state, trial = yield from run_trial(state, request, kept_s=kept_s, matters=False)
        if trial is not None:
            if evidence := failure_of(state, trial.result):
                state = refuse_batch(
                    state, winner, f"fails within one pass over the data. {evidence}"
                )
                return back_to(state, proven_candidate(state))
            note = seen_memory(state, trial.run) if trial.run is not None else note
    for knob in grown:
        verdict = state.verdict_on(knob)
        if verdict is not None:
            state = state.set_verdict(knob, verdict.cause, verdict.reason + note)
    return state


def failure_of(state: TunerState, result: Run | Failure) -> str:
    """Evidence that a whole pass fails; else empty."""
    if isinstance(result, Failure):
        return "" if result.kind in INCONCLUSIVE else result.evidence
    against = unusable(state, result)
    return f"It {against.clause}." if against else ""


def seen_memory(state: TunerState, run: Run) -> str:
    validated = any(phase.name == "validation" for phase in run.phases)
    what = "with validation" if validated else "in which no validation was seen"
    if run.held_gib is None:
        return ""
    return (
        f" One pass over the data, {what}, held {run.held_gib:.2f} of "
        f"{state.context.memory_limit_gib:.2f} GiB."
    )


def memory_caveat(state: TunerState, run: Run) -> str:
    """Sentence on memory that measured steps do not show; else empty."""
    if not run.on_gpu or run.held_gib is None:
        return ""
    return (
        f" Its measured steps held {run.held_gib:.2f} of {state.context.memory_limit_gib:.2f} GiB; "
        "a validation pass or a longer batch may need more."
    )
