"""Results inside what the user declared: what fewer steps and every loss of precision must pass.

What chooses and what confirms are runs of their own, with other seeds, and on other items where a
command for that is declared. The confirmation decides: the bounds of its pairs must lie inside the
tolerance. Where the user asked for one run a value, that decides, and nothing is called proven.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from advisor.executor.comparison import AFTER, BEFORE, Comparison
from advisor.executor.requests import ABTest, TrialRequest, Variant
from advisor.model import Candidate, MeasurePlan
from advisor.quality import (
    Pair,
    Values,
    differences,
    given_away,
    judge,
    means,
    moved,
    read_measures,
    rounds_needed,
    seeds_matter,
    spread_of_a_run,
)
from advisor.tuner import results
from advisor.tuner.asking import SearchStep, tried
from advisor.tuner.standing import MARGIN, Result, TunerState

if TYPE_CHECKING:
    from collections.abc import Generator

    from advisor.executor.requests import CommandName
    from advisor.model import Run
    from advisor.quality import QualityJudgement
    from advisor.tuner.facts import Data

FIRST_QUALITY = 3.0
"""A quality run may take so many times what a short process does, before one was seen."""
CHOOSING, CONFIRMING = 1, 101
"""The first repetition of each: no seed of one is a seed of the other."""
CHOOSING_RUNS = 3
"""Seeds that tell what a seed changes."""
FEWEST = 2
"""Runs a side, without which there are no bounds over the seeds."""
MOST_RUNS = 12
"""A side. What more of them would resolve is not worth their time."""
LEAST_POWER = 1.5
"""A budget that buys fewer rounds than were wanted must do where the bounds will be no wider than
so large a part of half the room that is left in the tolerance, twice."""
ARMS = 2**0.5
"""Both arms vary as one does, at most independently."""
CHECK_SHARE = 0.25
"""Part of what is left that may be spent on the original beside the best free candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """What qualities are held against: runs of the best so far, which has only free changes, with
    the seeds that choose."""

    candidate: Candidate
    runs: tuple[Values, ...]
    run_s: float
    """What one takes."""
    spent: tuple[tuple[str, float], ...] = ()
    """By measure: the share of the tolerance that earlier calls have given away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCandidate:
    """A candidate that may change results, and what the choosing runs said of it."""

    variant: Variant
    pairs: tuple[Pair, ...]
    judgements: tuple[QualityJudgement, ...]
    run_s: float
    runs: tuple[Values, ...] = ()
    """Its own runs, more of them than pairs: what a seed changes."""

    @property
    def seeds_matter(self) -> bool:
        """Whether other seeds gave other figures."""
        return seeds_matter([(run, run) for run in self.runs]) is True

    @property
    def inside(self) -> bool:
        """Whether it is worth being confirmed."""
        return all(judgement.within for judgement in self.judgements)


def quality_ask(
    variant: Variant, repeat: int, expected_s: float, command: CommandName = "quality"
) -> TrialRequest:
    """A command of the quality measures with `variant` and a seed, to its own end."""
    return TrialRequest(
        variant=variant,
        purpose="quality",
        plan=MeasurePlan(mode="whole"),
        command=command,
        repeat=repeat,
        expected_s=expected_s,
    )


def values_of(now: TunerState, run: Run | None) -> Values:
    """What the declared measures were; empty where one was not printed."""
    measures = now.facts.workload.quality
    found = read_measures(measures, run.stdout_tail) if run is not None else ()
    return found if len(found) == len(measures) else ()


def one_run(now: TunerState) -> bool:
    """Whether the user wants no more than one run a value."""
    return now.facts.workload.quality_proof == "one-run"


# --- what chooses -------------------------------------------------------------------------


def anchored(
    now: TunerState,
) -> Generator[SearchStep, Result, tuple[TunerState, Anchor | None, str]]:
    """Runs of the best so far; None, and why, where there are none or they cannot be read.

    Free settings cannot change results, so the best stands in for the original, which is run beside
    it where that costs little: one that moved the quality is given up.
    """
    free = Variant(candidate=now.best.only("free", "training"))
    now, attempt = yield from tried(now, quality_ask(free, CHOOSING, FIRST_QUALITY * now.price_s))
    if attempt is None:
        return now, None, "budget"
    first, values = attempt.run, values_of(now, attempt.run)
    if first is None or not values:
        return now, None, "quality-not-read"
    runs: tuple[Values, ...] = (values,)
    if free.candidate.changes and not one_run(now):
        now, runs = yield from checked(now, free, first, values)
    original = {name: fmean(means(run)[name] for run in runs) for name, _ in values}
    spent = given_away(
        now.facts.workload.quality, dict(now.facts.earlier.quality_reference), original
    )
    log = replace(now.quality, original=tuple(original.items()))
    if not log.before:
        log = replace(log, before=log.original)
    anchor = Anchor(
        candidate=now.best.only("free", "training"),
        runs=runs,
        run_s=first.wall_s,
        spent=tuple(spent.items()),
    )
    return replace(now, quality=log), anchor, ""


def checked(
    now: TunerState, free: Variant, first: Run, values: Values
) -> Generator[SearchStep, Result, tuple[TunerState, tuple[Values, ...]]]:
    """The best so far against the original with the same seeds, where that costs little.

    Returns the runs that later ones are held against: of the original, if the best is given up.
    """
    slower = max(1.0, now.front.units_per_s / now.original.units_per_s)
    needed_s = first.wall_s * (CHOOSING_RUNS * slower + CHOOSING_RUNS - 1)
    if needed_s > CHECK_SHARE * (now.remaining_s - now.reserve_s):
        return now, (values,)
    runs, originals = [values], []
    lost: Data = ()
    for number in range(CHOOSING_RUNS):
        repeat = CHOOSING + number
        now, attempt = yield from tried(now, quality_ask(Variant(), repeat, slower * first.wall_s))
        original = attempt.run if attempt is not None else None
        if number:
            now, attempt = yield from tried(now, quality_ask(free, repeat, first.wall_s))
            runs.append(values_of(now, attempt.run if attempt is not None else None))
        originals.append(values_of(now, original))
        if original is None or not originals[-1] or not runs[-1]:
            return now, (values,)
        lost = lost or results.lost((original,), first)
    if lost:
        return distrusted(now, "loses-results", lost), tuple(originals)
    if moved(now.facts.workload.quality, list(zip(originals, runs, strict=True))):
        return distrusted(now), tuple(originals)
    return now, tuple(runs)


def distrusted(now: TunerState, why: str = "moved-the-quality", seen: Data = ()) -> TunerState:
    """Without the best: it moved the quality although none of its knobs should change results."""
    for change in now.best.changes:
        key = (change.document, change.path)
        now = now.settle(key, "kept", why, **{**dict(seen), "value": change.new})
    return replace(now, best=Candidate(), best_run=None, proofs=())


def chosen(
    now: TunerState, anchor: Anchor, variant: Variant, expected_s: float
) -> Generator[SearchStep, Result, tuple[TunerState, QualityCandidate | None]]:
    """`variant` with the seeds that choose; None without room, an end or a figure."""
    runs: list[Values] = []
    took_s: list[float] = []
    for number in range(len(anchor.runs)):
        now, attempt = yield from tried(now, quality_ask(variant, CHOOSING + number, expected_s))
        run = attempt.run if attempt is not None else None
        if run is None:
            return now, None
        runs.append(read_measures(now.facts.workload.quality, run.stdout_tail))
        took_s.append(run.wall_s)
    pairs = tuple(zip(anchor.runs, runs, strict=True))
    judgements = judge(now.facts.workload.quality, pairs, "chosen", dict(anchor.spent))
    now = told(now, variant, judgements)
    rung = QualityCandidate(
        variant=variant, pairs=pairs, judgements=tuple(judgements), run_s=fmean(took_s)
    )
    return now, rung


def unjudged(now: TunerState, variant: Variant) -> Data:
    """Why no run told the quality of `variant`: none fitted, or one failed or printed no figure."""
    over = any(entry.what == variant.label for entry in now.skipped)
    return (("stop", "judge-over-budget" if over else "not-judged"),)


def told(now: TunerState, variant: Variant, judgements: list[QualityJudgement]) -> TunerState:
    """With `judgements` for the report."""
    entries = tuple((variant.label, judgement) for judgement in judgements)
    return replace(
        now, quality=replace(now.quality, judgements=(*now.quality.judgements, *entries))
    )


# --- what confirms ------------------------------------------------------------------------


def confirmed(
    now: TunerState, anchor: Anchor, rung: QualityCandidate
) -> Generator[SearchStep, Result, tuple[TunerState, bool, Data]]:
    """Whether the bounds of pairs that did not choose lie inside every tolerance; else why not."""
    measures = now.facts.workload.quality
    if one_run(now):
        return (
            adopted(now, rung.variant, list(rung.judgements)),
            rung.inside,
            beyond(rung.judgements),
        )
    more = CHOOSING_RUNS - len(rung.pairs)
    least_s = MARGIN * (FEWEST * anchor.run_s + (FEWEST + more) * rung.run_s)
    if least_s > now.remaining_s - now.reserve_s:
        return not_afforded(now, rung, FEWEST, least_s)
    now, known = yield from repeated(now, rung)
    if known is None:
        return now, False, unjudged(now, rung.variant)
    rung, matter = known, known.seeds_matter
    if not matter and now.facts.workload.confirm_quality_command is None:
        return now, False, (("stop", "seeds-not-followed"),)
    rounds, why = planned(now, anchor, rung) if matter else (1, ())
    if why:
        return now, False, why
    round_s = MARGIN * (anchor.run_s + rung.run_s)
    least = fewest(now, anchor, rung) if matter else 1
    rounds = min(rounds, max(0, int((now.remaining_s - now.reserve_s) / round_s)))
    if rounds < least:
        return not_afforded(now, rung, least, least * round_s)
    ab_test = ABTest(
        purpose="quality",
        title=f"quality of {rung.variant.label}",
        requests=(
            quality_ask(
                Variant(candidate=anchor.candidate), CONFIRMING, anchor.run_s, "confirm-quality"
            ),
            quality_ask(rung.variant, CONFIRMING, rung.run_s, "confirm-quality"),
        ),
        rounds=rounds,
        reseeded=True,
    )
    answer = yield SearchStep(request=ab_test, standing=now)
    assert isinstance(answer, Comparison)
    now = now.heard(answer)
    if answer.cut_short:
        left = rounds - len(answer.counted)
        now = now.skip(f"the rest of the confirmation of {rung.variant.label}", left * round_s)
        return now, False, (("stop", "confirm-over-budget"), ("rounds", left))
    pairs = [
        (read_measures(measures, before.stdout_tail), read_measures(measures, after.stdout_tail))
        for before, after in zip(answer.runs(BEFORE), answer.runs(AFTER), strict=True)
    ]
    if answer.failure is not None or not pairs:
        return now, False, (("stop", "not-judged"),)
    judgements = judge(measures, pairs, "confirmed", dict(anchor.spent))
    now = told(now, rung.variant, judgements)
    inside = all(judgement.within for judgement in judgements)
    now = adopted(now, rung.variant, judgements) if inside else now
    return now, inside, beyond(tuple(judgements), "not-confirmed")


def not_afforded(
    now: TunerState, rung: QualityCandidate, rounds: int, needed_s: float
) -> tuple[TunerState, bool, Data]:
    """Without a confirmation, which the budget cannot hold beside the proof of speed."""
    title = f"the confirmation of {rung.variant.label}"
    now = now.skip(title, needed_s, kept_s=now.reserve_s)
    return now, False, (("stop", "confirm-over-budget"), ("rounds", rounds))


def repeated(
    now: TunerState, rung: QualityCandidate
) -> Generator[SearchStep, Result, tuple[TunerState, QualityCandidate | None]]:
    """`rung` with enough seeds to tell what one changes; None where that did not fit.

    The items of a run do not tell it: a seed may be unlucky for all of them. The rung is the
    variant that costs less.
    """
    runs = [after for _, after in rung.pairs]
    while len(runs) < CHOOSING_RUNS:
        request = quality_ask(rung.variant, CHOOSING + len(runs), rung.run_s)
        now, attempt = yield from tried(now, request)
        values = values_of(now, attempt.run if attempt is not None else None)
        if not values:
            return now, None
        runs.append(values)
    return now, replace(rung, runs=tuple(runs))


def planned(now: TunerState, anchor: Anchor, rung: QualityCandidate) -> tuple[int, Data]:
    """Rounds that the noise of the choosing runs asks for; or why no affordable number would do."""
    wanted = FEWEST
    for name, room, spread in rooms(now, anchor, rung):
        rounds = rounds_needed(spread, room, MOST_RUNS) if room > 0 else None
        if rounds is None:
            why: Data = (("stop", "too-noisy"), ("measure", name), ("spread", spread))
            return 0, (*why, ("room", room), ("most", MOST_RUNS))
        wanted = max(wanted, rounds)
    return wanted, ()


def fewest(now: TunerState, anchor: Anchor, rung: QualityCandidate) -> int:
    """Rounds below which the bounds are not likely to lie inside."""
    return max(
        rounds_needed(spread, LEAST_POWER * room, MOST_RUNS) or MOST_RUNS
        for _, room, spread in rooms(now, anchor, rung)
    )


def rooms(
    now: TunerState, anchor: Anchor, rung: QualityCandidate
) -> list[tuple[str, float, float]]:
    """By measure: what is left of its tolerance, nothing being gained for what looked better, and
    the standard deviation of one run's difference."""
    found = []
    for judgement in rung.judgements:
        measure = now.facts.workload.quality[judgement.measure]
        sign = 1.0 if measure.better == "lower" else -1.0
        by_run = differences(rung.pairs, judgement.measure, sign)
        reference = judgement.reference or 0.0
        slack = max(0.0, 1.0 - dict(anchor.spent).get(judgement.measure, 0.0))
        slack *= measure.slack(reference)
        worse = sign * ((judgement.value or 0.0) - reference)
        of_arm = [[means(run)[judgement.measure]] for run in rung.runs]
        between = ARMS * (spread_of_a_run(of_arm) or 0.0)
        spread = max(spread_of_a_run(by_run) or 0.0, between)
        found.append((judgement.measure, slack - max(0.0, worse), spread))
    return found


def adopted(now: TunerState, variant: Variant, judgements: list[QualityJudgement]) -> TunerState:
    """Their figures are the quality of the best so far; what is only tried from inside is not."""
    if variant.whatif is not None:
        return now
    known = [(j.measure, j.reference, j.value) for j in judgements]
    log = replace(
        now.quality,
        before=tuple((name, old) for name, old, _ in known if old is not None),
        after=tuple((name, new) for name, _, new in known if new is not None),
    )
    return replace(now, quality=log)


def beyond(judgements: tuple[QualityJudgement, ...], stop: str = "out-of-tolerance") -> Data:
    """`measure=value` for each judgement, and the first that is not inside its limit."""
    outside = next((j for j in judgements if not j.within), None)
    told: Data = tuple((f"value of {j.measure}", j.value) for j in judgements)
    if outside is None:
        return told
    down = (outside.limit or 0.0) < (outside.reference or 0.0)
    return (
        ("stop", stop),
        *told,
        ("beyond", outside.measure),
        ("limit", outside.limit),
        ("bound", outside.low if down else outside.high),
        ("runs", outside.runs),
    )
