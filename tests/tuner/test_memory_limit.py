"""Memory limit of the search: by what tensors take, not by what the allocator keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from advisor.model import Candidate
from advisor.tuner.search import memory_refusal
from tests.runs import a_run

STATE: Any = SimpleNamespace(context=SimpleNamespace(memory_limit_gib=10.0))


def refused(tensors_gib: float, kept_gib: float) -> bool:
    """Answer on a batch twice as large as the one that ran."""
    run = a_run(peak_mem_gib=tensors_gib, peak_device_gib=kept_gib)
    smaller = a_run(peak_mem_gib=tensors_gib / 2, peak_device_gib=kept_gib / 2)
    found: Any = SimpleNamespace(runs={(4, 0): (Candidate(), smaller), (8, 0): (Candidate(), run)})
    return bool(memory_refusal(STATE, found, 16))


def test_workspaces_and_freed_blocks_are_no_reason_to_stop() -> None:
    """cuDNN's trials leave 17.6 GiB with the allocator where tensors took 2.2."""
    assert not refused(2.2, 17.6)
    assert refused(6.0, 17.6)
