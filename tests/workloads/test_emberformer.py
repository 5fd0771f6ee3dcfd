"""The Emberformer program: it trains, and its effective batch is what counts."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import yaml

from tests.workloads import scripts

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "benchmarks.workloads.emberformer.run"
CONFIG = "config/emberformer.yaml"


class Program:
    """The training program on a small copy of the shipped config."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.out = folder / "out"
        self.printed = ""

    def config(self, **edits: Any) -> Path:
        """Path of the config with `section__key=value` edits."""
        cfg = yaml.safe_load((self.root / CONFIG).read_text())
        few = {"data__fires": 16, "data__held_out_fires": 8, "output__dir": str(self.out)}
        for name, value in (few | edits).items():
            section, key = name.split("__")
            assert key in cfg[section]
            cfg[section][key] = value
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(cfg))
        return path

    def train(self, *flags: str, **edits: Any) -> list[float]:
        """Run it; return the printed epoch losses."""
        words = (MODULE, "-p", "train", "-c", self.config(**edits), *flags)
        self.printed = scripts.run(scripts.MODULE, *words, cwd=self.folder)
        return epoch_losses(self.printed)

    def metrics(self) -> dict[str, float]:
        return json.loads((self.out / "metrics.json").read_text())


@pytest.fixture
def program(root: Path, tmp_path: Path) -> Program:
    return Program(root, tmp_path)


@pytest.fixture(scope="module")
def shipped(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, list[float]]:
    """Two epochs with the config as it is shipped, and their losses."""
    program = Program(root, tmp_path_factory.mktemp("shipped"))
    return program, program.train("--epochs", "2")


def epoch_losses(stdout: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"^epoch \d+ loss (\S+)", stdout, re.MULTILINE)]


def test_the_command_trains_and_leaves_its_outputs(shipped: tuple[Program, list[float]]) -> None:
    program, losses = shipped
    assert losses[1] < losses[0]
    metrics = program.metrics()
    assert metrics["epoch"] == 2
    assert metrics["loss"] == pytest.approx(losses[1], abs=1e-4)
    assert np.isfinite(list(metrics.values())).all()
    assert torch.load(program.out / "checkpoint.pt", weights_only=True)


def test_the_same_effective_batch_trains_the_same(
    shipped: tuple[Program, list[float]], program: Program
) -> None:
    """With or without accumulation and workers."""
    parts = {"data__batch_size": 16, "data__num_workers": 2, "train__accumulation_steps": 2}
    for edits in ({**parts, "data__batch_size": 32, "train__accumulation_steps": 1}, parts):
        other = program.train("--epochs", "2", **edits)
        assert other == pytest.approx(shipped[1], rel=2e-3)


def test_bf16_trains_close_to_fp32(shipped: tuple[Program, list[float]], program: Program) -> None:
    full = shipped[1][0]
    (half,) = program.train("--epochs", "1", train__precision="bf16")
    first, _ = re.findall(r"^epoch .*", shipped[0].printed, re.MULTILINE)
    assert first not in program.printed
    assert half == pytest.approx(full, rel=0.05)


def test_gradient_checkpointing_trains_the_same(program: Program) -> None:
    """It makes again what it did not keep; YAML 1.1 reads the rate, 1e-3, as a string."""
    two = ("--max_steps", "2")
    edits = {"train__accumulation_steps": 1, "train__lr": "1e-3"}
    kept = program.train(*two, **edits)
    again = program.train(*two, **edits, model__gradient_checkpointing=True)
    assert again == pytest.approx(kept, rel=1e-4)
