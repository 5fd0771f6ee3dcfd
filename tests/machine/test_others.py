"""What others do on this host is told apart from what the run does to itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from advisor.machine.others import UNSEEN, LoadSample, Others, look
from advisor.machine.processes import TreeClock, read_all, read_stat
from advisor.model import Disturbance

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(
        not Path("/proc/self/schedstat").is_file(), reason="this kernel tells no run-queue delay"
    ),
    pytest.mark.usefixtures("others_are_seen"),
]

BURN = "import time\nend = time.time() + 60\nwhile time.time() < end: pass"


def piece(**told: float | None) -> LoadSample:
    """A tenth of a second on two CPUs."""
    facts = {
        "start": 0.0,
        "end": 0.1,
        "cpus": 2,
        "own_cpus": 1.0,
        "others_cpus": 0.0,
        "waited_cpus": 0.0,
        "steal_share": 0.0,
    }
    return LoadSample(**facts | told)  # type: ignore[arg-type]


@contextmanager
def burning(many: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    """A program of its own that keeps `many` CPUs busy."""
    code = f"import os\nfor _ in range({many - 1}):\n    if not os.fork(): break\n{BURN}"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, 9)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, False),
        ({"own_cpus": 2.0, "waited_cpus": 2.0}, False),  # four threads of its own on two CPUs
        ({"own_cpus": 1.9, "waited_cpus": 2.0, "others_cpus": 0.1}, False),  # not to be told
        ({"own_cpus": 1.5, "waited_cpus": 0.5, "others_cpus": 0.5}, True),
        ({"own_cpus": 1.0, "others_cpus": 1.0}, True),  # beside it, yet caches and clocks suffer
        ({"own_cpus": 1.9, "waited_cpus": 0.02, "others_cpus": 0.1}, False),  # a niced neighbour
        ({"own_cpus": 4.0, "others_cpus": 8.0, "cpus": 64}, False),  # a corner of a large host
        ({"own_cpus": 30.0, "others_cpus": 8.0, "cpus": 64}, True),
        ({"own_cpus": 60.0, "others_cpus": 0.5, "waited_cpus": 9.0, "cpus": 64}, False),
        ({"own_cpus": 1.9, "others_cpus": 0.1, "waited_cpus": 0.5, "end": 1.0}, True),
        ({"steal_share": 0.2}, True),
        ({"others_cpus": None, "waited_cpus": None, "steal_share": None}, None),
        ({"waited_cpus": None, "others_cpus": 0.1}, False),
    ],
)
def test_what_is_a_disturbance(told: dict[str, float], expected: bool | None) -> None:
    """Others' work counts where the run waited for it, or where it fills the host with it."""
    assert piece(**told).disturbed is expected


def test_others_at_work_are_seen_and_named() -> None:
    """A neighbour that burns one CPU is counted and told by its command name."""
    with burning() as neighbour:
        name = (read_stat(neighbour.pid) or pytest.fail("it is gone")).name
        others = Others()
        others.look(now=True)
        began = time.time()
        time.sleep(0.4)
        others.look(now=True)
    seen = others.slices[-1].others_cpus
    assert seen is not None
    assert seen > 0.3
    assert name in [each.name for each in others.who(began, time.time())]


def test_the_run_is_no_other() -> None:
    """What the watched tree does itself is its own, whatever many threads of it wait."""
    with burning(4) as own:
        tree = psutil.Process(own.pid)
        while len(tree.children(recursive=True)) < 3:
            time.sleep(0.02)
        others = Others(own.pid)
        others.look(now=True)
        before = cpu_s(tree)
        time.sleep(0.4)
        others.look(now=True)
        used = cpu_s(tree) - before
    last = others.slices[-1]
    assert last.waited_cpus is not None
    assert last.waited_cpus > 0.5 or (os.cpu_count() or 1) > 3
    assert last.others_cpus is not None
    assert last.own_cpus + last.others_cpus < last.cpus + 0.1
    assert last.own_cpus * last.seconds == pytest.approx(used, abs=0.15)


def cpu_s(root: psutil.Process) -> float:
    """CPU seconds of a tree in which nothing ended."""
    times = [each.cpu_times() for each in (root, *root.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def test_what_ended_between_two_looks_is_still_counted() -> None:
    """A program that does its work in short-lived processes is no stranger to itself."""
    code = (
        "import subprocess, sys\n"
        "burn = 'import time; t = time.process_time()\\nwhile time.process_time() < t + .1: pass'\n"
        "for _ in range(4): subprocess.run([sys.executable, '-S', '-c', burn])\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        clock = TreeClock(process.pid)
        clock.look()
        while (stat := read_stat(process.pid)) is not None and stat.children_s < 0.4:
            time.sleep(0.02)
        clock.look()
        process.communicate()
    assert clock.cpu_s >= 0.4


def test_a_build_is_told_by_the_name_of_who_runs_it() -> None:
    """Compilers live too short to be seen twice: their parent stands for them."""
    code = "while :; do python3 -S -c 'sum(range(300000))'; done"
    with subprocess.Popen(["bash", "-c", code], start_new_session=True) as build:
        try:
            others = Others()
            others.look(now=True)
            began = time.time()
            time.sleep(0.4)
            others.look(now=True)
        finally:
            os.killpg(build.pid, 9)
    told = {each.name for each in others.who(began, time.time())}
    assert told & {"bash", "python3", "short-lived processes"}


def test_every_process_has_a_name_and_a_parent() -> None:
    """This one is among them, whatever its command name holds."""
    here = read_all()[os.getpid()]
    assert here.parent == os.getppid()
    assert here.name


def test_where_others_are_unseen_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither before a process nor in a run is anything told: not measured, which is not quiet."""
    monkeypatch.setenv(UNSEEN, "unseen")
    assert look(60.0) == Disturbance()
    seen = Others(os.getpid())
    seen.look(now=True)
    time.sleep(0.01)
    seen.look(now=True)
    assert seen.slices[-1].disturbed is None
