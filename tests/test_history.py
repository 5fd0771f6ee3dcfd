"""History keeps what ran and gives it back only where it may stand in."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from advisor.history import History, installed_packages, program_key, trial_key
from advisor.model import Effects, Failure, Flops, MeasurePlan, Run
from advisor.state import state_folder
from tests.runs import a_run

if TYPE_CHECKING:
    from pathlib import Path


def kept(rate: float = 2.0) -> Run:
    """A run with something in each kind of field."""
    effects = Effects(batch=4, input_shapes=("3x8x8",))
    flops = Flops(per_step=1e9, uncounted=("mine.op",))
    return a_run(units_per_s=rate, windows=(2.0, 2.1), effects=effects, flops=flops)


def broken(evidence: str = "CUDA out of memory", log_tail: str = "") -> Failure:
    return Failure(
        trial_id="002",
        purpose="search",
        label="batch_size=64",
        candidate_key="k",
        kind="gpu-oom",
        evidence=evidence,
        next_step="try less",
        log_tail=log_tail,
    )


def test_results_come_back_as_they_were_the_newest_first(tmp_path: Path) -> None:
    """Those of another machine, and those that are too old, are not found."""
    history = History(tmp_path / "h.sqlite")
    results = [kept(1.0), broken(), kept(3.0)]
    for result in results:
        history.append("key", "machine", result)
    assert history.find("key", "machine", max_age_s=60) == results[::-1]
    assert history.find("key", "other machine", max_age_s=60) == []
    assert history.find("key", "machine", max_age_s=0) == []


def test_spreads_group_equal_trials_of_one_machine(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    for key, rate in (("a", 1.0), ("a", 1.1), ("b", 5.0)):
        history.append(key, "machine", kept(rate))
    history.append("a", "other", kept(9.0))
    assert sorted(map(sorted, history.host_spreads("machine"))) == [[1.0, 1.1]]


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    def write() -> None:
        history = History(tmp_path / "h.sqlite")
        for _ in range(10):
            history.append("key", "machine", kept())

    History(tmp_path / "h.sqlite")
    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(History(tmp_path / "h.sqlite").find("key", "machine", max_age_s=60)) == 40


def test_an_edited_source_makes_another_program(tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text("a = 1\n")
    before = program_key(tmp_path)
    os.utime(source, (1, 1))
    assert program_key(tmp_path) != before


def test_sources_of_an_environment_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("a = 1\n")
    before = program_key(tmp_path)
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "env" / "site.py").write_text("")
    assert program_key(tmp_path) == before


def test_the_key_tells_values_commands_and_plans_apart() -> None:
    keys = {
        trial_key("p", ("python", "a.py"), {"batch": 1}, MeasurePlan(), {}),
        trial_key("p", ("python", "a.py"), {"batch": 2}, MeasurePlan(), {}),
        trial_key("p", ("python", "b.py"), {"batch": 1}, MeasurePlan(), {}),
        trial_key("p", ("python", "a.py"), {"batch": 1}, MeasurePlan(mode="whole"), {}),
        trial_key("q", ("python", "a.py"), {"batch": 1}, MeasurePlan(), {}),
    }
    assert len(keys) == 5


def test_the_state_folder_ignores_itself(tmp_path: Path) -> None:
    folder = state_folder(tmp_path)
    assert (folder / ".gitignore").read_text() == "*\n"


def test_a_damaged_store_is_moved_aside_with_a_word(tmp_path: Path) -> None:
    """Its bytes are kept, and what is measured from then on is found again."""
    path = tmp_path / "h.sqlite"
    path.write_bytes(b"no database at all" * 100)
    told: list[str] = []
    History(path, told.append).append("key", "machine", kept())
    assert len(told) == 1
    assert "moved to h.sqlite.damaged-" in told[0]
    assert len(list(tmp_path.glob("h.sqlite.damaged-*"))) == 1
    assert History(path).find("key", "machine", max_age_s=60) == [kept()]


def test_a_store_that_is_cut_in_the_middle_is_damaged_too(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    for _ in range(40):
        History(path).append("key", "machine", kept())
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    told: list[str] = []
    history = History(path, told.append)
    history.append("new", "machine", kept())
    assert history.find("new", "machine", max_age_s=60) == [kept()]
    assert told


def test_a_store_of_another_shape_is_moved_aside(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "h.sqlite")) as db:
        db.execute("create table run (id integer)")
    history = History(tmp_path / "h.sqlite")
    history.append("key", "machine", kept())
    assert history.find("key", "machine", max_age_s=60) == [kept()]


def test_without_a_place_to_write_measurements_live_as_long_as_the_call(tmp_path: Path) -> None:
    (tmp_path / "h.sqlite").mkdir()
    told: list[str] = []
    history = History(tmp_path / "h.sqlite", told.append)
    history.append("key", "machine", kept())
    assert history.find("key", "machine", max_age_s=60) == [kept()]
    assert len(told) == 1
    assert "will not be known to later calls" in told[0]


def test_what_is_kept_shows_no_secret(tmp_path: Path) -> None:
    failure = broken(
        "login failed: password=hunter2", "Authorization: Bearer q7Zp2mXw9Lr4q7Zp2mXw9Lr4"
    )
    History(tmp_path / "h.sqlite").append("key", "machine", failure)
    stored = (tmp_path / "h.sqlite").read_bytes()
    assert b"hunter2" not in stored
    assert b"q7Zp" not in stored


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_does_not_stop_the_key(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("a = 1\n")
    (tmp_path / "locked").mkdir(mode=0)
    before = program_key(tmp_path)
    (tmp_path / "train.py").write_text("a = 12\n")
    assert program_key(tmp_path) != before


def test_a_folder_that_is_gone_does_not_stop_the_key(tmp_path: Path) -> None:
    assert program_key(tmp_path / "nowhere") == program_key(tmp_path / "not here")


def test_the_key_tells_environments_seeds_and_devices_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A measurement on another card, or with another seed, is another measurement."""

    def key(**env: str) -> str:
        return trial_key("p", ("python", "a.py"), {}, MeasurePlan(), env)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    plain = key()
    monkeypatch.setenv("TERM", "another")
    assert key() == plain
    assert len({plain, key(MODE="a"), key(MODE="b"), key(GPU_ADVISOR_SEED="1")}) == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert key() != plain
    assert key(CUDA_VISIBLE_DEVICES="1") == key()


def test_the_key_tells_versions_of_torch_and_sources_beyond_thousands(tmp_path: Path) -> None:
    """A new torch, a new CUDA, or an edit of the last of 3,100 files makes earlier runs stale."""
    environment = tmp_path / "venv"
    packages = environment / "lib" / "python3.11" / "site-packages"
    (packages / "torch-2.3.0+cu121.dist-info").mkdir(parents=True)
    (environment / "bin").mkdir()
    python = environment / "bin" / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    for number in range(3100):
        (work / f"m{number:04d}.py").touch()
    command = (str(python), "train.py")
    keys = {program_key(work, command)}
    (packages / "torch-2.3.0+cu121.dist-info").rename(packages / "torch-2.3.0+cu124.dist-info")
    keys.add(program_key(work, command))
    (work / "m3099.py").write_text("pass\n")
    keys.add(program_key(work, command))
    assert len(keys) == 3
    in_shell = installed_packages(("bash", "-c", f"{python} train.py"), work)
    assert "python3.11/torch-2.3.0+cu124.dist-info" in in_shell
