"""The failure matrix: real programs that fail in one way each are told apart, every time."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from advisor.errors import FAILURE_EXIT_CODES
from advisor.model import Candidate, Change, Failure, MeasurePlan, TrialFile
from advisor.trials import run_trial
from tests.trials.conftest import MakeTrial, processes_of, program

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command that fails, and how it must be told."""

    kind: str
    command: tuple[str, ...]
    evidence: str
    tail: str = ""
    """What the log tail must hold; for a hang, the function that a thread waits in."""
    limits: dict[str, Any] = field(default_factory=dict)


TRAINING = {"plan": MeasurePlan(measure_s=1.0, min_steps=20), "start_limit_s": 60.0}
ENDLESS = TRAINING | {"plan": MeasurePlan(mode="whole")}
CASES = {
    "import": Case(
        kind="crash-import",
        command=program("fail_crash_import"),
        evidence="No module named 'package_that_nobody_has'",
    ),
    "start": Case(kind="crash-start", command=program("fail_crash_start"), evidence="12 layers"),
    "no such command": Case(
        kind="crash-start", command=("no-such-command",), evidence="no-such-command"
    ),
    "flag": Case(
        kind="config-rejected",
        command=program("fail_config_rejected", "--batch-szie", "8"),
        evidence="unrecognized arguments: --batch-szie 8",
    ),
    "ends without a step": Case(
        kind="no-steps", command=program("fail_no_steps"), evidence="nothing to do"
    ),
    "starts for ever": Case(
        kind="no-steps",
        command=program("fail_no_steps", "600"),
        evidence="no step within 1 s",
        limits={"start_limit_s": 1.0},
    ),
    "host memory": Case(kind="host-oom", command=program("fail_host_oom"), evidence="MemoryError"),
    "killed": Case(kind="killed", command=program("fail_killed", "SIGKILL"), evidence="SIGKILL"),
    "killed in a shell": Case(
        kind="killed",
        command=("sh", "-c", " ".join(program("fail_killed", "SIGSEGV")) + "; exit $?"),
        evidence="SIGSEGV",
    ),
    "bus error": Case(kind="shm", command=program("fail_shm"), evidence="SIGBUS"),
    "overwrites": Case(
        kind="outputs-not-apart", command=program("fail_overwrites"), evidence="best.ckpt"
    ),
    "no probe": Case(
        kind="probe-not-loaded",
        command=(sys.executable, "-I", program("fail_no_steps")[1]),
        evidence="-I",
    ),
    "items failed": Case(kind="work-not-done", command=program("fail_items"), evidence="Failed: 2"),
    "GPU memory": Case(
        kind="gpu-oom",
        command=program("fail_training", "gpu-oom"),
        evidence="CUDA out of memory",
        limits=TRAINING,
    ),
    "step": Case(
        kind="crash-step",
        command=program("fail_training", "crash"),
        evidence="IndexError: index 12 is out of bounds",
        limits=TRAINING,
    ),
    "hang": Case(
        kind="hang",
        command=program("fail_training", "hang"),
        evidence="no step for",
        tail="wait_for_nobody",
        limits=TRAINING | {"hang_limit_s": 2.0},
    ),
    "time": Case(
        kind="timeout",
        command=program("fail_training", "never-ends"),
        evidence="still running",
        limits=ENDLESS | {"total_limit_s": 5.0},
    ),
    "loss": Case(
        kind="non-finite",
        command=program("fail_training", "nan"),
        evidence="is nan",
        limits=TRAINING,
    ),
    "swallowed": Case(
        kind="work-not-done",
        command=program("fail_training", "swallowed-oom"),
        evidence="CUDA out of memory",
        limits=ENDLESS,
    ),
}
QUICK = [name for name, case in CASES.items() if "fail_training" not in " ".join(case.command)]


def fail(make_trial: MakeTrial, work: Path, case: Case) -> Failure:
    """Run `case`; a Failure that left nothing behind, or the test fails."""
    (work / "best.ckpt").write_text("good weights")
    trial = make_trial(*case.command, **case.limits)
    outcome = run_trial(trial)
    assert isinstance(outcome, Failure), outcome
    assert (outcome.kind, case.evidence in outcome.evidence) == (case.kind, True), outcome
    assert case.tail in outcome.log_tail
    assert processes_of(trial.scratch) == []
    assert [path.name for path in work.iterdir()] == ["best.ckpt"]
    assert (work / "best.ckpt").read_text() == "good weights"
    return outcome


@pytest.mark.parametrize("name", CASES)
def test_each_failure_is_told_apart(name: str, make_trial: MakeTrial, work: Path) -> None:
    """Kind, evidence and next step are right; no process and no file is left behind."""
    outcome = fail(make_trial, work, CASES[name])
    assert outcome.next_step
    assert outcome.kind in FAILURE_EXIT_CODES


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_failure_is_told_apart_every_time(
    name: str, make_trial: MakeTrial, work: Path
) -> None:
    """Twenty repeats, no misclassification."""
    for _ in range(20):
        fail(make_trial, work, CASES[name])


def test_a_config_that_is_no_json_is_a_rejected_config(make_trial: MakeTrial, work: Path) -> None:
    """The original itself is read; the parser's message is the evidence."""
    (work / "config.json").write_text('{"num_workers": }')
    outcome = run_trial(make_trial(*program("fail_config_rejected", "-c", "config.json")))
    assert isinstance(outcome, Failure)
    assert outcome.kind == "config-rejected"
    assert "JSONDecodeError" in outcome.evidence


@pytest.mark.parametrize("content", [{"num_workers": 12}, {}])
def test_an_error_that_names_a_changed_key_is_a_rejected_config(
    content: dict[str, int], make_trial: MakeTrial, work: Path
) -> None:
    """ValueError and KeyError before the first step, about what the candidate changed."""
    config = work / "config.json"
    config.write_text('{"num_workers": 4}')
    change = Change(
        document="config.json", path="num_workers", kind="num_workers", knob_class="free",
        old=4, new=12,
    )  # fmt: skip
    trial = make_trial(
        *program("fail_config_rejected", "--config=config.json"),
        candidate=Candidate(changes=(change,)),
        files=(TrialFile(original=str(config), content=json.dumps(content).encode()),),
    )
    outcome = run_trial(trial)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "config-rejected"
    assert "num_workers" in outcome.evidence
    assert [path.name for path in work.iterdir()] == ["config.json"]


def test_a_cancelled_trial_ends_as_interrupted(make_trial: MakeTrial) -> None:
    """Setting the event ends the program long before its own end."""
    trial = make_trial(*program("fail_no_steps", "600"))
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    outcome = run_trial(trial, cancel=cancel)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "interrupted"
    assert processes_of(trial.scratch) == []
