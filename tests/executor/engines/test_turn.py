"""Calls on one machine take turns: the next one waits as long as it was told to, and says so."""

import threading

import pytest

from advisor.errors import InterruptedByUserError, StateBusyError
from advisor.executor.engines import EngineSettings
from advisor.executor.engines.local import LocalEngine
from advisor.executor.engines.turn import taken

CARD = EngineSettings(gpu_uuid="GPU-1")


def test_it_waits_for_the_holder_and_tells_how_long() -> None:
    said: list[str] = []
    holder = LocalEngine(CARD)
    holder.__enter__()
    threading.Timer(0.3, holder.__exit__, (None, None, None)).start()
    with taken(LocalEngine(CARD), 60.0, threading.Event(), said.append) as waited_s:
        assert waited_s > 0
    begun, ended = said
    assert "Another gpu-advisor measures on GPU GPU-1: process" in begun
    assert begun.endswith("Waiting for it, 1 min at most.")
    assert ended.startswith("Its turn came after ")


def test_a_free_machine_is_taken_without_a_word() -> None:
    said: list[str] = []
    with taken(LocalEngine(CARD), 60.0, threading.Event(), said.append) as waited_s:
        assert waited_s == 0.0
    assert said == []


def test_without_a_wait_it_is_refused_at_once() -> None:
    said: list[str] = []
    with (
        LocalEngine(CARD),
        pytest.raises(StateBusyError) as refusal,
        taken(LocalEngine(CARD), 0.0, threading.Event(), said.append),
    ):
        pass
    assert said == []
    assert "--wait 30m" in str(refusal.value)


def test_a_wait_ends_and_says_how_long_it_was() -> None:
    with (
        LocalEngine(CARD),
        pytest.raises(StateBusyError, match=r"It was waited for 200 ms\."),
        taken(LocalEngine(CARD), 0.2, threading.Event(), [].append),
    ):
        pass


def test_a_wait_can_be_interrupted() -> None:
    cancel = threading.Event()
    cancel.set()
    with (
        LocalEngine(CARD),
        pytest.raises(InterruptedByUserError),
        taken(LocalEngine(CARD), 60.0, cancel, [].append),
    ):
        pass
