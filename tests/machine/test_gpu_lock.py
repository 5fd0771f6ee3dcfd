"""One measurement at a time on a GPU, held by the kernel and named for the one who waits."""

import os
import subprocess
import sys

import pytest

from advisor.errors import StateBusyError
from advisor.machine.lock import gpu_lock, runtime_dir
from tests.support.processes import begun

HOLD = """
import sys
from advisor.machine.lock import gpu_lock
with gpu_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _locks(tmp_path, monkeypatch) -> None:
    """Locks of these tests alone."""
    monkeypatch.setenv("GPU_ADVISOR_RUNTIME_DIR", str(tmp_path))


def test_the_second_is_told_who_holds_it_until_that_is_killed(root) -> None:
    words = (sys.executable, "-c", HOLD, "GPU-1")
    with begun(*words, cwd=root, stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(StateBusyError) as refusal, gpu_lock("GPU-1"):
            pass
        process.kill()
        process.wait()
        with gpu_lock("GPU-1"):
            pass
    message = str(refusal.value)
    assert "on GPU GPU-1" in message
    assert f"process {process.pid}, `{sys.executable} -c" in message


def test_other_gpus_are_not_held(tmp_path) -> None:
    with gpu_lock("GPU-1"), gpu_lock("GPU-2"), gpu_lock(None), gpu_lock("MIG-GPU-1/7/0"):
        assert len(list(tmp_path.iterdir())) == 4


def test_a_child_does_not_inherit_it() -> None:
    """Else a program left running in the background would hold the lock for ever."""
    with gpu_lock("GPU-1"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        with gpu_lock("GPU-1"):
            pass
        child.communicate(b"\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_another_could_have_planted_is_refused(tmp_path, monkeypatch) -> None:
    planted = tmp_path / "planted"
    planted.symlink_to(tmp_path / "elsewhere")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    os.chown(foreign, 12345, 12345)
    for folder in (planted, foreign):
        monkeypatch.setenv("GPU_ADVISOR_RUNTIME_DIR", str(folder))
        with pytest.raises(StateBusyError, match="be trusted"), gpu_lock("x"):
            pass


def test_every_process_of_a_user_finds_the_same_folder(monkeypatch) -> None:
    """Jobs of one runner have temporary folders of their own; the lock must not follow them."""
    monkeypatch.delenv("GPU_ADVISOR_RUNTIME_DIR")
    before = runtime_dir()
    for name in ("TMPDIR", "XDG_RUNTIME_DIR", "HOME"):
        monkeypatch.setenv(name, "/nowhere")
    assert runtime_dir() == before
