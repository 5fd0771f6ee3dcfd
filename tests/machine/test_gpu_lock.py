"""One measurement at a time on a GPU, held by the kernel and named for the one who waits."""

import os
import subprocess
import sys

import pytest

from advisor.errors import StateBusyError
from advisor.machine.lock import gpu_lock, runtime_dir
from tests.support.processes import begun

HOLD = """
import pathlib, sys, time
from advisor.machine.lock import gpu_lock
with gpu_lock(sys.argv[1] or None, folder=pathlib.Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_is_told_who_holds_it_until_that_is_killed(root, tmp_path) -> None:
    words = (sys.executable, "-c", HOLD, "GPU-1", str(tmp_path))
    with begun(*words, cwd=root, stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(StateBusyError) as refusal, gpu_lock("GPU-1", folder=tmp_path):
            pass
        process.kill()
        process.wait()
        with gpu_lock("GPU-1", folder=tmp_path):
            pass
    message = str(refusal.value)
    assert "on GPU GPU-1" in message
    assert f"process {process.pid}, `{sys.executable} -c" in message


def test_other_gpus_are_not_held(tmp_path) -> None:
    with (
        gpu_lock("GPU-1", folder=tmp_path),
        gpu_lock("GPU-2", folder=tmp_path),
        gpu_lock(None, folder=tmp_path),
        gpu_lock("MIG-GPU-1/7/0", folder=tmp_path),
    ):
        assert len(list(tmp_path.iterdir())) == 4


def test_a_child_does_not_inherit_it(tmp_path) -> None:
    """Else a program left running in the background would hold the lock for ever."""
    with gpu_lock("GPU-1", folder=tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        with gpu_lock("GPU-1", folder=tmp_path):
            pass
        child.communicate(b"\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_another_could_have_planted_is_refused(tmp_path) -> None:
    planted = tmp_path / "planted"
    planted.symlink_to(tmp_path / "elsewhere")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    os.chown(foreign, 12345, 12345)
    for folder in (planted, foreign):
        with pytest.raises(StateBusyError, match="be trusted"), gpu_lock("x", folder=folder):
            pass


def test_every_process_of_a_user_finds_the_same_folder(monkeypatch) -> None:
    """Jobs of one runner have temporary folders of their own; the lock must not follow them."""
    monkeypatch.delenv("GPU_ADVISOR_RUNTIME_DIR")
    before = runtime_dir()
    for name in ("TMPDIR", "XDG_RUNTIME_DIR", "HOME"):
        monkeypatch.setenv(name, "/nowhere")
    assert runtime_dir() == before
