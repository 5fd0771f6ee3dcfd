"""Nothing of a trial outlives it: no process, no candidate file."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.config.originals import candidate_path
from advisor.errors import StateBusyError
from advisor.executor.engines.scratch_dir import scratch_folder
from advisor.model import Failure, TrialFile
from advisor.runner import monitor
from advisor.runner.job import prepare
from advisor.runner.launch import START
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import FORCED
from tests.runner.conftest import failed, processes_of, program, reached
from tests.support.processes import begun

ROOT = Path(__file__).resolve().parents[2]
NO_STEPS = program("fail_no_steps", "600")

PARENT = """
import sys
from pathlib import Path
from advisor.model import Candidate, Trial, TrialFile
from advisor.runner.trial import run_trial

command, work, scratch = sys.argv[3:], sys.argv[1], sys.argv[2]
config = TrialFile(original=str(Path(work, "config.json")), content=b"{}")
run_trial(Trial(
    id="7", purpose="baseline", label="original", candidate=Candidate(), command=tuple(command),
    cwd=work, scratch=scratch, files=(config,),
))
"""


def gone(scratch: Path | str) -> bool:
    """Wait for the last process of the trial to end; False if one does not."""
    return reached(lambda: not processes_of(str(scratch)))


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts a parent that runs a trial in `work`, with its records in `scratch`."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "config.json").write_text("{ }")

    def start(*command: str) -> subprocess.Popen[bytes]:
        places = (str(tmp_path / "work"), str(tmp_path / "scratch"))
        return subprocess.Popen([sys.executable, "-c", PARENT, *places, *command], cwd=ROOT)

    return start


@pytest.mark.parametrize("isolated", [True, False])
def test_what_the_command_leaves_running_is_ended_with_it(
    make_trial, monkeypatch, *, isolated
) -> None:
    """A child that ignores SIGTERM and a daemon in its own session, wherever they were born."""
    if not isolated:
        monkeypatch.setenv(FORCED, "guard")
    trial = make_trial(*program("leaves_everything"), start_limit_s=1.5)
    assert failed(trial).files_created == ("created.txt",)
    assert processes_of(trial.scratch) == []


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path, started, processes) -> None:
    """kill -9 alone, beside its supervisor, and once the program and both its children run."""
    scratch, config = tmp_path / "scratch", tmp_path / "work" / "config.json"
    parent = started(*program("leaves_everything"))
    assert reached(lambda: len(processes_of(str(scratch))) >= processes)
    parent.kill()
    parent.wait()
    assert gone(scratch), processes_of(str(scratch))
    assert not Path(candidate_path(str(config), "7")).exists()
    assert config.read_text() == "{ }"
    assert not scratch.exists()


def test_the_next_call_removes_the_folder_of_a_killed_one(tmp_path, monkeypatch) -> None:
    """A call that lives keeps its own."""
    script = (
        "import time\nfrom advisor.executor.engines.scratch_dir import scratch_folder\n"
        "with scratch_folder() as folder:\n"
        "    (folder / '001').mkdir(); print(folder, flush=True); time.sleep(600)\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    calls = [begun(sys.executable, "-c", script, cwd=ROOT, env=env) for _ in range(2)]
    folders = [Path(call.stdout.readline().strip()) for call in calls if call.stdout]
    for folder in folders:
        os.utime(folder, (1, 1))
    calls[0].kill()
    calls[0].wait()
    assert gone(folders[0])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder() as mine:
        assert sorted(tmp_path.iterdir()) == sorted([folders[1], mine])
    calls[1].kill()
    for call in calls:
        call.communicate()
    assert gone(folders[1])


def test_the_command_dies_with_its_supervisor(make_trial, work, monkeypatch) -> None:
    """If someone kills the supervisor, the trial fails as `killed` and its session is ended.

    Parent, supervisor and command had a session each: Ctrl-C of a terminal reaches the parent only.
    """
    monkeypatch.setattr(monitor, "PROGRESS_S", 0.2)
    config = work / "config.json"
    config.write_text("{}")
    file = TrialFile(original=str(config), content=b"{}")
    trial = make_trial(*NO_STEPS, files=(file,))
    sessions = set()

    def kill_the_supervisor(_: str) -> None:
        running = processes_of(trial.scratch)
        if len(running) > 1:
            sessions.update(os.getsid(each.pid) for each in running)
            next(each for each in running if START in each.cmdline()).kill()

    outcome = run_trial(trial, on_progress=kill_the_supervisor)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "killed"
    assert "from outside" in outcome.evidence
    assert len(sessions) == 2
    assert os.getsid(0) not in sessions
    assert gone(trial.scratch)
    assert [path.name for path in work.iterdir()] == ["config.json"]
    assert [folder for folder in prepare(trial).temporary if Path(folder).exists()] == []


def test_the_command_dies_when_parent_and_supervisor_are_both_killed(tmp_path, started) -> None:
    """The kernel sees to the command itself; nobody is left to take its files away."""
    parent = started("sleep", "600")  # prints nothing: a broken pipe would end it too
    scratch = str(tmp_path / "scratch")
    assert reached(lambda: len(processes_of(scratch)) >= 3)
    supervisor = next(each for each in processes_of(scratch) if START in each.cmdline())
    supervisor.suspend()  # or it would hear of its parent's end before its own
    parent.kill()
    supervisor.kill()
    parent.wait()
    assert gone(scratch)


def test_an_exception_in_the_parent_ends_the_trial(make_trial) -> None:
    """Ctrl-C raises in the middle of the watch: the program is gone before it goes on."""
    trial = make_trial(*NO_STEPS)

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trial(trial, on_progress=interrupt)
    assert processes_of(trial.scratch) == []


def test_a_stopped_program_is_ended_too(make_trial) -> None:
    """SIGSTOP keeps a process from hearing SIGTERM; it is woken to hear it."""
    script = 'trap ": > heard; exit" TERM; kill -STOP $$; sleep 600'
    trial = make_trial("sh", "-c", script, total_limit_s=1.0)
    outcome = failed(trial)
    assert outcome.kind == "timeout"
    assert outcome.files_created == ("heard",)
    assert processes_of(trial.scratch) == []


def test_two_trials_of_one_config_at_once_are_refused(make_trial, work, by_names) -> None:
    """The second would read the first one's candidate."""
    config = work / "config.json"
    config.write_text("{}")
    first = candidate_path(str(config), "7")
    Path(first).write_text("another's")
    file = TrialFile(original=str(config), content=b"{}")
    with pytest.raises(StateBusyError, match="already there"):
        run_trial(make_trial("true", id="7", files=(file,)))
    assert Path(first).read_text() == "another's"
