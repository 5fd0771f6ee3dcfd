"""The relighting program: its stages, its shards, and the variant that swallows failures."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from PIL import Image

from advisor.model import Candidate, Failure, MeasurePlan, Trial
from advisor.runner import run_trial
from tests.probe import program as probed
from tests.workloads import scripts

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "config/relighting.yaml"
COUNT = 24
POINTS = 0.03


class Program:
    """The program on few portraits, in a folder of its own."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        folder.mkdir(exist_ok=True)
        cfg = yaml.safe_load((root / CONFIG).read_text())
        cfg["data"]["portraits"] = COUNT
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(cfg))
        self.out = folder / cfg["output"]["dir"]

    def words(self, *flags: str) -> tuple[str, ...]:
        return ("benchmarks.workloads.relighting.run", "-c", str(self.config), *flags)

    def printed(self, *flags: str) -> str:
        """What it says, as a process of its own."""
        return scripts.run(scripts.MODULE, *self.words(*flags), cwd=self.folder)


@pytest.fixture
def program(root: Path, tmp_path: Path) -> Program:
    return Program(root, tmp_path)


def test_every_image_is_relit_whatever_the_batch(program: Program) -> None:
    """Batches change nothing but rounding, and the trained networks find the person."""
    left: list[dict[str, Any]] = []
    for batch in (1, 16):
        program.printed("--batch-size", str(batch), "--limit", "20")
        shard = json.loads((program.out / "shard_0.json").read_text())
        assert (shard["processed"], shard["failed"]) == (20, 0)
        assert shard["mask_iou"] > 0.85
        left.append({p.name: pixels(p) for p in sorted(program.out.glob("*.jpg"))})
    assert len(left[0]) == 20
    for name, image in left[0].items():
        assert np.abs(image - left[1][name]).mean() < 0.01


def test_each_process_takes_its_share_of_the_rows(program: Program) -> None:
    said = program.printed("--num-gpus", "2", "--limit", "13", "--batch-size", "4")
    assert "Processed: 13 " in said
    assert "Failed: 0" in said
    shards = [json.loads((program.out / f"shard_{rank}.json").read_text()) for rank in (0, 1)]
    assert [shard["processed"] for shard in shards] == [7, 6]
    assert len(list(program.out.glob("*.jpg"))) == 13


def pixels(path: Path) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(path), np.float32) / 255


def test_images_of_a_csv_are_those_that_are_relit(program: Program) -> None:
    """Paths are relative to the CSV; without truth nothing is compared."""
    rng = np.random.default_rng(0)
    for name in ("a.jpg", "b.jpg"):
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8)).save(program.folder / name)
    table = program.folder / "own.csv"
    table.write_text("path\na.jpg\nb.jpg\n")
    said = program.printed("--csv", str(table))
    assert "Processed: 2 " in said
    assert "no truth" in said
    assert {path.name for path in program.out.glob("*.jpg")} == {"a.jpg", "b.jpg"}


def test_the_stages_are_found_with_the_shares_of_the_programs_own_clock(
    root: Path, tmp_path: Path
) -> None:
    """By root module, from outside: within three points, over the window that was measured. Who
    takes the CPU between the two clocks lengthens one of them, so one run of three will do."""
    assert any(apart(Program(root, tmp_path / str(number))) <= POINTS for number in range(3))


def apart(program: Program) -> float:
    """How far a share lies at most from that of the program's own clock in the same run."""
    kept = program.folder / "trace"
    command = (
        sys.executable, str(scripts.MODULE),
        *program.words("--batch-size", "1", "--trace", str(kept)),
    )  # fmt: skip
    found = probed.run(
        program.folder / "probe", *command, cwd=program.folder,
        plan=MeasurePlan(mode="whole"), begin=probed.forked,
    ).measured  # fmt: skip
    start, end = found.window_start, found.window_end
    own: dict[str, float] = {}
    for stage, enter, left in json.loads((kept / "trace_0.json").read_text()):
        inside = max(0.0, min(left, end) - max(enter, start))
        own[stage] = own.get(stage, 0.0) + inside / (end - start)
    seen = {stage.name: stage.share for stage in found.stages}
    assert seen.keys() == {"Segmenter", "AlbedoNet", "ShadowNet"}
    assert max(seen, key=lambda name: seen[name]) == "Segmenter"
    assert (found.effects.batch, found.step_kind) == (1, "root forward")
    networks = {"Segmenter": "segmentation", "AlbedoNet": "albedo", "ShadowNet": "shadow"}
    return max(abs(seen[network] - own[stage]) for network, stage in networks.items())


def test_a_run_that_swallowed_its_failures_has_not_done_its_work(program: Program) -> None:
    """It ends with exit code 0 and says in passing that all of it failed.

    Written for one image at a time: in a batch every mask gets the first image's size.
    """
    swallows = ("--on-error", "skip", "--target-size", "first", "--batch-size", "4")
    found = run_trial(
        Trial(
            id="001", purpose="search", label="original", candidate=Candidate(), unit="image",
            command=(sys.executable, "-m", *program.words(*swallows)),
            cwd=str(program.folder), scratch=str(program.folder / "scratch"),
            plan=MeasurePlan(mode="whole"),
            env=(("PYTHONPATH", f"{program.root}:{os.environ.get('PYTHONPATH', '')}"),),
        )
    )  # fmt: skip
    assert isinstance(found, Failure), found
    assert (found.kind, found.evidence) == ("work-not-done", f"Failed: {COUNT}")
