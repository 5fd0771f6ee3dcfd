"""Calls on a host with several equal cards, simulated."""

import os
import sys
from pathlib import Path

from tests import nvml_stub, simulated_gpu
from tests.light import PYTHONPATH
from tests.support.processes import ran

PROGRAMS = Path(__file__).resolve().parents[1] / "fixtures" / "programs"


def tuned(folder: Path, count: int, *flags: str, window: str = "1s") -> tuple[str, str]:
    """Config that `optimize` wrote on `count` cards, and its progress; `flags` of the program."""
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
    words = ["optimize", "test.json", "--budget", "5m", "--window", window, "--"]
    program = [str(PROGRAMS / "gpu_tuned.py"), "--config", "test.json", *flags]
    command = [sys.executable, "-m", "advisor", *words, sys.executable, *program]
    done = ran(*command, cwd=project, env=simulated_gpu.environment(cards[:count], base=base))
    assert done.returncode == 0, done.stderr
    return config.read_text(), done.stderr
