"""When a device was done with each step, by its own time: the host only queues the work."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from advisor.probe import clock


class Device:
    """A CUDA stream whose work takes so long for each event queued, on a clock of its own."""

    def __init__(self) -> None:
        self.busy_until = 0.0
        self.work_ms = 10.0

    def is_current_stream_capturing(self) -> bool:
        return False

    def current_stream(self, card: int) -> None:
        assert card == 0

    def Event(self, *, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(at=0.0)

        def record(stream: None) -> None:
            self.busy_until += self.work_ms
            event.at = self.busy_until

        event.record = record
        event.synchronize = lambda: None
        event.elapsed_time = lambda later: later.at - event.at
        return event


def test_the_devices_own_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host queued 20 steps in 40 ms, the device took 10 ms for each."""
    stream = Device()
    device = clock.DeviceClock(SimpleNamespace(cuda=stream), card=0)
    hosts = [0.002 * number for number in range(20)]
    for host in hosts:
        device.mark(host)
    stream.work_ms = 0.0
    monkeypatch.setattr(clock.time, "perf_counter", lambda: 0.2)
    device.read()
    done = [device.done(host) for host in hosts]
    gaps = [b - a for a, b in itertools.pairwise(done)]
    assert gaps == pytest.approx([0.01] * 19)
    assert done[-1] == pytest.approx(0.2)
    assert all(when >= host for when, host in zip(done, hosts, strict=True))
