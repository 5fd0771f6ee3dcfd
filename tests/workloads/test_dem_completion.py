"""The DEM completion program: it finishes, its product is right, and its config behaves as told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.workloads import scripts

MODULE = "benchmarks.workloads.dem_completion.run"
TILE = 64
CONFIG = "config/dem_completion.json"


class Program:
    """The filling program on an edited copy of the shipped config."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder

    def config(self, edits: dict[str, str]) -> Path:
        """Path of the config with texts replaced; its outputs go below the test's folder."""
        text = (self.root / CONFIG).read_text()
        few = {
            '"base_dir": "experiments"': f'"base_dir": "{self.folder}/out"',
            '"num_workers": 12': '"num_workers": 0', '"pin_memory": true': '"pin_memory": false',
        }  # fmt: skip
        for old, new in {**few, **edits}.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path = self.folder / "config.json"
        path.write_text(text)
        return path

    def run(self, phase: str, *flags: str, **edits: str) -> str:
        """Run it; return its output."""
        words = (MODULE, "-p", phase, "-c", self.config(edits), *flags)
        return scripts.run(scripts.MODULE, *words, cwd=self.root)

    def fill(self, *flags: str, **edits: str) -> Path:
        """Fill voids; return the output directory."""
        return written(self.run("test", *flags, **edits))


@pytest.fixture
def program(root: Path, tmp_path: Path) -> Program:
    return Program(root, tmp_path)


def written(stdout: str) -> Path:
    """The output directory that the program names at its end."""
    folder = re.search(r"^wrote (.+)$", stdout, re.MULTILINE)
    assert folder is not None
    return Path(folder[1])


def test_the_command_prints_and_writes_metrics_and_raster(program: Program) -> None:
    # All tiles: a seam is where two that were filled meet.
    said = program.run("test", "--tiles", "32", "--n_timestep", "2")
    folder = written(said)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["tiles"] == 32
    assert metrics["n_timestep"] == 2
    for pattern, name in (
        (r"^void RMSE: (\S+) m$", "void_rmse_m"),
        (r"^slope error: (\S+)$", "slope_error"),
        (r"^seams: (\S+)$", "seams"),
    ):
        printed = re.search(pattern, said, re.MULTILINE)
        assert printed is not None
        assert float(printed[1]) == pytest.approx(metrics[name], abs=1e-4)
        assert np.isfinite(metrics[name])
    assert np.isfinite(np.load(folder / "completed.npy")).all()
    assert (folder / "hillshade.png").read_bytes().startswith(b"\x89PNG")


def test_the_fill_does_not_depend_on_the_batch_or_the_workers(program: Program) -> None:
    loader = '"num_workers": {},\n                    "pin'
    edits = {'"batch_size": 1,': '"batch_size": 4,', loader.format(0): loader.format(2)}
    flags = ("--tiles", "5", "--n_timestep", "10")
    together = np.load(program.fill(*flags, **edits) / "completed.npy")
    alone = np.load(program.fill(*flags, "-b", "1") / "completed.npy")
    assert np.abs(together - alone).max() < 1e-3


def test_sample_num_of_the_config_is_overwritten_by_the_command_line(program: Program) -> None:
    assert '"sample_num": 12' in program.config({}).read_text()
    flags = ("--tiles", "1", "--n_timestep", "8")
    assert not list(program.fill(*flags).glob("sample_*"))
    assert len(list(program.fill(*flags, "--sample_num", "4").glob("sample_*"))) == 4


def test_image_sizes_of_the_config_are_ignored(program: Program) -> None:
    edits = {"[256, 256]": "[32, 32]", '"image_size": 256': '"image_size": 32'}
    folder = program.fill("--tiles", "1", "--n_timestep", "1", "--sample_num", "1", **edits)
    assert np.load(folder / "sample_00000.npy").shape == (1, 1, TILE, TILE)


def test_training_writes_weights_that_the_program_fills_with(program: Program) -> None:
    edits = {'"count": 4096': '"count": 32', '"n_iter": 6000': '"n_iter": 2'}
    printed = program.run("train", **edits)
    assert np.isfinite(float(re.findall(r"loss (\S+)", printed)[-1]))
    (weights,) = (program.folder / "out").glob("train_*/weights.pt")
    folder = program.fill("--tiles", "1", "--n_timestep", "2", "--resume_state", str(weights))
    assert json.loads((folder / "metrics.json").read_text())["tiles"] == 1
