"""`gpu-advisor compare`: real processes of two to six variants, and its exit codes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.__main__ import dispatch
from advisor.commands.compare import ranking
from advisor.commands.variants import differing
from advisor.errors import FAILURE_EXIT_CODES, UsageError
from advisor.executor.equal_units import work_differences
from advisor.model import Effects
from tests import warm
from tests.runs import a_run

PROGRAM = """\
import pathlib, re, sys, time
settings = dict(re.findall(r"(\\w+): (\\S+)", pathlib.Path(sys.argv[1]).read_text()))
if "crash" in settings:
    sys.exit("no such option")
ran = pathlib.Path("ran")
if "later" in settings:
    if ran.exists():
        sys.exit("not twice")
    ran.touch()
for number in range(2000):
    time.sleep(float(settings["step_s"]))
    print("did 4 items", flush=True)
    if len(sys.argv) > 2 and number > 5:
        print("error", settings["error"])
        break
"""
SETTINGS = """\
[workload.work]
config = "a.yaml"
command = "{python} work.py {{config}}"
unit = "item"
unit-regex = "did ([0-9]+) items"
"""
QUALITY = """\
quality-command = "{python} work.py {{config}} whole"

[workload.work.quality.error]
pattern = "error (\\\\S+)"
tolerance = "5%"
"""
FAST, SLOW = "step_s: 0.01\nerror: 1.00\n", "step_s: 0.1\nerror: 1.00\n"
QUICK = ("--window", "0.3s", "--rounds", "2", "--budget", "200s")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three configs of one program: slow, fast, and fast with another product."""
    (tmp_path / "work.py").write_text(PROGRAM)
    (tmp_path / "gpu-advisor.toml").write_text(SETTINGS.format(python=sys.executable))
    for name, text in {"a": SLOW, "b": FAST, "worse": FAST.replace("1.00", "1.20")}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "crash.yaml").write_text("crash: 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


Compare = Callable[..., tuple[int, str, str]]


@pytest.fixture
def compare(project: Path, gpu_advisor: warm.Server) -> Compare:
    """Calls it in the project; returns exit code, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        done = gpu_advisor.call("compare", *QUICK, *words, cwd=project)
        return done.returncode, done.stdout, done.stderr

    return call


def compared(compare: Compare, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and the variants of the JSON object by name."""
    code, out, err = compare("--json", *words)
    assert out, err
    found = json.loads(out)
    return code, {"outcome": found["outcome"]} | {v["name"]: v for v in found["variants"]}


@pytest.mark.slow
def test_a_slower_config_fails_the_call_and_the_table_says_by_how_much(project, compare) -> None:
    before = {path.name: path.read_bytes() for path in project.glob("*.yaml")}
    code, out, err = compare("b.yaml", "a.yaml")
    assert code == 1
    first, *rows = out.splitlines()
    assert first.split() == ["variant", "items/s", "1,000", "items", "memory", "against", "A"]
    assert [row.split()[:2] for row in rows[:2]] == [["A", "b.yaml"], ["B", "a.yaml"]]
    assert "B: slower, by more than 3.0 %" in rows
    assert "trial 1" in err
    assert {path.name: path.read_bytes() for path in project.glob("*.yaml")} == before


@pytest.mark.slow
def test_commands_are_compared_as_a_whole(compare) -> None:
    """Unit and pattern come from the workload; a faster second variant is no failure."""
    work = (sys.executable, "work.py")
    words = ("--workload", "work", "--", *work, "a.yaml", "--vs", *work, "b.yaml")
    code, found = compared(compare, *words)
    assert code == 0
    assert found["outcome"] == "ok"
    assert found["B"]["verdict"] == "faster"
    assert found["A"]["label"] == "a.yaml"
    assert found["B"]["label"] == "b.yaml"
    gain, rates = found["B"]["gain"], [found[name]["units_per_s"] for name in "AB"]
    assert 1 < gain["low"] <= gain["ratio"] <= gain["high"]
    assert gain["ratio"] == pytest.approx(rates[1] / rates[0])
    assert len(found["A"]["runs"]) == len(found["B"]["runs"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("second", "code", "ruling", "cause"),
    [
        pytest.param("b.yaml", 0, "keep", "gain-proven", marks=pytest.mark.nightly),
        ("crash.yaml", 1, "drop", "failed"),
    ],
)
def test_rounds_end_once_a_change_is_worth_keeping_or_is_not(
    compare, second, code, ruling, cause
) -> None:
    """Seven rounds are the fewest that keep a change, whatever number is asked for."""
    ended, out, err = compare("--json", "--keep-if", "2%", "a.yaml", second)
    found = json.loads(out)
    assert ended == code, err
    assert found["ruling"]["verdict"] == ruling, err
    assert found["ruling"]["cause"] == cause
    assert found["rounds"] == (7 if ruling == "keep" else 0)


@pytest.fixture
def with_quality(project: Path) -> Path:
    """The project, whose settings declare a measure."""
    with (project / "gpu-advisor.toml").open("a") as file:
        file.write(QUALITY.format(python=sys.executable))
    return project


@pytest.mark.slow
def test_a_variant_whose_quality_is_unknown_is_undecided(with_quality, compare) -> None:
    (with_quality / "silent.yaml").write_text("step_s: 0.01\n")
    code, found = compared(compare, "a.yaml", "silent.yaml")
    assert code == 3
    assert found["B"]["verdict"] == "undecided"


@pytest.mark.slow
def test_worse_outputs_and_crashes_fail_the_call(with_quality, compare) -> None:
    code, found = compared(compare, "a.yaml", "worse.yaml", "crash.yaml")
    assert code == 1
    verdicts = [found[name]["verdict"] for name in "ABC"]
    assert verdicts == ["reference", "worse", "failed"]
    assert "error: 1.2, limit 1.05 (1 in the first variant)" in found["B"]["reason"]


def test_a_variant_that_fails_in_a_round_ends_the_rounds(project, compare, monkeypatch) -> None:
    monkeypatch.setenv("GPU_ADVISOR_ISOLATION", "guard")  # its file stays
    (project / "later.yaml").write_text("step_s: 0.01\nlater: 1\n")
    code, found = compared(compare, "a.yaml", "later.yaml", "b.yaml")
    assert code == 1
    verdicts = [found[name]["verdict"] for name in "ABC"]
    assert verdicts == ["reference", "failed", "undecided"]


def test_a_first_variant_that_crashes_ends_the_call(compare) -> None:
    command = ("--", sys.executable, "work.py", "{config}")
    code, out, err = compare("--workload", "work", "crash.yaml", "b.yaml", *command)
    assert code in FAILURE_EXIT_CODES.values()
    assert out == ""
    assert "The first variant, crash.yaml, failed" in err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["a.yaml"], "2 to 6 variants, and 1 was named"),
        (["a.yaml"] * 7, "7 were named"),
        (["a.yaml", "b.yaml", "--", "python", "work.py", "--vs", "python", "b.py"], "not both"),
        (["--", "python", "work.py", "--vs"], "missing beside --vs"),
        (["a.yaml", "b.yaml", "--rounds", "1"], "rounds 1"),
        (["a.yaml", "b.yaml", "--threshold", "0"], "--threshold 0"),
        (["a.yaml", "b.yaml", "--window", "soon"], "soon"),
    ],
)
def test_misuse_is_one_sentence(project, words, part) -> None:
    with pytest.raises(UsageError, match=part):
        dispatch(["compare", *words])


@pytest.mark.parametrize(
    ("blocks", "labels"),
    [
        ("python a.py --lr 1 --amp/python a.py --lr 2 --amp", ["--lr 1", "--lr 2"]),
        ("python a.py/python a.py --amp", ["a.py", "a.py --amp"]),
        ("python a.py/torchrun b.py", ["python a.py", "torchrun b.py"]),
        ("python a.py/python a.py", ["a.py", "a.py"]),
    ],
)
def test_commands_are_named_by_their_difference(blocks, labels) -> None:
    found = differing([block.split() for block in blocks.split("/")])
    assert [" ".join(words) for words in found] == labels


@pytest.mark.parametrize(
    ("other", "part"),
    [
        ({"unit": "token"}, "unit: sample against token"),
        ({"step_kind": "forward"}, "kind of step: optimizer step against forward"),
        ({"effects": {"data_items": 500}}, "items of the dataset: 1000 against 500"),
        ({"effects": {"forwards_per_unit": 25.0}}, "forwards for one unit: 50 against 25"),
        ({"effects": {"input_shapes": ("3x32x32",)}}, "inputs: 3x64x64 against 3x32x32"),
        ({"effects": {"batch": 64.0}}, ""),
    ],
)
def test_less_work_for_a_unit_is_told(other, part) -> None:
    usual = {"data_items": 1000, "forwards_per_unit": 50.0, "input_shapes": ("3x64x64",)}
    first = a_run(step_kind="optimizer step", effects=Effects(**usual))
    effects = Effects(**{**usual, **other.pop("effects", {})})
    second = a_run(**{"step_kind": "optimizer step", **other}, effects=effects)
    found = work_differences([first, first], [second, second])
    assert part in "; ".join(found)
    assert bool(found) is bool(part)
    assert not work_differences([first, second], [second, second])


def variant(name: str, rate: float, low: float = 0.0, high: float = 0.0) -> dict[str, Any]:
    """A variant of the JSON object; the first one has no gain."""
    gain = {"ratio": (low + high) / 2, "low": low, "high": high} if low else None
    return {"name": name, "label": name.lower(), "units_per_s": rate, "gain": gain, "verdict": "-"}


A, B, C = variant("A", 10.0), variant("B", 20.0, 1.8, 2.2), variant("C", 50.0, 4.5, 5.5)
RANKINGS = {
    "the fastest against each": ([A, B, C], "C (c) ran 2.50x faster than B, 5.00x faster than A."),
    "the first one is the fastest": (
        [A, variant("B", 5.0, 0.4, 0.6)],
        "A (a) ran 2.00x faster than B.",
    ),
    "noise": ([A, variant("B", 11.0, 0.9, 1.3)], "No variant is proven faster than another."),
    "one that failed": ([A, {**B, "verdict": "failed"}], ""),
}


@pytest.mark.parametrize("case", RANKINGS)
def test_the_last_line_ranks_the_variants_by_what_is_proven(case) -> None:
    variants, expected = RANKINGS[case]
    assert ranking(variants, 0.03) == expected


@pytest.mark.slow
def test_a_config_against_itself_is_told_as_such_and_the_table_may_be_kept(
    project, compare
) -> None:
    """Its interval shows the noise of this machine, and is no verdict."""
    _, out, _ = compare("a.yaml", "a.yaml", "--report", "kept.md")
    assert "B is the same as A (an A/A comparison)" in out
    assert "B is the same as A" in (project / "kept.md").read_text()
