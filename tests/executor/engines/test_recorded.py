"""The engine without processes: truths are known, time is virtual, seeds decide the rest."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter

from advisor.model import Candidate, Change, Failure, MeasurePlan, Run, Trial, TrialFile
from tests.support.simulator.engine import GridPoint, RecordedEngine, Table
from tests.support.simulator.formula import Formula
from tests.support.simulator.noise import Bursts, Noise, VirtualClock

if TYPE_CHECKING:
    from pathlib import Path

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
    """Between processes, within them, in two modes, and with a heavy tail."""
    assert statistics.stdev(rates(3, Noise(between=0.1))) == pytest.approx(0.1, rel=0.25)
    modes = {round(rate, 6) for rate in rates(3, Noise(modes=((1.0, 2), (0.5, 1))))}
    assert modes == {0.5, 1.0}
    assert 1 <= sum(rate < 0.2 for rate in rates(3, Noise(collapse=0.05))) <= 25
    engine = RecordedEngine(Formula(), noise=Noise(modes=((1.0, 1), (0.5, 1)), flips=True), seed=4)
    assert {round(each / TRUE, 6) for each in run(engine).windows} == {0.5, 1.0}


def test_a_burst_is_told_as_it_was_and_left_out_where_enough_is_clean() -> None:
    """The rate over clean time is the true one; with too little of that the run is disturbed."""
    half = Bursts(period_s=2.0, busy_s=1.0, cpus=1.5, slowdown=3.0, name="browser")
    clean = run(RecordedEngine(Formula(startup_s=1.0), disturbances=(half,)))
    assert clean.disturbance.disturbed is False
    assert clean.units_per_s == pytest.approx(TRUE)
    always = Bursts(period_s=1.0, busy_s=1.0, slowdown=lambda values: float(values["batch_size"]))
    slow = run(RecordedEngine(Formula(), disturbances=(always,)))
    assert slow.disturbance.disturbed is True
    assert [each.name for each in slow.disturbance.who] == ["neighbour"]
    assert slow.units_per_s == pytest.approx(TRUE / 4)
    silent = run(RecordedEngine(Formula(), disturbances=(Bursts(busy_s=20.0, told=False),)))
    assert silent.disturbance.disturbed is None
    assert silent.units_per_s == pytest.approx(TRUE / 2)


def test_a_run_takes_its_time_on_the_virtual_clock() -> None:
    """Start, window, ending; the first start of a day may be slow; a whole run takes its units."""
    clock = VirtualClock(100.0)
    engine = RecordedEngine(Formula(), startup_s=5.0, first_startup_s=80.0, clock=clock)
    first, second = run(engine), run(engine)
    assert (first.startup_s, second.startup_s) == (80.0, 5.0)
    assert engine.clock() == clock() == pytest.approx(100.0 + first.wall_s + second.wall_s)
    assert second.window_start == pytest.approx(100.0 + first.wall_s + 5.0)
    whole = run(engine, trial(plan=MeasurePlan(mode="whole")))
    assert whole.window_end - whole.window_start == pytest.approx(200 / whole.units_per_s)


def test_the_trials_limits_hold() -> None:
    """What would have taken longer was ended, and has cost its limit."""
    engine = RecordedEngine(Formula(), startup_s=50.0)
    for limit, kind in (("start_limit_s", "no-steps"), ("total_limit_s", "timeout")):
        before = engine.clock()
        outcome = engine.run(replace(trial(), **{limit: 20.0}))
        assert isinstance(outcome, Failure)
        assert outcome.kind == kind
        assert engine.clock() - before == 20.0


def test_recorded_runs_are_given_in_turn(tmp_path: Path) -> None:
    """Of the first cell whose values are in force; what was never recorded is a failure."""
    source = RecordedEngine(Formula(), noise=Noise(between=0.2), seed=9)
    runs = (run(source), run(source))
    cells = [GridPoint(values={"batch_size": 4, "num_workers": 0}, outcomes=runs)]
    path = tmp_path / "table.json"
    path.write_bytes(b'{"cells": ' + TypeAdapter(list[GridPoint]).dump_json(cells) + b"}")
    engine = RecordedEngine(Table.read(path))
    given = [run(engine) for _ in range(3)]
    told = [each.units_per_s for each in (*runs, runs[0])]
    assert [each.units_per_s for each in given] == pytest.approx(told)
    assert given[1].effects == runs[1].effects
    missing = engine.run(trial(batch_size=16))
    assert isinstance(missing, Failure)
    assert "batch_size=16" in missing.evidence
