"""Where the batch is, by experiment, on programs that are formulas: the dimension that follows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from advisor.model import BatchPlace, Effects, Failure, Run
from advisor.tuner.baseline import doubled_dimension
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import FormulaSearch, formula_search
from tests.tuner.configs import TEST

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Trial

LENGTH = 35
NAMES = {"batch_size": "batch_size"}
WITHOUT_A_LOADER = {"workers": None, "batch_asked": None, "model_site": "main.py:9"}


class Untold(RecordedEngine):
    """Steps of [time, batch, width] without any layer that knows: told where the batch is, samples
    are counted, else whatever the first dimension holds, or tokens."""

    follows, counts = True, "first dimension"

    def run(self, trial: Trial) -> Run | Failure:
        answer = super().run(trial)
        if isinstance(answer, Failure):
            return answer
        batch = int(str(self.asked[-1].values["batch_size"])) if self.follows else 20
        first = float(LENGTH) if self.counts == "first dimension" else None
        seen = replace(answer.effects, input_dims=((2, 7), (LENGTH, batch, 8)), batch=first)
        scale = (first or batch * LENGTH) / batch
        if trial.plan.batch_at is not None:
            assert trial.plan.batch_at == BatchPlace(site="main.py:9", input=1, axis=1)
            seen, scale = replace(seen, batch=float(batch), batch_at=trial.plan.batch_at), 1.0
        rate = answer.units_per_s * scale
        return replace(answer, effects=seen, units_per_s=rate, units=answer.units * scale)


class Unmoved(Untold):
    follows = False


class Tokens(Untold):
    counts = "tokens"


def search(folder: Path, kind: type[Untold], text: str, **observed: Any) -> FormulaSearch:
    formula = Formula(
        process_s=1.0, names=NAMES, launch_s=0.02, observed={**WITHOUT_A_LOADER, **observed}
    )
    return formula_search(folder, kind(formula), text, workload=TEST)


@pytest.mark.parametrize("kind", [Untold, Tokens])
def test_the_dimension_that_follows_the_setting_is_the_batch(
    tmp_path: Path, kind: type[Untold]
) -> None:
    """One process shows it; every later one is told, and a larger batch is found to be faster."""
    found = search(tmp_path, kind, "batch_size: 20\n")
    (experiment,) = found.asked("effects")
    assert [change.new for change in experiment.request.variant.candidate.changes] == [40]
    assert {run.effects.batch for run in found.state.originals} == {20.0}
    assert found.values["batch_size"] > 20
    assert all(a.request.plan.batch_at for a in found.asked("search"))


def test_a_setting_that_no_dimension_follows_shows_nothing(tmp_path: Path) -> None:
    """The program goes on with what its code says."""
    found = search(tmp_path, Unmoved, "batch_size: 20\n")
    assert len(found.asked("effects")) == 1
    assert found.state.batch_at is None
    assert found.values == {}


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        ("batch_size: 35\n", {}),
        ("batch_size: 21\n", {}),
        ("lr: 20\n", {}),
        ("batch_size: 20\n", {"workers": 2}),
        ("batch_size: 20\n", {"model_site": None}),
    ],
    ids=["explained", "no dimension", "no setting", "loader", "no model"],
)
def test_without_doubt_or_without_a_chance_no_process_is_spent(
    tmp_path: Path, text: str, observed: dict[str, Any]
) -> None:
    """A loader tells; a value that is no dimension cannot show as one."""

    assert not search(tmp_path, Unmoved, text, **observed).asked("effects")


def test_what_changed_otherwise_is_not_the_batch() -> None:
    """A length that is drawn anew, or another number of dimensions."""
    before = Effects(input_dims=((31, 20), (20,)), model_site="a.py:1")
    after = Effects(input_dims=((28, 40), (40,)))
    assert doubled_dimension(before, after) == BatchPlace(site="a.py:1", input=0, axis=1)
    assert doubled_dimension(before, Effects(input_dims=((62,), (20,)))) is None
    assert doubled_dimension(before, Effects(input_dims=((33, 20), (20,)))) is None
