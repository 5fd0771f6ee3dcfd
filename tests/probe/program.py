"""Runs a small program under the probe, with its own account of its work beside it."""

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.model import MeasurePlan, Run
from advisor.runner.measured_run import probed_run
from advisor.runner.measuring import Measuring
from advisor.runner.process_records import ProcessRecord, Records
from tests import light, warm

PROBE = Path(__file__).resolve().parents[2] / "advisor" / "probe"
PROGRAMS = Path(__file__).resolve().parents[1] / "fixtures" / "programs"
PLAN = MeasurePlan(measure_s=0.25, min_steps=10)
WHOLE = MeasurePlan(mode="whole")


def true_rate(path: Path, start: float, end: float) -> float:
    """Units/s of the steps that a program noted within [start, end), by its own clock.

    It notes a step a moment after (or before) the probe sees its end: at both edges alike, however
    long the machine stalls in between, so that the number of steps is exact.
    """
    inside = [units for time, units in noted_steps(path) if start <= time < end]
    assert inside, f"of {len(noted_steps(path))} steps none lies in the window"
    return sum(inside) / (end - start)


def noted_steps(path: Path) -> list[tuple[float, float]]:
    """(epoch seconds, units) of each step: a line each."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(float(time), float(units)) for time, units in lines]


@dataclass(frozen=True, kw_only=True)
class ProbedRun:
    """What came of one command."""

    reading: Run | None
    records: tuple[ProcessRecord, ...]
    """Of every process that joined."""
    exit_code: int
    stdout: str
    stderr: str
    truth_file: Path

    @property
    def measured(self) -> Run:
        assert self.reading is not None, self.stderr[-2000:]
        assert [(p.errors, p.unread) for p in self.records if p.errors or p.unread] == []
        return self.reading

    def true_rate(self, suffix: str = "") -> float:
        """Units/s by the program's own clock, over the window that the probe measured."""
        reading = self.measured
        path = Path(f"{self.truth_file}{suffix}")
        return true_rate(path, reading.window_start, reading.window_end)


Begun = subprocess.Popen[bytes] | warm.Call
Begin = Callable[..., Begun]
"""Begins a command in a session of its own, its output into files."""


def fresh(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: Path, stderr: Path
) -> Begun:
    """As a process of its own."""
    with stdout.open("wb") as said, stderr.open("wb") as complained:
        return subprocess.Popen(
            command, cwd=cwd, env=env, stdout=said, stderr=complained, start_new_session=True
        )


READ_AT_IMPORT = ("OMP_", "MKL_", "LD_")
"""Environment variables that torch's libraries read once."""
OF_SERVERS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""A thread that spins for its next part of an operation would take time of its own, and a CPU."""


def forked(command: Sequence[str], **how: Any) -> Begun:
    """`python PROGRAM ...` from a process that has imported torch before the probe comes."""
    env: Mapping[str, str] = how["env"]
    known = {**os.environ, **OF_SERVERS}
    changed = [name for name, value in env.items() if value != known.get(name)]
    if light.WHOLE in env or any(name.startswith(READ_AT_IMPORT) for name in changed):
        return fresh(command, **how)
    return with_torch().start(command[1:], **how)


def with_torch() -> warm.Server:
    """The one of this session."""
    return _served("torch")


def compiling(command: Sequence[str], **how: Any) -> Begun:
    """The same from one that has compiled before, of which torch.compile is imported, too."""
    return _served("compiler", **{light.WHOLE: "1"}).start(command[1:], **how)


@functools.cache
def _served(kind: str, **env: str) -> warm.Server:
    server = warm.Server(kind, {**os.environ, **OF_SERVERS, **env})
    atexit.register(server.close)
    return server


def run(
    scratch: Path,
    *command: str,
    plan: MeasurePlan = PLAN,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    allow_writes: bool = False,
    timeout_s: float = 60.0,
    begin: Begin = fresh,
) -> ProbedRun:
    """Run `command` as the launcher would: spec, PYTHONPATH, PATH, process group."""
    records = scratch / "probe"
    records.mkdir(parents=True)
    cwd = cwd or scratch / "cwd"
    cwd.mkdir(exist_ok=True)
    spec = scratch / "spec.json"
    spec.write_text(
        json.dumps(
            {
                "records": str(records),
                "free": [str(records)],
                "protect": str(cwd),
                "allow_writes": allow_writes,
                "plan": dataclasses.asdict(plan),
            }
        )
    )
    truth = scratch / "truth"
    environment = {**os.environ, "TRUTH": str(truth), **(env or {})}
    environment["GPU_ADVISOR_SPEC"] = str(spec)
    paths = [str(PROBE / "site"), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    here = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join([str(PROBE / "bin"), here, environment["PATH"]])
    said, complained = scratch / "stdout", scratch / "stderr"
    # Into files: loader workers, which hold a pipe for seconds longer, are not waited for.
    read_records, measuring = Records(records), Measuring(records, plan)
    with _temporary() as environment["TMPDIR"]:
        process = begin(command, cwd=cwd, env=environment, stdout=said, stderr=complained)
        end_s = time.monotonic() + timeout_s
        try:
            while process.poll() is None and time.monotonic() < end_s:
                time.sleep(0.02)
                measuring.update(read_records.read())
            process.wait(max(0.1, end_s - time.monotonic()))
        finally:
            _end(process)
    assert process.returncode is not None
    processes = measuring.finish(read_records.read())
    return ProbedRun(
        reading=probed_run(processes),
        records=processes,
        exit_code=process.returncode,
        stdout=said.read_text(),
        stderr=complained.read_text(),
        truth_file=truth,
    )


def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Where loader workers share tensors through sockets, whose paths are short; who is killed
    takes none of them away."""
    return tempfile.TemporaryDirectory(prefix="gpu-advisor-test-", ignore_cleanup_errors=True)


def _end(process: Begun) -> None:
    """The whole group; first those that still take away the semaphores of spawned workers."""
    end_s = time.monotonic() + 2.0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < end_s:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60.0)


def python(scratch: Path, program: str, *args: str, **options: Any) -> ProbedRun:
    """Run one of the fixture programs, which imports torch, with this interpreter."""
    options.setdefault("begin", forked)
    return run(scratch, sys.executable, str(PROGRAMS / program), *args, **options)


def in_a_file(folder: Path, code: str, **options: Any) -> ProbedRun:
    """Run a program of this code, which imports torch, to its own end."""
    (folder / "program.py").write_text(code)
    command = (sys.executable, str(folder / "program.py"))
    return run(folder, *command, plan=WHOLE, **{"begin": forked, **options})
