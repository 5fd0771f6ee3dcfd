"""A process begins on a quiet machine where one can be had within a bounded time."""

import json
import os
import subprocess
import sys
import threading

import nvml_stub
import pytest

from advisor.executor.engines import EngineSettings, idle, local
from advisor.executor.engines.idle import wait_until_quiet
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
        monkeypatch.setattr(idle.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(idle, "look_around", self.look)
        monkeypatch.setattr(threading.Event, "wait", lambda _, seconds: self.wait(seconds))

    def look(self, seconds: float) -> Disturbance:
        self.now += seconds
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def before_a_process(self, limit_s: float = 10.0) -> None:
        wait_until_quiet(limit_s, self.said.append, threading.Event())


@pytest.mark.parametrize(("seen", "limit_s"), [(IDLE, 10.0), (Disturbance(), 10.0), (BUSY, 0.5)])
def test_no_wait_costs_one_look(seen, limit_s, monkeypatch) -> None:
    """On a quiet machine, on one whose load is unknown, and where no time is left to wait."""
    world = World(monkeypatch, seen)
    world.before_a_process(limit_s)
    assert world.said == []
    assert world.now == pytest.approx(idle.LOOK_S)


def test_a_passing_burst_is_waited_out(monkeypatch) -> None:
    world = World(monkeypatch, BUSY, BUSY, IDLE)
    world.before_a_process()
    (line,) = world.said
    assert "others keep 1.3 CPUs busy (firefox 0.8, make 0.4)" in line


def test_all_waits_of_an_engine_together_are_bounded(monkeypatch) -> None:
    """Ten processes beside one who stays: 5 % of a budget of three minutes, and their looks."""
    world = World(monkeypatch, BUSY)
    engine = local.LocalEngine(EngineSettings(max_wait_s=9.0, on_busy=world.said.append))
    for _ in range(10):
        engine.wait_until_quiet()
    assert world.now <= 9.0 + 14 * idle.LOOK_S
    assert "going on beside others" in world.said[-1]


def test_a_card_on_which_others_work_is_busy(tmp_path) -> None:
    """A process that only holds memory there is not waited for; one that works is, and clocks
    that are held down are."""
    stub = nvml_stub.build(tmp_path)
    code = (
        "import dataclasses, json; from advisor.executor.engines.idle import look_around\n"
        "print(json.dumps(dataclasses.asdict(look_around(0.15))))"
    )

    def look(**script: object) -> dict[str, object]:
        stub.write(nvml_stub.H100, processes=f"{os.getpid()}:1000,1:1000", **script)
        printed = subprocess.run(
            [sys.executable, "-c", code], env=stub.env(), capture_output=True, text=True, check=True
        ).stdout
        return json.loads(printed)

    assert look(working=f"1:0,{2**30}:90")["foreign_gpu_pids"] == 0
    busy = look(working=f"{os.getpid()}:90", events=0x8)
    assert (busy["foreign_gpu_pids"], busy["disturbed"]) == (1, True)
    assert busy["clocks_held"] == [["hardware slowdown", 1.0]]
