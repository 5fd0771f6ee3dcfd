"""Loaders written in many ways: what is tried from inside, the patch gives again."""

import ast
import importlib.util
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from advisor.model import JsonScalar, MeasurePlan, Override, Run
from advisor.patches import fields, patches
from advisor.patches.patches import patch_of
from tests.probe import program

pytest.importorskip("torch")

DATA = """\
import torch
torch.set_num_threads(1)
class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        return torch.full((8,), index % 7 / 7), index % 4
"""
LOOP = """\
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TRANSFORMERS = """\
import transformers
from data import Points, torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)
    def forward(self, x, labels):
        return {"loss": torch.nn.functional.cross_entropy(self.layer(x), labels)}
def collate(items):
    xs, labels = zip(*items)
    return {"x": torch.stack(xs), "labels": torch.tensor(labels)}
settings = transformers.TrainingArguments(
    output_dir="trained",
    per_device_train_batch_size=4,
    report_to=[],
    save_strategy="no",
    use_cpu=True,
)
transformers.Trainer(
    Model(), settings, train_dataset=Points(), data_collator=collate
).train()
"""
HEAD = "from data import Points, torch\nfrom torch.utils.data import DataLoader\n"
WRITTEN = {
    "by position": f"{HEAD}loader = DataLoader(Points(), 4, True)\n{LOOP}",
    "by a dictionary": f"""\
{HEAD}
options = {{"batch_size": 4, "num_workers": 0}}
loader = DataLoader(Points(), shuffle=True, **options)
{LOOP}""",
    "transformers": TRANSFORMERS,
}
FIELDS = f"""\
{HEAD}
import settings
class Loaders:
    def __init__(self, config):
        self.config = config
    def train(self):
        return DataLoader(
            Points(),
            batch_size=self.config.batch,
            num_workers=settings.LOADING["workers"],
        )
loader = Loaders(settings.defaults()).train()
{LOOP}"""
SETTINGS = """\
from types import SimpleNamespace
LOADING = {"workers": 0, "pin": False}
def defaults():
    config = SimpleNamespace()
    config.batch = 4  # items
    return config
"""
BATCH = 4
"""In every style."""


def repository(folder: Path, code: str) -> Path:
    """A user's repository with `code` as `train.py`."""
    work = folder / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    (work / "data.py").write_text(DATA)
    (work / "train.py").write_text(code)
    return work


def apply(work: Path, patch: str | None) -> None:
    assert patch
    subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=work, check=True)


def measured(work: Path, **values: JsonScalar) -> Run:
    """What the probe saw of the program in `work`."""
    number = len(list(work.parent.glob("run-*")))
    scratch = work.parent / f"run-{number}"
    scratch.mkdir()
    return program.run(
        scratch,
        *(sys.executable, "train.py"),
        cwd=work,
        begin=program.forked,
        plan=MeasurePlan(
            measure_s=0.3,
            min_steps=5,
            overrides=tuple(Override(knob=knob, value=value) for knob, value in values.items()),
        ),
        env={"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
        timeout_s=150.0,
    ).measured


@pytest.mark.parametrize(
    "style",
    ["by position", "by a dictionary", pytest.param("transformers", marks=pytest.mark.frameworks)],
)
def test_what_a_what_if_did_the_patch_does_again(style, tmp_path) -> None:
    """The same line, the same workers, batch and prefetching, and the same of everything else."""
    if style == "transformers" and importlib.util.find_spec(style) is None:
        pytest.skip("transformers is not installed")
    work = repository(tmp_path, WRITTEN[style])
    values = {"num_workers": 1, "prefetch_factor": 4, "batch_size": 2 * BATCH}
    tried = measured(work, **values)
    assert all(override.applied for override in tried.overrides), tried.overrides
    name, _, line = (tried.effects.loader_site or "").rpartition(":")
    apply(work, patch_of(work / name, work, partial(patches.loader_edit, int(line), values)))
    for file in work.glob("*.py"):
        ast.parse(file.read_text())
    after = measured(work)
    for reading in (tried, after):
        assert reading.effects.workers == 1
        assert reading.effects.prefetch_factor == 4
        assert reading.effects.batch == 2 * BATCH


def test_fields_of_another_file_are_patched_where_they_are_set(tmp_path) -> None:
    """The patched program runs with what was tried: the field was the one that the loader reads."""
    work = repository(tmp_path, FIELDS)
    (work / "settings.py").write_text(SETTINGS)
    values = {"num_workers": 1, "batch_size": 2 * BATCH}
    tried = measured(work, **values)
    name, _, line = (tried.effects.loader_site or "").rpartition(":")
    read = patches.fields_given(work / name, work, int(line), values)
    assert read == {"num_workers": "workers", "batch_size": "batch"}
    for argument, old in (("num_workers", 0), ("batch_size", BATCH)):
        home = fields.sole_home(read[argument], old, work)
        assert home == work / "settings.py"
        edit = partial(patches.field_edit, read[argument], values[argument])
        apply(work, patch_of(home, work, edit))
    assert "config.batch = 8  # items" in (work / "settings.py").read_text()
    after = measured(work)
    assert (after.effects.workers, after.effects.batch) == (1, 2 * BATCH)


def test_the_autocast_that_was_tried_the_patch_does_again(tmp_path) -> None:
    """The same dtype at the same call; the one tensor that comes out goes on in float32."""
    two = "torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))"
    code = WRITTEN["by position"].replace("torch.nn.Linear(8, 4)", two)
    work = repository(tmp_path, f"import torch\n{code}")
    tried = measured(work, autocast="bfloat16")
    assert [override.one_tensor for override in tried.overrides] == [True]
    name, _, line = (tried.effects.model_site or "").rpartition(":")
    edit = partial(patches.autocast_edit, int(line), "cpu", "bfloat16", widen=True)
    apply(work, patch_of(work / name, work, edit))
    assert tried.effects.dtype == "bfloat16"
    assert measured(work).effects.dtype == "bfloat16"
