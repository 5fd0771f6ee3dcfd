"""Mutants of the gate's rule: each must be killed by the tests of the pure rooms.

    python -m benchmarks.gate_mutants [--json FILE]

A mutant is one changed piece of text in a copy of the package. The tests of the sequential test,
the verdict and the history run against the copy; a mutant that passes them survives.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "test_sequential_test.py", "test_gate_verdict.py", "test_gate_validity.py",
    "test_gate_history.py", "test_suites.py",
)  # fmt: skip


class Mutant(NamedTuple):
    """One changed piece of text."""

    file: str
    old: str
    new: str


RULE, VERDICT, COMPARISON, HISTORY = (
    "sequential_test.py", "verdict.py", "comparison.py", "history.py",
)  # fmt: skip
MUTANTS = (
    Mutant(RULE, '5: {"pass": 0.625, "regression": 0.0}', '5: {"pass": 0.625, "regression": 0.6}'),
    Mutant(RULE, '9: {"pass": 0.04, "regression": 0.0}', '9: {"pass": 0.04, "regression": 0.04}'),
    Mutant(RULE, '12: {"pass": 0.07, "regression": 0.10}', '12: {"pass": 0.07, "regression": 0.3}'),
    Mutant(RULE, '24: {"pass": 0.232', '24: {"pass": 0.532'),
    Mutant(RULE, "5: {", "6: {"),
    Mutant(RULE, "ALPHA = 0.05", "ALPHA = 0.10"),
    Mutant(RULE, "SERIAL_LIMIT = 1.645", "SERIAL_LIMIT = 16.45"),
    Mutant(RULE, ".high < self.tau", ".high <= self.tau * 3"),
    Mutant(RULE, ".low > self.tau <", ".low > 0 and self.tau <"),
    Mutant(RULE, "< statistics.fmean(self.values)", "< max(self.values)"),
    Mutant(RULE, "max(1, workloads - already - len(found))", "1"),
    Mutant(RULE, "workloads - already - len(found)", "workloads"),
    Mutant(RULE, "workloads - already - len(found)", "workloads - 1"),
    Mutant(RULE, "max(sides) < -apart", "max(sides) < apart"),
    Mutant(RULE, "min(sides) > apart", "min(sides) > -apart"),
    Mutant(RULE, "EVIDENT = math.log(1.5)", "EVIDENT = math.log(1.1)"),
    Mutant(RULE, "max(EVIDENT, most - least)", "EVIDENT"),
    Mutant(RULE, "max(EVIDENT, most - least)", "most - least"),
    Mutant(RULE, "(1 - CONFIDENCE) / 2", "(1 - CONFIDENCE)"),
    Mutant(RULE, "values[:look]", "values"),
    Mutant(RULE, "(2 - steps / around)", "(steps / around - 2)"),
    Mutant(RULE, "20 / (5 * n + 7)", "20 / (5 * n + 70)"),
    Mutant(RULE, "bisect_right(ordered, v) - 1", "bisect_left(ordered, v) - 1"),
    Mutant(RULE, "taus[key]", "next(iter(taus.values()))"),
    Mutant(RULE, "key not in decided and len(values) >= look", "len(values) >= look"),
    Mutant(RULE, "correlated -= ready.keys()", "correlated -= set()"),
    Mutant(VERDICT, "WORK_TOLERANCE = 0.01", "WORK_TOLERANCE = 0.3"),
    Mutant(VERDICT, "min(1.0, head / base)", "max(1.0, head / base)"),
    Mutant(VERDICT, "w.program == program.name]", "w.name.startswith(program.name)]"),
    Mutant(VERDICT, "if head < runs:", "if head < 1:"),
    Mutant(VERDICT, "if run.problem:", "if run.problem and run.arm == 'base':"),
    Mutant(VERDICT, "limits.benchmarks.get(key, share)", "share"),
    Mutant(VERDICT, "if too_many_discarded(program.pairs)", "if False"),
    Mutant(VERDICT, '"regression",\n    "error",', '"error",\n    "regression",'),
    Mutant(VERDICT, "or _different(rates, runs)", "or None"),
    Mutant(VERDICT, "else -slowdown", "else slowdown"),
    Mutant(VERDICT, "if not known or", "if"),
    Mutant(VERDICT, "max(-bounds.low, bounds.high)", "bounds.high"),
    Mutant(VERDICT, 'if record.verdict == "regression":', "if False:"),
    Mutant(COMPARISON, "sign = 1 if self.higher_is_better else -1", "sign = 1"),
    Mutant(COMPARISON, "if is_rate and interval.high < -self.tau", "if False"),
    Mutant(COMPARISON, "-math.log1p(-share) if", "math.log1p(share) if"),
    Mutant(COMPARISON, "if pair.order == order", "if True"),
    Mutant(VERDICT, "DISCARDS_ALLOWED = 0.25", "DISCARDS_ALLOWED = 0.75"),
    Mutant(VERDICT, "len(fell) > LOOKS[-1]", "False"),
    Mutant(VERDICT, "if alike and not needs_quiet", "if not needs_quiet"),
    Mutant(VERDICT, "if alike and not needs_quiet", "if alike"),
    Mutant(VERDICT, "<= STEAL_ALIKE", "<= 1"),
    Mutant(VERDICT, "> REASON_SHARE:\n                return", "> 0.5:\n                return"),
    Mutant(HISTORY, "FEWEST_SESSIONS = 10", "FEWEST_SESSIONS = 3"),
    Mutant(HISTORY, "limit = max(reach, tau)", "limit = reach"),
    Mutant(HISTORY, "limit = max(reach, tau)", "limit = tau"),
    Mutant(HISTORY, "if lost > max(apart, tau / 2)", "if False"),
    Mutant(HISTORY, "and not each.red]", "]"),
    Mutant(HISTORY, "if each.series == series and", "if"),
    Mutant(HISTORY, "return own[-WINDOW:]", "return own"),
    Mutant(HISTORY, "ALPHA / series", "ALPHA"),
)  # fmt: skip


def passes(folder: Path) -> bool:
    """The tests pass on the package in this folder."""
    words = [f"tests/gate/{name}" for name in TESTS]
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
    ).returncode
    if code not in {0, 1, 2}:  # 2: a mutant that cannot be imported
        sys.exit(f"pytest ended with {code}: no test was run")
    return code == 0


def survives(mutant: Mutant, folder: Path) -> bool:
    """The tests pass on a package with this change."""
    path = folder / "advisor" / "gate" / mutant.file
    original = path.read_text(encoding="utf-8")
    if mutant.old not in original:
        sys.exit(f"{mutant.file} holds no {mutant.old!r}: write the mutant anew")
    path.write_text(original.replace(mutant.old, mutant.new, 1), encoding="utf-8")
    try:
        return passes(folder)
    finally:
        path.write_text(original, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the survivors here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gate-mutants-") as name:
        folder = Path(name)
        for part in ("advisor", "tests", "docs"):
            shutil.copytree(ROOT / part, folder / part)
        shutil.copy(ROOT / "pyproject.toml", folder)
        if not passes(folder):
            sys.exit("the tests fail without any change")
        survivors = [mutant for mutant in MUTANTS if survives(mutant, folder)]
    print(f"{len(MUTANTS) - len(survivors)} of {len(MUTANTS)} mutants killed")
    for mutant in survivors:
        print(f"survived: {mutant.file}: {mutant.old!r} -> {mutant.new!r}")
    if args.json:
        args.json.write_text(json.dumps([m._asdict() for m in survivors]) + "\n", encoding="utf-8")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
