"""Whose readings a run's telemetry is: those of the cards that its program was on."""

from __future__ import annotations

import pytest

from advisor.machine.cards import merged, positions
from advisor.model import Card, Telemetry

A, B, SLICE = "GPU-aaaa-1", "GPU-bbbb-2", "MIG-dddd-4"


@pytest.mark.parametrize(
    ("uuids", "used", "expected"),
    [
        ([A, B], [Card(index=0, uuid="bbbb-2")], [1]),
        ([A, B], [Card(index=1, uuid="BBBB-2"), Card(index=1, uuid="bbbb-2")], [1]),
        ([A, B], [Card(index=0, uuid="bbbb-2"), Card(index=1, uuid="aaaa-1")], [1, 0]),
        ([A, SLICE], [Card(index=0, uuid="dddd-4")], [1]),
        ([A, B], [Card(index=0, uuid="eeee-5")], []),
        ([A, B], [Card(index=1)], [1]),
        ([None], [Card(index=0, uuid="eeee-5")], [0]),
        ([A], [], []),
    ],
    ids=["uuid", "twice", "two", "mig", "hidden", "number", "wsl", "cpu"],
)
def test_the_cards_in_use(uuids: list[str | None], used: list[Card], expected: list[int]) -> None:
    """By UUID, or by number where torch or the driver tells none."""
    assert positions(uuids, used) == expected


def test_several_cards_add_up() -> None:
    """Power and energy are sums; what one card withholds is not told of all."""
    one = Telemetry(gpu_util_pct=90.0, power_w=300.0, energy_j=600.0)
    two = Telemetry(gpu_util_pct=50.0, power_w=200.0)
    both = merged([one, two])
    assert (both.gpu_util_pct, both.power_w) == (70.0, 500.0)
    assert both.energy_j is None
    assert merged([one]) == one
