"""What the probe costs the program it watches, in instructions of the processor.

    python -m benchmarks.probe_instructions

Microseconds (`benchmarks.probe_overhead`) depend on the processor and on its other tenants;
instructions do not: two runs count the same within some hundredths of a percent. They are counted
by valgrind's cachegrind, which must be installed and takes some ten minutes: each row is of four
processes, with the hooks and without, of two lengths each, so that the start falls out of the
difference. The looks once a second are left out, for valgrind's seconds hold few steps.
Microseconds are told beside, at the rate at which this machine goes through the bare step's
instructions now.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import torch

from advisor.probe import control, hooks
from advisor.probe.session import Session
from benchmarks.probe_overhead import LOOPS, Loop

LENGTHS = (1_100, 2_100)
"""Steps of the shorter and the longer run: past what the probe learns in the first 257."""
ARMS = ("bare", "probed")
LIMIT_US = 15.0
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")


def steps(loop: str, arm: str, many: int) -> float:
    """Take so many steps; mean seconds of one."""
    control.BEAT_S = 1e9
    work = Loop()
    with tempfile.TemporaryDirectory() as folder:
        session = Session({"records": folder, "plan": {"mode": "observe"}})
        if arm == "probed":
            hooks.install(torch, session)
        gc.disable()
        seconds = work.take(work.batches(loop), many)
        with contextlib.suppress(OSError):
            session.patches.undo()
        if session.errors:
            raise RuntimeError(session.errors[0])
    return seconds


def instructions(loop: str, arm: str, many: int) -> int:
    """Of a whole process that takes so many steps. Raises RuntimeError without a count."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--branch-sim=no"]
    command += [f"--cachegrind-out-file={os.devnull}", sys.executable, "-m", __spec__.name]
    done = subprocess.run(
        [*command, "--take", loop, arm, str(many)],
        env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    found = COUNTED.search(done.stderr)
    if done.returncode or not found:
        msg = f"valgrind counted nothing: {done.stderr[-500:]}"
        raise RuntimeError(msg)
    return int(found[1].replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--take", nargs=3, metavar=("LOOP", "ARM", "STEPS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.take:
        loop, arm, many = args.take
        steps(loop, arm, int(many))
        return
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: it counts the instructions")
    shorter, longer = LENGTHS
    print("| loop | bare step | added a step | of the step | at this machine's rate | limit |")
    print("|:--|--:|--:|--:|--:|--:|")
    for loop in LOOPS:
        bare, probed = (
            (instructions(loop, arm, longer) - instructions(loop, arm, shorter))
            / (longer - shorter)
            for arm in ARMS
        )
        step_us = 1e6 * statistics.median(steps(loop, "bare", 500) for _ in range(9))
        share = (probed - bare) / bare
        print(
            f"| {loop} | {bare:,.0f} | {probed - bare:,.0f} | {share:.1%} "
            f"| {share * step_us:.1f} of {step_us:.0f} us | {LIMIT_US:g} us |",
            flush=True,
        )


if __name__ == "__main__":
    main()
