"""The DEM completion program: it finishes, its product is right, and its config behaves as told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from benchmarks.workloads.dem_completion import data, diffusion, interpolate, options, raster, run
from benchmarks.workloads.dem_completion.run import generated_raster
from benchmarks.workloads.dem_completion.study import rescaled
from benchmarks.workloads.dem_completion.terrain import NODATA, truth_path
from tests.workloads import scripts

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = "config/dem_completion.json"


class Program:
    """The filling program on an edited copy of the shipped config, in this process."""

    def __init__(self, root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.folder, self.capsys = root, folder, capsys

    def config(self, *edits: tuple[str, str]) -> Path:
        """Path of the config with texts replaced; its outputs go below the test's folder."""
        text = (self.root / CONFIG).read_text()
        outputs = ('"base_dir": "experiments"', f'"base_dir": "{self.folder}/out"')
        alone = ('"num_workers": 12', '"num_workers": 0')
        for old, new in (outputs, alone, ('"pin_memory": true', '"pin_memory": false'), *edits):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path = self.folder / "config.json"
        path.write_text(text)
        return path

    def fill(self, *flags: str, edits: tuple[tuple[str, str], ...] = ()) -> Path:
        """Runs it; returns its output directory."""
        run.main(["-p", "test", "-c", str(self.config(*edits)), *flags])
        return written(self.capsys.readouterr().out)


@pytest.fixture
def program(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Program:
    monkeypatch.chdir(root)
    return Program(root, tmp_path, capsys)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def written(stdout: str) -> Path:
    """The output directory that the program names at its end."""
    folder = re.search(r"^wrote (.+)$", stdout, re.MULTILINE)
    assert folder is not None
    return Path(folder[1])


def test_the_command_prints_and_writes_metrics_and_raster(root: Path, program: Program) -> None:
    words = ("benchmarks.workloads.dem_completion.run", "-p", "test", "-c", program.config())
    flags = ("--tiles", 32, "--n_timestep", 2)  # all: a seam is where two that were filled meet
    said = scripts.run(scripts.MODULE, *words, *flags, cwd=root)
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


def test_known_elevations_are_kept_and_only_chosen_tiles_are_filled(program: Program) -> None:
    folder = program.fill("--tiles", "2", "--n_timestep", "2")
    completed = np.load(folder / "completed.npy")
    source = np.load(generated_raster(1))
    known = source != NODATA
    assert np.array_equal(completed[known], source[known])
    assert (completed[: data.TILE, : data.TILE] != NODATA).all()
    assert (completed == NODATA).any()


def test_the_fill_does_not_depend_on_the_batch_or_the_workers(program: Program) -> None:
    edits = (
        ('"batch_size": 1,', '"batch_size": 4,'),
        (
            '"num_workers": 0,\n                    "pin',
            '"num_workers": 2,\n                    "pin',
        ),
    )
    flags = ("--tiles", "5", "--n_timestep", "10")
    together = np.load(program.fill(*flags, edits=edits) / "completed.npy")
    alone = np.load(program.fill(*flags, "-b", "1") / "completed.npy")
    assert np.abs(together - alone).max() < 1e-3


def test_sample_num_of_the_config_is_overwritten_by_the_command_line(program: Program) -> None:
    config = options.load_config(program.config())
    assert config["model"]["which_model"]["args"]["sample_num"] == 12
    flags = ("--tiles", "1", "--n_timestep", "8")
    assert not list(program.fill(*flags).glob("sample_*"))
    assert len(list(program.fill(*flags, "--sample_num", "4").glob("sample_*"))) == 4


def test_image_sizes_of_the_config_are_ignored(program: Program) -> None:
    edits = (("[256, 256]", "[32, 32]"), ('"image_size": 256', '"image_size": 32'))
    folder = program.fill("--tiles", "1", "--n_timestep", "1", "--sample_num", "1", edits=edits)
    assert np.load(folder / "sample_00000.npy").shape == (1, 1, data.TILE, data.TILE)


def test_comments_end_at_the_line_and_hide_commented_knobs(root: Path) -> None:
    config = options.load_config(root / CONFIG)
    assert config["datasets"]["test"]["dataloader"]["args"]["batch_size"] == 1
    schedule = config["model"]["which_networks"][0]["args"]["beta_schedule"]["test"]
    assert schedule == {
        "schedule": "linear",
        "n_timestep": 1000,
        "linear_start": 1e-4,
        "linear_end": 0.09,
    }


def test_each_batch_takes_one_call_of_the_module_per_step() -> None:
    calls = []

    class Quiet(torch.nn.Module):
        def forward(
            self, fill: torch.Tensor, condition: torch.Tensor, gamma: torch.Tensor
        ) -> torch.Tensor:
            calls.append(gamma.tolist())
            return torch.zeros_like(fill)

    condition = torch.ones(3, data.CONDITION_CHANNELS, 8, 8)
    beta = diffusion.betas("linear", 60, 1e-4, 0.5)
    fill = diffusion.sample(Quiet(), condition, beta, [1, 2, 1])
    assert len(calls) == 60
    assert calls[-1] == pytest.approx([1 - 1e-4] * 3)
    assert torch.equal(fill[0], fill[2])
    assert not torch.equal(fill[0], fill[1])


def test_a_perfect_denoiser_is_led_to_its_answer() -> None:
    answer = torch.linspace(-2, 2, 64).reshape(1, 1, 8, 8)

    class Knows(torch.nn.Module):
        def forward(
            self, fill: torch.Tensor, condition: torch.Tensor, gamma: torch.Tensor
        ) -> torch.Tensor:
            level = gamma[:, None, None, None]
            return (level.sqrt() * fill - answer) / (1 - level).sqrt()

    condition = torch.ones(1, data.CONDITION_CHANNELS, 8, 8)
    fill = diffusion.sample(Knows(), condition, diffusion.betas("linear", 50, 1e-4, 0.5), [0])
    assert torch.allclose(fill, answer, atol=1e-3)


def test_a_rescaled_schedule_ends_at_the_same_signal() -> None:
    schedule = {"schedule": "linear", "n_timestep": 1000, "linear_start": 1e-4, "linear_end": 0.09}
    wanted = diffusion.signal_levels(diffusion.betas(**schedule))[-1]
    for steps in (500, 250, 100):
        beta = diffusion.betas(**rescaled(schedule, steps))
        assert len(beta) == steps
        assert beta[-1] < 1
        assert diffusion.signal_levels(beta)[-1] == pytest.approx(wanted, rel=1e-3)


def test_the_texture_measure_punishes_blur_where_rmse_does_not() -> None:
    height = np.load(truth_path(generated_raster(1)))
    void = np.load(generated_raster(1)) == NODATA
    smooth = interpolate.laplace(height, void, iterations=300)
    assert raster.slope_error(height, height, void) == 0
    assert raster.slope_error(smooth, height, void) > 0.5
    rough = height + np.random.default_rng(0).normal(0, 0.3, height.shape).astype(np.float32)
    assert raster.slope_error(rough, height, void) > 0.15


def test_the_overlap_changes_the_number_of_tiles_and_not_the_ground() -> None:
    """What is filled stays: a smaller overlap is less work on the same raster."""
    path = generated_raster(1)
    shape = np.load(path).shape
    many = {}
    for overlap in (0, 12, 24, 32):
        tiles = data.DemTiles(path, overlap)
        many[overlap] = len(tiles)
        reached = raster.Mosaic(shape, data.TILE, overlap)
        reached.add(np.zeros((len(tiles), data.TILE, data.TILE)), np.array(tiles.corners))
        assert reached.covered[np.load(path) == NODATA].all()
    assert many == {0: 28, 12: 32, 24: 55, 32: 78}


def test_seams_are_what_tiles_that_disagree_leave_at_their_edges() -> None:
    """1 where the error steps at the edges as it does elsewhere; blending takes a seam away."""
    rng, path = np.random.default_rng(0), generated_raster(1)
    truth = np.load(truth_path(path))
    inside = np.load(path) == NODATA
    rough = rng.normal(0, 0.1, truth.shape)
    found = {}
    for overlap in (0, 12, 24):
        corners = np.array(data.DemTiles(path, overlap).corners)
        mosaic = raster.Mosaic(truth.shape, data.TILE, overlap)
        for corner in corners:
            lifted = np.full((1, data.TILE, data.TILE), rng.normal())
            mosaic.add(lifted, corner[None])
        offsets = mosaic.total / np.where(mosaic.covered, mosaic.weights, 1)
        error = truth + rough + offsets
        found[overlap] = raster.seams(error, truth, inside, corners, data.TILE)
        even = raster.seams(truth + rough, truth, inside, corners, data.TILE)
        assert even == pytest.approx(1, abs=0.1)
    assert found[0] > 3
    assert found[0] > found[12] > found[24] > 0.95
    nowhere = np.zeros_like(inside)
    assert raster.seams(error, truth, nowhere, corners, data.TILE) is None


def test_distance_to_known_is_exact() -> None:
    void = np.random.default_rng(0).random((20, 30)) < 0.97
    known = np.argwhere(~void)
    every = np.indices(void.shape).reshape(2, -1).T
    nearest = np.linalg.norm(every[:, None] - known[None], axis=2).min(axis=1)
    assert np.allclose(interpolate.distance_to_known(void).ravel(), nearest)


def test_a_tile_that_is_all_void_is_filled_with_finite_numbers() -> None:
    stack, offset, spread = data.condition(
        np.full((64, 64), NODATA, np.float32), np.ones((64, 64), bool)
    )
    assert np.isfinite(stack).all()
    assert np.isfinite([offset, spread]).all()


def test_training_writes_weights_that_the_program_fills_with(program: Program) -> None:
    edits = (('"count": 4096', '"count": 32'), ('"n_iter": 6000', '"n_iter": 2'))
    run.main(["-p", "train", "-c", str(program.config(*edits))])
    printed = program.capsys.readouterr().out
    assert np.isfinite(float(re.findall(r"loss (\S+)", printed)[-1]))
    (weights,) = (program.folder / "out").glob("train_*/weights.pt")
    folder = program.fill("--tiles", "1", "--n_timestep", "2", "--resume_state", str(weights))
    assert json.loads((folder / "metrics.json").read_text())["tiles"] == 1


@pytest.mark.slow
def test_the_shipped_weights_beat_the_classic_fills(program: Program) -> None:
    folder = program.fill("--tiles", "8", "-b", "8", "--n_timestep", "300")
    metrics = json.loads((folder / "metrics.json").read_text())
    path = generated_raster(1)
    height, truth = np.load(path), np.load(truth_path(path))
    void = height == NODATA
    inside = void & (np.load(folder / "completed.npy") != NODATA)
    for classic in (interpolate.bilinear(height, void), interpolate.laplace(height, void, 3000)):
        assert metrics["void_rmse_m"] < 0.9 * raster.void_rmse_m(classic, truth, inside)
        assert metrics["slope_error"] < 0.6 * raster.slope_error(classic, truth, inside)


def test_shards_are_other_tiles_and_together_all_of_them() -> None:
    path = generated_raster(1)
    shards = [set(data.DemTiles(path, 12, shard=f"{i}/4").corners) for i in range(4)]
    assert [len(shard) for shard in shards] == [8, 8, 8, 8]
    assert set.union(*shards) == set(data.DemTiles(path, 12).corners)
