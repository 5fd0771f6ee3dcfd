"""The same door on real hardware: run where there is a card, skipped with the reason elsewhere."""

from __future__ import annotations

import os
import time

import pytest

from advisor.machine.gpu import read_gpus
from advisor.machine.telemetry import Sampler

pytestmark = pytest.mark.gpu


def test_a_real_card_is_described_and_watched() -> None:
    """Whatever it withholds has a reason."""
    cards, note = read_gpus()
    if not cards:
        pytest.skip(str(note))
    assert cards[0].name
    assert cards[0].uuid
    assert cards[0].memory_total_gib
    with Sampler([os.getpid()], environ={}) as sampler:
        start = time.time()
        time.sleep(2.5)
        end = time.time()
    found = sampler.summary(start, end)
    assert len(sampler.recording().samples) > 5
    missing = dict(found.gaps)
    for field in ("gpu_util_pct", "gpu_mem_used_gib", "power_w", "energy_j"):
        assert (getattr(found, field) is None) == (field in missing), field
