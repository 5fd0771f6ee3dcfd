"""Programs over simulated cards, under the probe."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from advisor.model import MeasurePlan
from tests import simulated_gpu
from tests.probe.program import ProbedRun, python
from tests.simulated_gpu import Card, Truth

PLAN = MeasurePlan(measure_s=0.6, min_steps=8)
LARGE = Card(uuid="GPU-aaaaaaaa-0000-0000-0000-00000000000f", name="NVIDIA H100 80GB HBM3")
SMALL = Card(
    uuid="GPU-bbbbbbbb-0000-0000-0000-00000000000e", name="NVIDIA GeForce RTX 3090", memory_gib=24
)


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A program's outcome under the probe, and what its cards did."""

    outcome: ProbedRun
    truth: Truth

    @property
    def window(self) -> tuple[float, float]:
        reading = self.outcome.measured
        return reading.window_start, reading.window_end


Run = Callable[..., Simulated]


@pytest.fixture(scope="session")
def on_cards(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a fixture program over simulated cards."""
    pytest.importorskip("torch")

    def run(
        *args: str,
        cards: tuple[Card, ...] = (Card(),),
        program: str = "gpu_loop.py",
        plan: MeasurePlan = PLAN,
        **options: Any,
    ) -> Simulated:
        scratch = tmp_path_factory.mktemp("cards")
        journal = scratch / "cards.json"
        base = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        env = simulated_gpu.environment(cards, base=base, truth=journal, own_time=True)
        outcome = python(scratch, program, *args, plan=plan, env=env, **options)
        assert journal.exists(), outcome.stderr[-3000:]
        return Simulated(outcome=outcome, truth=simulated_gpu.read_truth(journal))

    return run
