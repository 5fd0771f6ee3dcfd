"""Switches in turn: each is on for a spell of the running process, and then it is as it was."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from advisor.model import InTurn, MeasurePlan
from advisor.probe.in_turn import order
from advisor.tuner.in_turn import gains
from tests import simulated_gpu
from tests.probe import program
from tests.truth import rate_between

if TYPE_CHECKING:
    from pathlib import Path

    from tests.probe.program import TuningResult

PLAN = MeasurePlan(measure_s=0.4, min_steps=8, in_turn=("threads=2", "autocast=bfloat16"))


def looped(folder: Path, *args: str, plan: MeasurePlan) -> TuningResult:
    """The program in a time of its own: while it computes, and as long as it says it sleeps."""
    # a second thread that spins would be time of its own
    base = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "OMP_WAIT_POLICY": "PASSIVE"}
    env = simulated_gpu.environment((), base=base, own_time=True)
    return program.python(folder, "switch_loop.py", *args, plan=plan, env=env)


def states(outcome: TuningResult) -> list[list[str]]:
    """Switches in force, by the program, each time they changed."""
    return [json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("[")]


def accounts(outcome: TuningResult) -> dict[str, InTurn]:
    return {each.name: each for each in outcome.measured.in_turn}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TuningResult:
    folder = tmp_path_factory.mktemp("trained")
    return looped(folder, "--train", plan=PLAN)


def test_each_switch_is_taken_off_again(trained: TuningResult) -> None:
    """There and back, with the program as it is between, and after the window."""
    assert trained.exit_code == 0, trained.stderr
    there = [[], ["threads"], ["autocast"], []]
    assert states(trained) == [*there, ["autocast"], ["threads"], []]
    found = accounts(trained)
    assert [len(found[name].spells) for name in ("", *PLAN.in_turn)] == [3, 2, 2]
    assert all(each.applied for each in found.values())


def test_spells_tell_what_the_program_counts(trained: TuningResult) -> None:
    """By its own clock, within 2 %, each in its own time after the window and after the others."""
    spells = sorted(
        (spell for each in trained.measured.in_turn for spell in each.spells),
        key=lambda spell: spell.start,
    )
    end = trained.measured.window_end
    for spell in spells:
        assert spell.start >= end
        end = spell.end
        own = rate_between(trained.truth_file, spell.start, spell.end)
        assert spell.units_per_s == pytest.approx(own, rel=0.02)
    assert len(spells) == 7


def test_the_run_is_of_the_program_as_it_is(trained: TuningResult) -> None:
    """The window ended before the first switch."""
    reading = trained.measured
    assert reading.effects.threads == 1
    assert reading.whatif is None
    assert reading.ceilings is None
    assert reading.units_per_s == pytest.approx(trained.true_rate(), rel=0.02)


def test_the_switch_that_helps_is_told_and_no_other(trained: TuningResult) -> None:
    assert [name for name, gain in gains(trained.measured.in_turn, 0.1).items() if gain] == [
        "autocast=bfloat16"
    ]


def test_one_whose_effect_lasts_is_the_last(tmp_path: Path) -> None:
    """Weights stay laid out anew; nothing is measured after it. A second one gets no spell."""
    plan = MeasurePlan(measure_s=0.4, min_steps=8, in_turn=("channels_last", "autocast=bfloat16"))
    outcome = looped(tmp_path, plan=plan)
    assert states(outcome) == [
        [], ["autocast"], [], ["autocast"], [], ["channels_last"]
    ]  # fmt: skip
    assert order(("a", "channels_last", "b")) == ["", "a", "b", "", "b", "a", "", "channels_last"]
    assert gains(outcome.measured.in_turn, 0.1) == {
        "autocast=bfloat16": pytest.approx(12 / 8, rel=0.1),
        "channels_last": pytest.approx(12 / 9, rel=0.1),
    }


def test_what_does_not_apply_takes_no_time(tmp_path: Path) -> None:
    """It is told with the reason; a name that nobody knows too."""
    plan = MeasurePlan(measure_s=0.3, min_steps=5, in_turn=("tf32", "warp_drive", "threads=2"))
    outcome = looped(tmp_path, plan=plan)
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
        measure_s=0.3, min_steps=5, in_turn=("threads=2", "autocast=bfloat16", "set_to_none")
    )
    outcome = looped(tmp_path, "--fails-under", "autocast", plan=plan)
    reading, found = outcome.measured, accounts(outcome)
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.05)
    assert [len(found[name].spells) for name in ("", "threads=2", "autocast=bfloat16")] == [1, 1, 0]
    told = gains(reading.in_turn, 0.1)
    assert "autocast=bfloat16" not in told
    assert "set_to_none" not in told
    assert [process.caught for process in outcome.records] == [()], "no fault of the program's"
    (record,) = outcome.records
    assert "with autocast=bfloat16 put on, it raised RuntimeError" in " ".join(record.notes)


def test_a_program_that_does_not_bear_to_lose_a_switch_keeps_what_was_told(tmp_path: Path) -> None:
    """It raises on the first step without it; the spell that was over counts."""
    outcome = looped(tmp_path, "--fails-after", "threads", plan=replace(PLAN, measure_s=0.3))
    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.measured.units_per_s == pytest.approx(outcome.true_rate(), rel=0.05)
    assert [process.caught for process in outcome.records] == [()]
    assert set(gains(outcome.measured.in_turn, 0.1)) == {"threads=2"}


def test_batches_that_are_left_out_under_a_switch_make_it_no_faster(tmp_path: Path) -> None:
    """A program that catches what its step raises and goes on: a batch not done takes no time."""
    outcome = looped(
        tmp_path, "--fails-under", "autocast", "--goes-on", plan=replace(PLAN, measure_s=0.3)
    )
    assert states(outcome)[-1] == [], "it went on to the end of the turns"
    found = accounts(outcome)
    assert [len(found[name].spells) for name in ("", *PLAN.in_turn)] == [3, 2, 0]
    assert set(gains(outcome.measured.in_turn, 0.1)) == {"threads=2"}
    assert [process.caught for process in outcome.records] == [()]


def test_a_switch_that_cannot_be_taken_off_is_the_last(tmp_path: Path) -> None:
    """What came after it would be measured with it; one that cannot be put on is passed over."""
    plan = MeasurePlan(
        measure_s=0.3, min_steps=5, in_turn=("threads=none", "threads=2", "autocast=bfloat16")
    )
    outcome = looped(tmp_path, "--keeps-threads", plan=plan)
    assert states(outcome) == [[], ["threads"]]
    found = accounts(outcome)
    assert [len(found[name].spells) for name in ("", "threads=2")] == [1, 1]
    assert "ValueError" in (found["threads=none"].why or "")
    assert "autocast=bfloat16" not in found
