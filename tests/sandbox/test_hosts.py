"""On hosts that refuse: the next best kind holds, what is missing is said, and no traceback."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import UsageError
from advisor.sandbox import mounts, open_sandbox
from advisor.sandbox.capabilities import FORCED, detect_isolation
from advisor.sandbox.mounts import FileTree, other_places, plan, read_mounts
from advisor.sandbox.policy import KINDS, SandboxPolicy
from tests.sandbox.conftest import NAMESPACE, ROOT, Outcome, outcome_of
from tests.support.processes import ran

REFUSE = Path(__file__).with_name("refuse.py")


def trial(tmp_path: Path, *before: str) -> Outcome:
    """Of a program that overwrites a file, when it is started through `before`."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "mine.txt").write_text("precious")
    env = {name: value for name, value in os.environ.items() if name != FORCED}
    overwrites = (sys.executable, "-c", "open('mine.txt', 'w').write('new')")
    found = outcome_of(before, project, *overwrites, cwd=ROOT, env=env)
    assert (project / "mine.txt").read_text() == "precious"
    return found


NO_MORE = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
FILTER = (sys.executable, str(REFUSE))
HOSTS: dict[str, tuple[tuple[str, ...], tuple[Any, ...], str]] = {
    "a container's filter": (
        (*FILTER, "unshare"),
        ("landlock", "write-denied"),
        "overlay: unshare: Operation not permitted",
    ),
    "a filter of Landlock too": (
        (*FILTER, "unshare,landlock_create_ruleset"),
        ("guard", "outputs-not-apart"),
        "landlock: landlock_create_ruleset: Operation not permitted",
    ),
    "no more namespaces": (
        ("unshare", "-Ur", "sh", "-c", NO_MORE, "sh"),
        ("landlock", "write-denied"),
        "overlay: ",
    ),
    "Linux 5.11": (
        (*FILTER, "mount_setattr"),
        ("landlock", "write-denied"),
        "overlay: mount_setattr: Operation not permitted",
    ),
    "a rootless container": (("unshare", "-Urm"), ("overlay", None), ""),
}


@pytest.mark.parametrize("host", HOSTS)
def test_the_best_kind_holds_and_the_others_say_why_not(tmp_path, host) -> None:
    before, expected, why = HOSTS[host]
    found = trial(tmp_path, *before)
    assert (found.isolation, found.failure) == expected
    assert why in found.why_not_better


def test_a_kind_that_does_not_hold_cannot_be_forced(tmp_path) -> None:
    """An unknown one neither. One that holds is taken."""
    for kind in KINDS:
        assert detect_isolation(str(tmp_path), {FORCED: kind}).kind == kind
    with pytest.raises(UsageError, match="may be overlay, landlock, guard"):
        detect_isolation(str(tmp_path), {"GPU_ADVISOR_ISOLATION": "docker"})
    with pytest.raises(UsageError, match="does not hold here"):
        detect_isolation(str(tmp_path / "missing"), {"GPU_ADVISOR_ISOLATION": "landlock"})


def test_an_overlay_whose_layers_have_no_place_is_refused_and_left(tmp_path) -> None:
    """Its supervisor reports that, where reading changes would end it without a word."""
    policy = SandboxPolicy(kind="overlay", layers="/proc/nowhere")
    overlay = open_sandbox(asdict(policy), str(tmp_path))
    with pytest.raises(OSError, match="/proc/nowhere"):
        overlay.enter()
    assert overlay.changes(str(tmp_path)) is None
    overlay.leave()


MOUNTS = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 27 0:21 / /proc rw - proc proc rw
24 27 0:6 / /dev rw - devtmpfs devtmpfs rw
25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw
26 27 0:30 / /data/my\040disk rw - ext4 /dev/vdb rw
28 27 0:31 / /cdrom ro - iso9660 /dev/sr0 ro
29 27 0:32 / /home/me/cloud rw - fuse cloud rw
33 27 0:21 / /data/proc rw - proc proc rw
"""
FOLDERS = {
    "/": ["/home", "/var", "/proc", "/dev", "/data", "/cdrom", "/srv"],
    "/home": ["/home/me", "/home/you"],
    "/home/me": ["/home/me/cloud", "/home/me/project"],
    "/data": ["/data/my disk", "/data/rest", "/data/proc"],
    "/var": ["/var/tmp", "/var/lib"],
    "/srv/team": ["/srv/team/me", "/srv/team/all", "/srv/team/you"],
}


class SmallHost(FileTree):
    """Two homes, a disk of data, and a temporary folder of another user's."""

    def __init__(self, *, root: bool) -> None:
        self.owns_all = root

    def folders(self, path: str) -> list[str]:
        return FOLDERS.get(path, [])

    def is_folder(self, path: str) -> bool:
        return bool(path)

    def may_write(self, path: str) -> bool:
        mine = {"/home/me", "/home/me/project", "/var/tmp", "/srv/team/me", "/srv/team/all"}
        return self.owns_all or path in mine

    def is_foreign(self, path: str) -> bool:
        return path in {"/var/tmp", "/srv/team", "/srv/team/all", "/srv/team/you"}


def steps(*, root: bool) -> dict[str, str]:
    """The plan for a small host, by path."""
    tree = SmallHost(root=root)
    found = plan(
        read_mounts(MOUNTS.strip()),
        ["/home/me/project", "/srv/team/me/p"],
        tree,
        private_memory=True,
    )
    assert list(found) == sorted(found)  # parents first
    return dict(found)


def test_a_folder_in_which_others_are_mounted_is_split() -> None:
    """Where its user may write in it, else it is shown read-only; root may write everywhere."""
    assert steps(root=False) == {
        "/": "sealed",
        "/proc": "passes",
        "/dev": "passes",
        "/dev/shm": "memory",
        "/cdrom": "passes",
        "/data": "sealed",
        "/data/my disk": "overlay",
        "/data/proc": "sealed",  # a second place of the kernel's settings
        "/data/rest": "overlay",
        "/home": "sealed",
        "/home/me": "split",
        "/home/me/cloud": "overlay",
        "/home/me/project": "overlay",
        "/home/you": "overlay",
        "/srv": "overlay",
        "/srv/team/all": "overlay",
        "/srv/team/me": "overlay",  # an overlay above would copy up another's folder
        "/var": "overlay",
        "/var/tmp": "overlay",  # another's folder cannot be copied up, it can be stood over
    }
    found = steps(root=True)
    assert {found["/"], found["/home"], found["/home/me"], found["/data"]} == {"split"}
    assert "/var/tmp" not in found
    read_only = {mount.path: mount.read_only for mount in read_mounts(MOUNTS.strip())}
    assert read_only["/cdrom"] is True
    assert read_only["/data/my disk"] is False


SHOWN_TWICE = """
27 1 254:0 / / rw - ext4 /dev/vda rw
30 27 0:30 / /srv rw - btrfs /dev/vdb rw
31 27 0:30 /@home /home rw - btrfs /dev/vdb rw
32 27 254:0 /etc/keys /mnt/keys rw - ext4 /dev/vda rw
33 27 0:44 / /etc/keys/other rw - tmpfs none rw
"""


def test_a_folder_that_is_shown_twice_is_known_by_both_names(tmp_path, monkeypatch) -> None:
    """By its file system at another place, or by a mount of a folder in it."""
    monkeypatch.setattr(mounts, "_is_same", lambda *_: True)
    text = SHOWN_TWICE.strip()
    assert other_places(["/home/me"], text) == ["/srv/@home/me"]
    assert other_places(["/srv/@home"], text) == ["/home"]
    assert other_places(["/etc"], text) == ["/mnt/keys"]
    assert other_places(["/etc/keys/x"], text) == ["/mnt/keys/x"]
    assert other_places(["/etc/keys/other"], text) == []


BINDS_AND_ASKS = """
import sys
from advisor.sandbox import capabilities, kernel
home, place, bare = sys.argv[1:]
kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
kernel.bind(home, place); kernel.bind(home + "/.ssh", bare)
print(*capabilities._wherever_shown([home]), sep="\\n")
"""


def test_a_hidden_folder_is_hidden_wherever_it_is_mounted(tmp_path) -> None:
    """A container's job shows the folders of its runner at several places."""
    names = [str(tmp_path / name) for name in ("home", "place", "bare")]
    for name in (names[0] + "/.ssh", *names[1:]):
        Path(name).mkdir(parents=True)
    done = ran(*NAMESPACE, sys.executable, "-c", BINDS_AND_ASKS, *names, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == set(names)
