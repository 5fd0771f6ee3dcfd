"""Tiers: what a search may change is decided before it, and what it writes is proven like ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.formula_search import FormulaSearch, formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Tier

CONFIG = (
    "num_workers: 0\nbatch_size: 2\nprecision: fp32\nsampler:\n  n_timestep: 1000\n"
    "  linear_start: 0.0001\n  linear_end: 0.02\n"
)
WORKLOAD: dict[str, Any] = {
    "phase": "test",
    "quality": {"rmse": {"pattern": "rmse: ([0-9.]+)", "tolerance": "5%"}},
}


def searched(folder: Path, tier: Tier) -> FormulaSearch:
    """A sampler whose batch, precision and steps all gain, inside the tolerance."""
    engine = on_formula(
        load_s=1e-6,
        sampler=True,
        names={"steps": "n_timestep"},
        quality=lambda n: 0.5 + 10 / n,
        quality_name="rmse",
        quality_noise=1e-4,
        bf16_speedup=1.5,
        switches={"autocast=bfloat16": 1.3},
    )
    return formula_search(folder, engine, CONFIG, workload={**WORKLOAD, "tier": tier})


@pytest.mark.parametrize(
    ("tier", "classes"),
    [
        ("safe", {"free"}),
        ("balanced", {"free", "numeric"}),
        ("fastest", {"free", "numeric", "quality"}),
    ],
)
def test_a_tier_changes_no_more_than_it_says(tmp_path: Path, tier: Tier, classes: set[str]) -> None:
    """Nothing outside it is tried, and what it writes was proven over the original."""
    search = searched(tmp_path, tier)
    assert {change.knob_class for change in search.winner.changes} == classes
    last = search.standing.proofs[-1]
    assert last.contest.after.arm.candidate.key == search.winner.key
    tried = {
        change.knob_class
        for attempt in search.lab.attempts
        for change in attempt.ask.arm.candidate.changes
    }
    assert tried == classes
    asked = [attempt.ask.arm.whatif for attempt in search.lab.attempts if attempt.ask.arm.whatif]
    assert not (tier == "safe" and any(whatif.startswith("autocast") for whatif in asked))


def test_a_knob_outside_the_tier_is_listed_with_its_reason(tmp_path: Path) -> None:
    decisions = searched(tmp_path, "safe").decisions
    for name in ("precision", "n_timestep"):
        assert (decisions[name].outcome, decisions[name].reason) == ("listed", "outside-tier")
    assert searched(tmp_path, "balanced").decisions["n_timestep"].reason == "outside-tier"
