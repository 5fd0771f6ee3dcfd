"""The quality guard on real processes: what holds is written, what cannot be seen is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.warm import Server

PROGRAM = Path(__file__).parent / "fixtures" / "programs" / "ok_guarded.py"
TOLERANCE = 0.1
SETTINGS = """\
[workload.sampler]
config = "sampler.json"
command = "{python} {program} {{config}}"
quality-command = "{python} {program} {{config}} --items 8"
phase = "test"
unit = "item"
unit-regex = "item done"

[workload.sampler.quality.error]
pattern = 'error: (-?[0-9.]+)'
tolerance = "{tolerance}"
"""


def tuned(folder: Path, gpu_advisor: Server, noise: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config after one `optimize`, and its report."""
    (folder / ".git").mkdir()
    config = folder / "sampler.json"
    config.write_text(json.dumps({"sampler": {"n_timestep": 1000}, "noise": noise}))
    (folder / "gpu-advisor.toml").write_text(
        SETTINGS.format(python=sys.executable, program=PROGRAM, tolerance=TOLERANCE)
    )
    flags = ("--window", "0.3s", "--budget", "2m", "--json")
    done = gpu_advisor.call("optimize", "sampler.json", *flags, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(config.read_text()), json.loads((folder / "report.json").read_text())


@pytest.mark.slow
def test_fewer_steps_are_written_once_other_seeds_confirmed_them(
    tmp_path: Path, gpu_advisor: Server
) -> None:
    """20 steps cost 0.1: the bounds of 25 and more lie inside a tolerance of 0.1."""
    config, report = tuned(tmp_path, gpu_advisor, noise=0.005)
    assert 25 <= config["sampler"]["n_timestep"] <= 100
    judged = [each["judgement"] for each in report["quality"]]
    last = [judgement for judgement in judged if judgement["stage"] == "confirmed"][-1]
    assert last["within"]
    assert last["high"] < last["limit"]
    assert (last["runs"] >= 2, last["items"]) == (True, 8)


@pytest.mark.slow
def test_a_real_measure_twice_as_noisy_as_its_tolerance_is_refused(
    tmp_path: Path, gpu_advisor: Server
) -> None:
    """And the report names the noise, or the bound that was beyond the limit."""
    config, report = tuned(tmp_path, gpu_advisor, noise=2 * TOLERANCE)
    assert config["sampler"]["n_timestep"] == 1000
    (steps,) = [d for d in report["decisions"] if d["path"] == "sampler.n_timestep"]
    assert steps["outcome"] == "refused"
