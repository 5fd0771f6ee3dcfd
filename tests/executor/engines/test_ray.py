"""Trials in a real Ray cluster of two nodes; tests/support/ray_cluster.py starts it."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from advisor.errors import EngineError, NodeLostError
from advisor.executor.engines import EngineSettings
from advisor.executor.engines.connection import Connection, carrier_of
from advisor.executor.engines.joint import RemoteEngine
from advisor.model import Run
from advisor.settings import EngineTable
from tests.executor.engines import test_conformance as conformance
from tests.executor.engines.test_remote import agent_of, counts, trial_of, when_it_runs
from tests.runner.conftest import processes_of, reached
from tests.support import ray_cluster

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(bool(ray_cluster.why_not()), reason=ray_cluster.why_not() or "-"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ray_cluster.Cluster]:
    with ray_cluster.cluster() as found:
        if not found.address:
            pytest.skip("no Ray cluster starts on this host")
        yield found


@pytest.fixture(autouse=True)
def own(cluster: ray_cluster.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is found, and `ray` is that of this Python."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def under_ray(folder: Path, words: str = "ray --accelerator-type=H100") -> RemoteEngine:
    carrier = carrier_of("ray", {"ray": EngineTable(command=words)})
    assert carrier is not None
    connection = Connection(carrier, str(folder), os.environ)
    return RemoteEngine(EngineSettings(connection=connection))


@pytest.mark.parametrize("rule", conformance.RULES)
def test_the_rules_of_every_engine_hold(rule, folder) -> None:
    rule(lambda: under_ray(folder), folder)


def worker_of(scratch: str) -> psutil.Process:
    """Ray's process above a running trial."""
    (first, *_) = processes_of(scratch)
    return next(parent for parent in first.parents() if "ray::" in " ".join(parent.cmdline()))


def test_a_card_that_no_node_has_is_refused_by_name(folder) -> None:
    """Ray itself would wait for ever without a word."""
    with (
        pytest.raises(EngineError, match=r"no node has 1 CPU, 1 GPU, A100.*1 CPU, 1 GPU, RTX4060"),
        under_ray(folder, "ray --accelerator-type=A100"),
    ):
        pass
    with (
        pytest.raises(EngineError, match=r"no cluster answers at 127\.0\.0\.1:1"),
        under_ray(folder, "ray --address=127.0.0.1:1"),
    ):
        pass


def test_who_waits_for_a_card_is_told_so(folder) -> None:
    """Another holds it; the wait is none of the budget's."""
    carrier = carrier_of("ray", {"ray": EngineTable(command="ray --accelerator-type=H100")})
    assert carrier is not None
    told = threading.Event()

    def say(line: str) -> None:
        if "waiting for 1 CPU, 1 GPU, H100" in line:
            told.set()

    waiting = Connection(carrier, str(folder), os.environ, say)
    with Connection(carrier, str(folder), os.environ) as holder:
        opening = threading.Thread(target=waiting.open, daemon=True)
        opening.start()
        assert told.wait(120)
        holder.close()
        opening.join(120)
    assert waiting.is_open
    assert waiting.waited_s > 2
    waiting.close()


def test_a_trial_has_the_threads_of_its_user(folder) -> None:
    """Not those that Ray sets in a worker with one CPU."""
    program = "import os; print('unit', os.environ.get('OMP_NUM_THREADS'))"
    with under_ray(folder) as engine:
        run = engine.run(trial_of(engine, folder, sys.executable, "-c", program))
    assert isinstance(run, Run), run
    expected = os.environ.get("OMP_NUM_THREADS")
    assert f"unit {expected}" in run.stdout_tail


ENDS: dict[str, Callable[[ray_cluster.Cluster, str, RemoteEngine], object]] = {
    "worker": lambda cluster, scratch, engine: worker_of(scratch).kill(),
    "node": lambda cluster, scratch, engine: cluster.replace_the_large_node(),
    "driver": lambda cluster, scratch, engine: agent_of(engine).send_signal(signal.SIGKILL),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_lost_worker_leaves_nothing_and_the_next_one_takes_over(how, folder, cluster) -> None:
    """The process that `agent_of` gives is here the one that carries the pipe."""
    with under_ray(folder) as engine:
        trial = trial_of(engine, folder, "sleep", "600")
        when_it_runs(trial.scratch, lambda: ENDS[how](cluster, trial.scratch, engine))
        with pytest.raises(NodeLostError) as problem:
            engine.run(trial)
        assert problem.value.again
        assert reached(lambda: not processes_of(trial.scratch))
        assert isinstance(engine.run(counts(engine, folder)), Run)
