"""Verdicts of the gate on real processes of this machine.

    python benchmarks/gate_real_processes.py [--gates 20] [--json FILE]

Two programs are gated again and again, each gate in a repository of its own with a real base and
head commit, through the command that users call:

paced     over 80 % of its time is timed waits, about 1 s a run: what a quiet runner is like
compute   matrix products on all CPUs that this machine shares with others

For each the head is the same code, or slower by a known share; the table counts the verdicts.
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
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PACED = """
import time
start = time.perf_counter()
for _ in range(40):
    sum(range(2000))
    time.sleep(0.02 * {factor})
print("throughput:", 40 / (time.perf_counter() - start))
"""

COMPUTE = """
import time
import numpy
matrix = numpy.random.default_rng(0).standard_normal((384, 384), dtype=numpy.float32)
for _ in range(10):
    matrix @ matrix
rounds = round(100 * {factor})
start = time.perf_counter()
for _ in range(rounds):
    matrix @ matrix
print("throughput:", 100 / (time.perf_counter() - start))
"""

PROGRAMS = {"paced": (PACED, (0.0, 0.03, 0.10)), "compute": (COMPUTE, (0.0,))}
"""Program, and by how much longer head takes in each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Many gates of one program against one head."""

    program: str
    added_time: float
    gates: int
    verdicts: dict[str, int]
    noise_pct: float | None
    """Median over the gates: spread (one standard deviation) between processes of one arm."""
    pairs: float
    seconds: float


def gate(source: str, added_time: float, max_minutes: float) -> dict[str, object]:
    """One gate in a fresh repository; the record."""
    with tempfile.TemporaryDirectory(prefix="gate-real-") as folder:
        project, report = Path(folder, "project"), Path(folder, "gate.md")
        project.mkdir()
        git = [
            "git",
            "-C",
            str(project),
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@localhost",
        ]
        subprocess.run([*git, "init", "-q"], check=True)
        for factor in (1.0, 1.0 + added_time):
            (project / "bench.py").write_text(source.format(factor=factor))
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "advisor",
                    "gate",
                    "--command",
                    f"{sys.executable} bench.py",
                ),
                *("--base-ref", "HEAD^", "--max-minutes", str(max_minutes)),
                *("--report", str(report)),
            ],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.with_suffix(".json").exists():
            sys.exit(done.stderr)
        record: dict[str, object] = json.loads(report.with_suffix(".json").read_text())
        return record


def measure(program: str, added_time: float, gates: int, max_minutes: float) -> Row:
    """`gates` gates, one after the other."""
    started = time.monotonic()
    source, _ = PROGRAMS[program]
    records = []
    for number in range(1, gates + 1):
        records.append(gate(source, added_time, max_minutes))
        print(f"{program} +{added_time:.0%}, gate {number}: {shown(records[-1])}", file=sys.stderr)
    workloads = [record["workloads"][0] for record in records]  # type: ignore[index]

    def middle(key: str) -> float | None:
        values = [w[key] for w in workloads if w[key] is not None]
        return statistics.median(values) if values else None

    return Row(
        program=program,
        added_time=added_time,
        gates=gates,
        verdicts=dict(Counter(str(record["verdict"]) for record in records)),
        noise_pct=middle("noise_pct"),
        pairs=middle("pairs") or 0.0,
        seconds=time.monotonic() - started,
    )


def shown(record: dict[str, object]) -> str:
    keys = ("verdict", "slowdown_pct", "ci_low_pct", "ci_high_pct", "pairs")
    return ", ".join(f"{key} {record[key]}" for key in keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gates", type=int, default=20, help="gates a row (default 20)")
    parser.add_argument("--max-minutes", type=float, default=10, help="budget of one gate")
    parser.add_argument("--only", choices=PROGRAMS, help="one of the two tables")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    rows = []
    for program, (_, changes) in PROGRAMS.items():
        if args.only in {None, program}:
            print(f"\n{program}, {args.gates} gates a row\n")
            print("| head takes | pass | regression | inconclusive | other | noise % | pairs | s |")
            print("|---|---|---|---|---|---|---|---|")
            for change in changes:
                row = measure(program, change, args.gates, args.max_minutes)
                rows.append(row)
                print(line(row), flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


def line(row: Row) -> str:
    known = ("pass", "regression", "inconclusive")
    counts = [row.verdicts.get(name, 0) for name in known]
    noise = "" if row.noise_pct is None else f"{row.noise_pct:.1f}"
    cells = [f"+{row.added_time:.0%} time", *counts, row.gates - sum(counts), noise]
    return "| " + " | ".join(map(str, [*cells, f"{row.pairs:.0f}", f"{row.seconds:.0f}"])) + " |"


if __name__ == "__main__":
    main()
