"""Every kind of program, unchanged: the rate is that of its own account over the same window, and
batch, workers and ranks are those it really ran with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.matrix import CASES, Case, measure

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")


def marks(case: Case) -> pytest.MarkDecorator:
    """tests/probe runs these loops without the command, in README's test command too."""
    return pytest.mark.frameworks if case.needs else pytest.mark.slow


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=marks(case)) for case in CASES]
)
def test_the_program_is_measured_as_it_measures_itself(case: Case, tmp_path: Path) -> None:
    why = case.missing()
    if why is not None:
        pytest.skip(why)
    outcome = measure(case, tmp_path)
    told = outcome.told
    assert told["ok"], (told["failure"], outcome.stderr)
    assert outcome.units_per_s == pytest.approx(outcome.true_units_per_s, rel=case.tolerance)
    assert told["workers"] == case.workers
    assert told["ranks"] == case.ranks
    if case.batch is not None:
        assert told["batch"] == case.batch
    if case.forwards_per_unit is not None:
        assert told["forwards_per_unit"] == case.forwards_per_unit
    assert sum(told["shares"].values()) == pytest.approx(1.0)
