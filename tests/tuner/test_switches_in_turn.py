"""Switches in turn: where a start costs much, one process chooses and pairs of fresh ones prove."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from advisor.model import Failure, InTurn, Spell
from advisor.tuner.in_turn import gains
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula
from tests.tuner.whatifs import CODED, CONFIG, GUARD, ON_CUDA, advice_of, tried

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Run, Trial

START_S = 40.0
WINDOW_S = 3.0
OFF = {**ON_CUDA, "set_to_none": False, "pin_memory": True, "dtype": "float32"}
SWITCHES = {
    "cudnn_benchmark": 1.0,
    "non_blocking": 1.25,
    "set_to_none": 1.01,
    "tf32": 1.4,
    "autocast=bfloat16": 0.9,
    "channels_last": 1.3,
}
HELP = {"tf32", "channels_last", "non_blocking"}


def search_of(
    folder: Path,
    *,
    start_s: float = START_S,
    budget_s: float = 1e9,
    workload: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[FormulaSearch, RecordedEngine]:
    """Of a training on a GPU that starts slowly and hardly waits for data."""
    engine = on_formula(
        process_s=WINDOW_S,
        startup_s=start_s,
        first_s=start_s,
        coded=CODED,
        load_s=1e-6,
        **{"step_kind": "optimizer step", "observed": OFF, "switches": SWITCHES, **more},
    )
    workload = {**GUARD, **(workload or {})}
    found = formula_search(folder, engine, CONFIG, workload=workload, budget_s=budget_s)
    return found, engine


def taken_in_turn(engine: RecordedEngine) -> list[tuple[str, ...]]:
    return [each.trial.plan.in_turn for each in engine.asked if each.trial.plan.in_turn]


def alone(engine: RecordedEngine) -> set[str]:
    """Switches that got a process of their own; what is proven is then tried together, too."""
    return {whatif for whatif in tried(engine) if "," not in whatif}


def test_one_slow_start_tells_which_switches_deserve_others(tmp_path: Path) -> None:
    """Those that gain nothing get no process; what is proven is the same as with one for each."""
    slow, in_turn = search_of(tmp_path)
    ((*together,),) = taken_in_turn(in_turn)
    assert together == ["cudnn_benchmark", "non_blocking", "set_to_none", "tf32",
                        "autocast=bfloat16"]  # fmt: skip
    assert alone(in_turn) == HELP
    proven = [(advice.title, advice.gain.n >= 4) for advice in advice_of(slow)]
    *proven, (_, all_at_once) = proven
    assert all_at_once
    assert proven == [("tf32", True), ("channels_last", True), ("non_blocking", True)]


def test_a_quick_start_gets_a_process_for_each_switch(tmp_path: Path) -> None:
    """A fresh process is what tells most, and costs little there."""
    quick, apart = search_of(tmp_path, start_s=2.0)
    assert taken_in_turn(apart) == []
    assert alone(apart) == set(SWITCHES)
    slow, _ = search_of(tmp_path)
    assert [a.title for a in advice_of(quick)] == [a.title for a in advice_of(slow)]


def test_turns_take_fewer_processes_and_less_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same program with and without: all that is proven stays proven."""
    together, _ = search_of(tmp_path)
    monkeypatch.setattr("advisor.tuner.in_turn.CHEAPER", 0.0)
    apart, _ = search_of(tmp_path)
    assert {a.title for a in advice_of(together)} == {a.title for a in advice_of(apart)}
    assert together.lab.processes <= apart.lab.processes - 3
    assert together.engine.clock() < apart.engine.clock() - 3 * START_S + 60.0


def test_nothing_is_told_from_turns_alone(tmp_path: Path) -> None:
    """Where the budget buys the turns and no pairs, there is no advice."""
    budget_s = 3 * 7 * START_S
    found, engine = search_of(tmp_path, budget_s=budget_s, switches={"non_blocking": 1.25})
    assert len(taken_in_turn(engine)) == 1
    for proposal in found.standing.proposals:
        assert (proposal.run is None) == (proposal.outcome is None)
    for advice in advice_of(found):
        assert advice.gain.n >= 2


def test_a_switch_that_fades_in_fresh_processes_is_no_advice(tmp_path: Path) -> None:
    """Faster in its turn alone: the pairs say no."""

    class Flatters(RecordedEngine):
        def run(self, trial: Trial) -> Run | Failure:
            found = super().run(trial)
            if isinstance(found, Failure):
                return found
            return replace(found, in_turn=tuple(map(flattered, found.in_turn)))

    def flattered(each: InTurn) -> InTurn:
        times = 1.3 if each.name == "non_blocking" else 1.0
        spells = tuple(replace(s, units_per_s=s.units_per_s * times) for s in each.spells)
        return replace(each, spells=spells)

    found, engine = search_of(tmp_path, switches={**SWITCHES, "non_blocking": 1.0}, kind=Flatters)
    assert "non_blocking" in tried(engine)
    assert "non_blocking" not in [advice.title for advice in advice_of(found)]


def test_what_took_no_effect_in_fresh_processes_is_no_advice(tmp_path: Path) -> None:
    """Turns saw nothing but its rate, so its pairs are asked for the rest."""

    class Refuses(RecordedEngine):
        def run(self, trial: Trial) -> Run | Failure:
            found = super().run(trial)
            if isinstance(found, Failure) or found.whatif is None:
                return found
            return replace(found, whatif=replace(found.whatif, applied=False))

    found, engine = search_of(tmp_path, kind=Refuses)
    assert "non_blocking" in tried(engine)
    assert advice_of(found) == ()


@pytest.mark.parametrize(
    ("observed", "workload"),
    [({"world_size": 2}, {}), ({"compiled": True}, {}), ({}, {"unit-regex": "^step"})],
    ids=["ranks", "compiled", "counted lines"],
)
def test_programs_in_which_a_switch_tells_late_take_none_in_turn(
    observed: dict[str, Any], workload: dict[str, Any], tmp_path: Path
) -> None:
    """Ranks would have to change at one step, compiled code is compiled anew, and where lines of
    output are counted nobody counts steps."""
    _, engine = search_of(tmp_path, observed={**OFF, **observed}, workload=workload)
    assert taken_in_turn(engine) == []
    assert "non_blocking" in tried(engine)


def test_a_layout_of_weights_comes_last_and_not_in_a_training(tmp_path: Path) -> None:
    """Its effect would outlive its spell; a training's gradients and momenta keep the old one."""
    inference = {"trains": False, "step_kind": "loader batch"}
    found, engine = search_of(tmp_path, observed={**OFF, "set_to_none": None}, **inference)
    ((*together,),) = taken_in_turn(engine)
    assert "channels_last" in together
    (asked,) = [a for a in found.lab.attempts if a.run and a.run.in_turn]
    assert asked.run is not None
    spells = {each.name: each.spells for each in asked.run.in_turn}
    last = max(spell.start for each in spells.values() for spell in each)
    assert [spell.start for spell in spells["channels_last"]] == [last]
    assert "channels_last" in [advice.title for advice in advice_of(found)]


def test_a_drifting_process_is_seen_through(tmp_path: Path) -> None:
    """A card that warms up slows every later spell: the flipped order and the program as it is
    between the switches take it out."""
    _, engine = search_of(tmp_path, drift_per_s=-0.005)
    assert alone(engine) == HELP


def test_noise_between_processes_does_not_choose(tmp_path: Path) -> None:
    """All spells are of one process."""
    for seed in range(6):
        engine = on_formula(
            process_s=WINDOW_S, startup_s=START_S, first_s=START_S, coded=CODED, load_s=1e-6,
            step_kind="optimizer step", observed=OFF, switches=SWITCHES, noise=0.1, seed=seed,
        )  # fmt: skip
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        formula_search(folder, engine, CONFIG, workload=GUARD)
        assert "cudnn_benchmark" not in tried(engine)
        assert "non_blocking" in tried(engine)


def account(name: str, *rates: float, at: tuple[float, ...], **more: Any) -> InTurn:
    spells = tuple(
        Spell(start=s, end=s + 1.0, units_per_s=rate, **more)
        for s, rate in zip(at, rates, strict=True)
    )
    return InTurn(name=name, spells=spells)


def test_a_program_that_wanders_tells_nothing_in_turn() -> None:
    """Each switch gets its own process, as where turns were not taken."""
    own = account("", 10.0, 14.0, 10.0, at=(0, 2, 4))
    assert gains((own, account("tf32", 12.0, 12.0, at=(1, 3))), 0.03) == {}


def test_spells_that_others_disturbed_are_left_out() -> None:
    """The other one of the switch counts; without any it is not told."""
    own = account("", 10.0, 10.0, 10.0, at=(0, 2, 4))
    slowed = account("a", 5.0, at=(1,), disturbed=True)
    both = InTurn(name="a", spells=(*slowed.spells, *account("a", 12.0, at=(3,)).spells))
    assert gains((own, both), 0.03) == {"a": pytest.approx(1.2)}
    assert gains((own, slowed), 0.03) == {}


def test_what_does_not_apply_is_told_as_nothing() -> None:
    own = account("", 10.0, 10.0, at=(0, 2))
    refused = InTurn(name="a", applied=False, why="no convolution")
    assert gains((own, refused), 0.03) == {"a": None}
