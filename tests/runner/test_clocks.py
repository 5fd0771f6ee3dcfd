"""A trial is timed by a clock that nobody sets: the wall clock may step in the middle of it."""

import sys
import time

import pytest

from advisor.machine.contention import LoadMonitor
from advisor.model import MeasurePlan
from tests.runner.conftest import measured

STEPS_S = (-10.0, 3600.0, -1e9)
"""NTP corrects ten seconds, a time zone is mended, a battery was empty."""


@pytest.fixture(params=STEPS_S)
def stepped(request, monkeypatch, tmp_path):
    """The wall clock of this process steps once the program has begun its work."""
    told, real = tmp_path / "at-work", time.time
    monkeypatch.setattr(time, "time", lambda: real() + (request.param if told.exists() else 0))
    return told


WORKS = """
import pathlib, sys, time
print("row 1", flush=True)
time.sleep(0.3)
pathlib.Path(sys.argv[1]).touch()
for n in range(2, 9):
    time.sleep(0.1)
    print("row", n, flush=True)
"""


@pytest.mark.parametrize("pattern", [None, r"^row \d+"])
def test_a_trial_lasts_as_long_as_it_lasts(make_trial, stepped, pattern) -> None:
    """Neither over its limit at once, nor shorter than nothing."""
    plan = MeasurePlan(mode="whole", unit_regex=pattern)
    command = (sys.executable, "-c", WORKS, str(stepped))
    run = measured(make_trial(*command, plan=plan, allow_writes=True, total_limit_s=120.0))
    assert 0.9 < run.wall_s < 120
    assert 0.9 < run.window_end - run.window_start < 120
    assert all(rate > 0 for rate in run.windows)


def test_the_load_of_others_is_measured_over_a_step(stepped, monkeypatch) -> None:
    monkeypatch.delenv("GPU_ADVISOR_OTHERS", raising=False)
    begun = time.monotonic()
    monitor = LoadMonitor()
    monitor.sample(force=True)
    stepped.touch()
    while time.monotonic() < begun + 0.3:
        time.sleep(0.05)
    monitor.sample(force=True)
    first, last = monitor.readings
    assert 0.2 < last.time - first.time < 30
