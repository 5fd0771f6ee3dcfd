"""Kept runs stand in for processes, where they would come again."""

from pathlib import Path

import pytest

from advisor import clock
from advisor.executor.run_cache import RunCache
from advisor.history import History
from tests.runs import a_failure, a_run


def cache(folder: Path, since: float | None = None) -> RunCache:
    """Of one program on one machine."""
    history = History(folder / "history.sqlite")
    began = clock.now() if since is None else since
    return RunCache(history=history, machine_key="m", program_key="p", since=began)


@pytest.mark.parametrize(
    ("kind", "others_gib", "remembered"),
    [
        ("gpu-oom", None, True),
        ("gpu-oom", 0.05, True),
        ("gpu-oom", 40.0, False),
        ("crash-step", 40.0, True),
        ("timeout", None, False),
    ],
)
def test_memory_that_ran_out_beside_others_is_tried_again(
    kind, others_gib, remembered, tmp_path
) -> None:
    """Without the memory of others it may fit; a time-out may have been the machine's."""
    found = cache(tmp_path)
    found.append("key", a_failure(kind, gpu_mem_others_gib=others_gib))
    assert (found.find("key") is not None) is remembered


@pytest.mark.parametrize(
    ("kind", "remembered"), [("gpu-oom", False), ("shm", False), ("crash-step", True)]
)
def test_a_later_call_tries_again_what_the_machine_had_no_room_for(
    kind, remembered, tmp_path
) -> None:
    """Within a call it would fail again; a week later the machine may be mended."""
    now = cache(tmp_path)
    now.append("key", a_failure(kind))
    assert now.find("key") is not None
    later = cache(tmp_path, since=clock.now() + 1.0)
    assert (later.find("key") is not None) is remembered


def test_a_round_uses_no_run_of_an_earlier_call(tmp_path) -> None:
    """A search does; the arms of a pair must have run on one day."""
    cache(tmp_path).append("key", a_run())
    later = cache(tmp_path, since=clock.now() + 1.0)
    assert later.find("key") is not None
    assert later.find("key", earlier_calls=False) is None


@pytest.mark.parametrize(
    ("rates", "today", "kept"),
    [
        ([10.0, 10.2, 9.9], 10.1, True),
        ([10.0, 10.2, 9.9], 15.0, False),
        ([10.0, 10.2, 2.0], 10.1, True),
    ],
)
def test_earlier_runs_are_set_aside_with_the_reason(rates, today, kept, tmp_path) -> None:
    """Where the original moved by more than 15 %; one collapsed run moves nothing."""
    before = cache(tmp_path)
    for rate in rates:
        before.append("baseline", a_run(units_per_s=rate))
    before.append("other", a_run())
    later = cache(tmp_path, since=clock.now() + 1e-3)
    later.note_earlier("baseline")
    later.note_earlier("a further baseline, which no earlier call had")
    later.check_speed([today])
    assert (later.find("other") is not None) is kept
    expected = "The original's rate was 10.0 a second then and is 15.0 now"
    assert (expected in later.set_aside) is not kept
