"""Classification of endings that cannot be brought about here, or not quickly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from advisor.runner.classify import log_tail
from advisor.runner.process_records import ProgramException
from advisor.runner.resources import OomKills, oom_kills
from tests.runner.endings import BOOTED, DIED, DONE, STEPPED, failure_of, kind_of

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.runner.monitor import End
    from advisor.runner.process_records import ProcessRecord


def raised(kind: str, message: str, where: str = "start") -> ProgramException:
    return ProgramException(type=kind, message=message, where=where)


def ended(process: ProcessRecord, problem: ProgramException, **facts: Any) -> ProcessRecord:
    """The process, which `problem` ended."""
    return replace(process, exception=problem, **facts)


TORCHRUN = """
============================================================
ddp.py FAILED
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 8)  (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 8
"""
SPAWN = (
    "\n\n-- Process 0 terminated with the following error:\n"
    'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: odd\n'
)
LAUNCHER = ended(BOOTED, raised("ChildFailedError", TORCHRUN), pid=1)
LOST = raised("RuntimeError", "pair.cc:553] Connection closed by peer [127.0.0.1]", "step")
CAUSE = raised("RuntimeError", "shapes do not match", "step")
RAN_OUT = raised("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB", "forward")


@pytest.mark.parametrize(
    ("processes", "output", "kind", "evidence"),
    [
        # after a step the same errors are no rejected config
        ([ended(STEPPED, raised("ValueError", "batch_size 8 is odd", "step"))], "",
         "crash-step", "ValueError: batch_size 8 is odd"),
        # the launcher's exception carries the rank's traceback
        ([ended(BOOTED, raised("ProcessRaisedException", SPAWN)), STEPPED], "",
         "crash-step", "ValueError: odd"),
        # what a rank raised comes before its launcher and before those that lost a connection
        ([LAUNCHER, ended(STEPPED, LOST, world_size=2),
          ended(STEPPED, CAUSE, pid=9, rank=1, world_size=2)], TORCHRUN,
         "crash-step", "RuntimeError: shapes do not match"),
        # torch marks each line of a rank that raised
        ([BOOTED], "[rank1]: Traceback (most recent call last):\n[rank1]:  x\n[rank1]: OddError: 1",
         "crash-start", "OddError: 1"),
        # a launcher lists the rank that was killed, and those that it asked to end
        ([BOOTED], TORCHRUN + "Signal 9 (SIGKILL) received by PID 9",
         "killed", "Signal 9 (SIGKILL"),
    ],
)  # fmt: skip
def test_the_cause_of_a_death(
    processes: list[ProcessRecord], output: str, kind: str, evidence: str
) -> None:
    found = failure_of(replace(DIED, processes=tuple(processes), stderr=output))
    assert (found.kind, found.evidence[: len(evidence)]) == (kind, evidence)


@pytest.mark.parametrize(
    ("problem", "state", "measured", "kind"),
    [
        # exit code 0 and a full window elsewhere do not outweigh a lost rank
        (raised("IndexError", "12", "step"), "exited", True, "crash-step"),
        # a helper that failed and was got over is the program's own affair
        (raised("ModuleNotFoundError", "apex", "import"), "torch", True, None),
        # `python train.py || true`
        (raised("RuntimeError", "no weights"), "torch", False, "crash-start"),
    ],
)
def test_an_exception_behind_exit_code_0(
    problem: ProgramException, state: str, measured: bool, kind: str | None
) -> None:
    process = replace(STEPPED if measured else BOOTED, state=state, exception=problem)
    others = (STEPPED,) if measured else ()
    assert kind_of(replace(DONE, processes=(process, *others)), measured=measured) == kind


@pytest.mark.parametrize(
    ("end", "flag"),
    [("hang", "hang-limit"), ("start-limit", "start-limit"), ("total-limit", "run-limit")],
)
def test_an_end_by_our_limit_names_the_limit(end: End, flag: str) -> None:
    """The program printed an error earlier, which did not end it."""
    ending = replace(
        DIED, end=end, exit_code=None, silence_s=60.0, stderr="RuntimeError: CUDA out of memory\n"
    )
    found = failure_of(ending)
    assert found.kind in {"hang", "no-steps", "timeout"}
    assert f"ended by our limit ({flag}" in found.evidence


@pytest.mark.parametrize(("busy_cpus", "kind"), [(None, "hang"), (0.1, "hang"), (1.6, "timeout")])
def test_a_silent_program_that_works_does_not_hang(busy_cpus: float | None, kind: str) -> None:
    """Its step takes longer than our limit: that is not known to be the program's fault."""
    ending = replace(DONE, end="hang", exit_code=None, silence_s=60.0, busy_cpus=busy_cpus)
    assert kind_of(ending) == kind


def test_a_lost_rank_comes_before_the_hang_of_the_others() -> None:
    """They wait for it in a collective, for ever."""
    waits = replace(STEPPED, world_size=2, rank=0)
    lost = ended(STEPPED, replace(RAN_OUT, where="step"), pid=8, world_size=2, rank=1)
    hang = replace(DONE, end="hang", exit_code=None, silence_s=60.0, processes=(waits, lost))
    assert kind_of(hang) == "gpu-oom"
    assert kind_of(replace(hang, processes=(waits, replace(lost, exception=None)))) == "hang"


def test_errors_that_the_program_caught_are_lost_work() -> None:
    caught = replace(STEPPED, swallowed=(raised("RuntimeError", "odd", "forward"),))
    found = failure_of(replace(DONE, processes=(caught,)), measured=True)
    assert found.kind == "work-not-done"
    assert found.evidence == "caught in the forward: RuntimeError: odd"


def test_a_kill_that_the_kernel_counted_is_an_out_of_memory_kill(tmp_path: Path) -> None:
    """Counter files before and after; the nearest cgroup comes before the host."""
    for version, group, name in (
        ("0::/box", "box", "memory.events"),
        ("4:memory:/box", "memory/box", "memory.oom_control"),
    ):
        root = tmp_path / name
        folder = root / "sys/fs/cgroup" / group
        for made in (folder, root / "proc/self"):
            made.mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(f"{version}\n")
        (folder / name).write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
        before = oom_kills(root)
        (folder / name).write_text("low 0\nhigh 0\nmax 40\noom 2\noom_kill 3\n")
        kills = oom_kills(root).since(before)
        found = failure_of(replace(DIED, exit_code=-9, oom=kills))
        assert found.kind == "host-oom"
        assert found.evidence == "ended by SIGKILL; out-of-memory kills: 2 in this cgroup"


HOST = OomKills(host=1)


@pytest.mark.parametrize(
    ("code", "oom", "kind"),
    [
        (-9, HOST, "host-oom"),
        (-9, OomKills(), "killed"),
        (1, HOST, "crash-start"),  # a kill elsewhere on the host explains no other end
        (1, OomKills(cgroup=1), "host-oom"),
        (137, OomKills(), "killed"),  # a shell's: 128 and the signal's number
        (135, OomKills(), "shm"),
    ],
)
def test_signals_and_kernel_counters(code: int, oom: OomKills, kind: str) -> None:
    assert kind_of(replace(DIED, exit_code=code, oom=oom)) == kind


def test_the_log_tail_has_the_cause_and_no_noise() -> None:
    """The last twenty lines that say something, and the traceback that is not among them."""
    lines = [f"line {number}" for number in range(40)]
    noise = "resource_tracker: There appear to be 2 leaked semaphore objects to clean up"
    problem = replace(CAUSE, tail="Traceback ...\nRuntimeError: shapes do not match")
    processes = (LAUNCHER, ended(BOOTED, problem))
    tail = log_tail(replace(DIED, stderr="\n".join([*lines, noise, ""]), processes=processes))
    assert tail.splitlines() == [*problem.tail.splitlines(), *lines[-20:]]
