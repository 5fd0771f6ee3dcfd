"""The speech program: it trains on utterances of various lengths, and says how much it pads."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from advisor.model import MeasurePlan
from tests.probe import program
from tests.workloads import scripts

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "workloads" / "speech"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The shipped class with few utterances and a small model."""
    text = (ROOT / "config" / "speech.py").read_text()
    few = {"UTTERANCES": 112, "FEATURES": 8, "CHANNELS": 8, "HIDDEN": 8, "BATCH_SIZE": 8}
    for name, value in few.items():
        text, found = re.subn(rf"{name} = \d+", f"{name} = {value}", text)
        assert found == 1
    path = tmp_path / "small.py"
    path.write_text(text)
    return path


def test_the_command_trains_and_leaves_its_outputs(config: Path, tmp_path: Path) -> None:
    flags = ("--config", config, "--data-root", tmp_path / "data", "--epochs", 2)
    printed = scripts.run(FOLDER / "train.py", *flags, cwd=tmp_path)
    losses = [float(loss) for loss in re.findall(r"^epoch \d+ loss (\S+)", printed, re.MULTILINE)]
    assert len(losses) == 2
    assert np.isfinite(losses).all()
    folder = tmp_path / "experiments/speech"
    assert json.loads((folder / "metrics.json").read_text())["epoch"] == 2
    assert torch.load(folder / "encoder.pt", weights_only=True)


def test_the_share_of_padding_is_that_of_the_program(config: Path, tmp_path: Path) -> None:
    """Over every batch, to the last position, though its lengths have no name."""
    scratch = tmp_path / "probe"
    scratch.mkdir()
    outcome = program.run(
        scratch,
        *(
            sys.executable,
            str(ROOT / "tests/workloads/padding_by_hand.py"),
            str(FOLDER / "train.py"),
        ),
        *("--config", str(config), "--data-root", str(tmp_path / "data"), "--epochs", "2"),
        cwd=tmp_path,
        plan=MeasurePlan(mode="whole"),
        begin=program.forked,
    )
    by_hand = json.loads((tmp_path / "padding.json").read_text())
    seen = outcome.measured
    assert seen.effects.padding_share == pytest.approx(by_hand["padding_share"], abs=1e-12)
