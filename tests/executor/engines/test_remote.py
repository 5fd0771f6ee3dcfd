"""Nodes that end, freeze or differ: told by name, and nothing is left there."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from advisor.errors import (
    FAILURE_EXIT_CODES,
    EngineError,
    InterruptedByUserError,
    NodeLostError,
    SettingsError,
)
from advisor.executor.engines import EngineSettings, connection, messages
from advisor.executor.engines.connection import (
    ADDED,
    AGENT,
    Carrier,
    Connection,
    carrier_of,
    why_ended,
)
from advisor.executor.engines.joint import RemoteEngine
from advisor.machine.lock import gpu_lock
from advisor.model import Candidate, MeasurePlan, Run, Trial
from advisor.settings import EngineTable
from tests.runner.conftest import DEADLINE_S, processes_of, reached
from tests.runs import of_steady_host
from tests.support.processes import free_port

pytestmark = pytest.mark.slow

UNITS = "import time\nfor _ in range(3): print('unit', flush=True); time.sleep(0.02)"
OTHER_VERSION = """\
#!/bin/sh
exec {python} -c 'import advisor, runpy
advisor.__version__ = "0.0"
runpy.run_module("advisor.executor.engines.agent", run_name="__main__")'
"""
CALLER = """\
import os, sys
from tests.executor.engines import test_remote as remote
with remote.engine_on(sys.argv[1]) as engine:
    trial = remote.trial_of(engine, sys.argv[1], "sleep", "600")
    print(trial.scratch, flush=True)
    engine.run(trial)
"""


@contextlib.contextmanager
def engine_on(folder: Path | str, *words: str) -> Iterator[RemoteEngine]:
    """An engine whose agent is a process of this host."""
    connection = Connection(Carrier(words=words or ("env",)), str(folder), os.environ)
    with RemoteEngine(EngineSettings(connection=connection)) as engine:
        yield engine


def trial_of(engine: RemoteEngine, folder: Path | str, *command: str) -> Trial:
    return Trial(
        id="001", purpose="search", label="x", candidate=Candidate(), command=command,
        cwd=str(folder), scratch=str(engine.scratch("001")),
        plan=MeasurePlan(mode="whole", unit_regex="^unit"),
    )  # fmt: skip


def counts(engine: RemoteEngine, folder: Path) -> Trial:
    return trial_of(engine, folder, sys.executable, "-c", UNITS)


def agent_of(engine: RemoteEngine) -> psutil.Process:
    """The agent's process: `env` becomes it."""
    process = engine.connection._process
    assert process is not None
    return psutil.Process(process.pid)


def when_it_runs(scratch: str, action: Any) -> None:
    """Call `action` once the trial of `scratch` has its processes."""

    def act() -> None:
        reached(lambda: processes_of(scratch))
        action()

    threading.Thread(target=act, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_node_is_no_failure_of_its_trial_and_the_next_one_takes_over(number, folder) -> None:
    with engine_on(folder) as engine:
        lost = trial_of(engine, folder, "sleep", "600")
        when_it_runs(lost.scratch, lambda: agent_of(engine).send_signal(number))
        with pytest.raises(NodeLostError, match="was lost") as problem:
            engine.run(lost)
        assert problem.value.again
        assert reached(lambda: not processes_of(lost.scratch))
        assert isinstance(engine.run(counts(engine, folder)), Run)


def test_only_so_many_nodes_may_be_lost(folder) -> None:
    with engine_on(folder) as engine:
        heard: list[bool] = []
        for _ in range(3):
            engine.scratch("001")
            agent_of(engine).kill()
            with pytest.raises(NodeLostError) as problem:
                engine.scratch("001")
            heard.append(problem.value.again)
        assert heard == [True, True, False]


def test_the_next_agent_waits_until_the_lost_one_has_let_go_of_the_machine(folder) -> None:
    """It may come up on the same node, where the trial of the other is being ended."""
    with engine_on(folder) as engine:
        agent_of(engine).kill()
        with pytest.raises(NodeLostError):
            engine.scratch("001")
        held = contextlib.ExitStack()
        held.enter_context(gpu_lock(None))
        threading.Timer(2.0, held.close).start()
        assert isinstance(engine.run(counts(engine, folder)), Run)


def test_a_frozen_node_is_given_up(folder) -> None:
    with engine_on(folder) as engine:
        engine.connection.silence_s = 8.0
        trial = trial_of(engine, folder, "sleep", "600")
        when_it_runs(trial.scratch, lambda: agent_of(engine).suspend())
        with pytest.raises(NodeLostError, match="no sign of life for 8 s"):
            engine.run(trial)
        assert reached(lambda: not processes_of(trial.scratch))


@pytest.mark.parametrize("words", ["", "job 7 queued and waiting for resources"])
def test_a_job_that_never_comes_up_is_given_up_and_a_queue_is_not(
    words, tmp_path, folder, monkeypatch
) -> None:
    """A controller that dies in between leaves `srun` waiting for a word that nobody sends."""
    monkeypatch.setattr(connection, "START_S", 1.0)
    (tmp_path / "srun").write_text(f"#!/bin/sh\necho '{words}' >&2\nexec sleep 600\n")
    (tmp_path / "srun").chmod(0o755)
    engine = Connection(Carrier(words=(str(tmp_path / "srun"),)), str(folder), os.environ)
    threading.Timer(3.0, engine.cancel.set).start()
    error, text = (
        (InterruptedByUserError, "waited for") if words else (EngineError, "hostname` by hand")
    )
    with pytest.raises(error, match=text):
        engine.open()


def test_an_agent_that_hears_nothing_ends_its_trial_and_itself(folder) -> None:
    """The other side may be cut off without a word."""
    agent = subprocess.Popen(
        [sys.executable, *AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with agent:
        assert agent.stdin is not None
        assert agent.stdout is not None

        def ask(**request: Any) -> dict[str, Any]:
            assert agent.stdin is not None
            assert agent.stdout is not None
            agent.stdin.write(messages.encode(**request))
            agent.stdin.flush()
            found: dict[str, Any] = messages.decode(agent.stdout.readline())["answer"]
            return found

        assert "hello" in messages.decode(agent.stdout.readline())
        ask(do="enter", gpu_uuid=None, silence_s=3.0)
        scratch = ask(do="scratch", trial_id="1")["folder"]
        trial = Trial(
            id="1", purpose="search", label="x", candidate=Candidate(), command=("sleep", "600"),
            cwd=str(folder), scratch=scratch,
        )  # fmt: skip
        agent.stdin.write(messages.encode(do="run", trial=trial, files={}))
        agent.stdin.flush()
        assert reached(lambda: processes_of(scratch))
        assert agent.wait(DEADLINE_S) == 0
    assert not processes_of(scratch)
    assert not Path(scratch).parent.exists()


def test_nothing_is_left_on_the_node_of_a_killed_call(folder) -> None:
    root = Path(__file__).resolve().parents[3]
    call = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(folder)], cwd=root, stdout=subprocess.PIPE, text=True
    )
    with call:
        assert call.stdout is not None
        scratch = call.stdout.readline().strip()
        assert reached(lambda: processes_of(scratch))
        call.kill()
    assert reached(lambda: not processes_of(scratch) and not Path(scratch).parent.exists())


def test_a_node_with_another_version_or_without_the_folder_is_refused(tmp_path, folder) -> None:
    python = tmp_path / "python"
    python.write_text(OTHER_VERSION.format(python=sys.executable))
    python.chmod(0o755)
    other = Carrier(words=("env",), python=str(python))
    with pytest.raises(EngineError, match=r"has gpu-advisor 0\.0, and this is"):
        Connection(other, str(folder), os.environ).open()
    with (
        pytest.raises(EngineError, match="There is no folder /nowhere there"),
        engine_on("/nowhere"),
    ):
        pass
    with (
        pytest.raises(EngineError, match="`false`: its command ended with exit code 1"),
        engine_on(folder, "false"),
    ):
        pass
    with (
        pytest.raises(EngineError, match="`no-such-program` cannot run"),
        engine_on(folder, "no-such-program"),
    ):
        pass


def test_a_program_that_is_another_file_on_the_node_is_not_measured(folder) -> None:
    (folder / "train.py").write_text(UNITS)
    with engine_on(folder) as engine:
        trial = trial_of(engine, folder, sys.executable, "train.py")
        assert list(messages.named_files(trial)) == ["train.py"]
        with pytest.raises(EngineError, match=r"train\.py in .* is another file there, or none"):
            engine._ask("run", trial=trial, files={"train.py": "0"})
        assert isinstance(engine.run(trial), Run)


def test_a_trial_sees_the_callers_variables_and_the_nodes_own_card(folder, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("MINE", "of the caller")
    program = "import os; print('unit', os.environ['CUDA_VISIBLE_DEVICES'], os.environ['MINE'])"
    with engine_on(folder, "env", "CUDA_VISIBLE_DEVICES=7", "MINE=of the node") as engine:
        run = engine.run(trial_of(engine, folder, sys.executable, "-c", program))
    assert isinstance(run, Run), run
    assert "unit 7 of the caller" in run.stdout_tail


def test_a_greeting_of_the_login_shell_is_no_message(folder) -> None:
    greets = ("sh", "-c", 'echo Welcome; exec "$@"', "sh")
    with engine_on(folder, *greets) as engine:
        assert isinstance(engine.run(counts(engine, folder)), Run)


SAID = {
    "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-25T20:00:00 DUE TO TIME LIMIT ***":
        ("time limit", False),
    "slurmstepd: error: *** STEP 7.0 ON n2 CANCELLED AT 2026-11-25T20:00:00 DUE TO PREEMPTION ***":
        ("preemption", True),
    "srun: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-25T20:00:00 ***": ("scancel", False),
    "srun: error: Node failure on n2": ("the node failed", True),
    "srun: error: Unable to allocate resources: Invalid partition name specified":
        ("refused the request: Invalid partition name", False),
    "srun: error: Unable to allocate resources: Unable to contact slurm controller":
        ("controller does not answer", False),
    "box: Permission denied (publickey).": ("ssh could not log in: Permission denied", False),
    "/usr/bin/python3: No module named advisor": ("no gpu-advisor: No module", False),
    "srun: error: n1: task 0: Killed": ("srun: error: n1: task 0: Killed", True),
    "": ("its command ended with exit code 9", True),
}  # fmt: skip


def test_the_reason_of_an_end_is_told_by_name() -> None:
    for said, (what, again) in SAID.items():
        ending = why_ended(f"srun: job 7 has been allocated resources\n{said}" if said else "", 9)
        assert what in ending.what, said
        assert ending.again == again, said


def test_the_command_of_an_engine_comes_from_the_settings() -> None:
    """What a carrier needs is added; the user's own words come last and win."""
    tables = {
        "box": EngineTable(command="ssh box", python="/opt/py/bin/python"),
        "gpu": EngineTable(command="/usr/bin/srun --gres=gpu:1"),
    }
    assert carrier_of("local", tables) is None
    box, gpu = carrier_of("box", tables), carrier_of("gpu", tables)
    slurm = carrier_of("slurm", tables)
    assert box is not None
    assert gpu is not None
    assert slurm is not None
    assert box.command({}) == (
        "ssh", "-T", "-o", "BatchMode=yes", "box", "/opt/py/bin/python", *AGENT,
    )  # fmt: skip
    outside = gpu.command({})
    assert outside[outside.index("--gres=gpu:1") + 1 :] == (sys.executable, *AGENT)
    assert "--overlap" not in outside
    assert "--overlap" in gpu.command({"SLURM_JOB_ID": "7"})
    assert slurm.words == ("srun",)
    with pytest.raises(SettingsError, match=r"no engine 'x' \(known: box, gpu, local, ray, slu"):
        carrier_of("x", tables)


TWO_NODES = """\
[engine.pair]
command = "env GPU_ADVISOR_RUNTIME_DIR=one"
more-nodes = ["env GPU_ADVISOR_RUNTIME_DIR=two"]
"""
RANKS = Path(__file__).resolve().parents[2] / "fixtures/programs/ok_ranks.py"
TORCHRUN = (
    "{python} -m torch.distributed.run --nnodes 2 --node-rank $NODE_RANK --nproc-per-node 1 "
    "--master-addr 127.0.0.1 --master-port {port} {program}"
)


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        *((f"{' '.join(words)} box", {}) for words in ADDED if "exec" in words),
        ("ssh a", {"PATH": "/b"}),
    ],
)
def test_a_containers_places_are_its_own(command, kept) -> None:
    """Its PATH and libraries lie where the caller's do not; a node has the caller's disk."""
    environ = {"PATH": "/b", "SLURM_JOB_ID": "1", "WANDB_MODE": "offline"}
    connection = Connection(Carrier(words=tuple(command.split())), "/x", environ)
    assert connection._environ == {**kept, "WANDB_MODE": "offline"}


@pytest.mark.parametrize("broken", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_job_over_two_nodes_stops_and_is_told_as_one(tmp_path, gpu_advisor, broken) -> None:
    """Rank 0 says where all stop; what breaks on one node ends it on both."""
    pytest.importorskip("torch")
    (tmp_path / ".git").mkdir()
    (tmp_path / "gpu-advisor.toml").write_text(TWO_NODES)
    port = free_port()
    program = tmp_path / "missing.py" if broken else RANKS
    shell = TORCHRUN.format(python=sys.executable, port=port, program=program)
    if broken:
        shell = f"test $NODE_RANK = 0 || exit 7; {shell.replace('missing', 'waits')}"
        (tmp_path / "waits.py").write_text("import time; time.sleep(600)")
    words = ("profile", "--engine", "pair", "--window", "1s", "--json", "--", "sh", "-c", shell)
    begun = time.monotonic()
    done = gpu_advisor.call(*words, cwd=tmp_path)
    if broken:
        assert done.returncode in FAILURE_EXIT_CODES.values(), done.stderr
        assert time.monotonic() - begun < 60, "the other node waited on"
        return
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ranks"] == 2
    assert found["effects"]["group_batch"] == 40
    assert of_steady_host(found["notes"]) == []
    assert " and " in done.stderr.partition("trials run on")[2].partition("\n")[0]
    own = 2 * 20 / (found["step_ms"] / 1000)
    assert found["units_per_s"] == pytest.approx(own, rel=0.1)
