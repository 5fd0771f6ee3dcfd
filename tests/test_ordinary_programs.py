"""Two ordinary programs whose true rates are known by their waits: what their users met.

An image classifier with argparse and YAML, and a sampler with JSON that writes PNGs. Each is tuned
once; every test reads the same answers.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from advisor import errors
from tests import warm

PROGRAMS = Path(__file__).resolve().parent / "fixtures" / "programs"
TRAIN_YAML = "data: {image_size: 64, batch_size: 4, workers: 0}\nlr: 0.01\namp: false\n"
SAMPLE_JSON = '{"seed": 1, "sampling": {"batch_size": 1, "steps": 10}}\n'
QUICK = ("--window", "0.5s", "--json")

pytestmark = pytest.mark.slow
pytest.importorskip("torch")


@dataclass(frozen=True)
class Case:
    """One of the programs."""

    name: str
    config: str
    text: str
    words: tuple[str, ...]
    gain: tuple[float, float]
    """Bounds of the true gain of what may be written, by the program's own waits."""


CASES = {
    case.name: case
    for case in (
        Case("classify", "train.yaml", TRAIN_YAML, ("--config", "train.yaml"), (1.3, 2.0)),
        Case("sample", "sample.json", SAMPLE_JSON, ("sample.json",), (3.2, 3.4)),
    )
}
NAMES = tuple(CASES)


class Answer(NamedTuple):
    """Answer of one call, where it ran."""

    report: dict[str, Any]
    shown: str
    folder: Path


Optimized = Callable[[str], Answer]


def project(folder: Path, case: Case) -> tuple[str, ...]:
    """Files of the program in `folder`; the words behind a command's options."""
    (folder / ".git").mkdir(parents=True)
    program = f"ordinary_{case.name}.py"
    (folder / program).write_bytes((PROGRAMS / program).read_bytes())
    (folder / case.config).write_text(case.text)
    return (case.config, "--", sys.executable, program, *case.words)


@pytest.fixture(scope="module")
def optimized(gpu_advisor: warm.Server, tmp_path_factory: pytest.TempPathFactory) -> Optimized:
    """Tunes a program, once."""

    @cache
    def answer(name: str) -> Answer:
        folder = tmp_path_factory.mktemp("ordinary") / name
        words = project(folder, CASES[name])
        done = gpu_advisor.call("optimize", *QUICK, "--budget", "90s", *words, cwd=folder)
        assert done.returncode in errors.OPTIMIZE_EXIT_CODES.values(), done.stderr
        report = json.loads((folder / "report.json").read_text())
        return Answer(report, done.stderr, folder)

    return answer


@pytest.mark.parametrize("name", NAMES)
def test_the_headline_is_the_ratio_of_its_table_and_true(optimized, name) -> None:
    """Within 3 %, as the table's medians are of all runs. A small gain may be likely only."""
    report, shown, _ = optimized(name)
    if report["verdict"] != "improved" and name != "sample":
        assert report["verdict"] == "partial", shown
        assert report["candidate"]["ratio"] > 1
        assert report["next_command"]
        return
    gain, least, most = report["gain"], *CASES[name].gain
    of_table = report["after"]["units_per_s"] / report["before"]["units_per_s"]
    assert gain["ratio"] == pytest.approx(of_table, rel=0.03)
    assert gain["low"] <= most, "more was claimed than the program can gain"
    assert gain["high"] is None or gain["high"] >= least


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_written_costs_little_and_fails_nothing(optimized, name) -> None:
    """No process moves an image size or a seed; a limit of ours is no failure of the program."""
    report, shown, _ = optimized(name)
    trials = report["trials"]
    assert sum(each["purpose"] == "effects" for each in trials) <= 2, trials
    assert {each["outcome"] for each in trials} == {"ok"}, trials
    assert not [each for each in report["decisions"] if "fail" in each["reason"]]
    assert "fails" not in shown


def test_a_batch_that_crawls_leaves_time_to_prove_another(optimized) -> None:
    """One trial ate the budget of a proven gain of three."""
    report, shown, _ = optimized("sample")
    assert report["verdict"] == "improved", shown
    assert [(change["knob_class"], change["new"]) for change in report["changes"]] == [("free", 8)]
    assert "the rest is kept for the proof" in shown
    (untried,) = (each for each in report["next_actions"] if "batch 64" in each)
    assert "which takes more than" in untried


def test_the_config_is_rewritten_in_place_and_put_back(optimized, gpu_advisor) -> None:
    """Nothing else is left: outputs of trials belong into scratch."""
    _, _, folder = optimized("sample")
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


def test_nothing_is_said_against_the_code_or_the_data(optimized) -> None:
    """`amp` is bfloat16 here, a pass has 24 images, and PNGs may differ by rounding."""
    report, shown, _ = optimized("classify")
    text = json.dumps(report) + shown
    assert "float16" not in text.replace("bfloat16", "")
    assert all((each["batch"] or 0) <= 24 for each in report["trials"])
    decisions = {each["kind"]: each for each in optimized("sample").report["decisions"]}
    assert decisions["timesteps"]["outcome"] == "listed", "no quality measure was declared"
    of_batch = decisions["batch_size"]
    assert "random draws" in of_batch["reason"]
