"""A process begins on a quiet machine where one can be had within a bounded time."""

from __future__ import annotations

import pytest

from advisor.engines import quiet
from advisor.engines.quiet import Patience, in_words, wait_until_quiet
from advisor.model import Disturbance, Neighbour

BUSY = Disturbance(
    disturbed=True,
    others_cpus=1.31,
    steal_share=0.0,
    who=(Neighbour(name="firefox", cpus=0.82), Neighbour(name="make", cpus=0.44)),
)
IDLE = Disturbance(disturbed=False, others_cpus=0.01, steal_share=0.0)


class World:
    """Looks that come one after another, the last one for ever, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: Disturbance) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self._looks = list(looks)
        monkeypatch.setattr(quiet.time, "monotonic", lambda: self.now)

    def look(self, seconds: float) -> Disturbance:
        self.now += seconds
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def before_a_process(self, patience: Patience) -> Disturbance:
        return wait_until_quiet(patience, self.said.append, look=self.look, wait=self.wait)


def test_a_quiet_machine_costs_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is said."""
    world = World(monkeypatch, IDLE)
    assert world.before_a_process(Patience()) == IDLE
    assert world.said == []
    assert world.now == pytest.approx(quiet.LOOK_S)


def test_a_host_that_does_not_tell_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unverified is not busy."""
    world = World(monkeypatch, Disturbance())
    world.before_a_process(Patience())
    assert world.now == pytest.approx(quiet.LOOK_S)


def test_a_passing_burst_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who it was is said, with the share of each."""
    world = World(monkeypatch, BUSY, BUSY, IDLE)
    patience = Patience()
    assert world.before_a_process(patience) == IDLE
    assert all("others keep 1.3 CPUs busy (firefox 0.8, make 0.4)" in line for line in world.said)
    assert patience.limit_s == quiet.PATIENCE_S


def test_who_stays_is_waited_for_ever_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten processes beside one who stays wait less than two whole waits in all."""
    world = World(monkeypatch, BUSY)
    patience = Patience()
    for _ in range(10):
        assert world.before_a_process(patience) == BUSY
    looks_s = 10 * quiet.LOOK_S
    assert quiet.PATIENCE_S < world.now < 2.1 * quiet.PATIENCE_S + looks_s
    assert "going on beside others" in world.said[-1]


def test_all_waits_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One who comes and goes cannot eat the budget."""
    world = World(monkeypatch, *(10 * [BUSY] + [IDLE]) * 30)
    patience = Patience()
    for _ in range(30):
        world.before_a_process(patience)
    assert patience.waited_s <= quiet.TOTAL_S + 1.0


def test_a_hypervisor_that_takes_time_is_named() -> None:
    """It has no command name."""
    stolen = Disturbance(disturbed=True, others_cpus=0.0, steal_share=0.25)
    assert "25% of the CPUs' time" in in_words(stolen)
