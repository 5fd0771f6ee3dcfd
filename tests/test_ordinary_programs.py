"""An ordinary sampler whose true rates are known by its waits, with JSON and PNGs.

It is tuned once; every test reads the same answer.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import warm

PROGRAMS = Path(__file__).resolve().parent / "fixtures" / "programs"
SAMPLE_JSON = '{"seed": 1, "sampling": {"batch_size": 1, "steps": 10}}\n'
MOST_GAIN = 3.4
"""Of what may be written, by the program's own waits."""

pytestmark = pytest.mark.slow
pytest.importorskip("torch")


class Answer(NamedTuple):
    """Answer of the call, where it ran."""

    report: dict[str, Any]
    shown: str
    folder: Path


@pytest.fixture(scope="module")
def optimized(gpu_advisor: warm.Server, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """Tunes the program."""
    folder = tmp_path_factory.mktemp("ordinary")
    (folder / ".git").mkdir()
    (folder / "sample.py").write_bytes((PROGRAMS / "ordinary_sample.py").read_bytes())
    (folder / "sample.json").write_text(SAMPLE_JSON)
    words = ("sample.json", "--", sys.executable, "sample.py", "sample.json")
    quick = ("--window", "0.5s", "--json", "--budget", "120s")
    done = gpu_advisor.call("optimize", *quick, *words, cwd=folder)
    report = json.loads((folder / "report.json").read_text())
    assert done.returncode == (5 if report["work_left"] else 0), done.stderr
    return Answer(report, done.stderr, folder)


def test_the_headline_is_the_ratio_of_its_table_and_true(optimized) -> None:
    """Within 3 %, as the table's medians are of all runs."""
    report, gain = optimized.report, optimized.report["gain"]
    of_table = report["after"]["units_per_s"] / report["before"]["units_per_s"]
    assert gain["ratio"] == pytest.approx(of_table, rel=0.03)
    assert gain["low"] <= MOST_GAIN, "more was claimed than the program can gain"


def test_what_cannot_be_written_costs_little_and_fails_nothing(optimized) -> None:
    """No process moves an image size or a seed; a limit of ours is no failure of the program."""
    report, shown, _ = optimized
    trials = report["trials"]
    assert sum(trial["purpose"] == "effects" for trial in trials) <= 2, trials
    assert {each["outcome"] for each in trials} == {"ok"}, trials
    assert not [each for each in report["decisions"] if "fail" in each["reason"]]
    assert "fails" not in shown


def test_a_batch_that_crawls_leaves_time_to_prove_another(optimized) -> None:
    """One trial ate the budget of a proven gain of three."""
    report, shown, _ = optimized
    assert report["verdict"] == "improved", shown
    assert [(change["knob_class"], change["new"]) for change in report["changes"]] == [("free", 8)]
    assert "the rest is kept for the proof" in shown
    (untried,) = (each for each in report["next_actions"] if "batch 64" in each)
    assert "which takes more than" in untried


def test_the_config_is_rewritten_in_place_and_put_back(optimized, gpu_advisor) -> None:
    """Nothing else is left: outputs of trials belong into scratch."""
    folder = optimized.folder
    config = folder / "sample.json"
    assert config.read_text() == SAMPLE_JSON.replace('"batch_size": 1', '"batch_size": 8')
    assert not list(folder.glob(".*gpu-advisor-*"))
    assert not (folder / "pictures").exists()
    first_screen = "\n".join((folder / "report.md").read_text().splitlines()[:40])
    assert "| `batch_size` |" in first_screen
    assert "gpu-advisor revert" in first_screen
    undone = gpu_advisor.call("revert", "sample.json", cwd=folder)
    assert undone.returncode == 0, undone.stderr
    assert config.read_text() == SAMPLE_JSON


def test_what_was_not_tuned_and_what_may_differ_is_said(optimized) -> None:
    decisions = {each["kind"]: each for each in optimized.report["decisions"]}
    assert decisions["timesteps"]["outcome"] == "listed", "no quality measure was declared"
    assert "random draws" in decisions["batch_size"]["reason"]
