"""Every kind of program, unchanged: the rate is that of its own account over the same window, and
batch, workers and ranks are those it really ran with."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from advisor.model import MeasurePlan
from tests import light, warm
from tests.probe.program import python
from tests.support.matrix import CASES, Case, measure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.probe.program import Begin

pytest.importorskip("torch")

PLAN = MeasurePlan(measure_s=0.8, min_steps=10)
ALONE = [
    case
    for case in CASES
    if case.command[0] == sys.executable and case.command[1] != "-m" and case.ranks == 1
]
"""Commands that are one Python process."""
SEVERAL = [case for case in CASES if case not in ALONE]
ONE_OF_EACH = [next(case for case in ALONE if case.needs == needs) for needs in (None, "lightning")]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", light.WHOLE: "1"}
START_S = 150.0
"""A framework takes a while to import."""


def agrees(case: Case, profile: dict[str, Any], rate: float, true_rate: float) -> None:
    """The profile of `case` is what it did."""
    assert rate == pytest.approx(true_rate, rel=case.tolerance)
    assert profile["workers"] == case.workers
    assert profile["ranks"] == case.ranks
    if case.batch is not None:
        assert profile["batch"] == case.batch
    if case.forwards_per_unit is not None:
        assert profile["forwards_per_unit"] == case.forwards_per_unit
    assert sum(profile["shares"].values()) == pytest.approx(1.0)


def each(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """Parametrizes by `cases`, each with its marker."""
    params = [
        pytest.param(
            case, id=case.name, marks=pytest.mark.frameworks if case.needs else pytest.mark.slow
        )
        for case in cases
    ]
    return pytest.mark.parametrize("case", params)


def skip_without(case: Case) -> None:
    why = case.missing()
    if why is not None:
        pytest.skip(why)


@pytest.fixture(scope="module")
def begin() -> Iterator[Begin]:
    """Begins programs that find the whole of torch imported."""
    with warm.Server("torch", {**os.environ, **ENVIRONMENT}) as server:
        yield lambda command, **how: server.start(command[1:], **how)


@each(ALONE)
def test_the_probe_measures_the_program_as_it_measures_itself(
    case: Case, tmp_path: Path, begin: Begin
) -> None:
    skip_without(case)
    outcome = python(
        tmp_path, *case.command[1:], env=ENVIRONMENT, plan=PLAN, begin=begin, timeout_s=START_S
    )
    reading = outcome.measured
    shares = dataclasses.asdict(reading.shares)
    profile = {
        **dataclasses.asdict(reading.effects),
        "ranks": reading.ranks,
        "shares": {name: share for name, share in shares.items() if share is not None},
    }
    rate = reading.units / (reading.window_end - reading.window_start)
    agrees(case, profile, rate, outcome.true_rate())


@each([*SEVERAL, *ONE_OF_EACH])
def test_the_command_measures_the_program_as_it_measures_itself(case: Case, tmp_path: Path) -> None:
    """Several processes; of those that are one, a plain program and one of a framework."""
    skip_without(case)
    outcome = measure(case, tmp_path)
    assert outcome.profile["ok"], (outcome.profile["failure"], outcome.stderr)
    assert outcome.true_units_per_s is not None
    agrees(case, outcome.profile, outcome.units_per_s, outcome.true_units_per_s)
