"""The engine without processes: truths are known, time is virtual, seeds decide the rest."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest

from advisor.model import Candidate, Change, Failure, MeasurePlan, Run, Trial, TrialFile
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.formula import Formula
from tests.support.simulator.noise import Noise

START = b"loader:\n  batch_size: 4\n  num_workers: 0\nsteps: 10\n"
TRUE = Formula().rate({"batch_size": 4, "num_workers": 0})


def trial(*, plan: MeasurePlan | None = None, **values: Any) -> Trial:
    """A trial of a config file with these values changed."""
    changes = tuple(
        Change(document="c.yaml", path=name, kind=name, knob_class="free", old=None, new=value)
        for name, value in values.items()
    )
    return Trial(
        id="1",
        purpose="search",
        label="",
        candidate=Candidate(changes=changes),
        command=("x",),
        cwd="/",
        scratch="/s",
        files=(TrialFile(original="c.yaml", content=START),),
        plan=plan or MeasurePlan(),
    )


def run(engine: RecordedEngine, asked: Trial | None = None) -> Run:
    outcome = engine.run(asked or trial())
    assert isinstance(outcome, Run), outcome
    return outcome


def test_without_noise_the_answer_is_the_formula() -> None:
    """Loading before the step without workers, beside it with some; the larger of the two rules."""
    formula = Formula(load_s=0.01, launch_s=0.004, unit_s=0.001)
    engine = RecordedEngine(formula)
    assert run(engine).units_per_s == pytest.approx(4 / (0.004 + 0.004 + 0.04))
    assert run(engine, trial(num_workers=2)).units_per_s == pytest.approx(4 / 0.02)
    assert run(engine, trial(num_workers=8)).units_per_s == pytest.approx(4 / 0.008)
    assert run(engine, trial(batch_size=8)).effects.batch == 8
    assert [each.values["batch_size"] for each in engine.asked] == [4, 4, 4, 8]
    assert formula.rate({"batch_size": 4, "num_workers": 8}) == pytest.approx(500)


def rates(seed: int, noise: Noise, many: int = 200) -> list[float]:
    """Of equal processes, as shares of the true rate."""
    engine = RecordedEngine(Formula(), noise=noise, seed=seed)
    return [run(engine).units_per_s / TRUE for _ in range(many)]


def test_noise_is_as_large_as_asked_for() -> None:
    """Between processes, and with a heavy tail."""
    assert statistics.stdev(rates(3, Noise(between=0.1))) == pytest.approx(0.1, rel=0.25)
    assert 1 <= sum(rate < 0.2 for rate in rates(3, Noise(collapse=0.05))) <= 25


def test_the_trials_limits_hold() -> None:
    """What would have taken longer was ended, and has cost its limit."""
    engine = RecordedEngine(Formula(), startup_s=50.0)
    for limit, kind in (("start_limit_s", "no-steps"), ("total_limit_s", "timeout")):
        before = engine.clock()
        outcome = engine.run(replace(trial(), **{limit: 20.0}))
        assert isinstance(outcome, Failure)
        assert outcome.kind == kind
        assert engine.clock() - before == 20.0
