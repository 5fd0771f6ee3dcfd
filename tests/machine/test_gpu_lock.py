"""One measurement at a time on a GPU, held by the kernel and named for the one who waits."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.errors import StateBusyError
from advisor.machine import lock
from advisor.machine.lock import gpu_lock, holders, runtime_dir
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
    assert f"process {process.pid} of user {os.getuid()}, `{sys.executable} -c" in message


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


@pytest.fixture
def common(monkeypatch) -> Iterator[Path]:
    """A folder like /run/lock, in which the locks of all users lie; others cannot see tmp_path."""
    monkeypatch.delenv("GPU_ADVISOR_RUNTIME_DIR")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setattr(lock, "SHARED", (folder,))
        yield Path(folder)


HOLD_AS = """
import os, sys
from pathlib import Path
from advisor.machine import lock
lock.SHARED = (sys.argv[2],)
os.setgid(12345); os.setuid(12345); os.umask(0o077)
with lock.gpu_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@only_root
@pytest.mark.parametrize("first", ["they", "we"])
def test_users_of_one_machine_take_turns(common, root, first) -> None:
    """Whoever made the file, and whatever their umask."""
    if first == "we":
        with gpu_lock("GPU-1"):
            pass
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    words = (sys.executable, "-c", HOLD_AS, "GPU-1", str(common))
    with begun(*words, cwd=root, stdin=subprocess.PIPE, env=environ) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(StateBusyError, match=f"process {process.pid} of user 12345"):
            _hold("GPU-1")
        with gpu_lock("GPU-2"):
            assert len(holders()) == 2
        process.communicate("")
    _hold("GPU-1")


def _hold(uuid: str) -> None:
    with gpu_lock(uuid):
        pass


@pytest.mark.parametrize("planted", ["link", "dangling", "folder", "pipe", "second name", "closed"])
def test_what_another_planted_in_place_of_a_lock_harms_nothing(common, tmp_path, planted) -> None:
    """It is neither followed, written nor waited for; a lock of this user's own serves instead."""
    victim, place = common / "victim", common / "gpu-advisor-GPU-1.lock"
    victim.write_text("precious")
    match planted:
        case "link":
            place.symlink_to(victim)
        case "dangling":
            place.symlink_to(tmp_path / "new")
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
        case "second name":
            place.hardlink_to(victim)
        case "closed":
            place.touch(mode=0)
    with gpu_lock("GPU-1"), pytest.raises(StateBusyError):
        _hold("GPU-1")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "new").exists()


def test_a_holders_words_are_one_harmless_line(common) -> None:
    """Any user may write them. What is no holder's is not written over."""
    place = common / "gpu-advisor-GPU-1.lock"
    place.write_text("\x1b[2J::error::x\n" * 1000)
    with gpu_lock("GPU-1"), pytest.raises(StateBusyError) as refusal:
        _hold("GPU-1")
    assert str(refusal.value).isprintable()
    assert place.read_text().startswith("\x1b[2J")


def test_every_process_of_a_user_finds_the_same_folder(monkeypatch) -> None:
    """Jobs of one runner have temporary folders of their own; the lock must not follow them."""
    monkeypatch.delenv("GPU_ADVISOR_RUNTIME_DIR")
    before = runtime_dir()
    for name in ("TMPDIR", "XDG_RUNTIME_DIR", "HOME"):
        monkeypatch.setenv(name, "/nowhere")
    assert runtime_dir() == before
