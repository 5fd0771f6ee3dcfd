"""History keeps what ran and gives it back only where it may stand in."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from advisor.history import History, installed_packages, program_key, trial_key
from advisor.model import Effects, Flops, MeasurePlan, Run
from tests.runs import a_failure, a_run


def kept(rate: float = 2.0) -> Run:
    """A run with something in each kind of field."""
    effects = Effects(batch=4, input_shapes=("3x8x8",))
    flops = Flops(per_step=1e9)
    return a_run(units_per_s=rate, windows=(2.0, 2.1), effects=effects, flops=flops)


def test_results_come_back_as_they_were_the_newest_first(tmp_path) -> None:
    """Those of another machine, and those that are too old, are not found."""
    history = History(tmp_path / "h.sqlite")
    results = [kept(1.0), a_failure("gpu-oom"), kept(3.0)]
    for result in results:
        history.append("key", "machine", result)
    assert history.find("key", "machine", max_age_s=60) == results[::-1]
    assert history.find("key", "other machine", max_age_s=60) == []
    assert history.find("key", "machine", max_age_s=0) == []


def of_another_shape(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table result (id integer)")


@pytest.mark.parametrize("spoil", [of_another_shape, Path.mkdir], ids=["shape", "folder"])
def test_without_a_store_measurements_live_as_long_as_the_call(tmp_path, spoil) -> None:
    """What stands in its place is kept, and said once."""
    path = tmp_path / "h.sqlite"
    spoil(path)
    notes: list[str] = []
    history = History(path, notes.append)
    history.append("key", "machine", kept())
    assert history.find("key", "machine", max_age_s=60) == [kept()]
    assert len(notes) == 1
    assert str(path) in notes[0]
    assert path.exists()


def test_what_is_kept_shows_no_secret(tmp_path) -> None:
    secret = "Authorization: Bearer q7Zp2mXw9Lr4q7Zp2mXw9Lr4"
    failure = a_failure("gpu-oom", evidence="login failed: password=hunter2", log_tail=secret)
    History(tmp_path / "h.sqlite").append("key", "machine", failure)
    stored = (tmp_path / "h.sqlite").read_bytes()
    assert b"hunter2" not in stored
    assert b"q7Zp" not in stored


def test_the_key_tells_values_commands_plans_seeds_and_devices_apart(monkeypatch) -> None:
    """A measurement on another card, or with another seed, is another measurement."""

    def key(**env: str) -> str:
        return trial_key("p", ("python", "a.py"), {}, MeasurePlan(), env)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    plain = key()
    monkeypatch.setenv("TERM", "another")
    assert key() == plain
    keys = {plain, key(MODE="a"), key(MODE="b"), key(GPU_ADVISOR_SEED="1")}
    keys.add(trial_key("p", ("python", "a.py"), {"batch": 2}, MeasurePlan(), {}))
    keys.add(trial_key("p", ("python", "b.py"), {}, MeasurePlan(), {}))
    keys.add(trial_key("p", ("python", "a.py"), {}, MeasurePlan(mode="whole"), {}))
    keys.add(trial_key("q", ("python", "a.py"), {}, MeasurePlan(), {}))
    assert len(keys) == 8
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert key() != plain
    assert key(CUDA_VISIBLE_DEVICES="1") == key()


def test_the_key_tells_versions_of_torch_and_sources_beyond_thousands(tmp_path) -> None:
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
    (work / "env").mkdir()
    (work / "env" / "pyvenv.cfg").touch()
    (work / "env" / "site.py").touch()  # sources of an environment do not count
    keys.add(program_key(work, command))
    (packages / "torch-2.3.0+cu121.dist-info").rename(packages / "torch-2.3.0+cu124.dist-info")
    keys.add(program_key(work, command))
    (work / "m3099.py").write_text("pass\n")
    keys.add(program_key(work, command))
    assert len(keys) == 3
    in_shell = installed_packages(("bash", "-c", f"{python} train.py"), work)
    assert "python3.11/torch-2.3.0+cu124.dist-info" in in_shell
