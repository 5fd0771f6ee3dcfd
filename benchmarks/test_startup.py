"""Start-up: a tool that is asked for help must not wait for what it will not use."""

import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

ROOT = Path(__file__).resolve().parents[1]

COMMANDS = {
    "bare python": ("-c", "pass"),
    "--help": ("-m", "advisor", "--help"),
    "optimize --help": ("-m", "advisor", "optimize", "--help"),
    "inspect": ("-m", "advisor", "inspect", "config/dem_completion.json"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_start_up(benchmark: BenchmarkFixture, name: str) -> None:
    argv = [sys.executable, *COMMANDS[name]]
    done = benchmark.pedantic(
        lambda: subprocess.run(argv, cwd=ROOT, capture_output=True, check=False),
        rounds=5,
        warmup_rounds=1,
    )
    assert done.returncode == 0
