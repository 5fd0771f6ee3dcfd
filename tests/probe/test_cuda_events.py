"""Completion times of device work, by events that count as CUDA's do."""

import ctypes
import itertools
from types import SimpleNamespace

import pytest

from advisor.probe import cuda_events

STEP_S = 0.00025
HOUR_S = 3600.0


class Event:
    """An event that the card has passed; times between two are float32 milliseconds."""

    card_s = 0.0

    def __init__(self, **_: object) -> None:
        self.at_s = 0.0

    def record(self, _: object) -> None:
        self.at_s = Event.card_s

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "Event") -> float:
        return ctypes.c_float((end.at_s - self.at_s) * 1000).value


def marks_after(running_s: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Completion times of steps of a quarter of a millisecond, so long after the start."""
    monkeypatch.setattr(Event, "card_s", 0.0)
    monkeypatch.setattr(cuda_events, "clock", lambda: Event.card_s)
    found: list[tuple[object, ...]] = []
    cuda = SimpleNamespace(
        Event=Event,
        current_stream=lambda card: card,
        synchronize=lambda card: None,
        current_device=lambda: 0,
        is_current_stream_capturing=lambda: False,
    )
    recorder = SimpleNamespace(add=found.append)
    session = SimpleNamespace(torch=SimpleNamespace(cuda=cuda), recorder=recorder, counting=False)
    device = cuda_events.DeviceMarks(session, 0)
    while Event.card_s < running_s:  # a program marks its steps all the time
        Event.card_s += 10.0
        device.queue(Event.card_s)
        device.poll()
    found.clear()
    for _ in range(40):
        Event.card_s += STEP_S
        device.queue(Event.card_s - 1.0)  # the host was ahead
        device.poll()
    return [done for _, _, done in found]


@pytest.mark.parametrize("running_s", [0.0, HOUR_S, 24 * HOUR_S])
def test_steps_are_as_long_after_a_day_as_at_the_start(running_s, monkeypatch) -> None:
    """Float32 milliseconds since the first event would be whole quarters after an hour."""
    done = marks_after(running_s, monkeypatch)
    took = [after - before for before, after in itertools.pairwise(done)]
    assert took == pytest.approx([STEP_S] * len(took), abs=2e-6)
