"""A run begins with the CPUs, priorities and limits of the call's start, whatever was changed."""

import json
import os
import resource
import subprocess
import sys

import pytest

from advisor.sandbox import scheduling
from tests.sandbox.conftest import ROOT

CHANGES = {
    "its CPUs": "os.sched_setaffinity(pid, {0})",
    "its nice value": "os.setpriority(os.PRIO_PROCESS, pid, min(os.nice(0) + 1, 19))",
    "its scheduling policy": "os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))",
    "its I/O priority": "scheduling._set_io_priority(pid, 3 << 13)",
    "its limits": "resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))",
}
WATCHES = """
import os, resource, subprocess, sys
from advisor.sandbox import scheduling
watch = scheduling.Watch()
if len(watch.start["cpus"]) < 2: print("one CPU"); sys.exit()
code = f"import os, resource; from advisor.sandbox import scheduling; pid = {os.getpid()}; "
subprocess.run([sys.executable, "-c", code + sys.argv[1]], check=True)
print(watch.changed()); print(watch.changed() if sys.argv[2] == "again" else "")
"""


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_program_changes_in_the_caller_is_told(what) -> None:
    """By a process of the same user outside any sandbox; what can be put back is."""
    again = "again" if what in {"its CPUs", "its scheduling policy", "its I/O priority"} else ""
    done = subprocess.run(
        [sys.executable, "-c", WATCHES, CHANGES[what], again],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    if done.stdout == "one CPU\n":
        pytest.skip("needs two CPUs")
    said, later = done.stdout.splitlines()
    if what == "its limits" and resource.getrlimit(resource.RLIMIT_CORE) == (0, 0):
        pytest.skip("the limit is zero already")
    assert said == f"something changed {what} of gpu-advisor"
    assert later in {"None", ""}


@pytest.mark.parametrize("kind", ["overlay", "landlock", "guard"])
def test_a_run_begins_with_the_cpus_of_the_calls_start(do, kind) -> None:
    """Nor priorities and limits that the caller was left with."""
    start = scheduling.at_start()
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    code += (
        "from advisor.sandbox import scheduling; import json; print(json.dumps(scheduling.read()))"
    )
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.sched_setaffinity(0, start["cpus"][:1])
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    scheduling._set_io_priority(0, 2 << 13 | 7)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] - 1, files[1]))
    if os.geteuid() == 0:  # another user could not take it back
        os.setpriority(os.PRIO_PROCESS, 0, min(start["nice"] + 1, 19))
    left = scheduling.read()
    try:
        run = do.measured(kind, code)
    finally:
        scheduling.apply(start)
    assert left != start
    assert json.loads(run.stdout_tail) == start


def test_what_cannot_be_put_back_ends_nothing() -> None:
    """A limit that was lowered for good is told each time, and no traceback."""
    code = (
        "import resource; from advisor.sandbox import scheduling; w = scheduling.Watch()\n"
        "import os; os.setgroups([]); os.setresuid(7, 7, 7)\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (99, 99))\n"
        "print(w.changed() == w.changed(), bool(w.changed()))"
    )
    if os.geteuid() != 0:
        pytest.skip("root can become an ordinary user")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True True\n"
