"""The failure matrix: real programs that fail in one way each are told apart.

`.ci/nightly` runs each twenty times.
"""

import json
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import FAILURE_EXIT_CODES
from advisor.model import Candidate, Failure, MeasurePlan, TrialFile
from advisor.runner.job import prepare
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import FORCED
from tests.runner.conftest import failed, processes_of, program
from tests.runs import a_change

pytestmark = pytest.mark.slow

MINE = {"best.ckpt": "good weights", "config.json": "{ }"}
"""What the user has in the working directory, and must have afterwards."""


@dataclass(frozen=True)
class Case:
    """A command that fails, and how it must be told."""

    kind: str
    command: tuple[str, ...]
    evidence: str
    tail: str = ""
    """What the log tail must hold; for a hang, a function that a thread waits in."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the Trial."""


def code(text: str) -> tuple[str, ...]:
    """A program of one line."""
    return (sys.executable, "-c", text)


BESIDE_A_BAR = """
import sys, traceback
for share in range(60):
    print(f"{share}%|####|", file=sys.stderr)
try:
    {}[7]
except KeyError:
    traceback.print_exc(file=sys.stdout)
    sys.exit(1)
"""
"""A logging library prints the traceback to the standard output, and a bar fills the other."""

WHOLE = {"plan": MeasurePlan(mode="whole"), "start_limit_s": 60.0}
WINDOW = WHOLE | {"plan": MeasurePlan(measure_s=1.0, min_steps=20)}
HANGING = WHOLE | {"hang_limit_s": 2.0}
COUNTED = {"plan": MeasurePlan(mode="whole", unit_regex="^step")}
"""Steps are told by the program's own lines: whether it imports torch makes no difference."""
TRAINING, WORKERS = "fail_training", "fail_workers"
CASES = {
    "package missing": Case(
        "crash-import", code("import package_that_nobody_has"), "package_that_nobody_has"
    ),
    "raises before a step": Case(
        "crash-start", code("raise RuntimeError('12 layers')"), "12 layers"
    ),
    "traceback beside a progress bar": Case(
        "crash-start", code(BESIDE_A_BAR), "KeyError: 7", tail="Traceback (most recent call last)"
    ),
    "no such command": Case("crash-start", ("no-such-command",), "no-such-command"),
    "unknown flag": Case(
        "config-rejected",
        program("fail_config_rejected", "--batch-szie", "8"),
        "unrecognized arguments: --batch-szie 8",
    ),
    "ends without a step": Case("no-steps", program("fail_no_steps"), "nothing to do"),
    "starts for ever": Case(
        "no-steps",
        program("fail_no_steps", "600"),
        "(start-limit 1s)",
        fields={"start_limit_s": 1.0},
    ),
    "host memory": Case("host-oom", code("bytearray(1 << 62)"), "MemoryError"),
    "killed": Case("killed", code("import os; os.kill(os.getpid(), 9)"), "SIGKILL"),
    "bus error of a worker": Case("shm", program(WORKERS, "bus-error"), "us error", fields=WINDOW),
    "overwrites": Case(
        "outputs-not-apart",
        program("fail_overwrites"),
        "best.ckpt",
        fields={"env": ((FORCED, "guard"),)},
    ),
    "disk full": Case("disk-full", ("bash", "-c", "echo much > /dev/full"), "No space left"),
    "writes, which Landlock denies": Case(
        "write-denied",
        program("fail_overwrites"),
        "best.ckpt",
        fields={"env": ((FORCED, "landlock"),)},
    ),
    "python -I": Case(
        "probe-not-loaded",
        (sys.executable, "-I", program("fail_no_steps")[1], "600"),  # long before its limits
        "-I",
        fields={"start_limit_s": 300.0, "total_limit_s": 60.0},
    ),
    "the probe fails": Case(
        "probe-not-loaded",
        program("fail_probe"),
        "ZeroDivisionError: no step has a length",
        tail="in broken",
        fields=WINDOW,
    ),
    "items failed": Case("work-not-done", ("echo", "Failed: 2"), "Failed: 2"),
    "interrupted": Case("interrupted", program("fail_no_steps", "600"), "stopped on request"),
    "GPU memory (text)": Case(
        "gpu-oom", code("raise RuntimeError('CUDA out of memory.')"), "CUDA out of memory"
    ),
    "GPU busy (text)": Case(
        "gpu-fault",
        code("raise RuntimeError('CUDA-capable devices are busy or unavailable')"),
        "unavailable",
    ),
    "raises in a step": Case(
        "crash-step",
        program(TRAINING, "crash"),
        "IndexError: index 12 is out of bounds",
        fields=WINDOW,
    ),
    "hangs in C": Case(
        "hang", program("fail_hangs"), "no step for", tail="lock_twice", fields=HANGING | COUNTED
    ),
    "loader worker hangs": Case(
        "hang", program(WORKERS, "hang"), "no step for", tail="read_for_ever", fields=HANGING
    ),
    "never ends": Case(
        "timeout",
        ("sh", "-c", "while :; do echo step; sleep 0.1; done"),
        "(run-limit 1s)",
        fields=COUNTED | {"total_limit_s": 1.0},
    ),
    "loss is nan": Case(
        "non-finite",
        program(TRAINING, "nan"),
        "is nan",
        fields=WINDOW | {"plan": MeasurePlan(measure_s=0.3, min_steps=20)},
    ),
    "GPU memory, caught": Case(
        "work-not-done", program(TRAINING, "swallowed-oom"), "CUDA out of memory", fields=WHOLE
    ),
}
"""At least one program a kind of FAILURE_EXIT_CODES."""


@pytest.mark.parametrize("name", CASES)
def test_each_failure_is_told_apart(name, make_trial, work) -> None:
    """Kind, evidence and next step are right; no process and no file is left behind."""
    case = CASES[name]
    for file, text in MINE.items():
        (work / file).write_text(text)
    candidate = TrialFile(original=str(work / "config.json"), content=b"{}")
    trial = make_trial(*case.command, files=(candidate,), **case.fields)
    cancel = threading.Event()
    timer = threading.Timer(0.5, cancel.set)
    if case.kind == "interrupted":
        timer.start()
    outcome = run_trial(trial, cancel=cancel)
    assert isinstance(outcome, Failure), outcome
    assert outcome.kind == case.kind, outcome
    assert case.evidence in outcome.evidence
    assert case.tail in outcome.log_tail
    assert outcome.next_step
    assert processes_of(trial.scratch) == []
    assert {path.name: path.read_text() for path in work.iterdir()} == MINE
    assert [path for path in prepare(trial).temporary if Path(path).exists()] == []


NO_PROGRAM = {"not-judged"}
"""A fault of ours, for which a program could be named only while there is one."""


def test_every_kind_has_a_program() -> None:
    assert {case.kind for case in CASES.values()} == FAILURE_EXIT_CODES.keys() - NO_PROGRAM


@pytest.mark.parametrize("content", ['{"num_workers": 12}', "{}", '{"num_workers": }'])
def test_an_error_that_names_a_changed_key_is_a_rejected_config(content, make_trial, work) -> None:
    """ValueError and KeyError before the first step about the change; a config that is no JSON."""
    config = work / "config.json"
    config.write_text('{"num_workers": 4}')
    change = a_change("num_workers", kind="num_workers", old=4, new=12)
    trial = make_trial(
        *program("fail_config_rejected", "--config=config.json"),
        candidate=Candidate(changes=(change,)),
        files=(TrialFile(original=str(config), content=content.encode()),),
    )
    outcome = failed(trial)
    assert outcome.kind == "config-rejected"
    assert "num_workers" in outcome.evidence or "JSONDecodeError" in outcome.evidence
    assert json.loads(config.read_text()) == {"num_workers": 4}
