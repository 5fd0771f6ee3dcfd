"""A whole `optimize` whose trials run by one engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """\
import re, time
batch = int(re.search(r'batch_size": ([0-9]+)', open("c.json").read())[1])
while True:
    time.sleep(0.02 if batch <= 4 else 0.005 * batch)
    print("done", batch, "signals", flush=True)
"""
SETTINGS = """\
[workload.lines]
config = "c.json"
command = "{python} lines.py {{config}}"
unit-regex = "done ([0-9]+) signals"
phase = "test"
[engine.{name}]
command = "{command}"
"""


def tuned(folder: Path, engine: str, command: str = "env") -> tuple[str, bytes]:
    """Verdict and config of a paced program, tuned by `engine`."""
    (folder / ".git").mkdir(parents=True)
    (folder / "lines.py").write_text(PROGRAM)
    (folder / "c.json").write_text('{\n  "batch_size": 1\n}\n')
    settings = SETTINGS.format(python=sys.executable, name=engine, command=command)
    (folder / "gpu-advisor.toml").write_text(settings)
    words = ("c.json", "--engine", engine, "--window", "0.2s", "--budget", "90s", "--json")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "optimize", *words],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict: str = json.loads(done.stdout)["verdict"]
    return verdict, (folder / "c.json").read_bytes()
