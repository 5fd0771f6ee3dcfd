"""A winner is proven against the original in fresh processes, or not written."""

from dataclasses import replace

from advisor.history import History
from advisor.model import Candidate, Trial
from advisor.tuner.confirm import wanted_rounds
from tests.support.simulator.engine import Values
from tests.support.simulator.search import formula_search, on_formula
from tests.tuner.configs import INFERENCE, TEST, TRAINING


def test_a_winner_that_fails_in_its_proof_is_not_written(tmp_path) -> None:
    """And nothing of it is told as changed."""

    def fails(values: Values, trial: Trial) -> str | None:
        return "gpu-oom" if trial.purpose == "confirm" and values["batch_size"] > 4 else None

    search = formula_search(tmp_path, on_formula(load_s=1e-6, fails=fails), TRAINING)
    assert search.winner == Candidate()
    assert search.decisions["batch_size"].outcome == "kept"


def test_a_gain_inside_the_noise_is_not_proven(tmp_path) -> None:
    """What looked faster by luck is run against the original, and loses."""
    wins = 0
    for seed in range(8):
        again = on_formula(load_s=1e-6, launch_s=1e-6, unit_s=0.01, noise=0.1, seed=seed)
        search = formula_search(tmp_path / f"{seed}", again, INFERENCE, workload=TEST)
        wins += bool(search.winner.changes)
    assert wins <= 1


def test_a_noisy_host_gets_more_rounds_fixed_beforehand(tmp_path) -> None:
    """By the noise and the gain that is to be proven, never by a look at the rounds."""

    state = formula_search(tmp_path, on_formula(load_s=1e-6), INFERENCE, workload=TEST).state

    def rounds(noise: float, gain: float) -> int:
        unsteady = (
            replace(run, windows=(run.units_per_s * (1 + noise / 2), run.units_per_s))
            for run in state.originals
        )
        return wanted_rounds(replace(state, originals=tuple(unsteady)), Candidate(), gain)

    assert rounds(0.02, 5.0) == 6
    assert 6 < rounds(0.1, 1.1) <= 20


def test_what_follows_a_proof_is_held_against_the_noise_of_the_proven_one(tmp_path) -> None:
    """An original that varies by a third says nothing of a tuned program that does not."""
    engine = on_formula(load_s=1e-6, noise=0.01)
    found = formula_search(tmp_path, engine, INFERENCE, workload=TEST).state
    unsteady = [
        replace(run, windows=(run.units_per_s, run.units_per_s * (1.4 + 0.1 * number)))
        for number, run in enumerate(found.originals)
    ]
    state = replace(found, originals=tuple(unsteady))
    assert state.best.changes
    assert state.tie_threshold < 0.05 < replace(state, best=Candidate()).tie_threshold
    assert state.sigma_of(state.best) < state.sigma_of(Candidate()) / 4


def test_the_proof_interleaves_and_flips_the_order(tmp_path) -> None:
    """Fresh processes, the original first in odd rounds and last in even ones."""
    search = formula_search(tmp_path, on_formula(load_s=1e-6), TRAINING)
    original = [not a.request.variant.candidate.changes for a in search.asked("confirm")]
    assert original == [True, False, False, True] * (len(original) // 4)
    assert not any(attempt.reused for attempt in search.asked("confirm"))
    outside = [run.units_per_s for run in search.state.confirmations[0].outside]
    assert outside == [run.units_per_s for run in search.state.originals]


def test_a_second_search_starts_no_process_but_the_baseline_and_the_proof(tmp_path) -> None:
    """A proof is made of fresh processes; the rest is known."""
    engine = on_formula(load_s=1e-6)
    history = History(tmp_path / "history.sqlite")
    first = formula_search(tmp_path, engine, TRAINING, history=history)
    assert first.winner.changes
    again = formula_search(tmp_path, engine, TRAINING, history=history)
    assert again.winner.key == first.winner.key
    fresh = {a.request.purpose for a in again.executor.attempts if not a.reused}
    assert fresh == {"baseline", "confirm"}
