"""A batch that changes a training is written only where the user said so, and then with the
learning rate that goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from advisor import config as documents
from advisor.patches import proven_advice
from advisor.report import advised, outcome, sentences
from advisor.tuner.proof import proven_proofs
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

BATCH = "batch_size: 4  # small\nnum_workers: 0\nlr: 0.1\n"
ACCUMULATED = "batch_size: 4\nnum_workers: 0\naccumulation_steps: 4\noptim:\n  lr: 1e-3\n"


def searched(
    folder: Path, text: str, optimizer: str, *, given: bool = True, **formula: Any
) -> FormulaSearch:
    """A training with this optimizer whose rate grows with the batch up to 64."""
    engine = on_formula(
        load_s=1e-6,
        step_kind="optimizer step",
        observed={"trains": "optimizer", "optimizers": (optimizer,)},
        items=64,
        **formula,
    )
    return formula_search(folder, engine, text, training_batch=given)


@pytest.mark.parametrize(
    ("optimizer", "rule", "power"),
    [("SGD", "linear", 1.0), ("AdamW", "square root", 0.5), ("Adam8bit", "square root", 0.5)],
)
def test_both_keys_are_written_by_the_rule_of_the_optimizer(
    optimizer: str, rule: str, power: float, tmp_path: Path
) -> None:
    """Byte-exactly, proven in rounds of its own, and told as what it is."""
    search = searched(tmp_path, BATCH, optimizer)
    batch = search.values["batch_size"]
    assert batch > 4
    rate = float(f"{0.1 * (batch / 4) ** power:.3g}")
    assert search.values["lr"] == rate
    new = search.lab.program.content(search.winner).decode()
    assert new == BATCH.replace("size: 4", f"size: {batch}").replace("0.1", f"{rate}")
    assert documents.parse(new.encode(), "yaml", "x").scalars["lr"].value == rate
    (proof,) = proven_proofs(search.standing)
    assert outcome.traded(proof)
    assert {change.knob_class for change in search.winner.changes} == {"quality"}
    told = sentences.why(search.decisions["batch_size"])
    assert "--training-batch was given" in told
    assert f"the {rule} rule, as it steps with {optimizer}" in told
    assert "how well it learns so was not measured" in told
    assert "Scaled with the batch" in sentences.why(search.decisions["lr"])
    assert search.standing.proposals == ()


@pytest.mark.parametrize("text", [BATCH, ACCUMULATED])
def test_without_the_flag_it_is_never_written(text: str, tmp_path: Path) -> None:
    """What keeps the samples of an update may be; a learning rate is never touched."""
    search = searched(tmp_path, text, "AdamW", given=False)
    changes = {change.kind: change for change in search.winner.changes}
    assert "learning_rate" not in changes
    assert ("batch_size" in changes) == ("grad_accum" in changes)


def test_what_changes_no_training_is_proven_first(tmp_path: Path) -> None:
    """With an accumulation: the batch up to where the update stays the same; then beyond it."""
    search = searched(tmp_path, ACCUMULATED, "AdamW")
    free, beyond = proven_proofs(search.standing)
    kept = {c.kind: c.new for c in free.ab_test.after.variant.candidate.changes}
    assert kept == {"batch_size": 16, "grad_accum": 1}
    assert not outcome.traded(free)
    assert outcome.traded(beyond)
    batch = search.values["batch_size"]
    assert batch > 16
    assert search.values["accumulation_steps"] == 1
    assert search.values["lr"] == float(f"{1e-3 * (batch / 16) ** 0.5:.3g}")
    new = search.lab.program.content(search.winner).decode()
    assert f"  lr: {search.values['lr']}\n" in new


@pytest.mark.parametrize(
    ("text", "optimizer", "formula", "why"),
    [
        (BATCH, "Lion", {}, "no rule is known"),
        ("batch_size: 4\n", "AdamW", {"observed_rates": (0.1,)}, "stands in no config"),
        (BATCH, "AdamW", {"ignored": frozenset({"lr"})}, "did not follow the learning rate"),
    ],
)
def test_without_a_rate_that_follows_it_stays_an_advice(
    text: str, optimizer: str, formula: dict[str, Any], why: str, tmp_path: Path
) -> None:
    """No rule for the optimizer, no key for the rate, or a program that goes its own way."""
    observed: dict[str, Any] = {"trains": "optimizer", "optimizers": (optimizer,)}
    if rates := formula.pop("observed_rates", None):
        observed["learning_rates"] = rates
    engine = on_formula(load_s=1e-6, step_kind="optimizer step", observed=observed, **formula)
    search = formula_search(tmp_path, engine, text, training_batch=True)
    assert search.winner.changes == ()
    assert why in sentences.why(search.decisions["batch_size"])
    advice = next(
        each
        for each in proven_advice(search.standing, search.lab.program)
        if each.kind == "training-batch"
    )
    assert why in advised.advised(advice)


def test_a_program_that_moves_its_rate_itself_is_left_its_own_way(tmp_path: Path) -> None:
    """A rate that is derived from the batch is never scaled twice."""
    engine = on_formula(
        load_s=1e-6,
        step_kind="optimizer step",
        observed={"trains": "optimizer", "optimizers": ("SGD",)},
        rate_by_batch=True,
    )
    search = formula_search(tmp_path, engine, BATCH, training_batch=True)
    assert set(search.values) == {"batch_size"}
    assert "moved its learning rate itself" in sentences.why(search.decisions["batch_size"])


def test_a_budget_with_room_for_the_fewest_rounds_is_spent_on_them(tmp_path: Path) -> None:
    """More rounds would be better, and are no reason for none; without room for any it says so."""
    engine = on_formula(
        load_s=1e-6,
        step_kind="optimizer step",
        observed={"trains": "optimizer", "optimizers": ("SGD",)},
        process_s=10.0,
        items=64,
    )
    tight = formula_search(tmp_path, engine, BATCH, training_batch=True, budget_s=150.0)
    assert tight.values["batch_size"] > 4
    less = formula_search(tmp_path, engine, BATCH, training_batch=True, budget_s=80.0)
    assert less.values == {}
    assert any("lr=" in entry.what for entry in less.standing.skipped)
