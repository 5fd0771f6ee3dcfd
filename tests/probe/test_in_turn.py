"""Switches in turn: each is on for a spell of the running process, and then it is as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from advisor.model import InTurn, MeasurePlan
from advisor.probe.in_turn import order
from advisor.strategy.in_turn import gains
from tests.probe import program
from tests.truth import true_rate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.probe.program import Outcome

PLAN = MeasurePlan(measure_s=0.25, min_steps=8, in_turn=("threads=2", "autocast=bfloat16"))


def states(outcome: Outcome) -> list[list[str]]:
    """Switches in force, by the program, each time they changed."""
    return [json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("[")]


def accounts(outcome: Outcome) -> dict[str, InTurn]:
    return {each.name: each for each in outcome.measured.in_turn}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("trained")
    return program.python(folder, "switch_loop.py", "--train", plan=PLAN)


def test_each_switch_is_taken_off_again(trained: Outcome) -> None:
    """There and back, with the program as it is between, and after the window."""
    assert trained.exit_code == 0, trained.stderr
    there = [[], ["threads"], ["autocast"], []]
    assert states(trained) == [*there, ["autocast"], ["threads"], []]
    found = accounts(trained)
    assert [len(found[name].spells) for name in ("", *PLAN.in_turn)] == [3, 2, 2]
    assert all(each.applied for each in found.values())


def test_spells_tell_what_the_program_counts(trained: Outcome) -> None:
    """By its own clock, within 2 %, each in its own time after the window and after the others."""
    spells = sorted(
        (spell for each in trained.measured.in_turn for spell in each.spells),
        key=lambda spell: spell.start,
    )
    end = trained.measured.window_end
    for spell in spells:
        assert spell.start >= end
        end = spell.end
        own = true_rate(trained.truth_file, spell.start, spell.end)
        assert spell.units_per_s == pytest.approx(own, rel=0.02)


def test_the_run_is_of_the_program_as_it_is(trained: Outcome) -> None:
    """The window ended before the first switch."""
    reading = trained.measured
    assert reading.effects.threads == 1
    assert reading.whatif is None
    assert reading.ceilings is None
    assert reading.units_per_s == pytest.approx(trained.true_rate(), rel=0.02)


def test_the_switch_that_helps_is_told_and_no_other(trained: Outcome) -> None:
    assert [name for name, gain in gains(trained.measured.in_turn, 0.1).items() if gain] == [
        "threads=2"
    ]


def test_one_whose_effect_lasts_is_the_last(tmp_path: Path) -> None:
    """Weights stay laid out anew; nothing is measured after it. A second one gets no spell."""
    plan = MeasurePlan(measure_s=0.25, min_steps=8, in_turn=("channels_last", "threads=2"))
    outcome = program.python(tmp_path, "switch_loop.py", plan=plan)
    assert states(outcome) == [[], ["threads"], [], ["threads"], [], ["channels_last"]]
    assert order(("a", "channels_last", "b")) == ["", "a", "b", "", "b", "a", "", "channels_last"]
    assert gains(outcome.measured.in_turn, 0.1) == {
        "threads=2": pytest.approx(6 / 4, rel=0.2),
        "channels_last": pytest.approx(6 / 4.5, rel=0.2),
    }


def test_what_does_not_apply_takes_no_time(tmp_path: Path) -> None:
    """It is told with the reason; a name that nobody knows too."""
    plan = MeasurePlan(measure_s=0.2, min_steps=5, in_turn=("tf32", "warp_drive", "threads=2"))
    outcome = program.python(tmp_path, "switch_loop.py", plan=plan)
    found = accounts(outcome)
    assert {name: each.applied for name, each in found.items()} == {
        "": True, "tf32": False, "warp_drive": False, "threads=2": True,
    }  # fmt: skip
    assert "runs on cpu" in (found["tf32"].why or "")
    assert "no what-if" in (found["warp_drive"].why or "")
    assert not found["tf32"].spells


def test_a_switch_that_the_program_does_not_bear_costs_the_turns_only(tmp_path: Path) -> None:
    """What was measured before stands; what came after is not told, and gets its own process."""
    plan = MeasurePlan(
        measure_s=0.2, min_steps=5, in_turn=("threads=2", "autocast=bfloat16", "set_to_none")
    )
    outcome = program.python(tmp_path, "switch_loop.py", "--fails-under", "autocast", plan=plan)
    reading, found = outcome.measured, accounts(outcome)
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.05)
    assert [len(found[name].spells) for name in ("", "threads=2", "autocast=bfloat16")] == [1, 1, 0]
    told = gains(reading.in_turn, 0.1)
    assert "autocast=bfloat16" not in told
    assert "set_to_none" not in told
