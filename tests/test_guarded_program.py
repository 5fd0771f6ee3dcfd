"""The quality guard on real processes: steps whose cost is seen and small are written."""

import json
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "fixtures" / "programs" / "ok_guarded.py"
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
tolerance = "0.1"
"""


@pytest.mark.slow
def test_fewer_steps_are_written_once_other_seeds_confirmed_them(tmp_path, gpu_advisor) -> None:
    """20 steps cost 0.1: the bounds of 25 and more lie inside a tolerance of 0.1."""
    (tmp_path / ".git").mkdir()
    config = tmp_path / "sampler.json"
    config.write_text('{"sampler": {"n_timestep": 1000}, "noise": 0.005}')
    settings = SETTINGS.format(python=sys.executable, program=PROGRAM)
    (tmp_path / "gpu-advisor.toml").write_text(settings)
    flags = ("--window", "0.3s", "--budget", "2m", "--json")
    done = gpu_advisor.call("optimize", config.name, *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 25 <= json.loads(config.read_text())["sampler"]["n_timestep"] <= 100
    report = json.loads((tmp_path / "report.json").read_text())
    judged = [each["judgement"] for each in report["quality"]]
    last = [judgement for judgement in judged if judgement["stage"] == "confirmed"][-1]
    assert last["within"]
    assert last["high"] < last["limit"]
    assert last["runs"] >= 2
    assert last["items"] == 8
