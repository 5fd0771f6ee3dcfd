"""Reports on programs that do something else than their config says."""

import os
import sys
from pathlib import Path

import pytest

from advisor.errors import FAILURE_EXIT_CODES, OPTIMIZE_EXIT_CODES
from advisor.sandbox.capabilities import FORCED
from tests.warm import Server

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "fixtures" / "programs" / "odd_infer.py"
SETTINGS = """\
[workload.tiles]
config = "c.yaml"
command = "{python} odd_infer.py {{config}}"
numeric-tolerance = "5%"
"""
LINES = """\
import pathlib, re, sys, time
batch = int(re.search("batch_size: ([0-9]+)", pathlib.Path(sys.argv[1]).read_text())[1])
if sys.argv[2:]:
    pathlib.Path("best.ckpt").write_text("worse weights")
while True:
    time.sleep(0.004 + 0.0001 * batch)
    print("done", batch, "tiles", flush=True)
"""
COUNTED = 'unit-regex = "done ([0-9]+) tiles"\nphase = "test"\n'
FIXED = "batch_size: 1   # must be 1: the tiles differ in size\n"

pytest.importorskip("torch")


def optimize(
    gpu_advisor: Server,
    folder: Path,
    config: str,
    how: str | None = None,
    *flags: str,
    program: str | None = None,
) -> tuple[int, str, str]:
    """Exit code, standard error and report of a call over `config`, whose bytes must stay.

    `program` stands in for the odd one, and needs no torch.
    """
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "odd_infer.py").write_text(program or PROGRAM.read_text())
    (folder / "c.yaml").write_text(config)
    settings = SETTINGS.format(python=sys.executable) + (COUNTED if program else "")
    (folder / "gpu-advisor.toml").write_text(settings)
    command = ["--", sys.executable, "odd_infer.py", "c.yaml", how] if how else []
    done = gpu_advisor.call(
        "optimize", "c.yaml", "--dry-run", "--window", "0.3s", "--budget", "60s", *flags, *command,
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert (folder / "c.yaml").read_text() == config
    report = folder / "report.md"
    return done.returncode, done.stderr, report.read_text() if report.exists() else ""


def row(report: str, knob: str) -> str:
    """Lines of the report's tables and lists about `knob`."""
    starts = (f"| `{knob}`", f"- `{knob}`")
    found = [line for line in report.splitlines() if line.startswith(starts)]
    assert found
    return "\n".join(found)


@pytest.mark.slow
@pytest.mark.nightly
def test_an_overridden_value_is_reported_with_the_used_one(tmp_path, gpu_advisor) -> None:
    """The line where the loader is built is named; autocast stays off without a card."""
    config = "batch_size: 2\nprecision: fp32\n"
    longer = ("--budget", "2m")  # that both knobs had their process on a busy machine too
    code, stderr, report = optimize(gpu_advisor, tmp_path, config, "overrides", *longer)
    assert code in OPTIMIZE_EXIT_CODES.values(), stderr
    lines = PROGRAM.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "DataLoader(" in text)
    used = {"batch_size": f"6 (DataLoader built at odd_infer.py:{line})", "precision": "float32"}
    for knob, value in used.items():
        assert "Ignored by the program" in row(report, knob)
        assert f"it uses {value} whatever the config says." in row(report, knob)


def test_a_users_file_is_not_overwritten_without_allow_writes(
    tmp_path, gpu_advisor, monkeypatch
) -> None:
    """Stopped where nothing isolates; with --allow-writes the report names the file."""
    monkeypatch.setenv(FORCED, "guard")
    mine = tmp_path / "best.ckpt"
    mine.write_text("good weights")
    code, stderr, report = optimize(gpu_advisor, tmp_path, FIXED, "overwrites", program=LINES)
    assert code == FAILURE_EXIT_CODES["outputs-not-apart"]
    assert mine.read_text() == "good weights"
    assert str(mine) in stderr
    assert "--allow-writes" in stderr
    assert report == ""
    code, stderr, report = optimize(
        gpu_advisor, tmp_path, FIXED, "overwrites", "--allow-writes", program=LINES
    )
    assert code == 0, stderr
    assert mine.read_text() == "worse weights", stderr
    assert "The command altered or removed files of yours: `best.ckpt`." in report
