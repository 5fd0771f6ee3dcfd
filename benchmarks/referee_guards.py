"""What an edit cannot fake, each guard taken out: does its test see that?

    python -m benchmarks.referee_guards [CLAIM ...]

`docs/referee.md` says what no edit can fake, and names a test for each line. A copy of the tree is
made for each guard, the guard is cut out of it, and that test runs there: it should fail. First it
runs in a copy with all guards, where it should pass.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("advisor", "tests", "templates", "benchmarks", "config", "docs", "pyproject.toml")
WORK = "tests/gate/test_referee_work.py"


@dataclass(frozen=True, slots=True)
class Cut:
    """Source that is replaced in one file."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Guard:
    """One line of the page, what holds it, and its test."""

    claim: str
    test: str
    cuts: tuple[Cut, ...]


REFEREE = "advisor/gate/referee.py"
SAME_WORK = Cut(
    REFEREE, "for difference in same_work.differences(base, head[-1]):", "for difference in ():"
)
FACTS = Cut(REFEREE, "for sentence in work_differences(base, head):", "for sentence in ():")
PAIRS = Cut(
    "advisor/gate/verdict.py",
    "def _less_work(",
    "def _less_work(*_):\n    return None\n\n\ndef _unused(",
)
UNITS = Cut(
    "advisor/gate/verdict.py",
    "def _different(",
    "def _different(*_):\n    return None\n\n\ndef _unused_too(",
)
SKIPPED = f"{WORK}::test_less_or_other_work_is_dropped_before_any_pair"
NEVER = ":= (lambda *_: None)("
REALLY_WRITTEN = "        return kernel.bind(path, target, deep=True)\n"
GUARDS = (
    Guard("half of the batches", f"{SKIPPED}[half of the batches]", (SAME_WORK, FACTS, PAIRS)),
    Guard("fewer items", f"{SKIPPED}[fewer items]", (SAME_WORK, FACTS, PAIRS)),
    Guard("larger batches", f"{SKIPPED}[larger batches]", (SAME_WORK, FACTS, PAIRS)),
    Guard(
        "a smaller model", f"{SKIPPED}[a smaller model]",
        (Cut(REFEREE, ":= smaller_model(", NEVER),),
    ),
    Guard(
        "other outputs", f"{SKIPPED}[other outputs]",
        (
            Cut(REFEREE, ":= output_check.output_regression(", NEVER),
            Cut(REFEREE, ":= outputs_apart(", NEVER),
        ),
    ),
    Guard(
        "work put off", f"{SKIPPED}[work put off]",
        (Cut(REFEREE, ":= later_end(", NEVER),),
    ),
    Guard(
        "a rate of another source",
        "tests/gate/test_referee.py::test_uncommitted_changes_are_kept_or_dropped_after_the_fewest_pairs",
        (UNITS,),
    ),
    Guard(
        "the program's clock", f"{WORK}::test_a_clock_that_the_program_patches_moves_no_rate",
        (
            Cut(
                "advisor/probe/clocks.py", "clock = perf_counter\n",
                "import time\n\n\ndef clock():\n    return time.perf_counter()\n\n\n"
                "def monotonic():\n    return time.monotonic()\n\n\n",
            ),
        ),
    ),
    Guard(
        "what a run left", f"{WORK}::test_what_a_run_left_is_gone_in_the_next",
        (
            Cut(
                "advisor/sandbox/overlay.py", "        _lay_over(lower, target,",
                f"{REALLY_WRITTEN}        _lay_over(lower, target,",
            ),
        ),
    ),
    Guard(
        "a base that is slowed",
        "tests/gate/test_gate_attacks.py::test_no_attack_works_and_each_arm_is_measured_all_the_same",
        (Cut("advisor/sandbox/overlay.py", "processes=not self._foreign", "processes=True"),),
    ),
    Guard(
        "code of the other arm",
        "tests/gate/test_gate_origins.py::test_base_that_runs_a_file_of_head_is_invalid",
        (
            Cut(
                "advisor/gate/process.py",
                "loaded(scratch, checkout.top, self.between) if self.between else None", "None",
            ),
        ),
    ),
)  # fmt: skip


def passes(guard: Guard, *, cut: bool) -> bool:
    """Run the test of `guard` in a copy of the tree, with the guard cut out or not."""
    with tempfile.TemporaryDirectory(prefix="guards-") as name:
        tree = Path(name)
        for each in COPIED:
            source = ROOT / each
            if source.is_dir():
                shutil.copytree(source, tree / each, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, tree)
        for each in guard.cuts if cut else ():
            path = tree / each.file
            text = path.read_text()
            if text.count(each.old) != 1:
                msg = f"{each.file} has not one `{each.old}`: name the guard anew"
                raise RuntimeError(msg)
            path.write_text(text.replace(each.old, each.new))
        words = (sys.executable, "-m", "pytest", "-q", "-n", "1", guard.test)
        done = subprocess.run(
            words, cwd=tree, env={**os.environ, "PYTHONPATH": name},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode not in (0, 1):
        msg = f"{guard.test} did not run:\n{done.stdout[-800:]}{done.stderr[-800:]}"
        raise RuntimeError(msg)
    return done.returncode == 0


def main() -> int:
    """Print a row for each guard; 1 unless each test passes with its guard and fails without."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("claims", nargs="*", metavar="CLAIM")
    args = parser.parse_args()
    print("| what an edit cannot fake | test, with its guard | without | s |\n|:--|:--|:--|--:|")
    right = True
    for guard in GUARDS:
        if args.claims and guard.claim not in args.claims:
            continue
        began = time.monotonic()
        held, seen = passes(guard, cut=False), not passes(guard, cut=True)
        right &= held and seen
        shown = "passes" if held else "FAILS", "fails" if seen else "PASSES"
        print(
            f"| {guard.claim} | {' | '.join(shown)} | {time.monotonic() - began:.0f} |", flush=True
        )
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
