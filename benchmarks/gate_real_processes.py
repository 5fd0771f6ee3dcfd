"""Verdicts of the gate on real processes of this machine.

    python benchmarks/gate_real_processes.py FILE [--gates 10] [--added 0 0.03 0.1]
    python benchmarks/gate_real_processes.py FILE --gates 0

A program that waits for most of its time is gated again and again, each gate in a repository of
its own with a real base and head commit, through the command that users call. Head takes longer
by a known share. FILE gains one line of JSON a gate, so that many calls make one table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACED = """
import time
start = time.perf_counter()
for _ in range(20):
    sum(range(2000))
    time.sleep(0.01 * {factor})
print("throughput:", 20 / (time.perf_counter() - start))
"""
VERDICTS = ("pass", "regression", "inconclusive")


def gate(added: float) -> dict[str, object]:
    """One gate in a fresh repository: its figures."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gate-real-") as folder:
        project, report = Path(folder, "project"), Path(folder, "gate.md")
        git = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost")
        subprocess.run(["git", "init", "-q", str(project)], check=True)
        for factor in (1.0, 1.0 + added):
            (project / "bench.py").write_text(PACED.format(factor=factor))
            subprocess.run([*git, "add", "-A"], cwd=project, check=True)
            words = [*git, "commit", "-q", "--allow-empty", "-m", "x"]
            subprocess.run(words, cwd=project, check=True)
        words = [sys.executable, "-m", "advisor", "gate", "--base-ref", "HEAD^"]
        words += ["--command", f"{sys.executable} bench.py", "--report", str(report)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            words, cwd=project, env=env, capture_output=True, text=True, check=False
        )
        if not report.with_suffix(".json").exists():
            sys.exit(done.stderr)
        record = json.loads(report.with_suffix(".json").read_text())
    kept = ("verdict", "slowdown_pct", "ci_low_pct", "ci_high_pct", "pairs", "discarded_pairs")
    figures = {key: record[key] for key in kept}
    noise = record["workloads"][0]["noise_pct"] if record["workloads"] else None
    seconds = round(time.monotonic() - started, 1)
    return {"added": added, **figures, "noise_pct": noise, "seconds": seconds}


def row(found: list[dict[str, object]]) -> str:
    """One line of the table."""
    counts = Counter(str(each["verdict"]) for each in found)
    shown: list[object] = [f"+{found[0]['added']:.0%}", len(found)]
    shown += [counts[name] for name in VERDICTS]
    shown.append(len(found) - sum(counts[name] for name in VERDICTS))
    for key in ("noise_pct", "pairs", "discarded_pairs", "seconds"):
        values = [float(str(each[key])) for each in found if each[key] is not None]
        shown.append(f"{statistics.fmean(values):.1f}" if values else "")
    return f"| {' | '.join(map(str, shown))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--gates", type=int, default=10, help="gates of each head (default 10)")
    parser.add_argument("--added", type=float, nargs="+", default=[0.0, 0.03, 0.1])
    args = parser.parse_args()
    for _ in range(args.gates):
        for added in args.added:
            found = gate(added)
            with args.file.open("a") as file:
                file.write(json.dumps(found) + "\n")
    every = [json.loads(line) for line in args.file.read_text().splitlines()]
    print("| head takes | gates | pass | regression | inconclusive | other | noise % | pairs "
          "| discarded | s |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for added in sorted({each["added"] for each in every}):
        print(row([each for each in every if each["added"] == added]))


if __name__ == "__main__":
    main()
