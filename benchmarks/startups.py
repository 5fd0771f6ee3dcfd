"""Does every program get an answer inside its budget? Ten start-ups, one budget.

    python -m benchmarks.startups [--budget 4m] [--startup 1 --startup 35 ...] [--jobs 2]

Each program is the small sampler of the tests behind a start-up of so many seconds (a model that is
loaded over a slow disk), with a batch that starves it. Printed: the verdict, what was changed, what
was spent, and whether something was left to be tried.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from advisor.settings import parse_duration_s

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "fixtures" / "programs" / "opt_restore.py"
STARTUPS_S = (1, 2, 3, 5, 8, 12, 16, 21, 28, 35)
CONFIG = """\
inference:
  sampler: {num_inference_steps: 60}
  loader:
    batch_size: 1
    num_workers: 0
output_dir: results
"""


def one_program(startup_s: float, budget: str) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory(prefix="startup-") as folder:
        project = Path(folder)
        (project / ".git").mkdir()
        (project / "infer.yaml").write_text(CONFIG)
        shutil.copy(PROGRAM, project / "restore.py")
        slow = f"import runpy, time; time.sleep({startup_s}); runpy.run_path('restore.py')"
        (project / "main.py").write_text(slow + "\n")
        call = [sys.executable, "-m", "advisor", "optimize", "infer.yaml", "--budget", budget]
        begun = time.monotonic()
        done = subprocess.run(
            [*call, "--window", "2s", "--", sys.executable, "main.py", "--cfg", "infer.yaml"],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT), "GPU_ADVISOR_RUNTIME_DIR": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        spent_s = time.monotonic() - begun
        path = project / "report.json"
        if not path.exists():
            return f"| {startup_s:g} | exit {done.returncode} | {done.stderr[-200:]!r} | | | |"
        report = json.loads(path.read_text())
    gain = report["gain"] or {}
    bounds = f"{gain['low']:.2f} to {gain['high'] or 0:.2f}" if gain else "-"
    unspent = max(0.0, 1 - spent_s / parse_duration_s(budget))
    return (
        f"| {startup_s:g} | {report['verdict']} | {gain.get('ratio', 0):.2f}x ({bounds}), "
        f"{gain.get('pairs', 0)} rounds | {report['runs']} | {unspent:.0%} "
        f"| {'; '.join(report['skipped']) or '-'} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--budget", default="4m")
    parser.add_argument("--startup", type=float, action="append")
    parser.add_argument("--jobs", type=int, default=1, help="programs side by side")
    args = parser.parse_args()
    print("| start-up s | verdict | gain | processes | unspent | left out |")
    print("|--:|:--|:--|--:|--:|:--|")
    with ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(lambda s: one_program(s, args.budget), args.startup or STARTUPS_S):
            print(row, flush=True)


if __name__ == "__main__":
    main()
