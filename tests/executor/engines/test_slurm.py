"""Trials under a real SLURM of two nodes; tests/support/slurm.py starts it."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import NodeLostError
from advisor.executor.engines import EngineSettings
from advisor.executor.engines.connection import Carrier, Connection
from advisor.executor.engines.joint import RemoteEngine
from advisor.model import Run
from tests.executor.engines import test_conformance as conformance
from tests.executor.engines.test_remote import counts, trial_of, when_it_runs
from tests.runner.conftest import processes_of, reached
from tests.support import slurm
from tests.support.processes import ran

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slurm,
    pytest.mark.skipif(bool(slurm.why_not()), reason=slurm.why_not() or "-"),
]
ROOT = Path(__file__).resolve().parents[3]
CARD = "--gres=gpu:h100:1"


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(autouse=True)
def own(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is found."""
    monkeypatch.setenv("SLURM_CONF", environ["SLURM_CONF"])


def under_slurm(folder: Path, *words: str) -> RemoteEngine:
    carrier = Carrier(words=("srun", *(words or (CARD,))))
    connection = Connection(carrier, str(folder), os.environ)
    return RemoteEngine(EngineSettings(connection=connection))


def call(*words: str) -> str:
    return ran(*words, check=True).stdout.strip()


def the_job() -> str:
    """Id of the one job of the cluster."""
    return call("squeue", "--noheader", "--format=%i", "--states=RUNNING")


@pytest.mark.parametrize("rule", conformance.RULES)
def test_the_rules_of_every_engine_hold(rule, folder) -> None:
    rule(lambda: under_slurm(folder), folder)
    assert the_job() == ""


def preempt() -> None:
    words = ("srun", "--quiet", "--partition=urgent", "--ntasks=1", CARD, "sleep", "1")
    call(*words)


ENDS: dict[str, tuple[Callable[[], Any], str, bool]] = {
    "scancel": (lambda: call("scancel", the_job()), "the job was cancelled", False),
    "preemption": (preempt, "preemption", True),
    "time limit": (
        lambda: call("scontrol", "update", f"JobId={the_job()}", "TimeLimit=0:01"),
        "time limit of the allocation",
        False,
    ),
}


BY_THE_MINUTE = pytest.param("time limit", marks=pytest.mark.nightly)


@pytest.mark.parametrize("how", ["scancel", "preemption", BY_THE_MINUTE])
def test_an_end_of_the_job_is_told_by_name_and_leaves_nothing(how, folder) -> None:
    act, what, again = ENDS[how]
    with under_slurm(folder) as engine:
        trial = trial_of(engine, folder, "sleep", "600")
        when_it_runs(trial.scratch, act)
        with pytest.raises(NodeLostError, match=what) as problem:
            engine.run(trial)
        assert problem.value.again == again
        assert reached(lambda: not processes_of(trial.scratch))
        if again:
            assert isinstance(engine.run(counts(engine, folder)), Run)
    assert reached(lambda: the_job() == "")


def test_the_allocation_is_the_limit(folder) -> None:
    """Not the node: of its CPUs a job has those that it asked for."""
    with under_slurm(folder, "--cpus-per-task=1") as engine:
        machine = engine.connection.machine
    assert machine.cpus == 1
    assert machine.allocation == "slurm"


def test_inside_an_allocation_that_one_is_used(folder, tmp_path) -> None:
    """Also inside `srun --pty`, where the step that we are holds all CPUs."""
    code = (
        "import pathlib, sys; from tests.executor.engines import test_slurm as it\n"
        "engine = it.under_slurm(pathlib.Path(sys.argv[1]), '--export=ALL')\n"
        "with engine: print(engine.connection.machine.cpus, it.the_job())"
    )
    outer = ("srun", "--quiet", "--ntasks=1", "--cpus-per-task=2", "--job-name=outer")
    found = ran(*outer, sys.executable, "-c", code, str(folder), cwd=ROOT, timeout=120)
    cpus, *jobs = found.stdout.split()
    assert cpus == "2", found.stderr
    assert len(jobs) == 1, found.stderr
