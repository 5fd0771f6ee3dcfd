"""The Emberformer program: it trains, and its effective batch is what counts."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import yaml

from benchmarks.workloads.emberformer import data, fires, run
from benchmarks.workloads.emberformer.network import Emberformer
from tests.workloads import scripts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = "config/emberformer.yaml"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
        """Runs it in this process; returns the printed epoch losses."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            run.main(["-p", "train", "-c", str(self.config(**edits)), *flags])
        self.printed = printed.getvalue()
        return epoch_losses(self.printed)

    def command(self, *flags: str) -> list[float]:
        """The same as a process of its own."""
        module = "benchmarks.workloads.emberformer.run"
        words = (module, "-p", "train", "-c", self.config(), *flags)
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
    return program, program.command("--epochs", "2")


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


@pytest.mark.parametrize(("batch", "accumulation", "workers"), [(32, 1, 0), (16, 2, 2)])
def test_the_same_effective_batch_trains_the_same(
    shipped: tuple[Program, list[float]],
    program: Program,
    batch: int,
    accumulation: int,
    workers: int,
) -> None:
    other = program.train(
        "--epochs", "2", data__batch_size=batch, data__num_workers=workers,
        train__accumulation_steps=accumulation,
    )  # fmt: skip
    assert other == pytest.approx(shipped[1], rel=2e-3)


def test_accumulated_gradients_are_those_of_the_whole_batch(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their norms, before clipping: Adam and clipping would hide a wrong scale in the losses."""
    norms = []
    clip = torch.nn.utils.clip_grad_norm_

    def seen(*args: Any) -> torch.Tensor:
        norms.append(clip(*args).item())
        return torch.tensor(norms[-1])

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", seen)
    program.train("--max_steps", "2")
    program.train("--max_steps", "2", data__batch_size=32, train__accumulation_steps=1)
    assert norms[:2] == pytest.approx(norms[2:], rel=1e-3)


def test_an_incomplete_last_group_is_averaged_over_what_it_holds() -> None:
    """Two groups of 3 and 1 micro batches: the gradients are those of their mean losses."""
    assert [run.group_size(index, 3, 4) for index in range(4)] == [3, 3, 3, 1]


def test_an_incomplete_last_group_still_updates(program: Program) -> None:
    program.train("--epochs", "1", train__accumulation_steps=7)
    assert program.metrics()["step"] == 4  # 24 micro batches: 7, 7, 7 and 3


def test_bf16_trains_close_to_fp32(shipped: tuple[Program, list[float]], program: Program) -> None:
    full = shipped[1][0]
    (half,) = program.train("--epochs", "1", train__precision="bf16")
    first, _ = re.findall(r"^epoch .*", shipped[0].printed, re.MULTILINE)
    assert first not in program.printed
    assert half == pytest.approx(full, rel=0.05)


def test_gradient_checkpointing_trains_the_same(program: Program) -> None:
    """It makes again what it did not keep: only memory and time differ."""
    kept = program.train("--max_steps", "2", train__accumulation_steps=1)
    again = program.train(
        "--max_steps", "2", train__accumulation_steps=1, model__gradient_checkpointing=True
    )
    assert again == pytest.approx(kept, rel=1e-4)


def test_lr_written_without_a_point_is_understood(program: Program) -> None:
    """YAML 1.1 reads 1e-3 as a string."""
    assert program.train("--max_steps", "1", train__lr="1e-3")


def test_scale_grows_the_network(root: Path, program: Program) -> None:
    cfg = yaml.safe_load((root / CONFIG).read_text())
    small = Emberformer(data.CHANNELS, cfg["data"]["frames"], **cfg["model"])
    program.train("--max_steps", "1", "--scale", "2", train__accumulation_steps=1)
    state = torch.load(program.out / "checkpoint.pt", weights_only=True)
    size = sum(value.numel() for value in state.values())
    assert size > 4 * sum(value.numel() for value in small.parameters())


def test_fires_spread_down_wind() -> None:
    """A wind to the right moves the burning ground to the right, one to the left to the left."""
    centre = []
    for right in (-1.0, 1.0):
        wind = np.tile(np.array([[0, right]], np.float32), (32, 1))
        maps, _ = fires.simulate(np.random.default_rng(0), wind, 32)
        columns = (maps > data.BURNING).sum(axis=(0, 1, 2))
        centre.append((columns * np.arange(32)).sum() / columns.sum())
    assert centre[1] > centre[0] + 2


def test_a_sample_depends_on_its_key_alone() -> None:
    windows = data.FireWindows(fires.dataset(16, 48, 3), frames=6, crop=32, augment=True)
    frames, target = windows[5]
    again, same = windows[5]
    assert torch.equal(frames, again)
    assert torch.equal(target, same)
    assert frames.shape == (6, data.CHANNELS, 32, 32)
    later, _ = windows[5 + len(windows)]
    assert not torch.equal(frames, later)


def test_the_sampler_visits_every_window_once_an_epoch() -> None:
    sampler = data.EpochSampler(20, seed=1)
    first, second = list(sampler), list(sampler)
    assert sorted(first) == list(range(20))
    assert sorted(second) == list(range(20, 40))
    assert [key - 20 for key in second] != first


def test_turning_the_land_turns_the_wind() -> None:
    """A fire and the wind that drove it stay consistent in all eight symmetries."""
    maps = np.zeros((1, 5, 5), np.float32)
    maps[0, 2, 2] = 1
    maps[0, 2, 4] = 0.5  # down wind of the centre: to the right
    for seed in range(30):
        turned, _, wind = data.random_symmetry(
            np.random.default_rng(seed), maps, maps[0], np.array([0.0, 2.0], np.float32)
        )
        row, column = np.argwhere(turned[0] == 0.5)[0]
        assert (row - 2, column - 2) == tuple(wind)
