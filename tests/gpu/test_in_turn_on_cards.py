"""Switches in turn over a simulated card: its own time counts, and captured work follows none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from advisor.tuner.in_turn import gains

if TYPE_CHECKING:
    from tests.gpu.conftest import Run, Simulated

NAMES = ("cudnn_benchmark", "tf32", "threads=2", "non_blocking", "channels_last")


@pytest.fixture(scope="module")
def in_turn(on_cards: Run) -> Simulated:
    plan = MeasurePlan(measure_s=0.3, min_steps=8, in_turn=NAMES)
    return on_cards("--device", "cuda:0", program="switch_loop.py", plan=plan)


def test_turns_find_the_switches_that_help_and_no_other(in_turn: Simulated) -> None:
    """Two of five; the one whose effect lasts is among them. The host's own part of a step, which
    no switch shortens, takes longer on a busy machine."""
    told = gains(in_turn.outcome.measured.in_turn, 0.03)
    assert set(told) == set(NAMES)
    assert {name: gain for name, gain in told.items() if gain is not None} == {
        "cudnn_benchmark": pytest.approx(12 / 8, rel=0.05),
        "channels_last": pytest.approx(12 / 9, rel=0.05),
    }


def test_spells_count_what_the_card_did(in_turn: Simulated) -> None:
    """The host queues ahead of it: by the card's own account, within 2 %."""
    done = [end for start, end in in_turn.truth.busy[0] if end - start > 0.003]
    spells = [s for each in in_turn.outcome.measured.in_turn for s in each.spells]
    assert len(spells) == 3 + 2 * 4 + 1
    for spell in spells:
        inside = [end for end in done if spell.start - 1e-3 <= end <= spell.end + 1e-3]
        own = 4 * (len(inside) - 1) / (inside[-1] - inside[0])
        assert spell.units_per_s == pytest.approx(own, rel=0.02)


def test_steps_that_a_graph_replays_take_no_switch(on_cards: Run) -> None:
    """What was captured is what runs, so each switch gets a process of its own."""
    plan = MeasurePlan(measure_s=0.4, min_steps=5, in_turn=("tf32", "cudnn_benchmark"))
    found = on_cards("--train", "--kernel", "8", "--graph", plan=plan)
    assert found.outcome.measured.in_turn == ()
    assert found.outcome.measured.units_per_s == pytest.approx(4 / 0.008, rel=0.1)
