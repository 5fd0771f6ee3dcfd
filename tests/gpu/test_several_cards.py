"""The tool on a host with several equal cards, simulated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import nvml_stub, simulated_gpu
from tests.light import PYTHONPATH

PROGRAMS = Path(__file__).resolve().parents[1] / "fixtures" / "programs"

pytest.importorskip("torch")


def tuned(folder: Path, count: int) -> tuple[str, str]:
    """Config that `optimize` wrote on `count` cards, and its progress."""
    project = folder / "project"
    (project / ".git").mkdir(parents=True)
    config = project / "test.json"
    config.write_text('{"batch_size": 4, "lr": 0.01}\n')
    cards = [simulated_gpu.Card(uuid=f"GPU-{n}0000000-0000-0000-0000-000000000000") for n in "1234"]
    stub = nvml_stub.build(folder / "nvml")
    table: dict[str, object] = {**nvml_stub.H100, "count": count, "memory.used": nvml_stub.GIB}
    stub.write(table | {f"gpu{n}.uuid": card.uuid for n, card in enumerate(cards)})
    own = {
        "PYTHONPATH": os.pathsep.join([PYTHONPATH, str(PROGRAMS)]),
        "GPU_ADVISOR_RUNTIME_DIR": str(folder),
        "NO_COLOR": "1",
    }
    base = stub.env({**os.environ, **own})
    words = ["optimize", "test.json", "--budget", "5m", "--window", "1s", "--"]
    program = [str(PROGRAMS / "gpu_tuned.py"), "--config", "test.json", "--evaluate"]
    done = subprocess.run(
        [sys.executable, "-m", "advisor", *words, sys.executable, *program],
        cwd=project,
        env=simulated_gpu.environment(cards[:count], base=base),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return config.read_text(), done.stderr


@pytest.mark.slow
def test_four_cards_tune_what_one_card_tunes(tmp_path) -> None:
    """Trials run on all of them at once."""
    alone, _ = tuned(tmp_path / "one", 1)
    written, progress = tuned(tmp_path / "four", 4)
    assert written == alone
    assert '"batch_size": 4,' not in written
    assert "4 equal cards" in progress
