"""Short runs of the reference workloads, each in a fresh process.

python -m pytest benchmarks/test_workloads.py --benchmark-enable
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

ROOT = Path(__file__).resolve().parents[1]

RUNS = {
    "dem_completion": ("-p", "test", "--n_timestep", "6", "--tiles", "2"),
    "emberformer": ("-p", "train", "--max_steps", "4", "--epochs", "1"),
    "relighting": ("--limit", "16", "--batch-size", "4"),
}
CONFIGS = {
    "dem_completion": "dem_completion.json",
    "emberformer": "emberformer.yaml",
    "relighting": "relighting.yaml",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_short_run(benchmark: BenchmarkFixture, name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config = ROOT / "config" / CONFIGS[name]
    argv = [
        sys.executable,
        "-m",
        f"benchmarks.workloads.{name}.run",
        "-c",
        str(config),
        *RUNS[name],
    ]
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
