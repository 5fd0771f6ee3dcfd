"""Whole calls on programs in the shape in which people publish them, each with its right answer.

Where a program sleeps, the sleep stands for the work of a device: its rate is then known.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import OPTIMIZE_EXIT_CODES
from tests import warm

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
pytest.importorskip("torch")

PROGRAMS = Path(__file__).resolve().parent / "fixtures" / "programs"


def laid_out(folder: Path, program: str, **texts: str) -> Path:
    """The folder, with the program as main.py and its configs: `train_yaml` is train.yaml."""
    (folder / "main.py").write_bytes((PROGRAMS / f"published_{program}.py").read_bytes())
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


FORWARD_S, STEPS = 0.2, 50
ITEM_S = FORWARD_S * STEPS
"""An item takes longer than a window of the default length."""


def sampler(folder: Path) -> Path:
    """A sampler of few slow forwards, with two configs: the second has half of the steps."""
    common = {"num_videos": 64, "batch_size": 1, "forward_s": FORWARD_S}
    a, b = (json.dumps({**common, "num_inference_steps": n}) for n in (STEPS, STEPS // 2))
    return laid_out(folder, "sample", a_json=a, b_json=b)


def test_a_sampler_whose_item_outlasts_the_window_is_told_by_its_items(
    tmp_path, gpu_advisor
) -> None:
    """Its forwards are no samples: the rate is at most the one by its sleeps, and near it."""
    command = ("--", sys.executable, "main.py", "a.json")
    done = gpu_advisor.call("profile", "a.json", "--json", *command, cwd=sampler(tmp_path))
    assert done.returncode == 0, done.stderr
    seconds_an_item = 1 / json.loads(done.stdout)["units_per_s"]
    assert ITEM_S <= seconds_an_item * 1.01 <= 2 * ITEM_S


def test_half_of_the_steps_of_a_slow_sampler_are_told_as_twice_the_rate(
    tmp_path, gpu_advisor
) -> None:
    """Both rates are true; no gain is claimed of them, as fewer steps make another product."""
    command = ("--", sys.executable, "main.py", "a.json")
    words = ("a.json", "b.json", "--rounds", "2", "--json", *command)
    done = gpu_advisor.call("compare", *words, cwd=sampler(tmp_path))
    whole, half = json.loads(done.stdout)["variants"]
    assert half["units_per_s"] / whole["units_per_s"] == pytest.approx(2, rel=0.2)
    assert half["verdict"] == "other work"
    assert half["reason"] == "forwards for one unit: 50 against 25"


GENERATION = (
    '{"num_prompts": 100000, "batch_size": 4, "max_new_tokens": 400, "output_file": "out.jsonl"}\n'
)


def optimized(server: warm.Server, folder: Path, config: str, budget: str) -> dict[str, Any]:
    """Report of a call."""
    command = ("--", sys.executable, "main.py", config)
    words = (config, "--json", "--budget", budget, *command)
    done = server.call("optimize", *words, cwd=folder)
    assert done.returncode in OPTIMIZE_EXIT_CODES.values(), done.stderr
    return json.loads((folder / "report.json").read_text())


def test_a_batch_of_prompts_that_waits_for_its_longest_stays_small(tmp_path, gpu_advisor) -> None:
    """More rows a second are fewer prompts: by the sleeps, batch 64 finishes 0.6 of batch 4."""
    laid_out(tmp_path, "generate", gen_json=GENERATION)
    report = optimized(gpu_advisor, tmp_path, "gen.json", "2m")
    assert (tmp_path / "gen.json").read_text() == GENERATION
    assert report["changes"] == []
    assert [each for each in report["suggestions"] if "batch" in each["title"]] == []


TRAINING = """\
# model and data
max_length: 256
train_rows: 4000

# training
output_dir: ./out
num_train_epochs: 1
per_device_train_batch_size: 4
gradient_accumulation_steps: 8     # effective batch 32
gradient_checkpointing: true
learning_rate: 5.0e-5
lr_scheduler_type: cosine
warmup_steps: 50
dataloader_num_workers: 0
bf16: false
optim: adamw_torch
logging_steps: 10
save_strategy: "no"
report_to: none
seed: 42
"""


def candidates(report: dict[str, Any]) -> list[str]:
    """Labels of what a search tried, in order, without the original."""
    return [
        each["label"]
        for each in report["trials"]
        if each["purpose"] == "search" and each["label"] != "original"
    ]


@pytest.mark.frameworks
def test_a_trainer_tries_its_memory_savers_off_first_and_names_its_grouping(
    tmp_path, gpu_advisor
) -> None:
    """Recomputation was seen and the memory does not need it; its texts are padded."""
    pytest.importorskip("transformers")
    laid_out(tmp_path, "trainer", train_yaml=TRAINING)
    report = optimized(gpu_advisor, tmp_path, "train.yaml", "4m")
    decisions = {each["path"]: each for each in report["decisions"]}
    tried = candidates(report)
    assert "gradient_checkpointing" in tried[0], tried
    assert decisions["gradient_checkpointing"]["outcome"] in {"changed", "kept"}
    assert decisions["gradient_checkpointing"]["trials"]
    assert decisions["train_sampling_strategy"]["kind"] == "length_grouping"
    assert "train_sampling_strategy" in (tmp_path / "report.md").read_text()
    changed = decisions["gradient_checkpointing"]["outcome"] == "changed"
    assert ("\ngradient_checkpointing: false\n" in (tmp_path / "train.yaml").read_text()) is changed


PICTURES = """\
# model
model = dict(type='Small', width=24)

# data
batch_size = 8
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='Pics', n=2000, size=96))

# schedule
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.01, momentum=0.9), \
accumulative_counts=4)
param_scheduler = dict(type='MultiStepLR', by_epoch=True, milestones=[8, 11], gamma=0.1)
train_cfg = dict(by_epoch=True, max_epochs=12)
auto_scale_lr = dict(base_batch_size=32, enable=False)

# runtime
default_hooks = dict(logger=dict(type='LoggerHook', interval=50), \
checkpoint=dict(type='CheckpointHook', interval=1))
launcher = 'none'
work_dir = './work_dirs/small'
"""


@pytest.mark.frameworks
def test_a_training_that_waits_for_its_pictures_tries_workers_alone(tmp_path, gpu_advisor) -> None:
    """A run that moves nothing else says what they gain; the budget is used."""
    pytest.importorskip("mmengine.runner")
    laid_out(tmp_path, "mmengine", small_py=PICTURES)
    report = optimized(gpu_advisor, tmp_path, "small.py", "4m")
    (workers,) = (each for each in report["decisions"] if each["kind"] == "num_workers")
    tried = candidates(report)
    assert any(re.fullmatch(r"workers \d+", label) for label in tried), tried
    assert workers["trials"]
    assert workers["cause"] not in {"out-of-budget", "not-reached", "no-value-known"}
    assert not report["work_left"] or report["wall_s"] > 0.7 * 240, (
        "some of it was kept for nothing"
    )
