"""`gpu-advisor inspect` on real files, as a process."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.support.processes import Done

CONFIG = """\
_BASE_: base/common.yaml
train: {batch_size: 8, num_workers: 4}
loader_sizes: [1, 2]
mini_batch_sizes: [8, 4]
nbs: 64
"""
MAIN = """\
import argparse
p = argparse.ArgumentParser()
p.add_argument('-b', '--batch-size', type=int, default=4)
p.add_argument('-j', '--workers', type=int, default=2)
p.parse_args()
"""


@pytest.fixture
def inspect(tmp_path: Path, gpu_advisor: warm.Server) -> Callable[..., Done]:
    return lambda *args: gpu_advisor.call("inspect", *args, cwd=tmp_path)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def as_json(ran: Done) -> dict[str, Any]:
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_json_is_one_object_with_every_key(config, inspect) -> None:
    found = as_json(inspect(config.name, "--json"))
    assert set(found) == {"knobs", "traps", "links", "documents"}
    keys = "document path kind phase class unit scope value default_of editable why sure sure_why"
    assert all(list(knob) == keys.split() for knob in found["knobs"])
    knobs = {(knob["document"], knob["path"]): knob for knob in found["knobs"]}
    assert knobs["config.yaml", "train.batch_size"]["value"] == 8
    assert knobs["config.yaml", "mini_batch_sizes"]["editable"] is False
    assert [(trap["document"], trap["path"]) for trap in found["traps"]] == [("config.yaml", "nbs")]


def test_a_phase_that_nothing_tells_is_said_to_be_assumed(tmp_path, inspect) -> None:
    """A larger batch changes a training and keeps the results of a sampling."""
    for name, assumed in (("config.json", True), ("sample.json", False), ("train.json", False)):
        (tmp_path / name).write_text('{"batch_size": 1, "num_workers": 0}')
        (document,) = as_json(inspect("--json", name))["documents"]
        notes = [note for note in document["notes"] if "assumed for batch_size" in note]
        assert bool(notes) == assumed, name


def test_untyped_options_show_whose_default_they_have(config, inspect) -> None:
    (config.parent / "main.py").write_text(MAIN)
    found = as_json(inspect("--json", "--", "python", "main.py", "-b", "8"))
    knobs = {knob["path"]: (knob["value"], knob["default_of"]) for knob in found["knobs"]}
    assert knobs == {"--batch-size": (8, None), "--workers": (2, "that of its parser")}
    assert "a default: that of its parser" in inspect("--", "python", "main.py", "-b", "8").stdout
    assert "leads to no Python file" in inspect("--", "python", "gone.py").stdout
    named = as_json(inspect(config.name, "--json", "--", "python", "main.py", "-c", config.name))
    assert "--workers" not in {knob["path"] for knob in named["knobs"]}


def test_options_that_no_parser_tells_are_known_once_they_are_typed(tmp_path, inspect) -> None:
    """Whichever way the program reads them: the note says so, and it is true."""
    (tmp_path / "own.py").write_text("import sys\nprint(dict(w.split('=') for w in sys.argv[1:]))")
    assert "An option is known once it is typed with a value" in inspect(
        "--", sys.executable, "own.py"
    ).stdout.replace("\n", " ")
    typed = as_json(inspect("--json", "--", sys.executable, "own.py", "num_workers=2"))
    assert {knob["path"]: knob["value"] for knob in typed["knobs"]} == {"num_workers": 2}


def test_what_config_and_command_name_is_shown_once(config, inspect) -> None:
    (config.parent / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4}')
    command = ["python", "train.py", "--batch-size", "16", "--deepspeed", "ds.json", config.name]
    found = as_json(inspect(config.name, "--json", "--", *command))
    names = {each["document"]: each["notes"] for each in found["documents"]}
    assert list(names) == ["config.yaml", "ds.json", "command line"]
    assert any("base/common.yaml" in note for note in names["config.yaml"])
    knobs = {(k["document"], k["path"]): k["value"] for k in found["knobs"]}
    assert knobs["command line", "--batch-size"] == 16
    assert knobs["ds.json", "train_micro_batch_size_per_gpu"] == 4


def test_the_table_names_every_knob_and_why_it_stays(config, inspect) -> None:
    lines = inspect(config.name).stdout.splitlines()
    assert lines[0] == "config.yaml"
    row = next(line for line in lines if line.split()[:1] == ["train.batch_size"])
    cells = [cell for cell in row.split("  ") if cell]
    others = ["8", "samples of one batch", "train", "changes the training"]
    assert [cell.strip() for cell in cells] == ["train.batch_size", *others]
    assert any("mini_batch_sizes" in line and "it is a list" in line for line in lines)
    assert any("--json lists them" in line for line in lines)
    says = "must stay below what the smallest of the shards of this data set has, and that is 64"
    config.write_text(f"num_workers: 4 # {says}\n")
    table = inspect(config.name).stdout
    assert f'not editable: the comment beside it says "{says}"' in table


def test_it_says_how_sure_it_is_and_why(tmp_path, inspect) -> None:
    (tmp_path / "one.yaml").write_text("a: {batch_size: 8}\nb: {batch_size: 9}\nnum_workers: 4\n")
    (tmp_path / "two.yaml").write_text("batch_size: auto\nprefetch_factor: null\n")
    found = as_json(inspect("one.yaml", "two.yaml", "--json"))
    sure = {(k["document"], k["path"]): (k["sure"], k["sure_why"]) for k in found["knobs"]}
    assert sure["one.yaml", "num_workers"] == ("likely", "its name and value say so")
    assert sure["one.yaml", "a.batch_size"][0] == "doubtful"
    assert "b.batch_size has another value" in sure["one.yaml", "a.batch_size"][1]
    assert sure["two.yaml", "batch_size"][0] == "doubtful"
    assert sure["two.yaml", "prefetch_factor"][0] == "likely", "null is a value that it may have"


def test_an_unreadable_file_has_its_code_and_stops_no_other(tmp_path, config, inspect) -> None:
    (tmp_path / "bad.json").write_text('{"batch_size": GBSZ}')
    ran = inspect("bad.json", config.name, "--json")
    errors = {d["document"]: d["error"] for d in as_json(ran)["documents"]}
    assert "line 1" in errors["bad.json"]
    assert errors["config.yaml"] is None
    assert "bad.json" in ran.stderr
    alone = inspect("bad.json")
    assert alone.returncode == 12
    assert alone.stdout == ""
    assert alone.stderr.count("bad.json") == 1
    codes = [inspect(*words).returncode for words in (["gone.yaml"], ["gone.yaml", "--json"], [])]
    assert codes == [10, 10, 2]


def test_nothing_is_written_and_nothing_is_run(tmp_path, config, inspect) -> None:
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    inspect(config.name, "--", sys.executable, "-c", "open('ran', 'w')")
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before
