"""The declared ladder: each rung once, on top of what was proven, never a candidate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from advisor import config as documents
from advisor.config.argv import join
from advisor.executor.program import COMMAND_LINE
from advisor.model import Failure
from advisor.settings import LadderRung
from advisor.tuner.ladder import climb, why_refused
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Trial
    from advisor.tuner.standing import TunerState

TEXT = "batch_size: 1\nwidth: 32\ndepth: 2\n"
LADDER = [
    {"name": "wide", "set": {"width": 64}},
    {"name": "deep", "set": {"depth": 8}},
]
PROCESS_S = 10.0


def searched(folder: Path, ladder: list[dict[str, Any]] = LADDER, **formula: Any) -> FormulaSearch:
    """Inference whose larger batch gains, with a ladder to a larger model."""
    engine = on_formula(
        **{"load_s": 1e-6, "trains": False, "process_s": PROCESS_S, **formula},
    )
    workload = {"phase": "test", "ladder": ladder}
    return formula_search(folder, engine, TEXT, workload=workload, gpu=False)


def values(search: FormulaSearch) -> list[dict[str, Any]]:
    """What each process of the ladder ran with, other than the original."""
    asked = [attempt.request.variant.candidate for attempt in search.asked("ladder")]
    return [{change.path: change.new for change in each.changes} for each in asked]


def test_each_rung_runs_once_with_what_the_rungs_below_it_set(tmp_path: Path) -> None:
    """On top of what was proven, which runs first; where the memory goes is told of each."""
    search = searched(tmp_path)
    proven = search.values
    assert "batch_size" in proven
    wide, deep = {**proven, "width": 64}, {**proven, "width": 64, "depth": 8}
    assert values(search) == [proven, wide, deep]
    assert [a.label for a in search.asked("ladder")][1:] == ["the rung wide", "the rung deep"]
    assert all(attempt.request.plan.ceilings_workers for attempt in search.asked("ladder"))
    assert [each.name for each in search.standing.told.rungs] == ["", "wide", "deep"]


def test_no_rung_competes_and_none_is_written(tmp_path: Path) -> None:
    """One that is faster than everything changes nothing that is tried, proven or decided."""

    def fast(trial: Trial) -> float:
        return PROCESS_S / 100 if trial.purpose == "ladder" else PROCESS_S

    plain, climbed = (searched(tmp_path, each, process_s=fast) for each in ([], LADDER))
    assert climbed.winner.key == plain.winner.key
    assert climbed.decisions == plain.decisions
    others = [a.label for a in climbed.lab.attempts if a.request.purpose != "ladder"]
    assert others == [attempt.label for attempt in plain.lab.attempts]


def test_on_top_of_the_original_where_nothing_was_proven(tmp_path: Path) -> None:
    search = searched(tmp_path, launch_s=1e-6, unit_s=0.01)
    assert not search.winner.changes
    assert values(search)[:2] == [{}, {"width": 64}]


def test_a_failure_ends_the_ladder_and_is_kept(tmp_path: Path) -> None:
    """Whatever the rungs above it are: they stand on it."""

    def fails(values: Any, trial: Trial) -> str | None:
        return "host-oom" if values["width"] == 64 else None

    search = searched(tmp_path, fails=fails)
    ground, wide = search.standing.told.rungs
    assert not isinstance(ground.result, Failure)
    assert isinstance(wide.result, Failure)
    assert len(search.asked("ladder")) == 2
    assert search.stop.reason == "done"


def climbed_with(search: FormulaSearch, remaining_s: float) -> TunerState:
    """Where the ladder ends when so much of the budget is left before it."""
    now = search.standing
    steps = climb(replace(now, told=replace(now.told, rungs=()), clock_s=remaining_s))
    answers = iter(search.asked("ladder"))
    try:
        next(steps)
        while True:
            remaining_s -= PROCESS_S
            steps.send(replace(next(answers), remaining_s=remaining_s))
    except StopIteration as end:
        found: TunerState = end.value
        return found


@pytest.mark.parametrize(
    ("remaining_s", "ran", "what", "needed_s"),
    [
        (1.5 * PROCESS_S, [], "the ladder of larger models", 3 * PROCESS_S),
        (2.5 * PROCESS_S, ["", "wide"], "the ladder from deep on", PROCESS_S),
        (3.5 * PROCESS_S, ["", "wide", "deep"], None, None),
    ],
    ids=["none", "some", "all"],
)
def test_what_does_not_fit_the_budget_is_told_with_what_all_of_it_needs(
    tmp_path: Path, remaining_s: float, ran: list[str], what: str | None, needed_s: float | None
) -> None:
    """It is not begun; and what the ladder stands on, alone, tells nothing."""
    now = climbed_with(searched(tmp_path), remaining_s)
    assert [each.name for each in now.told.rungs] == ran
    skipped = [each for each in now.skipped if "ladder" in each.what]
    told = [(each.what, each.needed_s, each.matters) for each in skipped]
    assert told == ([(what, pytest.approx(needed_s, rel=0.05), False)] if what else [])


def test_nothing_is_asked_where_no_ladder_is_declared(tmp_path: Path) -> None:
    assert searched(tmp_path, []).asked("ladder") == []


# --- what cannot be set -------------------------------------------------------------------

CONFIG = """\
blur: 1
model: {d_model: 32, decoder_width: 8}
train:
  lr: 0.001
  name: &shared plain
  copy: *shared
"""


def refused(values: dict[str, Any]) -> str | None:
    """Why a rung that sets `values` cannot, of a config and a command."""
    config = documents.parse(CONFIG.encode(), "yaml", "train.yaml")
    words = ["python", "train.py", "--width", "8", "--mode", "fast"]
    command = documents.parse(join(words), "argv", COMMAND_LINE)
    return why_refused([config, command], [LadderRung(name="wide", set=values)])


@pytest.mark.parametrize(
    ("path", "nearest"),
    [("model.d_modl", "model.d_model"), ("lr", "train.lr"), ("--widht", "--width")],
    ids=["misspelled", "last-part-alone", "option"],
)
def test_a_path_that_is_not_there_is_named_with_the_nearest(path: str, nearest: str) -> None:
    """And the rung that sets it."""
    assert refused({path: 64}) == (
        f"the rung 'wide' sets {path} = 64, which is not in train.yaml and command line; "
        f"the nearest there is {nearest}."
    )


def test_a_value_that_cannot_be_set_is_refused_with_the_reason() -> None:
    """What repeats another value of the file is not set by itself; all else may be."""
    why = refused({"train.copy": "other"})
    assert why is not None
    assert "train.copy = 'other', which cannot be set: " in why
    assert refused({"model.d_model": 64, "train.lr": 1, "--width": 16}) is None
