"""Trials on several equal cards of one machine at once."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from advisor.model import Card, Failure, Run, Trial
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.search import formula_search, on_formula

CONFIG = "batch_size: 4\nnum_workers: 0\n"
TEST = {"phase": "test"}
FIRST, OTHERS = "GPU-0", ("GPU-1", "GPU-2", "GPU-3")


class FourCards(RecordedEngine):
    """Four cards; a trial runs on the one that its environment shows."""

    equal_gpus = OTHERS
    slow_card: str | None = None
    chooses = False
    """The program takes the first card whatever it is shown."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._turn = threading.Lock()

    def run(self, trial: Trial) -> Run | Failure:
        with self._turn:
            found = super().run(trial)
        if isinstance(found, Failure):
            return found
        card = FIRST if self.chooses else card_of(trial)
        rate = found.units_per_s / (1.4 if card == self.slow_card else 1.0)
        cards = (Card(index=0, uuid=card),)
        return replace(found, cards=cards, isolation="overlay", units_per_s=rate)


def card_of(trial: Trial) -> str:
    """The card that a trial is shown."""
    return dict(trial.env).get("CUDA_VISIBLE_DEVICES", FIRST)


def test_a_search_on_four_cards_finds_what_one_card_finds(tmp_path) -> None:
    """It runs on all of them, and both arms of a round on the same one."""
    alone = formula_search(tmp_path, on_formula(), CONFIG, workload=TEST)
    search = formula_search(tmp_path, on_formula(FourCards), CONFIG, workload=TEST)
    assert search.values == alone.values
    assert search.executor.cards == 4
    asked = [info.trial for info in search.engine.asked]
    assert {card_of(trial) for trial in asked} == {FIRST, *OTHERS}
    rounds = search.state.confirmations[0].rounds
    assert len(rounds) >= 4
    cards = [{run.run.cards[0].uuid for run in each.runs.values()} for each in rounds]
    assert all(len(card) == 1 for card in cards)
    assert len(set.union(*cards)) == 4


def test_what_ran_ahead_is_not_run_again(tmp_path) -> None:
    """Each candidate of the search has one process, and the search came to each of them."""
    search = formula_search(tmp_path, on_formula(FourCards), CONFIG, workload=TEST)
    tried = [info.trial for info in search.engine.asked if info.trial.purpose == "search"]
    assert len(tried) == len({trial.candidate.key for trial in tried})
    assert {trial.id for trial in tried} <= {attempt.id for attempt in search.executor.attempts}
    assert len({attempt.id for attempt in search.executor.attempts}) == len(
        search.executor.attempts
    )


def test_all_cards_are_in_use_at_once(tmp_path) -> None:
    """Guesses leap as the search does while all goes well; one that runs long is ended."""
    engine = on_formula(FourCards, load_s=1e-6, unit_s=1e-5, unit_gib=1e-5)
    search = formula_search(tmp_path, engine, "batch_size: 4\n", workload=TEST)
    tried = [info.trial for info in search.engine.asked if info.trial.purpose == "search"][:4]
    limits_s = {trial.candidate.changes[0].new: trial.total_limit_s for trial in tried}
    assert set(limits_s) == {32, 256, 2048, 4096}
    assert {card_of(trial) for trial in tried} == {FIRST, *OTHERS}
    assert max(limits_s, key=lambda batch: limits_s[batch]) == 32
    assert min(limits_s.values()) == max(limits_s[batch] for batch in (256, 2048, 4096))


@pytest.mark.parametrize("odd", [{"slow_card": "GPU-2"}, {"chooses": True}])
def test_cards_on_which_the_original_does_not_run_alike_are_left_alone(tmp_path, odd) -> None:
    """One at a time then, on the card that the program takes by itself."""
    kind = type("Odd", (FourCards,), odd)
    search = formula_search(tmp_path, on_formula(kind), CONFIG, workload=TEST)
    assert search.executor.cards == 1
    rest = [info.trial for info in search.engine.asked if info.trial.purpose != "baseline"]
    assert {card_of(trial) for trial in rest} == {FIRST}
