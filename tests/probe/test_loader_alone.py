"""What is told of a loader that was too slow for a rate of its own."""

from __future__ import annotations

import pytest

from advisor.probe import diagnostics


@pytest.mark.parametrize(
    ("workers", "count", "told"),
    [
        (2, 0, "loader alone with 2 workers: no batch came"),
        (1, 1, "loader alone with 1 worker: only 1 batch came"),
    ],
)
def test_a_loader_without_a_rate_is_told_in_words(workers: int, count: int, told: str) -> None:
    assert diagnostics.too_few(workers, count) == told
