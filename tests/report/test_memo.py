"""The memo of `profile` says what is counted where."""

from __future__ import annotations

import pytest

from advisor import profile
from advisor.model import Effects, Shares
from advisor.report.bottleneck import diagnose
from tests.runs import a_run


def memo(fields: Effects, ranks: int, step_ms: float) -> str:
    """Of two equal runs."""
    run = a_run(
        step_ms=step_ms,
        step_kind="optimizer step",
        shares=Shares(compute=0.9, other=0.1),
        effects=fields,
        ranks=ranks,
    )
    found = diagnose([run, run])
    assert found is not None
    return profile.memo((run, run), found, ())


@pytest.mark.parametrize(
    ("fields", "ranks", "told"),
    [
        (Effects(batch=8), 1, "batch 8, workers"),
        (Effects(batch=8, accumulation=4), 1, "batch 8, 32 an update, workers"),
        (Effects(batch=8, accumulation=4), 2, "batch 8 a rank, 64 an update, workers"),
        (Effects(), 1, "batch not measured, workers"),
    ],
)
def test_a_batch_is_told_by_rank_and_by_update(fields: Effects, ranks: int, told: str) -> None:
    """`batch 8` alone would be read as that of all ranks, or of an update."""
    assert told in memo(fields, ranks, 12.0)


def test_a_long_step_is_told_in_seconds() -> None:
    """Not as `3.36e+03 ms`."""
    assert "step 3.36 s," in memo(Effects(batch=8), 1, 3360.0)
