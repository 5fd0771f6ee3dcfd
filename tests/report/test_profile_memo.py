"""The memo of `profile`: figures with the scope that they are counted in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.commands import profile
from advisor.model import Effects, Footprint, Shares, Telemetry
from advisor.report.bottleneck import diagnose
from tests.runs import a_run

ALL = Effects(batch=8, accumulation=4, group_size=2)


def memo(effects: Effects, ranks: int = 1, **more: Any) -> str:
    """The memo of two equal runs."""
    fields = {"step_kind": "optimizer step", "step_ms": 12.0} | more
    shares = Shares(compute=0.9, other=0.1)
    run = a_run(shares=shares, effects=effects, ranks=ranks, **fields)
    found = diagnose([run, run])
    assert found is not None
    return profile.memo((run, run), found)


@pytest.mark.parametrize(
    ("effects", "ranks", "words"),
    [
        (Effects(batch=8), 1, "batch 8, workers"),
        (Effects(batch=8, accumulation=4), 1, "batch 8, 32 an update, workers"),
        (ALL, 2, "batch 8 a rank, 64 an update, workers"),
        (replace(ALL, group_size=1), 2, "batch 8 a process, 32 an update, workers"),
        (Effects(), 1, "batch not measured, workers"),
    ],
)
def test_a_batch_is_counted_by_rank_and_by_update(effects: Effects, ranks: int, words: str) -> None:
    assert words in memo(effects, ranks)


def test_readings_carry_their_units() -> None:
    seen = Telemetry(gpu_util_pct=97.0, gpu_mem_used_gib=12.0, power_w=650.0, sm_clock_mhz=1980.0)
    held = Footprint(model=1, gradients=1, optimizer=2, activations=4)
    text = memo(Effects(batch=8), telemetry=seen, step_ms=3360.0, footprint=held)
    for words in (
        "GPU 97 % busy",
        "12.0 GiB in use",
        "650 W",
        "SM clock 1,980 MHz",
        "step 3.36 s,",
    ):
        assert words in text
    assert "activations (50 %; grows with batch" in text
