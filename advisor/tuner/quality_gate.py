"""Quality gate of candidates that may change results.

The runs that choose and the runs that confirm have other seeds, and other items where a command for
that is declared. The confirmation decides: the bounds of its pairs must lie inside the tolerance.
Where the user asked for one run a value, that run decides, and nothing is called proven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from advisor import knobs, numbers
from advisor.executor.comparison import AFTER, BEFORE, Comparison
from advisor.executor.requests import ABTest, TrialRequest, Variant
from advisor.model import Candidate, MeasurePlan, leaf_of
from advisor.quality import (
    Pair,
    Values,
    bounds,
    differences,
    given_away,
    judge,
    loss_drifts,
    means,
    moved,
    output_errors,
    read_measures,
    rounds_needed,
    seeds_matter,
    spread_of_a_run,
)
from advisor.tuner import effects, output_check
from advisor.tuner.baseline import STEP_SHARES, tidy_steps
from advisor.tuner.search import OUT_OF_TIME, percent
from advisor.tuner.state import (
    MARGIN,
    Result,
    SearchStep,
    Stage,
    TunerState,
    change_of,
    key_of,
    make_request,
    run_trial,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from advisor.executor.requests import CommandName
    from advisor.model import Knob, Run
    from advisor.quality import QualityJudgement

FIRST_QUALITY = 3.0
"""Short processes that a quality run may take, before one was seen."""
CHOOSING, CONFIRMING = 1, 101
"""The first repetition of each: no seed of one is a seed of the other."""
CHOOSING_RUNS = 3
"""Seeds that show what a seed changes."""
FEWEST = 2
"""Runs a side, without which there are no bounds over the seeds."""
MOST_RUNS = 12
"""More runs a side are not worth their time."""
LEAST_POWER = 1.5
"""Widening of the bounds that a budget with fewer rounds than wanted may cause."""
BOTH_SIDES = 2**0.5
"""Both sides vary as one does, at most independently."""
CHECK_SHARE = 0.25
"""Part of the remaining budget for the original beside the best free candidate."""
MOST_CONFIRMED = 2
"""Step counts that may be confirmed: each has its own chance to pass by luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict of the gate on one candidate."""

    inside: bool
    figures: str = ""
    """Measured values: `: drift 0.2 % of 2 % allowed`."""
    why: str = ""
    """Sentence on why it is not inside, or not confirmed."""
    refuted: bool = True
    """Other runs or seeds would not help: the next candidate may be tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Quality runs of the best free candidate."""

    candidate: Candidate
    runs: tuple[Values, ...]
    run_s: float
    spent: tuple[tuple[str, float], ...] = ()
    """Share of each tolerance that earlier calls have given away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCandidate:
    """Candidate that may change results, with its runs."""

    variant: Variant
    name: str
    """Subject of its sentences: `50 steps`."""
    pairs: tuple[Pair, ...]
    judgements: tuple[QualityJudgement, ...]
    run_s: float
    runs: tuple[Values, ...] = ()
    """Its own runs, more of them than pairs."""

    @property
    def seeds_matter(self) -> bool:
        """True if other seeds gave other figures."""
        return seeds_matter([(run, run) for run in self.runs]) is True

    @property
    def inside(self) -> bool:
        """True if it is worth being confirmed."""
        return all(judgement.within for judgement in self.judgements)


def passes_gate(
    state: TunerState, variant: Variant, run: Run
) -> Generator[SearchStep, Result, tuple[TunerState, Verdict]]:
    """True if `run` of `variant` stayed inside the declared tolerance.

    Losses of a short training or outputs of an inference with equal seeds are compared. Without
    either, the declared quality measures decide. Nothing to compare is not inside.
    """
    workload, best = state.context.workload, state.best
    drifts = drifts_of(state.incumbent_run, run)
    if drifts and workload.numeric_tolerance is not None:
        return (yield from passes_numeric_check(state, variant, drifts, workload.numeric_tolerance))
    nothing = Verdict(inside=False, figures=": there was nothing to compare")
    if not workload.quality:
        return state, nothing
    state, reference, _ = yield from measure_reference(state)
    if reference is None or state.best != best:
        return state, nothing
    expected_s = FIRST_QUALITY * state.price_s
    state, candidate = yield from screen(state, reference, variant, "It", expected_s)
    if candidate is None:
        return state, nothing
    if not candidate.inside:
        return state, verdict_of("It", candidate.judgements)
    return (yield from confirm_quality(state, reference, candidate))


# --- losses and outputs ---------------------------------------------------------------------------


def drifts_of(before: Run, after: Run) -> tuple[float, ...]:
    """Relative differences of losses step by step, or of outputs."""
    return loss_drifts(before.losses, after.losses) or output_errors(before.effects, after.effects)


def passes_numeric_check(
    state: TunerState, variant: Variant, drifts: tuple[float, ...], tolerance: float
) -> Generator[SearchStep, Result, tuple[TunerState, Verdict]]:
    """True if the mean drift lies inside `tolerance`."""
    drift = fmean(drifts)
    inside = abs(drift) <= tolerance
    figures = drift_figures(abs(drift), tolerance)
    if not inside or one_run(state):
        once = ", by one run, which proves nothing of others" if one_run(state) else ""
        return state, Verdict(inside=inside, figures=figures + once)
    spread = max(abs(drift), stdev(drifts) / math.sqrt(len(drifts)) if len(drifts) > 1 else 0.0)
    rounds = rounds_needed(spread, tolerance - abs(drift), MOST_RUNS)
    if rounds is None:
        why = too_noisy("It", "it", spread, tolerance - abs(drift))
        return state, Verdict(inside=False, figures=figures, why=why)
    needed_s = 2 * rounds * MARGIN * state.price_s
    if needed_s > state.remaining_s - state.reserve_s:
        what = f"the loss parity of {variant.label}"
        state = state.skip(what, needed_s, kept_s=state.reserve_s)
        return state, Verdict(inside=False, figures=figures, why=over_budget("It", rounds))
    ab_test = ABTest(
        purpose="quality",
        title=f"rounding of {variant.label}",
        requests=(seeded_run(state, Variant(candidate=state.best)), seeded_run(state, variant)),
        rounds=rounds,
        reseeded=True,
    )
    result = yield SearchStep(request=ab_test, state=state)
    assert isinstance(result, Comparison)
    state = state.with_result(result)
    runs = list(zip(result.runs(BEFORE), result.runs(AFTER), strict=True))
    by_run = [drifts_of(before, after) for before, after in runs]
    if result.cut_short or result.failure is not None or not by_run or not all(by_run):
        return state, Verdict(inside=False, figures=figures, why=not_judged("It"))
    if not all(math.isfinite(each) for one in by_run for each in one):
        return state, Verdict(inside=False, figures=drift_figures(math.inf, tolerance))
    pairs = [((("loss", a.losses),), (("loss", b.losses),)) for a, b in runs]
    if seeds_matter(pairs) is False:
        by_run = by_run[:1]
    found = bounds(by_run)
    most = max(abs(found.low), abs(found.high))
    figures = drift_figures(abs(found.estimate), tolerance, most)
    return state, Verdict(inside=most <= tolerance, figures=figures)


def drift_figures(drift: float, tolerance: float, most: float | None = None) -> str:
    """Drift figures as text.

    `: drift 0.2 % (at most 0.4 %) of 2 % allowed`.
    """
    bound = "" if most is None else f" (at most {numbers.percent(most)})"
    return f": drift {numbers.percent(drift)}{bound} of {numbers.percent(tolerance)} allowed"


def seeded_run(state: TunerState, variant: Variant) -> TrialRequest:
    """Run the user's command with a fresh seed."""
    request = make_request(state, variant.candidate, "quality")
    return replace(request, variant=variant, repeat=CONFIRMING)


# --- declared measures: choosing ------------------------------------------------------------------


def quality_request(
    variant: Variant, repeat: int, expected_s: float, command: CommandName = "quality"
) -> TrialRequest:
    """Request a quality command with `variant` and a seed."""
    return TrialRequest(
        variant=variant,
        purpose="quality",
        plan=MeasurePlan(mode="whole"),
        command=command,
        repeat=repeat,
        expected_s=expected_s,
    )


def values_of(state: TunerState, run: Run | None) -> Values:
    """Declared measures of a run; empty where one is missing."""
    measures = state.context.workload.quality
    found = read_measures(measures, run.stdout_tail) if run is not None else ()
    return found if len(found) == len(measures) else ()


def one_run(state: TunerState) -> bool:
    """True if one run a value is enough."""
    return state.context.workload.quality_proof == "one-run"


def measure_reference(
    state: TunerState,
) -> Generator[SearchStep, Result, tuple[TunerState, Reference | None, str]]:
    """Run the best free candidate's quality commands.

    Returns None and the reason where they cannot be read. The original runs beside it where that
    costs little. A candidate that moved the quality is given up. The quality from before is known
    only where the original ran.
    """
    free = Variant(candidate=state.best.only("free", "training"))
    request = quality_request(free, CHOOSING, FIRST_QUALITY * state.price_s)
    state, trial = yield from run_trial(state, request)
    if trial is None:
        return state, None, "budget"
    first, values = trial.run, values_of(state, trial.run)
    if first is None or not values:
        return state, None, "not read"
    runs: tuple[Values, ...] = (values,)
    originals: tuple[Values, ...] = () if free.candidate.changes else runs
    if free.candidate.changes and not one_run(state):
        state, runs, originals = yield from check_free(state, free, first, values)
    measured = mean_values(runs, values)
    measures = state.context.workload.quality
    spent = given_away(measures, dict(state.context.earlier.quality_reference), measured)
    before = mean_values(originals, values)
    log = replace(
        state.quality,
        reference=tuple((before or measured).items()),
        before=tuple(before.items()) or state.quality.before,
    )
    reference = Reference(
        candidate=state.best.only("free", "training"),
        runs=runs,
        run_s=first.wall_s,
        spent=tuple(spent.items()),
    )
    return replace(state, quality=log), reference, ""


def mean_values(runs: Sequence[Values], names: Values) -> dict[str, float]:
    """Mean of each measure over runs; empty without a run."""
    return {name: fmean(means(run)[name] for run in runs) for name, _ in names} if runs else {}


def check_free(
    state: TunerState, free: Variant, first: Run, values: Values
) -> Generator[SearchStep, Result, tuple[TunerState, tuple[Values, ...], tuple[Values, ...]]]:
    """Compare the best free candidate's quality with the original's.

    Returns the reference runs and the runs of the original, both with the seeds that choose.
    """
    slower = max(1.0, state.incumbent_run.units_per_s / state.original.units_per_s)
    needed_s = first.wall_s * (CHOOSING_RUNS * slower + CHOOSING_RUNS - 1)
    if needed_s > CHECK_SHARE * (state.remaining_s - state.reserve_s):
        return state, (values,), ()
    runs: list[Values] = [values]
    originals: list[Values] = []
    lost = ""
    for number in range(CHOOSING_RUNS):
        repeat = CHOOSING + number
        request = quality_request(Variant(), repeat, slower * first.wall_s)
        state, trial = yield from run_trial(state, request)
        original = trial.run if trial is not None else None
        found = values_of(state, original)
        if number:
            request = quality_request(free, repeat, first.wall_s)
            state, trial = yield from run_trial(state, request)
            runs.append(values_of(state, trial.run if trial is not None else None))
        if original is None or not found or not runs[-1]:
            return state, (values,), tuple(originals)
        originals.append(found)
        lost = lost or output_check.output_regression((original,), first)
    if lost:
        return without_best(state, lost), tuple(originals), tuple(originals)
    if moved(state.context.workload.quality, list(zip(originals, runs, strict=True))):
        why = (
            "It moved the declared quality out of its tolerance, although such a setting should "
            "not change results."
        )
        return without_best(state, why), tuple(originals), tuple(originals)
    return state, tuple(runs), tuple(originals)


def without_best(state: TunerState, why: str) -> TunerState:
    """Drop the best candidate for its quality."""
    for change in state.best.changes:
        key = (change.document, change.path)
        state = state.set_verdict(key, "kept", f"Not written. {why}")
    return replace(state, best=Candidate(), best_run=None, confirmations=())


def screen(
    state: TunerState, reference: Reference, variant: Variant, name: str, expected_s: float
) -> Generator[SearchStep, Result, tuple[TunerState, QualityCandidate | None]]:
    """Screen `variant` with the seeds that choose.

    None where it did not fit or was not read.
    """
    runs: list[Values] = []
    took_s: list[float] = []
    for number in range(len(reference.runs)):
        request = quality_request(variant, CHOOSING + number, expected_s)
        state, trial = yield from run_trial(state, request)
        run = trial.run if trial is not None else None
        if run is None:
            return state, None
        runs.append(read_measures(state.context.workload.quality, run.stdout_tail))
        took_s.append(run.wall_s)
    pairs = tuple(zip(reference.runs, runs, strict=True))
    judgements = judge(state.context.workload.quality, pairs, "chosen", dict(reference.spent))
    state = with_judgements(state, variant, judgements)
    candidate = QualityCandidate(
        variant=variant,
        name=name,
        pairs=pairs,
        judgements=tuple(judgements),
        run_s=fmean(took_s),
    )
    return state, candidate


def with_judgements(
    state: TunerState, variant: Variant, judgements: list[QualityJudgement]
) -> TunerState:
    """With `judgements` for the report."""
    entries = tuple((variant.label, judgement) for judgement in judgements)
    known = (*state.quality.judgements, *entries)
    return replace(state, quality=replace(state.quality, judgements=known))


# --- declared measures: confirming ----------------------------------------------------------------


def confirm_quality(
    state: TunerState, reference: Reference, candidate: QualityCandidate
) -> Generator[SearchStep, Result, tuple[TunerState, Verdict]]:
    """True if fresh pairs lie inside every tolerance."""
    measures, name = state.context.workload.quality, candidate.name
    if one_run(state):
        state = adopt_quality(state, reference, candidate.variant, candidate.judgements)
        return state, verdict_of(name, candidate.judgements)
    more = CHOOSING_RUNS - len(candidate.pairs)
    least_s = MARGIN * (FEWEST * reference.run_s + (FEWEST + more) * candidate.run_s)
    if least_s > state.remaining_s - state.reserve_s:
        return not_affordable(state, candidate, FEWEST, least_s)
    state, known = yield from with_more_seeds(state, candidate)
    if known is None:
        return state, Verdict(inside=False, why=unjudged(state, candidate), refuted=False)
    candidate, matter = known, known.seeds_matter
    if not matter and state.context.workload.confirm_quality_command is None:
        return state, Verdict(inside=False, why=SEEDS_IGNORED.format(name=name), refuted=False)
    rounds, why = wanted_pairs(state, reference, candidate) if matter else (1, "")
    if why:
        return state, Verdict(inside=False, why=why)
    round_s = MARGIN * (reference.run_s + candidate.run_s)
    least = fewest_pairs(state, reference, candidate) if matter else 1
    rounds = min(rounds, max(0, int((state.remaining_s - state.reserve_s) / round_s)))
    if rounds < least:
        return not_affordable(state, candidate, least, least * round_s)
    before = Variant(candidate=reference.candidate)
    ab_test = ABTest(
        purpose="quality",
        title=f"quality of {candidate.variant.label}",
        requests=(
            quality_request(before, CONFIRMING, reference.run_s, "confirm-quality"),
            quality_request(candidate.variant, CONFIRMING, candidate.run_s, "confirm-quality"),
        ),
        rounds=rounds,
        reseeded=True,
    )
    result = yield SearchStep(request=ab_test, state=state)
    assert isinstance(result, Comparison)
    state = state.with_result(result)
    if result.cut_short:
        left = rounds - len(result.counted)
        what = f"the rest of the confirmation of {candidate.variant.label}"
        state = state.skip(what, left * round_s)
        return state, Verdict(inside=False, why=over_budget(name, left), refuted=False)
    pairs = [
        (read_measures(measures, a.stdout_tail), read_measures(measures, b.stdout_tail))
        for a, b in zip(result.runs(BEFORE), result.runs(AFTER), strict=True)
    ]
    if result.failure is not None or not pairs:
        return state, Verdict(inside=False, why=not_judged(name), refuted=False)
    judgements = judge(measures, pairs, "confirmed", dict(reference.spent))
    state = with_judgements(state, candidate.variant, judgements)
    found = verdict_of(name, judgements, confirmed=True)
    if found.inside:
        state = adopt_quality(state, reference, candidate.variant, judgements)
    return state, found


def not_affordable(
    state: TunerState, candidate: QualityCandidate, rounds: int, needed_s: float
) -> tuple[TunerState, Verdict]:
    """Drop a candidate that the budget cannot confirm."""
    what = f"the quality confirmation of {candidate.variant.label}"
    state = state.skip(what, needed_s, kept_s=state.reserve_s)
    why = over_budget(candidate.name, rounds)
    return state, Verdict(inside=False, why=why, refuted=False)


def with_more_seeds(
    state: TunerState, candidate: QualityCandidate
) -> Generator[SearchStep, Result, tuple[TunerState, QualityCandidate | None]]:
    """Add seeds to `candidate` until one change shows.

    None without room in the budget.
    """
    runs = [after for _, after in candidate.pairs]
    while len(runs) < CHOOSING_RUNS:
        request = quality_request(candidate.variant, CHOOSING + len(runs), candidate.run_s)
        state, trial = yield from run_trial(state, request)
        values = values_of(state, trial.run if trial is not None else None)
        if not values:
            return state, None
        runs.append(values)
    return state, replace(candidate, runs=tuple(runs))


def wanted_pairs(
    state: TunerState, reference: Reference, candidate: QualityCandidate
) -> tuple[int, str]:
    """Rounds that the noise asks for, or why none would do."""
    wanted = FEWEST
    for name, room, spread in rooms(state, reference, candidate):
        rounds = rounds_needed(spread, room, MOST_RUNS) if room > 0 else None
        if rounds is None:
            return 0, too_noisy(candidate.name, name, spread, room)
        wanted = max(wanted, rounds)
    return wanted, ""


def fewest_pairs(state: TunerState, reference: Reference, candidate: QualityCandidate) -> int:
    """Fewest rounds likely to lie inside the tolerance."""
    return max(
        rounds_needed(spread, LEAST_POWER * room, MOST_RUNS) or MOST_RUNS
        for _, room, spread in rooms(state, reference, candidate)
    )


def rooms(
    state: TunerState, reference: Reference, candidate: QualityCandidate
) -> list[tuple[str, float, float]]:
    """Room in each tolerance, and the spread of differences."""
    found = []
    for judgement in candidate.judgements:
        measure = state.context.workload.quality[judgement.measure]
        sign = 1.0 if measure.better == "lower" else -1.0
        by_run = differences(candidate.pairs, judgement.measure, sign)
        figure = judgement.reference or 0.0
        slack = max(0.0, 1.0 - dict(reference.spent).get(judgement.measure, 0.0))
        slack *= measure.slack(figure)
        worse = sign * ((judgement.value or 0.0) - figure)
        of_side = [[means(run)[judgement.measure]] for run in candidate.runs]
        between = BOTH_SIDES * (spread_of_a_run(of_side) or 0.0)
        spread = max(spread_of_a_run(by_run) or 0.0, between)
        found.append((judgement.measure, slack - max(0.0, worse), spread))
    return found


def adopt_quality(
    state: TunerState,
    reference: Reference,
    variant: Variant,
    judgements: Sequence[QualityJudgement],
) -> TunerState:
    """Adopt the candidate's figures as the quality after.

    Changes of the code are left out. The figures before are the original's on the same items, or
    not measured.
    """
    if variant.whatif is not None:
        return state
    after = tuple((j.measure, j.value) for j in judgements if j.value is not None)
    before = state.quality.before
    if not reference.candidate.changes:
        before = tuple((j.measure, j.reference) for j in judgements if j.reference is not None)
    elif state.context.workload.confirm_quality_command is not None and not one_run(state):
        before = ()
    return replace(state, quality=replace(state.quality, before=before, after=after))


# --- sentences ------------------------------------------------------------------------------------

SEEDS_IGNORED = (
    "{name} passed screening, and other seeds gave the same figures, so nothing tells how far they "
    "may differ. Let the program follow GPU_ADVISOR_SEED or a {{seed}} in its quality-command. Or "
    "let it print a figure for each item, and declare other items as confirm-quality-command."
)


def verdict_of(
    name: str, judgements: Sequence[QualityJudgement], *, confirmed: bool = False
) -> Verdict:
    """Verdict and sentence of judgements."""
    shown = [f"{j.measure} {numbers.measure(j.value)}" for j in judgements]
    outside = next((j for j in judgements if not j.within), None)
    if outside is None:
        return Verdict(inside=True, figures=": " + ", ".join(shown) if shown else "")
    limit = numbers.measure(outside.limit)
    shown.append(f"{outside.measure} is beyond its limit {limit}")
    why = (
        f"{name}: {outside.measure} was beyond its limit {limit} when chosen (pairs of runs: "
        f"{outside.runs})."
    )
    if confirmed:
        down = (outside.limit or 0.0) < (outside.reference or 0.0)
        bound = outside.low if down else outside.high
        reach = "not known" if bound is None else numbers.measure(bound)
        why = (
            f"{name} passed screening; with other seeds the 95 % bound of {outside.measure} is "
            f"{reach}, and its limit {limit} (pairs of runs: {outside.runs})."
        )
    return Verdict(inside=False, figures=": " + ", ".join(shown), why=why)


def too_noisy(name: str, measure: str, spread: float, room: float) -> str:
    """Sentence on a measure too noisy for its tolerance."""
    return (
        f"{name} passed screening, and {measure} differs by {numbers.measure(spread, 2)} from run "
        f"to run where its tolerance leaves {numbers.measure(room, 2)}: more than {MOST_RUNS} runs "
        "a side would have to confirm it."
    )


def over_budget(name: str, rounds: int) -> str:
    """Sentence on a confirmation without room in the budget."""
    return (
        f"{name} passed screening, and the budget could not hold what would confirm it: "
        f"{rounds} more runs a side."
    )


def not_judged(name: str) -> str:
    """Sentence on a run without a figure."""
    return f"{name} could not be judged: a run failed, or printed no figure."


def unjudged(state: TunerState, candidate: QualityCandidate) -> str:
    """Sentence on why no run judged a candidate."""
    return no_run(state, candidate.variant, candidate.name)


def no_run(state: TunerState, variant: Variant, name: str) -> str:
    """Sentence on a candidate without a judgement."""
    if any(entry.what == variant.label for entry in state.skipped):
        return f"{name} could not be judged: the budget had no room for the run."
    return not_judged(name)


# --- sampling steps -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Step counts of the config, and their screening."""

    steps: tuple[int, ...]
    """Most first."""
    candidates: tuple[Candidate, ...]
    screened: tuple[tuple[int, QualityCandidate], ...] = ()
    """By position."""
    stop: str = "No smaller step count was tried."


def tune_steps(state: TunerState) -> Stage:
    """Tune every steps knob with a declared tolerance."""
    for knob in state.tunable("timesteps"):
        key = key_of(knob)
        if not isinstance(knob.value, int) or isinstance(knob.value, bool) or knob.value < 2:
            reason = f"{str(knob.value)!r} is no plain count; it is left as it is."
            state = state.set_verdict(key, "listed", reason)
        elif not state.context.workload.quality:
            reason = (
                "Fewer steps change the result, and no quality measure is declared in "
                "gpu-advisor.toml; a measure with a tolerance is the consent to trade."
            )
            state = state.set_verdict(key, "listed", reason)
        else:
            state = yield from shorten(state, knob, knob.value)
    return state


def shorten(state: TunerState, knob: Knob, original: int) -> Stage:
    """Find the fewest confirmed steps inside the tolerance."""
    key = key_of(knob)
    state, reference, why = yield from measure_reference(state)
    if reference is None and why == "budget":
        return state.set_verdict(key, "skipped", OUT_OF_TIME)
    if reference is None:
        reason = (
            "The original's quality could not be measured: the declared patterns did not match "
            "its output."
        )
        return state.set_verdict(key, "refused", reason)
    counts = step_counts(state, knob, original)
    state, counts, position = yield from fewest_inside(state, reference, counts)
    stop, confirmed = counts.stop, 0
    while position is not None and position >= 0 and confirmed < MOST_CONFIRMED:
        state, counts, candidate = yield from screened(state, reference, counts, position)
        if candidate is None or not candidate.inside:
            break
        state, verdict = yield from confirm_quality(state, reference, candidate)
        if verdict.inside:
            return (yield from time_steps(state, knob, counts.candidates[position], stop))
        stop = verdict.why
        confirmed += bool(verdict.figures)
        if not verdict.refuted:
            break
        position -= 1
    return state.set_verdict(key, "refused", f"Kept. {stop}")


def step_counts(state: TunerState, knob: Knob, original: int) -> StepCounts:
    """Step counts down to a refused one."""
    steps: list[int] = []
    candidates: list[Candidate] = []
    for share in STEP_SHARES:
        value = tidy_steps(original * share)
        if value < 1 or value >= original or value in steps:
            continue
        candidate = state.with_value(knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            why = (candidate.reason.partition(": ")[2] or candidate.reason).rstrip(".")
            stop = f"The search stopped because {why}."
            return StepCounts(steps=tuple(steps), candidates=tuple(candidates), stop=stop)
        steps.append(value)
        candidates.append(candidate)
    return StepCounts(steps=tuple(steps), candidates=tuple(candidates))


def fewest_inside(
    state: TunerState, reference: Reference, counts: StepCounts
) -> Generator[SearchStep, Result, tuple[TunerState, StepCounts, int | None]]:
    """Find the fewest passing steps by bisection."""
    low, high = 0, len(counts.steps) - 1
    found: int | None = None
    while low <= high:
        middle = (low + high + 1) // 2
        state, counts, candidate = yield from screened(state, reference, counts, middle)
        if candidate is not None and candidate.inside:
            found, low = middle, middle + 1
            continue
        high = middle - 1
        name = f"{counts.steps[middle]} steps"
        if candidate is None:
            why = no_run(state, Variant(candidate=counts.candidates[middle]), name)
        else:
            why = verdict_of(name, candidate.judgements).why
        counts = replace(counts, stop=why)
    return state, counts, found


def screened(
    state: TunerState, reference: Reference, counts: StepCounts, position: int
) -> Generator[SearchStep, Result, tuple[TunerState, StepCounts, QualityCandidate | None]]:
    """Screening of one step count, run once."""
    known = dict(counts.screened)
    if position in known:
        return state, counts, known[position]
    steps = counts.steps[position]
    share = steps / max(counts.steps[0] / STEP_SHARES[0], 1.0)
    variant = Variant(candidate=counts.candidates[position])
    name, expected_s = f"{steps} steps", reference.run_s * share
    state, candidate = yield from screen(state, reference, variant, name, expected_s)
    if candidate is not None:
        counts = replace(counts, screened=(*counts.screened, (position, candidate)))
    return state, counts, candidate


def time_steps(state: TunerState, knob: Knob, candidate: Candidate, stop: str) -> Stage:
    """Time one whole item with the chosen steps."""
    key, start = key_of(knob), state.incumbent_run
    request = make_request(state, candidate, moved=(key,), whole_batches=1)
    state, trial = yield from run_trial(state, request)
    run = trial.run if trial else None
    if trial is None:
        return state.set_verdict(key, "skipped", OUT_OF_TIME)
    change = change_of(candidate, key)
    if run is None or change is None:
        return state.set_verdict(key, "refused", "The chosen steps failed when they were timed.")
    if effects.verdict(change, start, run) == "ignored":
        override = effects.overriding(knob.path, change.new, run)
        clause = f"; {override}" if override else ""
        reason = f"Ignored by the program: its forwards per unit did not change{clause}."
        return state.set_verdict(key, "ignored", reason)
    if not state.is_faster(run, start):
        reason = f"Fewer steps were not faster by more than {percent(state)}."
        return state.set_verdict(key, "kept", reason)
    along = ", ".join(
        f"{leaf_of(c.path)} {c.old} to {c.new}" for c in candidate.changes if c.kind == "schedule"
    )
    held = (
        "One run of every quality measure is inside its tolerance, which proves nothing of others "
        "(quality-proof is one-run)"
        if one_run(state)
        else "The bounds of every quality measure are inside its tolerance, on seeds that did not "
        "choose it"
    )
    schedule = f"; the linked schedule moved: {along}" if along else ""
    return state.adopt(candidate, run).set_verdict(key, "found", f"{held}{schedule}. {stop}")
