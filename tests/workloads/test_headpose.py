"""The head-pose program: it trains on JPEG files, and an item does not depend on who loads it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image

from tests.workloads import scripts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "workloads" / "headpose"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, Path]]:
    """The module of the faces, and a small data set of it."""
    with scripts.beside(FOLDER, "faces") as (faces,):
        faces.COUNTS["biwi"], kept = 80, faces.COUNTS["biwi"]
        yield faces, faces.dataset("biwi", tmp_path_factory.mktemp("data"), 3)
        faces.COUNTS["biwi"] = kept


def test_the_command_trains_and_leaves_its_outputs(
    drawn: tuple[ModuleType, Path], tmp_path: Path
) -> None:
    root = drawn[1].parent
    flags = ("--dataset", "biwi", "--data-root", root, "--out", tmp_path / "out")
    printed = scripts.run(
        FOLDER / "train.py", *flags, "--epochs", 2, "--batch-size", 8, cwd=tmp_path
    )
    losses = re.findall(r"^epoch \d+ loss (\S+) MAE (\S+) deg$", printed, re.MULTILINE)
    assert len(losses) == 2
    assert np.isfinite([float(number) for pair in losses for number in pair]).all()
    assert json.loads((tmp_path / "out/metrics.json").read_text())["epoch"] == 2
    assert torch.load(tmp_path / "out/model.pt", weights_only=True)


def test_the_images_are_jpeg_files_that_are_drawn_once(drawn: tuple[ModuleType, Path]) -> None:
    faces, folder = drawn
    files = sorted(folder.glob("*.jpg"))
    assert len(files) == 80
    with Image.open(files[0]) as image:
        assert (image.format, image.size) == ("JPEG", (faces.SIDE, faces.SIDE))
    before = files[0].stat().st_mtime_ns
    assert faces.dataset("biwi", folder.parent, 3) == folder
    assert files[0].stat().st_mtime_ns == before


def test_an_item_depends_on_its_key_alone(drawn: tuple[ModuleType, Path]) -> None:
    """Another epoch is another distortion of the same face; a mirrored one looks the other way."""
    faces, folder = drawn
    data = faces.HeadPoses(folder, slice(None), 48, 3, augment=True)
    plain = faces.HeadPoses(folder, slice(None), 48, 3, augment=False)
    pixels, angles = data[5]
    assert pixels.shape == (3, 48, 48)
    assert -1 <= float(pixels.min()) < float(pixels.max()) <= 1
    assert torch.equal(pixels, data[5][0])
    assert not torch.equal(pixels, data[5 + len(data)][0])
    mirrored = plain[5][1] * torch.tensor([-1.0, 1.0, -1.0])
    assert torch.equal(angles, plain[5][1]) or torch.equal(angles, mirrored)


def test_the_features_of_a_head_turn_with_it(drawn: tuple[ModuleType, Path]) -> None:
    """The bright nose moves to the side that the head turns to."""
    faces, _ = drawn

    def nose(yaw: float) -> float:
        image = faces.head(np.random.default_rng(0), yaw, 0.0, 0.0)
        bright = image[faces.SIDE // 2 :].min(axis=2) > 232
        return float(np.nonzero(bright)[1].mean())

    assert nose(-40.0) < nose(0.0) < nose(40.0)
