"""A run is contended when it waited for CPUs that others held."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from advisor import clock
from advisor.machine import contention
from advisor.machine.contention import LoadMonitor, LoadReading, judge, look, on_card
from advisor.model import Disturbance, Telemetry

BURN = "import time\nend = time.time() + 60\nwhile time.time() < end: pass"


def window(
    *, own: float = 1.0, others: float = 0.0, waited: float = 0.0, steal: float = 0.0
) -> Disturbance:
    """Ten seconds on two CPUs, of which these were busy."""
    readings = [
        LoadReading(
            time=10.0 * n,
            busy_s=10.0 * n * (own + others),
            steal_s=20.0 * n * steal,
            own_s={7: 10.0 * n * own},
            waited_s={(7, 7): 10.0 * n * waited},
            others={(7, 1.0): ("firefox", 10.0 * n * others)},
        )
        for n in range(4)
    ]
    return judge(readings, 10.0, 20.0, 2)


@pytest.mark.parametrize(
    ("given", "contended"),
    [
        ({}, False),
        ({"others": 0.4, "waited": 0.5}, False),  # a browser on a laptop
        ({"others": 1.0, "waited": 0.02}, False),  # the program does not wait
        ({"own": 2.0, "waited": 1.0}, False),  # its own workers wait for each other
        ({"others": 1.0, "waited": 0.4}, True),
        ({"steal": 0.1}, True),
    ],
)
def test_a_run_is_contended_when_it_waited_for_others(given, contended) -> None:
    """Neither waiting alone nor the load of others alone is contention."""
    found = window(**given)
    assert found.disturbed is contended
    assert found.others_cpus == pytest.approx(given.get("others", 0.0))
    assert [(each.name, pytest.approx(each.cpus)) for each in found.who] == (
        [("firefox", given["others"])] if "others" in given else []
    )


def test_a_trial_beside_that_ends_is_no_load_of_others() -> None:
    """Its CPU time stays ours once it is gone, and that of one that starts is ours at once."""
    trees = ({7: 0.0, 8: 50.0}, {7: 5.0, 8: 59.0}, {7: 10.0}, {7: 15.0, 9: 10.0})
    busy_s = (50.0, 64.0, 70.0, 85.0)
    readings = [
        LoadReading(
            time=10.0 * n,
            busy_s=busy,
            steal_s=0.0,
            own_s=own,
            waited_s={(7, 7): 5.0 * n},
            others={},
        )
        for n, (own, busy) in enumerate(zip(trees, busy_s, strict=True))
    ]
    found = judge(readings, 0.0, 30.0, 2)
    assert not found.disturbed
    assert found.own_cpus == pytest.approx(34 / 30)
    assert found.others_cpus == pytest.approx(1 / 30)  # since its last reading


def readings_of(alive: int) -> list[LoadReading]:
    """Of a run that waits half of the time beside others, whose threads live for so many."""
    return [
        LoadReading(
            time=10.0 * n,
            busy_s=18.0 * n,
            steal_s=0.0,
            own_s={7: 5.0 * min(n, alive)},
            waited_s={(7, 7): 5.0 * n} if n < alive else {},
            others={(9, 1.0): ("make", 13.0 * n)},
        )
        for n in range(5)
    ]


@pytest.mark.parametrize(("alive", "contended"), [(5, True), (3, True), (2, True), (1, None)])
def test_waits_are_known_as_far_as_the_run_was_read(alive, contended) -> None:
    """The closing reading may come after its threads are gone. Unread is unknown, never quiet."""
    assert judge(readings_of(alive), 5.0, 35.0, 2).disturbed is contended


@pytest.mark.parametrize(
    ("busy", "compute", "said"), [(0.2, 0.95, True), (0.9, 0.95, False), (0.2, 0.5, False)]
)
def test_a_run_without_a_cpu_does_not_compute(busy, compute, said) -> None:
    """Ninety percent of the clock in forwards, and hardly a busy CPU: it was starved."""
    assert bool(contention.starvation(Disturbance(own_cpus=busy), compute)) is said


def test_too_few_readings_tell_nothing() -> None:
    """Unknown is neither contended nor uncontended."""
    assert judge([], 0.0, 1.0, 2) == Disturbance()


@contextmanager
def burning(count: int, work: str = BURN) -> Iterator[int]:
    """A program in its own session that does `work` in so many processes."""
    code = f"import os\nfor _ in range({count - 1}):\n    if not os.fork(): break\n{work}"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, 9)


@pytest.mark.usefixtures("others_are_seen")
def test_a_busy_machine_is_seen_before_a_run() -> None:
    """Nothing of ours waits yet, so the load of others decides."""
    with burning(2 * len(os.sched_getaffinity(0))):
        time.sleep(0.3)
        assert look(0.5).disturbed is True


def test_an_unseen_host_tells_nothing(monkeypatch) -> None:
    """Some containers show counters that are not theirs."""
    monkeypatch.setenv(contention.UNSEEN, "unseen")
    monitor = LoadMonitor()
    monitor.sample(force=True)
    assert look(0.0) == Disturbance()
    assert monitor.between(0.0, 1.0) == Disturbance()


SLEEPS = "import time\nend = time.time() + 60\nwhile time.time() < end: time.sleep(0.02)"


@pytest.mark.usefixtures("others_are_seen")
@pytest.mark.parametrize(("code", "contended"), [(SLEEPS, False), (BURN, True)])
def test_only_a_run_that_waits_for_cpus_is_contended(code, contended) -> None:
    """Beside two neighbours on each CPU; the pressure of the machine is theirs."""
    cpus = len(os.sched_getaffinity(0))
    with burning(2 * cpus), burning(cpus, code) as run:
        time.sleep(0.5)
        monitor = LoadMonitor(run)
        monitor.sample(force=True)
        begun = clock.now()
        time.sleep(1.5)
        monitor.sample(force=True)
    found = monitor.between(begun, clock.now() - 0.1)
    assert found.disturbed is contended
    assert any(each.name.startswith("python") for each in found.who)


@pytest.mark.parametrize(
    ("reason", "share", "spread_pct", "contended"),
    [
        ("software thermal slowdown", 1.0, 2.0, False),  # a laptop that is always at its limit
        ("software thermal slowdown", 0.20, None, False),
        ("software thermal slowdown", 0.20, 12.0, True),
        ("hardware slowdown", 0.03, 0.0, True),
        ("software power cap", 1.0, 12.0, False),
    ],
)
def test_clocks_that_were_held_down_are_contention(reason, share, spread_pct, contended) -> None:
    """A power cap, or steady clocks of a warm laptop, are the normal state of a busy card."""
    telemetry = Telemetry(event_reasons=((reason, share),), sm_clock_spread_pct=spread_pct)
    assert on_card(Disturbance(disturbed=False), telemetry).disturbed is contended
    assert on_card(Disturbance(), Telemetry(foreign_pids=1)).disturbed is True
    assert on_card(Disturbance(), Telemetry(foreign_pids=0)).disturbed is None
