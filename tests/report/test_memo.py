"""The memo of `profile` says what is counted where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.commands import profile
from advisor.model import Ceilings, Effects, Shares, Telemetry
from advisor.report.bottleneck import diagnose
from tests.runs import a_run

ALL = Effects(batch=8, accumulation=4, group_size=2)


def memo(fields: Effects, ranks: int, step_ms: float, **more: Any) -> str:
    """Of two equal runs."""
    run = a_run(
        step_ms=step_ms,
        shares=Shares(compute=0.9, other=0.1),
        effects=fields,
        ranks=ranks,
        **({"step_kind": "optimizer step"} | more),
    )
    found = diagnose([run, run])
    assert found is not None
    return profile.memo((run, run), found, ())


@pytest.mark.parametrize(
    ("fields", "ranks", "told"),
    [
        (Effects(batch=8), 1, "batch 8, workers"),
        (Effects(batch=8, accumulation=4), 1, "batch 8, 32 an update, workers"),
        (ALL, 2, "batch 8 a rank, 64 an update, workers"),
        (replace(ALL, group_size=1), 2, "batch 8 a process, 32 an update, workers"),
        (Effects(batch=8, group_size=1), 2, "batch 8 a process, workers"),
        (Effects(batch=8), 2, "batch 8 a process, workers"),
        (Effects(), 1, "batch not measured, workers"),
    ],
)
def test_a_batch_is_told_by_rank_and_by_update(fields: Effects, ranks: int, told: str) -> None:
    """`batch 8` alone would be read as that of all ranks, or of an update. What trains side by side
    without a process group updates by itself, each with its own."""
    assert told in memo(fields, ranks, 12.0)


def test_a_long_step_is_told_in_seconds() -> None:
    """Not as `3.36e+03 ms`."""
    assert "step 3.36 s," in memo(Effects(batch=8), 1, 3360.0)


def test_what_a_card_says_is_told_with_its_units() -> None:
    seen = Telemetry(gpu_util_pct=97.0, gpu_mem_used_gib=12.0, power_w=650.0, sm_clock_mhz=1980.0)
    told = memo(Effects(batch=8), 1, 12.0, telemetry=seen)
    for words in ("GPU 97 % busy", "12.0 GiB in use", "650 W", "SM clock 1,980 MHz"):
        assert words in told


def test_what_was_not_measured_alone_is_no_ceiling_and_its_reason_is_told() -> None:
    told = memo(Effects(batch=8), 1, 12.0, notes=("a replayed batch",))
    assert "a replayed batch" in told
    assert "compute alone" not in told


def test_a_part_that_is_slower_alone_than_the_whole_is_not_told_apart() -> None:
    told = memo(Effects(batch=8), 1, 12.0, ceilings=Ceilings(compute_units_per_s=1e-3))
    assert "compute alone  not told apart from the whole" in told


def test_ranks_that_do_not_train_make_no_update() -> None:
    told = memo(Effects(batch=8, group_size=2), 2, 12.0, step_kind="loader batch")
    assert "batch 8 a rank, workers" in told
