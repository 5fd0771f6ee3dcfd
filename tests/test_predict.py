"""`gpu-advisor predict`: cards that are not here."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from advisor.commands.predict import Traced, largest_batch
from advisor.errors import FAILURE_EXIT_CODES, TargetError
from advisor.machine import profiles
from advisor.model import Effects
from advisor.prediction.trace import Trace
from tests.light import PYTHONPATH
from tests.runs import a_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests import warm

pytest.importorskip("torch")

TRAIN = """\
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
batch = parser.parse_args().batch_size
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(3)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in torch.utils.data.DataLoader(torch.zeros(4096, 2048), batch_size=batch):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""
CUDA = "import torch\nmodel = torch.nn.Linear(2, 2).to('cuda')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "needs_cuda.py").write_text(CUDA)
    return tmp_path


def call(project: Path, gpu_advisor: warm.Server, cards: str, *words: str) -> tuple[int, str, str]:
    own = {"PYTHONPATH": PYTHONPATH, "GPU_ADVISOR_RUNTIME_DIR": str(project / ".lock")}
    words = ("predict", "--target", cards, "--json", "--", sys.executable, *words)
    done = gpu_advisor.call(*words, cwd=project, env={**os.environ, **own})
    return done.returncode, done.stdout, done.stderr


def test_a_larger_batch_takes_more_memory_and_a_larger_card_less_time(
    project: Path, gpu_advisor: warm.Server
) -> None:
    words = ("train.py", "--batch-size", "16")
    code, stdout, stderr = call(project, gpu_advisor, "rtx-4060,h100-sxm", *words)
    assert code == 0, stderr
    found = json.loads(stdout)
    assert (found["ok"], found["batch"], found["trains"]) == (True, 16, True)
    entries = {(e["card"], e["batch"]): e for e in found["predictions"]}
    small, large = entries["rtx-4060", 16], entries["rtx-4060", 4096]
    assert large["largest_batch"]
    assert large["memory_gib"] > small["memory_gib"]
    weights_gib = 3 * 2048 * 2049 * 4 / 1024**3
    assert small["allocated_gib"] == pytest.approx(2 * weights_gib, rel=0.1)
    assert entries["h100-sxm", 16]["units_per_s"] > 2 * small["units_per_s"]
    for entry in entries.values():
        low, high = entry["units_per_s_range"]
        assert low < entry["units_per_s"] < high


def test_a_program_that_needs_cuda_fails_by_its_own_kind(
    project: Path, gpu_advisor: warm.Server
) -> None:
    code, stdout, _ = call(project, gpu_advisor, "h100-sxm", "needs_cuda.py")
    failure = json.loads(stdout)["failure"]
    assert code == FAILURE_EXIT_CODES[failure["kind"]]
    assert failure["evidence"]


def test_an_unknown_card_is_refused_before_any_run(project: Path, gpu_advisor: warm.Server) -> None:
    code, stdout, stderr = call(project, gpu_advisor, "h1000-sxm", "train.py")
    assert (code, stdout) == (TargetError.exit_code, "")
    assert "h100-sxm" in stderr


@pytest.mark.parametrize(
    ("gib_per_item", "data_items", "expected"),
    [
        (1e-6, 4096, 4096),  # no batch is larger than the data
        (0.01, None, 620),
        (100.0, None, None),
    ],
)
def test_the_largest_batch_fits_and_a_slightly_larger_one_does_not(
    gib_per_item: float, data_items: int | None, expected: int | None
) -> None:
    card = profiles.by_name("rtx-4060")
    own = Trace(batch=1, names=(), ops=(), held=(), events=())
    run = a_run(effects=Effects(data_items=data_items))
    alone = Traced(run=run, own=own, doubled=None)
    found = largest_batch(replace(alone, doubled=own), card, lambda batch: gib_per_item * batch)
    assert found == (expected and pytest.approx(expected, rel=1 / 16))
    assert gib_per_item * (found or 0) <= 0.9 * profiles.usable_gib(card)
    assert largest_batch(alone, card, float) is None
