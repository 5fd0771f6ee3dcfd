"""Overrides of keys that a composed config lacks: told, where all of it can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor import options
from advisor.commands.inspect import inspect
from tests.options.programs import write

FILES = {
    "main.py": """\
import hydra
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg): ...
main()
""",
    "conf/config.yaml": (
        "defaults:\n  - _self_\n  - data: mnist\n  - logger: null\n  - optional local: default\n"
        "  - hydra: default\ntags: []\nextra: {}\nseed: 1\n"
    ),
    "conf/data/mnist.yaml": "batch_size: 8\nsplit: [1, 2]\nnet:\n  depth-of: 3\n  later: null\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of Hydra's, called in its own folder."""
    write(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def unknown(*words: str) -> dict[str, str]:
    return dict(options.unknown_overrides(("python", "main.py", *words), Path.cwd()))


def test_a_key_that_is_not_composed_is_told_with_the_one_that_was_meant(project: Path) -> None:
    found = unknown("data.batchsize=4", "data.batch_size=4", "sede=2")
    assert list(found) == ["data.batchsize=4", "sede=2"]
    assert "data.batch_size" in found["data.batchsize=4"]
    (command,) = inspect([], ["python", "main.py", "data.batchsize=4"]).documents
    assert command.findings is not None
    assert [knob.path for knob in command.findings.knobs if "batch" in knob.path] == [
        "data.batch_size"
    ]
    assert any("data.batchsize" in note for note in command.findings.notes)


@pytest.mark.parametrize(
    "word",
    [
        *("seed=2", "tags=[a]", "data.split=[3]", "data.net={}", "data.net.depth-of=1"),
        *("data.net.later.on=1", "extra.new=1", "logger=csv", "+data.new=1", "++data.new=1"),
        *("~data.split", "hydra.run.dir=x", "data.split[0]=3", "--multirun", "hydra/launcher=x"),
    ],
)
def test_what_may_be_there_is_not_told(project: Path, word: str) -> None:
    assert unknown(word) == {}


@pytest.mark.parametrize(
    ("file", "text", "word"),
    [
        ("conf/data/mnist.yaml", "defaults: [schema]\nbatch_size: 8\n", "seed=1"),
        ("conf/logger/csv.yaml", "defaults:\n  - override /data: other\n", "logger=csv"),
        ("conf/config.yaml", "defaults:\n  - data: [mnist, other]\nseed: 1\n", "seed=1"),
        ("conf/data/mnist.yaml", "a: 1\n", "--config-dir=more"),
        ("conf/more/b.yaml", "a: 1\n", "+more=b"),
    ],
)
def test_where_a_part_of_it_is_elsewhere_nothing_is_told(
    project: Path, file: str, text: str, word: str
) -> None:
    """Schemas of Python, groups chosen anew, folders that are added."""
    write(project, {file: text})
    assert unknown("data.batchsize=4", word) == {}
