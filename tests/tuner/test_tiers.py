"""Tiers: what a search may change is decided before it, and what it writes is proven like ever."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from advisor.model import OF_THE_GAIN
from advisor.tuner.standing import FEWEST_ROUNDS
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula

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
    assert last.ab_test.after.variant.candidate.key == search.winner.key
    tried = {
        change.knob_class
        for attempt in search.lab.attempts
        for change in attempt.request.variant.candidate.changes
    }
    assert tried == classes
    asked = [
        attempt.request.variant.whatif
        for attempt in search.lab.attempts
        if attempt.request.variant.whatif
    ]
    assert not (tier == "safe" and any(whatif.startswith("autocast") for whatif in asked))


def test_a_knob_outside_the_tier_is_listed_with_its_reason(tmp_path: Path) -> None:
    decisions = searched(tmp_path, "safe").decisions
    for name in ("precision", "n_timestep"):
        assert (decisions[name].outcome, decisions[name].reason) == ("listed", "outside-tier")
    assert searched(tmp_path, "balanced").decisions["n_timestep"].reason == "outside-tier"


# --- along the batch ------------------------------------------------------------------------

FILES = {"phase": "test"}


def batches(folder: Path, tier: Tier, **more: Any) -> FormulaSearch:
    """An inference whose rate and memory rise with the batch, and nothing else moves."""
    engine = on_formula(load_s=1e-6, launch_s=0.02, unit_s=0.001)
    text = "batch_size: 1\n"
    return formula_search(folder, engine, text, workload={**FILES, "tier": tier}, **more)


def test_each_tier_takes_the_smallest_batch_with_its_part_of_the_gain(tmp_path: Path) -> None:
    """On the scale of logarithms, of those that ran; what is written was proven as it is."""
    found: dict[Tier, int] = {}
    for tier in OF_THE_GAIN:
        search = batches(tmp_path, tier)
        found[tier] = search.values["batch_size"]
        ran = {a.run.effects.batch: a.run.units_per_s for a in search.lab.attempts if a.run}
        part = math.log(ran[found[tier]] / ran[1]) / math.log(max(ran.values()) / ran[1])
        assert part >= OF_THE_GAIN[tier] - 0.02
        assert search.standing.proofs[-1].ab_test.after.variant.candidate.key == search.winner.key
    assert found["safe"] <= found["balanced"] <= found["fastest"]
    assert found["safe"] < found["fastest"]


def test_the_lower_tiers_are_proven_beside_what_is_written(tmp_path: Path) -> None:
    """Pairs against the original of what `--tier` would write; nothing of them is written."""
    search = batches(tmp_path, "fastest")
    contests = {c.ab_test.tier: c for c in search.lab.comparisons if c.ab_test.purpose == "tier"}
    assert "safe" in contests
    assert "fastest" not in contests
    for tier, comparison in contests.items():
        assert comparison.proven(search.facts.objective, 0.03)
        own = batches(tmp_path, tier or "safe").winner
        assert comparison.ab_test.after.variant.candidate.key == own.key
        assert own.key != search.winner.key


def test_a_batch_that_takes_no_memory_has_no_lower_tiers(tmp_path: Path) -> None:
    engine = on_formula(load_s=1e-6, launch_s=0.05, unit_s=0.0005, unit_gib=0.0)
    search = formula_search(tmp_path, engine, "batch_size: 1\n", workload=FILES)
    assert not [c for c in search.lab.comparisons if c.ab_test.purpose == "tier"]


def test_a_budget_that_does_not_hold_the_lower_tiers_says_so(tmp_path: Path) -> None:
    search = batches(tmp_path, "fastest", budget_s=24.0)
    assert search.values
    assert any(entry.what.startswith("the tier ") for entry in search.standing.skipped)


@pytest.mark.parametrize("budget_s", range(120, 400, 20))
def test_nothing_gets_more_than_its_fewest_rounds_while_what_comes_later_gets_none(
    tmp_path: Path, budget_s: int
) -> None:
    """Two tiers and two processes side by side, in so many seconds; each process takes eight."""
    engine = on_formula(
        load_s=1e-6, launch_s=0.02, unit_s=0.001, side_by_side={2: 1.6}, process_s=8.0
    )
    text = "batch_size: 1\nnum_gpus: 1\n"
    search = formula_search(
        tmp_path, engine, text, workload=FILES, gpu=False, budget_s=float(budget_s)
    )
    late = [c for c in search.lab.comparisons if c.ab_test.purpose in {"tier", "scaling"}]
    assert search.values
    assert len(late) == 3 or all(each.ab_test.rounds == FEWEST_ROUNDS for each in late)
    for entry in search.standing.skipped:
        if entry.what.startswith(("the tier", "two processes")):
            assert entry.needed_s > entry.remaining_s
    assert all(each.ab_test.purpose == "tier" for each in late[:2])
    alone = len(search.asked("scaling")) == 1
    assert not alone, "a process was spent on what no rounds were left for"
