"""Short runs of the reference workloads, each in a fresh process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

ROOT = Path(__file__).resolve().parents[1]

CONFIG, WORKLOADS = str(ROOT / "config"), str(ROOT / "benchmarks" / "workloads")
DEM = ("-m", "benchmarks.workloads.dem_completion.run", "-c", f"{CONFIG}/dem_completion.json")
EMBER = ("-m", "benchmarks.workloads.emberformer.run", "-c", f"{CONFIG}/emberformer.yaml")
RELIGHT = ("-m", "benchmarks.workloads.relighting.run", "-c", f"{CONFIG}/relighting.yaml")
SPEECH = (f"{WORKLOADS}/speech/train.py", "--config", f"{CONFIG}/speech.py")
RUNS = {
    "dem_completion": (*DEM, "-p", "test", "--n_timestep", "6", "--tiles", "2"),
    "emberformer": (*EMBER, "-p", "train", "--max_steps", "4", "--epochs", "1"),
    "headpose": (f"{WORKLOADS}/headpose/train.py", "--max-steps", "4", "--epochs", "1"),
    "speech": (*SPEECH, "--max-steps", "4", "--epochs", "1"),
    "relighting": (*RELIGHT, "--limit", "16", "--batch-size", "4"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_short_run(benchmark: BenchmarkFixture, name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    argv = [sys.executable, *RUNS[name]]
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    done = benchmark.pedantic(
        lambda: subprocess.run(
            argv,
            cwd=tmp_path,  # what a run writes goes below its working directory
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        ),
        rounds=1,
    )
    assert done.returncode == 0, done.stderr[-2000:]
