"""The page that a user of a card would read, held against itself."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests import fakegpu
from tests.fakegpu import Cards, measuring
from tests.support.contradictions import contradictions

CONFIG = "config/relighting.yaml"
PROGRAM = (
    "-m", "benchmarks.workloads.relighting.run", "-c", CONFIG, "--batch-size", "1",
    "--num-gpus", "1", "--scale", "2",
)  # fmt: skip
LIMIT_S = 300


def test_no_figure_of_a_page_contradicts_another(tmp_path: Path) -> None:
    """A reference workload, tuned on a card as long as buys a proof."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "config").mkdir()
    shutil.copy(measuring.ROOT / CONFIG, tmp_path / CONFIG)
    flags = ("--window", "1s", "--budget", "45s")
    with Cards("rtx-4060") as cards:
        done = subprocess.run(
            [sys.executable, "-m", "advisor", "optimize", CONFIG, *flags, "--",
             str(fakegpu.PYTHON), *PROGRAM],
            cwd=tmp_path, env=measuring.environment(cards), capture_output=True, text=True,
            check=False, timeout=LIMIT_S,
        )  # fmt: skip
    assert (tmp_path / "report.json").exists(), done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["machine"]["gpus"][0]["name"] == "NVIDIA GeForce RTX 4060"
    assert report["before"]["units_per_s"]
    assert contradictions(report, (tmp_path / "report.md").read_text()) == []
