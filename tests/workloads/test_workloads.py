"""The reference workloads: each ends with its product, and the probe reads it right."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from advisor.model import MeasurePlan
from tests.probe import program

Training = tuple[tuple[object, ...], Path, str]
"""Its command, the folder of its outputs, and the name of its weights."""

ROOT = Path(__file__).resolve().parents[2]
CONFIG, WORKLOADS = ROOT / "config", ROOT / "benchmarks" / "workloads"
MODULE = Path(__file__).with_name("module.py")
"""Followed by a module's name, it is `python -m`."""
POINTS = 0.08
"""Of a share: others may take the CPU between the program's clock and ours."""


def printed(*words: object, cwd: Path) -> str:
    """Output of a script, or of MODULE."""
    done = program.with_torch().call(*map(str, words), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def emberformer(folder: Path) -> Training:
    cfg = yaml.safe_load((CONFIG / "emberformer.yaml").read_text())
    cfg["data"] |= {"fires": 16, "held_out_fires": 8}
    cfg["output"]["dir"] = str(folder / "out")
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(cfg))
    module = "benchmarks.workloads.emberformer.run"
    return (MODULE, module, "-p", "train", "-c", config), folder / "out", "checkpoint.pt"


def headpose(folder: Path) -> Training:
    flags = ("--data-root", folder / "data", "--out", folder / "out", "--max-steps", 4)
    return (WORKLOADS / "headpose/train.py", *flags), folder / "out", "model.pt"


def small_speech(folder: Path) -> Path:
    """The shipped class with few utterances and a small model."""
    text = (CONFIG / "speech.py").read_text()
    few = {"UTTERANCES": 112, "FEATURES": 8, "CHANNELS": 8, "HIDDEN": 8, "BATCH_SIZE": 8}
    for name, value in few.items():
        text, found = re.subn(rf"{name} = \d+", f"{name} = {value}", text)
        assert found == 1
    (folder / "small.py").write_text(text)
    return folder / "small.py"


def speech(folder: Path) -> Training:
    flags = ("--config", small_speech(folder), "--data-root", folder / "data")
    return (WORKLOADS / "speech/train.py", *flags), folder / "experiments/speech", "encoder.pt"


@pytest.mark.parametrize("training", [emberformer, headpose, speech])
def test_a_training_ends_with_losses_metrics_and_weights(training, tmp_path) -> None:
    words, out, weights = training(tmp_path)
    lines = printed(*words, "--epochs", 2, cwd=tmp_path)
    losses = [float(loss) for loss in re.findall(r"^epoch \d+ loss (\S+)", lines, re.MULTILINE)]
    assert len(losses) == 2
    assert np.isfinite(losses).all()
    assert json.loads((out / "metrics.json").read_text())["epoch"] == 2
    assert torch.load(out / weights, weights_only=True)


def test_a_raster_is_filled_alike_whatever_the_batch_and_the_workers(tmp_path) -> None:
    """All tiles: a seam is where two that were filled meet. What is printed is what is written."""
    edits = {
        '"base_dir": "experiments"': f'"base_dir": "{tmp_path}/out"',
        '"num_workers": 12': '"num_workers": 2', '"pin_memory": true': '"pin_memory": false',
        '"batch_size": 1,': '"batch_size": 4,',
    }  # fmt: skip
    config, text = tmp_path / "config.json", (CONFIG / "dem_completion.json").read_text()
    for old, new in edits.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    config.write_text(text)
    words = (MODULE, "benchmarks.workloads.dem_completion.run", "-p", "test", "-c", config)
    flags = ("--n_timestep", 2)
    rasters = []
    for more in ((), ("-b", 1)):
        lines = printed(*words, *flags, *more, cwd=ROOT)
        (folder,) = map(Path, re.findall(r"^wrote (.+)$", lines, re.MULTILINE))
        metrics = json.loads((folder / "metrics.json").read_text())
        assert metrics["tiles"] == 192
        assert metrics["n_timestep"] == 2
        for label, name in (("void RMSE", "void_rmse_m"), ("seams", "seams")):
            (figure,) = re.findall(rf"^{label}: (\S+)", lines, re.MULTILINE)
            assert float(figure) == pytest.approx(metrics[name], abs=1e-4)
        rasters.append(np.load(folder / "completed.npy"))
    assert np.abs(rasters[0] - rasters[1]).max() < 1e-3


def test_the_share_of_padding_is_that_of_the_program(tmp_path) -> None:
    """Over every batch, to the last position, though its lengths have no name."""
    own, script = Path(__file__).with_name("padding_by_hand.py"), WORKLOADS / "speech/train.py"
    flags = ("--config", small_speech(tmp_path), "--data-root", tmp_path / "data", "--epochs", 2)
    outcome = program.run(
        tmp_path / "probe", sys.executable, *map(str, (own, script, *flags)), cwd=tmp_path,
        plan=MeasurePlan(mode="whole"), begin=program.forked,
    )  # fmt: skip
    by_hand = json.loads((tmp_path / "padding.json").read_text())
    seen = outcome.measured.effects.padding_share
    assert seen == pytest.approx(by_hand["padding_share"], abs=1e-12)


class Relighting:
    """The program on few portraits, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        cfg = yaml.safe_load((CONFIG / "relighting.yaml").read_text())
        cfg["data"]["portraits"] = 24
        self.out = folder / cfg["output"]["dir"]
        (folder / "config.yaml").write_text(yaml.safe_dump(cfg))

    def words(self, *flags: object) -> tuple[str, ...]:
        config = self.folder / "config.yaml"
        return ("benchmarks.workloads.relighting.run", "-c", str(config), *map(str, flags))


def test_every_image_is_relit_whatever_the_batch(tmp_path) -> None:
    """Batches change nothing but rounding, and the trained networks find the person."""
    relighting = Relighting(tmp_path)
    images: list[dict[str, Any]] = []
    for batch in (1, 16):
        flags = ("--batch-size", batch, "--limit", 20)
        printed(MODULE, *relighting.words(*flags), cwd=tmp_path)
        shard = json.loads((relighting.out / "shard_0.json").read_text())
        assert shard["processed"] == 20
        assert shard["failed"] == 0
        assert shard["mask_iou"] > 0.85
        files = sorted(relighting.out.glob("*.jpg"))
        images.append({p.name: np.asarray(Image.open(p), np.float32) / 255 for p in files})
    assert len(images[0]) == 20
    for name, image in images[0].items():
        assert np.abs(image - images[1][name]).mean() < 0.01


NETWORKS = {"Segmenter": "segmentation", "AlbedoNet": "albedo", "ShadowNet": "shadow"}
"""Root modules, and the stage of the program's own clock that each is."""


@pytest.mark.parametrize("batch", [1, 4])
def test_networks_that_take_turns_have_their_shares_and_calls(tmp_path, batch) -> None:
    """From outside, over the window that was measured; only the first is called in batches."""
    folder, kept = tmp_path, tmp_path / "trace"
    command = (str(MODULE), *Relighting(folder).words("--batch-size", batch, "--trace", kept))
    found = program.run(
        folder / "probe", sys.executable, *command, cwd=folder,
        plan=MeasurePlan(mode="whole"), begin=program.forked,
    ).measured  # fmt: skip
    start, end = found.window_start, found.window_end
    own: dict[str, float] = {}
    for stage, enter, left in json.loads((kept / "trace_0.json").read_text()):
        inside = max(0.0, min(left, end) - max(enter, start))
        own[stage] = own.get(stage, 0.0) + inside / (end - start)
    assert {stage.name for stage in found.stages} == NETWORKS.keys()
    for stage in found.stages:
        items = batch if stage.name == "Segmenter" else 1
        assert stage.share == pytest.approx(own[NETWORKS[stage.name]], abs=POINTS)
        assert stage.batch == items
        assert stage.calls_per_unit == pytest.approx(1 / items, rel=0.05)
        assert stage.site
    assert found.effects.batch == batch
    assert found.step_kind == "root forward"
