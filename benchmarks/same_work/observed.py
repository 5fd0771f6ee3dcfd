"""What is said of one run of a changed config beside two of the original: same work, or not."""

import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import yaml

from advisor.commands import invocation
from advisor.commands.measuring import measuring_of
from advisor.model import Candidate, Failure, MeasurePlan, Run
from advisor.tuner import output_check, same_work
from benchmarks.same_work.programs import Program

PLAN = MeasurePlan(measure_s=1.5, min_steps=8)
IN_PARTS = MeasurePlan(measure_s=1.5, min_steps=8, ceilings_workers=(0,), ceilings_s=0.5)
"""As the first run of a search, in which items are asked for twice."""


def main(programs: Iterable[Program]) -> int:
    """Print a row for each program, then the counts; 1 where harm was called the same work."""
    print("| program | truth | told | rate | right |")
    print("|:--|:--|:--|--:|:--|")
    wrong: list[tuple[bool, bool]] = []
    with tempfile.TemporaryDirectory(prefix="same-work-") as top:
        os.environ["GPU_ADVISOR_RUNTIME_DIR"] = top
        for program in programs:
            folder = Path(top, program.name)
            folder.mkdir()
            with chdir(folder):
                told, rate = compared(program)
            right = told.startswith("failed") is False and bool(told) is bool(program.harmful)
            wrong.append((bool(program.harmful), not right))
            truth = "harmful" if program.harmful else "free"
            print(
                f"| {program.name} | {truth} | {told or 'the same work'} | {rate:.3g} "
                f"| {'yes' if right else 'NO'} |",
                flush=True,
            )
    harms, frees = ([bad for harm, bad in wrong if harm is kind] for kind in (True, False))
    print(
        f"\nharm called the same work: {sum(harms)} of {len(harms)}; "
        f"free changes refused: {sum(frees)} of {len(frees)}"
    )
    return int(any(harms))


def compared(program: Program) -> tuple[str, float]:
    """First sentence on what differs, or nothing; and the changed config's share of the rate."""
    Path("train.py").write_text(program.source)
    first = run_of(program.config, IN_PARTS)
    plan = replace(PLAN, one_seed=isinstance(first, Run) and first.updates)
    second, after = (run_of(config, plan) for config in (program.config, program.changed))
    for run in (first, second, after):
        if isinstance(run, Failure):
            return f"failed: {run.kind}", 0.0
    assert isinstance(first, Run)
    assert isinstance(second, Run)
    assert isinstance(after, Run)
    rate = after.units_per_s / second.units_per_s
    if after.counted == "row of a forward":
        return "no item was seen to be finished", rate
    found = [each.sentence for each in same_work.differences([first, second], after)]
    lost = output_check.output_regression([first, second], after)
    return (found or [lost])[0], rate


def run_of(config: dict[str, object], plan: MeasurePlan) -> Run | Failure:
    """One run of the program in this folder."""
    path = Path("config.yaml")
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    asked = invocation.resolve(
        [path], [sys.executable, "train.py", path.name],
        workload=None, use_case="profile", with_options=False,
    )  # fmt: skip
    with measuring_of(asked).trials() as run:
        return run(plan, Candidate())
