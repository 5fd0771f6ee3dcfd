"""History keeps what ran and gives it back only where it may stand in."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from advisor.history import History, program_key, trial_key
from advisor.model import Effects, Failure, MeasurePlan, Run
from advisor.state import state_folder

if TYPE_CHECKING:
    from pathlib import Path


def a_run(rate: float = 2.0) -> Run:
    return Run(
        trial_id="001",
        purpose="search",
        label="original",
        candidate_key="k",
        unit="tile",
        units=6.0,
        units_per_s=rate,
        rate_source="loader batches",
        window_start=1.0,
        window_end=4.0,
        windows=(2.0, 2.1),
        effects=Effects(batch=4, input_shapes=("3x8x8",)),
    )


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    history.append("key", "machine", a_run())
    assert history.find("key", "machine", max_age_s=60) == [a_run()]


def test_a_failure_comes_back_as_it_was(tmp_path: Path) -> None:
    failure = Failure(
        trial_id="002",
        purpose="search",
        label="batch_size=64",
        candidate_key="k",
        kind="gpu-oom",
        evidence="CUDA out of memory",
        next_step="try less",
    )
    history = History(tmp_path / "h.sqlite")
    history.append("key", "machine", failure)
    assert history.find("key", "machine", max_age_s=60) == [failure]


def test_runs_of_another_machine_or_too_old_are_not_found(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    history.append("key", "machine", a_run())
    assert history.find("key", "other machine", max_age_s=60) == []
    assert history.find("key", "machine", max_age_s=0) == []


def test_the_newest_result_comes_first(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    for rate in (1.0, 2.0, 3.0):
        history.append("key", "machine", a_run(rate))
    rates = [
        run.units_per_s
        for run in history.find("key", "machine", max_age_s=60)
        if isinstance(run, Run)
    ]
    assert rates == [3.0, 2.0, 1.0]


def test_spreads_group_equal_trials_of_one_machine(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    for key, rate in (("a", 1.0), ("a", 1.1), ("b", 5.0)):
        history.append(key, "machine", a_run(rate))
    history.append("a", "other", a_run(9.0))
    assert sorted(map(sorted, history.host_spreads("machine"))) == [[1.0, 1.1]]


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    def write() -> None:
        history = History(tmp_path / "h.sqlite")
        for _ in range(10):
            history.append("key", "machine", a_run())

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
