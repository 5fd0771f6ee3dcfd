"""The head-pose program: it trains on JPEG files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from tests.workloads import scripts

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "workloads" / "headpose"


def test_the_command_trains_and_leaves_its_outputs(tmp_path: Path) -> None:
    root = tmp_path / "data"
    flags = ("--dataset", "biwi", "--data-root", root, "--out", tmp_path / "out")
    printed = scripts.run(
        FOLDER / "train.py", *flags, "--epochs", 2, "--batch-size", 8, "--max-steps", 4,
        cwd=tmp_path,
    )  # fmt: skip
    losses = re.findall(r"^epoch \d+ loss (\S+) MAE (\S+) deg$", printed, re.MULTILINE)
    assert len(losses) == 2
    assert np.isfinite([float(number) for pair in losses for number in pair]).all()
    assert json.loads((tmp_path / "out/metrics.json").read_text())["epoch"] == 2
    assert torch.load(tmp_path / "out/model.pt", weights_only=True)
    files = list(root.rglob("*.jpg"))
    assert len(files) == 384
    with Image.open(files[0]) as image:
        assert image.format == "JPEG"
