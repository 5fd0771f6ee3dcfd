"""The judge, on endings that cannot be brought about here, or not quickly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from advisor.analysis.measurement import Measured, Measurement
from advisor.runner.classify import log_tail
from advisor.runner.process_records import Memory, ProgramException
from advisor.runner.resources import OomKills, new_kills, oom_kills
from tests.runner.endings import BOOTED, DIED, DONE, STEPPED, failure_of, kind_of

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.runner.monitor import End


def raised(kind: str, message: str, where: str = "start") -> ProgramException:
    return ProgramException(type=kind, message=message, where=where)


def test_after_a_step_the_same_errors_are_no_rejected_config() -> None:
    """A value error of step 40 is a crash, whatever it names."""
    problem = raised("ValueError", "batch_size 8 does not match 7 targets", "step")
    process = replace(STEPPED, exception=problem)
    assert kind_of(replace(DIED, processes=(process,))) == "crash-step"


def test_a_crash_of_a_rank_counts_though_the_launcher_stands_at_its_start() -> None:
    """The launcher's exception carries the rank's traceback: its last line is the evidence."""
    message = (
        "\n\n-- Process 0 terminated with the following error:\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: odd\n'
    )
    launcher = replace(BOOTED, exception=raised("ProcessRaisedException", message))
    found = failure_of(replace(DIED, processes=(launcher, STEPPED)))
    assert (found.kind, found.evidence) == ("crash-step", "ValueError: odd")


def test_what_a_rank_raised_is_told_before_what_its_launcher_says_of_it() -> None:
    """torchrun's summary names no cause; the rank's own words and traceback do."""
    launcher = replace(BOOTED, pid=1, exception=raised("ChildFailedError", "\n==== FAILED"))
    own = replace(
        raised("RuntimeError", "12 layers"), tail="Traceback ...\nRuntimeError: 12 layers"
    )
    rank = replace(BOOTED, pid=2, exception=own)
    ending = replace(DIED, processes=(launcher, rank), stderr="==== FAILED\n")
    found = failure_of(ending)
    assert (found.kind, found.evidence) == ("crash-start", "RuntimeError: 12 layers")
    assert log_tail(ending) == "Traceback ...\nRuntimeError: 12 layers\n==== FAILED"


TORCHRUN = """
============================================================
ddp.py FAILED
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 8)  (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 8
"""


def test_the_exception_of_a_rank_comes_before_lost_connections() -> None:
    """torchrun then ends rank 0 by SIGTERM, and rank 0 loses its connection: neither is a cause."""
    launcher = replace(BOOTED, pid=1, exception=raised("ChildFailedError", TORCHRUN))
    left = raised("RuntimeError", "pair.cc:553] Connection closed by peer [127.0.0.1]", "step")
    cause = raised("RuntimeError", "shapes do not match", "step")
    ranks = (
        replace(STEPPED, pid=8, rank=0, world_size=2, exception=left),
        replace(STEPPED, pid=9, rank=1, world_size=2, exception=cause),
    )
    ending = replace(DIED, processes=(launcher, *ranks), stderr=TORCHRUN)
    found = failure_of(ending)
    assert (found.kind, found.evidence) == (
        "crash-step",
        "RuntimeError: shapes do not match",
    )


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


def test_a_rank_that_crashed_counts_though_the_rest_was_measured() -> None:
    """Exit code 0 and a full window elsewhere do not outweigh it."""
    lost = replace(STEPPED, exception=raised("IndexError", "12", "step"))
    ending = replace(
        DONE, end="measured", exit_code=None, processes=(replace(STEPPED, state="stopped"), lost)
    )
    assert kind_of(ending, measured=True) == "crash-step"


def test_a_helper_that_failed_and_was_got_over_is_no_failure() -> None:
    """`python -c 'import apex' || true` in a shell script is the user's own affair."""
    helper = replace(BOOTED, exception=raised("ModuleNotFoundError", "apex", "import"))
    assert kind_of(replace(DONE, processes=(helper, STEPPED)), measured=True) is None


def test_an_exception_behind_exit_code_0_is_told_where_nothing_was_measured() -> None:
    """`python train.py || true` ends well; why there was no step is the exception."""
    lost = replace(BOOTED, exception=raised("RuntimeError", "no weights"))
    assert kind_of(replace(DONE, processes=(lost,))) == "crash-start"


def test_a_bare_count_of_the_allocator_is_no_failure() -> None:
    """cuDNN tries algorithms, catches what does not fit itself, and loses no work."""
    counted = replace(STEPPED, memory=Memory(allocated_gib=2.0, ooms=3))
    assert kind_of(replace(DONE, processes=(counted,)), measured=True) is None


def test_what_was_caught_inside_a_step_is_lost_work() -> None:
    """Seen by the probe, printed by nobody."""
    caught = ProgramException(type="RuntimeError", message="odd", where="forward")
    found = failure_of(
        replace(DONE, processes=(replace(STEPPED, swallowed=(caught,)),)), measured=True
    )
    assert (found.kind, found.evidence) == (
        "work-not-done",
        "caught in the forward: RuntimeError: odd",
    )


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
        kills = new_kills(before, oom_kills(root))
        assert kills is not None
        found = failure_of(replace(DIED, exit_code=-9, oom=kills))
        assert found.kind == "host-oom"
        assert found.evidence.startswith(f"ended by SIGKILL; 2 out-of-memory kills in {folder}")


def test_a_kill_elsewhere_on_the_host_explains_no_other_end() -> None:
    """The host's counter speaks for a SIGKILL only; the cgroup's for a lost worker too."""
    host = OomKills(path="/proc/vmstat", scope="this host", kills=1)
    ours = host._replace(scope="this cgroup")
    assert kind_of(replace(DIED, exit_code=-9, oom=host)) == "host-oom"
    assert kind_of(replace(DIED, exit_code=-9)) == "killed"
    assert kind_of(replace(DIED, exit_code=1, oom=host)) == "crash-start"
    assert kind_of(replace(DIED, exit_code=1, oom=ours)) == "host-oom"


def test_the_rank_that_was_killed_is_the_evidence_not_those_that_were_asked_to_end() -> None:
    """A launcher lists both."""
    told = "\n".join(
        f"traceback : Signal {number} ({name}) received by PID {number}"
        for number, name in ((15, "SIGTERM"), (9, "SIGKILL"))
    )
    found = failure_of(replace(DIED, stderr=told))
    assert (found.kind, "SIGKILL" in found.evidence) == ("killed", True)


@pytest.mark.parametrize(("code", "kind"), [(137, "killed"), (135, "shm"), (139, "killed")])
def test_a_shell_tells_of_a_signal_in_its_exit_code(code: int, kind: str) -> None:
    """128 and the signal's number."""
    assert kind_of(replace(DIED, exit_code=code)) == kind


def test_the_log_tail_has_no_noise_and_no_colours() -> None:
    """The last twenty lines that say something."""
    lines = [f"line {number}" for number in range(40)]
    noise = "resource_tracker: There appear to be 2 leaked semaphore objects to clean up"
    tail = log_tail(replace(DIED, stderr="\n".join([*lines, noise, ""])))
    assert tail.splitlines() == lines[-20:]


RAN_OUT = ProgramException(
    type="OutOfMemoryError", message="CUDA out of memory. Tried to allocate 2 GiB", where="forward"
)
WINDOW = Measured(
    kind="root forward",
    source="by hand",
    units_per_s=10.0,
    window_start=1.0,
    window_end=4.0,
    step_ms=10.0,
    wait_share=None,
    backward_share=None,
    shares=None,
    whole_units=30.0,
    finished_batches=3,
    batch=16.0,
    forwards_per_unit=None,
    notes=(),
)


@pytest.mark.parametrize(("shrunk_from", "kind"), [(32.0, None), (None, "work-not-done")])
def test_a_batch_that_the_program_halved_by_itself_is_no_lost_work(
    shrunk_from: float | None, kind: str | None
) -> None:
    """What it printed, caught and counted of that is no failure; the same without it is."""
    process = replace(
        STEPPED,
        swallowed=(RAN_OUT,),
        measurement=Measurement(measured=replace(WINDOW, shrunk_from=shrunk_from)),
        memory=Memory(ooms=1),
    )
    said = "Decreasing batch size to: 16.\nCUDA out of memory. Tried to allocate 2 GiB\n"
    assert kind_of(replace(DONE, processes=(process,), stderr=said), measured=True) == kind


def test_what_ended_a_rank_is_told_before_the_hang_of_the_others() -> None:
    """They wait for it in a collective, for ever."""
    waits = replace(STEPPED, world_size=2, rank=0)
    lost = replace(STEPPED, pid=8, world_size=2, rank=1, exception=replace(RAN_OUT, where="step"))
    hang = replace(DONE, end="hang", exit_code=None, silence_s=60.0, processes=(waits, lost))
    assert kind_of(hang) == "gpu-oom"
    assert kind_of(replace(hang, processes=(waits, replace(lost, exception=None)))) == "hang"
