"""On hosts that refuse: the next best kind holds, what is missing is said, and no traceback."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import UsageError
from advisor.sandbox import open_sandbox
from advisor.sandbox.capabilities import FORCED, detect_isolation
from advisor.sandbox.mounts import FileTree, plan, read_mounts
from advisor.sandbox.policy import SandboxPolicy
from tests.sandbox.conftest import ROOT, Outcome, outcome_of

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
    "a rootless container": (("unshare", "-Urm"), ("overlay", None), ""),
}


@pytest.mark.parametrize("host", HOSTS)
def test_the_best_kind_holds_and_the_others_say_why_not(tmp_path, host) -> None:
    before, expected, why = HOSTS[host]
    found = trial(tmp_path, *before)
    assert (found.isolation, found.failure) == expected
    assert why in found.why_not_better


def test_a_kind_that_does_not_hold_cannot_be_forced(tmp_path) -> None:
    """An unknown one neither."""
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
"""
FOLDERS = {
    "/": ["/home", "/var", "/proc", "/dev", "/data", "/cdrom", "/srv"],
    "/home": ["/home/me", "/home/you"],
    "/home/me": ["/home/me/cloud", "/home/me/project"],
    "/data": ["/data/my disk", "/data/rest"],
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
    mounts = {mount.path: mount.read_only for mount in read_mounts(MOUNTS.strip())}
    assert mounts["/cdrom"] is True
    assert mounts["/data/my disk"] is False
