"""What an earlier call measured stands in for a process, where it would come again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.executor.run_cache import RunCache
from advisor.history import History
from advisor.model import Failure

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("kind", "others_gib", "remembered"),
    [
        ("gpu-oom", None, True),
        ("gpu-oom", 0.05, True),
        ("gpu-oom", 40.0, False),
        ("crash-step", 40.0, True),
        ("timeout", None, False),
    ],
)
def test_memory_that_ran_out_beside_others_is_tried_again(
    kind: str, others_gib: float | None, remembered: bool, tmp_path: Path
) -> None:
    """Without what others held on the card it may fit; what comes of the program itself comes
    again, and a time-out may have been the machine's."""
    recall = RunCache(
        history=History(tmp_path / "history.sqlite"), machine_key="m", program_key="p"
    )
    failure = Failure(
        trial_id="1", purpose="search", label="batch_size=64", candidate_key="k", kind=kind,
        evidence="CUDA out of memory", next_step="-", gpu_mem_others_gib=others_gib,
    )  # fmt: skip
    recall.append("key", failure)
    assert (recall.find("key") is not None) is remembered
