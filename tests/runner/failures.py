"""The failure matrix as data: programs that fail in one way each, and how each must be told.

`attempt` runs one to its end, `abandon` kills the parent in the middle; both return what was wrong.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.executor.engines import scratch_dir
from advisor.model import Candidate, Failure, MeasurePlan, Run, Trial, TrialFile
from advisor.runner import run_trial
from advisor.runner.job import prepare
from advisor.sandbox.capabilities import FORCED
from tests.runner.conftest import processes_of, program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
GONE_S = 30.0
"""For the supervisor to take everything away after its parent died."""
PLACE = Path(tempfile.gettempdir(), f"gpu-advisor-failures-{os.getpid()}")
"""Of all attempts: for each path it is tried once what isolates it."""
MINE = {"best.ckpt": "good weights", "config.json": "{ }"}
"""What the user has in the working directory, and must have afterwards."""


@dataclass(frozen=True)
class Case:
    """A command that fails, and how it must be told."""

    kind: str
    command: tuple[str, ...]
    evidence: str
    tail: tuple[str, ...] = ()
    """What the log tail must hold; for a hang, the functions that its threads wait in."""
    limits: dict[str, Any] = field(default_factory=dict)
    """Fields of the Trial."""
    cancel_s: float | None = None
    """Cancelled after so long."""


TRAINING = {"plan": MeasurePlan(measure_s=1.0, min_steps=20), "start_limit_s": 60.0}
HANGING = TRAINING | {"plan": MeasurePlan(mode="whole"), "hang_limit_s": 2.0}
COUNTED = {"plan": MeasurePlan(mode="whole", unit_regex="^step")}
"""Steps are told by the program's own lines: whether it imports torch makes no difference."""
ENDLESS = TRAINING | {"plan": MeasurePlan(mode="whole")}
CASES = {
    "package missing": Case(
        "crash-import", program("fail_crash_import"), "No module named 'package_that_nobody_has'"
    ),
    "raises before a step": Case("crash-start", program("fail_crash_start"), "12 layers"),
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
        "no step within 1 s",
        limits={"start_limit_s": 1.0},
    ),
    "host memory": Case("host-oom", program("fail_host_oom"), "MemoryError"),
    "killed": Case("killed", program("fail_killed", "SIGKILL"), "SIGKILL"),
    "killed in a shell": Case(
        "killed", ("sh", "-c", " ".join(program("fail_killed", "SIGSEGV")) + "; exit $?"), "SIGSEGV"
    ),
    "bus error": Case("shm", program("fail_shm"), "SIGBUS"),
    "bus error of a worker": Case(
        "shm", program("fail_workers", "bus-error"), "us error", limits=TRAINING
    ),
    "overwrites": Case(
        "outputs-not-apart",
        program("fail_overwrites"),
        "best.ckpt",
        limits={"env": ((FORCED, "guard"),)},
    ),
    "disk full": Case("disk-full", ("bash", "-c", "echo much > /dev/full"), "No space left"),
    "writes, which Landlock denies": Case(
        "write-denied",
        program("fail_overwrites"),
        "best.ckpt",
        limits={"env": ((FORCED, "landlock"),)},
    ),
    "python -I": Case(
        "probe-not-loaded",
        (sys.executable, "-I", program("fail_no_steps")[1], "600"),  # long before its limits
        "-I",
        limits={"start_limit_s": 300.0, "total_limit_s": 60.0},
    ),
    "the probe fails": Case(
        "probe-not-loaded",
        program("fail_probe"),
        "ZeroDivisionError: no step has a length",
        tail=("in broken",),
        limits=TRAINING,
    ),
    "items failed": Case("work-not-done", program("fail_items"), "Failed: 2"),
    "interrupted": Case(
        "interrupted", program("fail_no_steps", "600"), "stopped on request", cancel_s=0.5
    ),
    "GPU memory (text)": Case("gpu-oom", program("fail_gpu", "memory"), "CUDA out of memory"),
    "GPU busy (text)": Case("gpu-fault", program("fail_gpu", "busy"), "busy or unavailable"),
    "raises in a step": Case(
        "crash-step",
        program("fail_training", "crash"),
        "IndexError: index 12 is out of bounds",
        limits=TRAINING,
    ),
    "hangs": Case(
        "hang",
        program("fail_training", "hang"),
        "no step for",
        tail=("wait_for_nobody",),
        limits=HANGING,
    ),
    "hangs in C": Case(
        "hang",
        program("fail_hangs"),
        "no step for",
        tail=("lock_twice",),
        limits=HANGING | COUNTED,
    ),
    "loader worker hangs": Case(
        "hang",
        program("fail_workers", "hang"),
        "no step for",
        tail=("read_for_ever", "_try_get_data"),
        limits=HANGING,
    ),
    "never ends": Case(
        "timeout",
        ("sh", "-c", "while :; do echo step; sleep 0.1; done"),
        "still running",
        limits=COUNTED | {"total_limit_s": 1.0},
    ),
    "loss is nan": Case(
        "non-finite",
        program("fail_training", "nan"),
        "is nan",
        limits=TRAINING | {"plan": MeasurePlan(measure_s=0.3, min_steps=20)},
    ),
    "GPU memory, caught": Case(
        "work-not-done",
        program("fail_training", "swallowed-oom"),
        "CUDA out of memory",
        limits=ENDLESS,
    ),
}
"""At least one program a kind of FAILURE_EXIT_CODES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One run of a case, and everything about it that was not as it must be."""

    outcome: Run | Failure | None
    """None where the parent was killed before there was one."""
    wrong: tuple[str, ...] = ()
    """How it was told, where that is not how it must be told."""
    processes: tuple[str, ...] = ()
    """Left running."""
    files: tuple[str, ...] = ()
    """Left behind, changed or missing."""

    @property
    def problems(self) -> tuple[str, ...]:
        return (*self.wrong, *self.processes, *self.files)


def attempt(case: Case) -> TrialResult:
    """Run `case` to its end."""
    with _place(case) as (trial, left):
        cancel = threading.Event()
        timer = threading.Timer(case.cancel_s or 0.0, cancel.set)
        if case.cancel_s is not None:
            timer.start()
        outcome = run_trial(trial, cancel=cancel)
        timer.cancel()
        processes = tuple(map(str, processes_of(trial.scratch)))
        return TrialResult(
            outcome=outcome, wrong=_told(case, outcome), processes=processes, files=left()
        )


def abandon(case: Case, after_s: float) -> TrialResult:
    """Start `case` as a use case does, kill -9 that process after `after_s`, and look around."""
    with _place(case) as (trial, left):
        temporary = Path(trial.scratch).parent / "tmp"
        temporary.mkdir()
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(temporary)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert parent.stdin is not None
        parent.stdin.write(pickle.dumps(trial))
        parent.stdin.close()
        time.sleep(after_s)
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + GONE_S
        while True:  # what tries the isolation is no process of a trial, and goes by itself
            running = processes_of(str(temporary))
            kept = tuple(map(str, _swept(temporary)))
            if not (running or kept) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return TrialResult(outcome=None, processes=tuple(map(str, running)), files=(*left(), *kept))


def _swept(temporary: Path) -> list[Path]:
    """What is left once the next call has removed the folders of killed ones."""
    for folder in scratch_dir.calls_in(temporary):
        with contextlib.suppress(OSError):
            os.utime(folder, (1, 1))
    for folder in scratch_dir.abandoned(temporary):
        scratch_dir.remove_tree(str(folder))
    return list(temporary.iterdir())


PARENT = """\
import pickle, sys
from dataclasses import replace
from advisor.executor.engines.scratch_dir import scratch_folder
from advisor.runner import run_trial
trial = pickle.load(sys.stdin.buffer)
with scratch_folder() as folder:
    run_trial(replace(trial, scratch=str(folder / "001")))
"""


@contextmanager
def _place(case: Case) -> Iterator[tuple[Trial, Callable[[], tuple[str, ...]]]]:
    """A trial of `case` in a directory of its own, and what says which files were left."""
    PLACE.mkdir()
    try:
        work = PLACE / "work"
        work.mkdir()
        for name, text in MINE.items():
            (work / name).write_text(text)
        fields: dict[str, Any] = {
            "id": "7",
            "purpose": "baseline",
            "label": "original",
            "candidate": Candidate(),
            "files": (TrialFile(original=str(work / "config.json"), content=b"{}"),),
        }
        trial = Trial(
            command=case.command,
            cwd=str(work),
            scratch=str(PLACE / "scratch"),
            **fields | case.limits,
        )

        def left() -> tuple[str, ...]:
            there = {path.name: path.read_text() for path in work.iterdir()}
            changed = {name for name, text in MINE.items() if there.get(name) != text}
            temporary = [path for path in prepare(trial).temporary if Path(path).exists()]
            return (
                *sorted((there.keys() - MINE.keys()) | changed),
                *temporary,
            )

        yield trial, left
    finally:
        shutil.rmtree(PLACE)


def _told(case: Case, outcome: Run | Failure) -> tuple[str, ...]:
    """Why `outcome` is not what must be told of `case`."""
    if isinstance(outcome, Run):
        return ("measured",)
    wrong = [] if outcome.kind == case.kind else [outcome.kind]
    if case.evidence not in outcome.evidence:
        wrong.append(f"evidence: {outcome.evidence}")
    wrong += [f"not in the tail: {text}" for text in case.tail if text not in outcome.log_tail]
    return tuple(wrong) if outcome.next_step else (*wrong, "no next step")
