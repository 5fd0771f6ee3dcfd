"""A process begins on a quiet machine where one can be had within a bounded time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import nvml_stub
import pytest

from advisor.executor.engines import idle
from advisor.executor.engines.idle import Patience, in_words, wait_until_quiet
from advisor.model import Disturbance, Neighbour

if TYPE_CHECKING:
    from pathlib import Path

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
        monkeypatch.setattr(idle.time, "monotonic", lambda: self.now)

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
    assert world.now == pytest.approx(idle.LOOK_S)


def test_a_host_that_does_not_tell_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unverified is not busy."""
    world = World(monkeypatch, Disturbance())
    world.before_a_process(Patience())
    assert world.now == pytest.approx(idle.LOOK_S)


def test_a_passing_burst_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who it was is said, with the share of each."""
    world = World(monkeypatch, BUSY, BUSY, IDLE)
    patience = Patience()
    assert world.before_a_process(patience) == IDLE
    assert all("others keep 1.3 CPUs busy (firefox 0.8, make 0.4)" in line for line in world.said)
    assert patience.limit_s == idle.PATIENCE_S


def test_who_stays_is_waited_for_ever_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten processes beside one who stays wait less than two whole waits in all."""
    world = World(monkeypatch, BUSY)
    patience = Patience()
    for _ in range(10):
        assert world.before_a_process(patience) == BUSY
    looks_s = 10 * idle.LOOK_S
    assert idle.PATIENCE_S < world.now < 2.1 * idle.PATIENCE_S + looks_s
    assert "going on beside others" in world.said[-1]


def test_all_waits_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One who comes and goes cannot eat the budget."""
    world = World(monkeypatch, *(10 * [BUSY] + [IDLE]) * 30)
    patience = Patience()
    for _ in range(30):
        world.before_a_process(patience)
    assert patience.waited_s <= idle.TOTAL_S + 31 * idle.LOOK_S


def test_a_hypervisor_that_takes_time_is_named() -> None:
    """It has no command name."""
    stolen = Disturbance(disturbed=True, others_cpus=0.0, steal_share=0.25)
    assert "25% of the CPUs' time" in in_words(stolen)


def test_a_card_on_which_others_work_is_busy(tmp_path: Path) -> None:
    """A process that only holds memory there is not waited for; one that works is, and clocks
    that are held down are."""
    stub = nvml_stub.build(tmp_path)
    code = (
        "import dataclasses, json; from advisor.executor.engines.idle import look_around\n"
        "print(json.dumps(dataclasses.asdict(look_around(0.15))))"
    )

    def look(**script: object) -> dict[str, object]:
        stub.write(nvml_stub.H100, processes=f"{os.getpid()}:1000,1:1000", **script)
        told = subprocess.run(
            [sys.executable, "-c", code], env=stub.env(), capture_output=True, text=True, check=True
        ).stdout
        found: dict[str, object] = json.loads(told)
        return found

    assert look(working=f"1:0,{2**30}:90")["foreign_gpu_pids"] == 0
    busy = look(working=f"{os.getpid()}:90", events=0x8)
    assert (busy["foreign_gpu_pids"], busy["disturbed"]) == (1, True)
    assert busy["clocks_held"] == [["hardware slowdown", 1.0]]
