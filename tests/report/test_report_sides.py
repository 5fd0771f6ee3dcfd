"""A configuration's figures: all sound runs of that very one, whatever each was run for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from advisor.executor.comparison import AFTER, BEFORE, Comparison
from advisor.executor.requests import ABTest, TrialRequest, TrialResult, Variant
from advisor.executor.rounds import Round
from advisor.model import Candidate, Change, Disturbance, MeasurePlan
from advisor.report.sides import runs_of, sides
from advisor.tuner.standing import TunerState
from tests.runs import a_run

if TYPE_CHECKING:
    from advisor.model import Purpose, Run

ORIGINAL = Candidate()
TUNED = Candidate(
    changes=(
        Change(
            document="a.yaml",
            path="batch_size",
            kind="batch_size",
            knob_class="free",
            old=1,
            new=8,
        ),
    )
)
BUSY = Disturbance(disturbed=True, others_cpus=1.0)


def an_ask(candidate: Candidate, whatif: str | None, purpose: Purpose) -> TrialRequest:
    arm = Variant(candidate=candidate, whatif=whatif)
    return TrialRequest(variant=arm, purpose=purpose, plan=MeasurePlan())


def ab_test(
    before: list[Run],
    after: list[Run],
    arms: tuple[Candidate, Candidate] = (ORIGINAL, ORIGINAL),
    whatif: str | None = "channels_last",
    purpose: Purpose = "whatif",
) -> Comparison:
    """Rounds of these runs: of a candidate, and of one with a what-if on top."""
    asks = an_ask(arms[0], None, purpose), an_ask(arms[1], whatif, purpose)
    rounds = []
    for number, runs in enumerate(zip(before, after, strict=True), 1):
        attempts = {
            arm: TrialResult(id="1", request=request, result=run, remaining_s=1.0)
            for arm, request, run in zip((BEFORE, AFTER), asks, runs, strict=True)
        }
        rounds.append(Round(number=number, order=(BEFORE, AFTER), runs=attempts))
    ab_test = ABTest(purpose=purpose, title="t", before=asks[0], after=asks[1], rounds=len(rounds))
    return Comparison(ab_test=ab_test, rounds=tuple(rounds), remaining_s=1.0)


def at(*rates: float, **given: Any) -> list[Run]:
    return [a_run(units_per_s=rate, **given) for rate in rates]


def standing(*originals: Run) -> TunerState:
    return TunerState(facts=cast("Any", None), clock_s=0.0, originals=originals)


def rates_of(runs: list[Run]) -> list[float]:
    return [run.units_per_s for run in runs]


def test_the_original_beside_a_what_if_is_the_original_too() -> None:
    """One baseline is no range where it ran three more times in the same call."""
    tried = ab_test(at(26.0, 22.0, 23.0), at(1.0, 1.0, 1.0))
    before, after = sides(standing(*at(11.0)), (tried,), ORIGINAL)
    assert before == after
    assert before.units_per_s == 22.5
    assert (before.units_per_s_low, before.units_per_s_high) == (11.0, 26.0)


def test_what_was_written_has_the_runs_beside_later_what_ifs() -> None:
    """And no run of another candidate, nor of what was tried on top, nor of a quality measure."""
    proof = ab_test(at(1.0, 2.0), at(7.0, 8.0), (ORIGINAL, TUNED), None, "confirm")
    tried = ab_test(at(9.0), at(70.0), (TUNED, TUNED))
    measure = ab_test(at(0.1), at(0.2), (ORIGINAL, TUNED), None, "quality")
    found = (proof, tried, measure)
    assert rates_of(runs_of(standing(*at(3.0)), found, TUNED)) == [7.0, 8.0, 9.0]
    assert rates_of(runs_of(standing(*at(3.0)), found, ORIGINAL)) == [3.0, 1.0, 2.0]


def test_the_undisturbed_stand_for_all_where_they_tell_a_range() -> None:
    """One that was left alone among many that were not is one process."""
    busy = at(1.0, 2.0, disturbance=BUSY)
    quiet = ab_test(at(5.0), at(9.0))
    assert rates_of(runs_of(standing(*busy, *at(4.0)), (quiet,), ORIGINAL)) == [4.0, 5.0]
    assert rates_of(runs_of(standing(*busy, *at(4.0)), (), ORIGINAL)) == [1.0, 2.0, 4.0]
