"""Programs and configs in the shape in which people publish them, each with its right answer.

Sleep stands for the work of a device, or of a disk: its time is the same on every machine.
"""

import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor import config as documents, knobs
from advisor.commands.invocation import why_not_taken
from advisor.model import MeasurePlan, Run, TrialFile
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import detect_isolation
from tests.runs import a_trial


def written(folder: Path, files: dict[str, str]) -> Path:
    """The folder, with these files in it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """A config, what it holds, and what is said."""

    text: str
    knobs: dict[str, Any]
    said: str = ""
    exit_code: int = 0
    batches: tuple[str, ...] = ()
    """Paths that a program reads as 64 once the first knob is."""
    read: Callable[[str], Any] = yaml.safe_load


ANCHORS = """\
x-loader: &loader
  batch_size: &bs 32
  num_workers: 4
train: {dataloader: {<<: *loader, shuffle: true}}
val: {dataloader: {<<: *loader, batch_size: *bs}}   # follows training
test: {dataloader: {<<: *loader, num_workers: 0}}
"""
SEVERAL = """\
train_batch_size = 0x4
max_data_loader_n_workers = 8
[[datasets]]
resolution = 512
  [[datasets.subsets]]
  image_dir = 'C:\\img'
"""
REFERENCES = """\
data: {batch_size: 32, num_workers: "${oc.env:NUM_WORKERS,4}"}
trainer: {batch_size: "${data.batch_size}"}
"""
LAZY = """\
from detectron2.config import LazyCall as L
BATCH = 16
train = L(DataLoader)(batch_size=BATCH, num_workers=4)
if __import__("os").environ.get("DEBUG"):
    train.num_workers = 0
"""
SPELLINGS = {
    "anchors.yaml": Spelling(
        text=ANCHORS,
        knobs={"x-loader.batch_size": 32, "x-loader.num_workers": 4,
               "test.dataloader.num_workers": 0},
        batches=("train.dataloader.batch_size", "val.dataloader.batch_size",
                 "test.dataloader.batch_size"),
    ),
    "big.json5": Spelling(
        text="{ unquoted: 1, 'batch_size': +8, num_workers: 0x2, sizes: [1,2,], /* c */ lr: .001 }",
        knobs={"batch_size": 8, "num_workers": 2},
    ),
    "marked.json": Spelling(
        text='\ufeff{\r\n\t"batch_size": 8, // c\r\n\t"num_workers": 2,\r\n\t"lr": NaN,\r\n}\r\n',
        knobs={"batch_size": 8, "num_workers": 2},
    ),
    "several.toml": Spelling(
        text=SEVERAL, knobs={"train_batch_size": 4, "max_data_loader_n_workers": 8},
        batches=("train_batch_size",), read=tomllib.loads,
    ),
    "tagged.yaml": Spelling(
        text='base: !include base.yaml\ndata: !obj:my.Data\n  batch_size: !!int "8"\n',
        knobs={"data.batch_size": 8}, said="it names base.yaml",
    ),
    "lazy.py": Spelling(
        text=LAZY, knobs={"BATCH": 16, "train.num_workers": 4}, said="under a condition",
    ),
    "references.yaml": Spelling(
        text=REFERENCES, knobs={"data.batch_size": 32},
        said="data.num_workers has its value from elsewhere: ${oc.env:NUM_WORKERS,4}",
    ),
    "several.yaml": Spelling(
        text="---\nbatch_size: 8\n---\nbatch_size: 4\n", knobs={},
        said="holds several YAML documents", exit_code=12,
    ),
    "tabs.yaml": Spelling(
        text="train:\n\tbatch_size: 4\n", knobs={}, said="line 2, column 1", exit_code=12
    ),
    "template.yaml": Spelling(
        text="model: {{ name }}\nbatch_size: {{ batch | default(4) }}\n", knobs={},
        said="{{ name }} is filled in by another program", exit_code=12,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_config_of_any_spelling_is_read_or_told_by_a_true_sentence(
    tmp_path, gpu_advisor, name
) -> None:
    case = SPELLINGS[name]
    written(tmp_path, {name: case.text})
    shown = gpu_advisor.call("inspect", name, cwd=tmp_path)
    assert shown.returncode == case.exit_code
    assert case.said in shown.stdout + shown.stderr
    if case.exit_code:
        return
    found = json.loads(gpu_advisor.call("inspect", name, "--json", cwd=tmp_path).stdout)
    assert {knob["path"]: knob["value"] for knob in found["knobs"]} == case.knobs
    edited = documents.read(tmp_path / name).with_values({next(iter(case.knobs)): 64})
    for path in case.batches:
        heard = case.read(edited.decode("utf-8-sig"))
        for part in path.split("."):
            heard = heard[part]
        assert heard == 64, path


INFERS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
def infer(batch_size, num_workers):
    torch.set_num_threads(1)
    net = nn.Linear(32, 8).eval()
    items = TensorDataset(torch.randn(20000, 32))
    with torch.no_grad():
        while True:
            for (batch,) in DataLoader(items, batch_size=batch_size, num_workers=num_workers):
                net(batch)
"""
INCLUDES = """\
import os, sys, yaml
from infers import infer
def load(path):
    config = yaml.safe_load(open(path))
    merged = {}
    for name in config.pop("__include__", []):
        merged.update(load(os.path.join(os.path.dirname(path), name)))
    return {**merged, **config}
infer(**load(sys.argv[2])["val_dataloader"])
"""
COMPOSES = """\
import hydra
from infers import infer
@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(config):
    infer(config.predict.batch_size, config.data.num_workers)
main()
"""


@dataclass(frozen=True, kw_only=True)
class Included:
    """A program whose batch stands in a file that another one names."""

    files: dict[str, str]
    named: str
    file: str
    path: str
    words: tuple[str, ...] = ()
    needs: str = "yaml"


INCLUDED = {
    "an included file": Included(
        files={
            "train.py": INCLUDES,
            "configs/run.yml": '__include__: [\n  "include/loader.yml",\n]\noutput_dir: ./out\n',
            "configs/include/loader.yml": (
                "val_dataloader:\n  batch_size: 4\n  num_workers: 0   # of validation\n"
            ),
        },
        named="configs/run.yml", file="configs/include/loader.yml",
        path="val_dataloader.batch_size", words=("-c", "configs/run.yml"),
    ),
    "a group of Hydra": Included(
        files={
            "train.py": COMPOSES,
            "conf/train.yaml": "defaults:\n  - _self_\n  - data: img\n  - predict: small\n",
            "conf/data/img.yaml": "batch_size: 4      # items of one pass\nnum_workers: 0\n",
            "conf/predict/small.yaml": "batch_size: ${data.batch_size}\n",
        },
        named="conf/train.yaml", file="conf/data/img.yaml", path="batch_size", needs="hydra",
    ),
}  # fmt: skip


def begun(folder: Path, case: Included) -> tuple[str, ...]:
    """The command, in a folder with its files."""
    pytest.importorskip(case.needs)
    if detect_isolation(str(folder)).kind != "overlay":
        pytest.skip("nothing can stand in the config's place here")
    written(folder, {**case.files, "infers.py": INFERS})
    return (sys.executable, "train.py", *case.words)


@pytest.mark.slow
@pytest.mark.frameworks
@pytest.mark.parametrize("name", INCLUDED)
def test_a_file_that_the_command_never_names_is_tuned_where_it_stands(
    tmp_path, gpu_advisor, name
) -> None:
    """The candidate lies in its place while a trial runs; the note names it as it may be typed."""
    case = INCLUDED[name]
    command = begun(tmp_path, case)
    assert case.file in gpu_advisor.call("inspect", case.named, cwd=tmp_path).stdout
    asked = documents.read(tmp_path / case.file)
    assert knobs.find(asked).knob(case.path).editable
    assert why_not_taken(command, asked, tmp_path) is None
    trial = a_trial(
        *command,
        cwd=str(tmp_path),
        scratch=str(tmp_path.with_name(f"{tmp_path.name}-scratch")),
        files=(TrialFile(original=asked.name, content=asked.with_values({case.path: 64})),),
        plan=MeasurePlan(measure_s=0.3, min_steps=5),
    )
    run = run_trial(trial)
    assert isinstance(run, Run), run
    assert run.effects.batch == 64
    assert (tmp_path / case.file).read_text() == case.files[case.file]


BESIDE_A_BAR = """\
import sys, traceback, torch
for share in range(60):
    print(f"{share}%|####|", file=sys.stderr)
try:
    {}[7]
except KeyError:
    traceback.print_exc(file=sys.stdout)
    sys.exit(1)
"""


def test_a_traceback_beside_a_progress_bar_is_shown(tmp_path, gpu_advisor) -> None:
    """A logging library prints it to the standard output, and a bar fills the other."""
    written(tmp_path, {"train.py": BESIDE_A_BAR, "train.yaml": "batch_size: 8\n"})
    command = ("--", sys.executable, "train.py", "train.yaml")
    done = gpu_advisor.call("profile", "train.yaml", *command, cwd=tmp_path)
    assert "Traceback (most recent call last)" in done.stdout
    assert "KeyError: 7" in done.stdout
