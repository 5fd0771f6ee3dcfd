"""On hosts that refuse: the next best kind holds, what is missing is said, and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import UsageError
from advisor.sandbox.capabilities import detect_isolation
from advisor.sandbox.mounts import FileTree, Mount, plan, read_mounts

ROOT = Path(__file__).resolve().parents[2]
REFUSE = Path(__file__).with_name("refuse.py")
TRIAL = """
import json, sys
from pathlib import Path
from advisor.sandbox.capabilities import detect_isolation
from advisor.model import Candidate, MeasurePlan, Trial
from advisor.runner import run_trial
folder = Path(sys.argv[1])
outcome = run_trial(Trial(
    id="1", purpose="baseline", label="original", candidate=Candidate(),
    cwd=str(folder / "project"),
    command=(sys.executable, "-c", "open('mine.txt', 'w').write('new')"),
    scratch=str(folder / "scratch"), plan=MeasurePlan(mode="whole"),
))
offer = detect_isolation(str(folder / "project"))
print(json.dumps([type(outcome).__name__, getattr(outcome, "kind", None), outcome.isolation,
                  [kind for kind, why in offer.refused], offer.why_not_better]))
"""


def trial(tmp_path: Path, *before: str) -> list[Any]:
    """What a trial that overwrites a file comes to when it is started through `before`."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "mine.txt").write_text("precious")
    done = subprocess.run(
        [*before, sys.executable, "-c", TRIAL, str(tmp_path)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "GPU_ADVISOR_ISOLATION"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (project / "mine.txt").read_text() == "precious"
    told: list[Any] = json.loads(done.stdout)
    return told


NO_MORE = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
FILTER = (sys.executable, str(REFUSE))
HOSTS: dict[str, tuple[tuple[str, ...], list[Any], str]] = {
    "a container's filter": (
        (*FILTER, "unshare"),
        ["Failure", "write-denied", "landlock", ["overlay"]],
        "overlay: unshare: Operation not permitted",
    ),
    "a filter of Landlock too": (
        (*FILTER, "unshare,landlock_create_ruleset"),
        ["Failure", "outputs-not-apart", "guard", ["overlay", "landlock"]],
        "landlock: landlock_create_ruleset: Operation not permitted",
    ),
    "no more namespaces": (
        ("unshare", "-Ur", "sh", "-c", NO_MORE, "sh"),
        ["Failure", "write-denied", "landlock", ["overlay"]],
        "",
    ),
    "a rootless container": (("unshare", "-Urm"), ["Run", None, "overlay", []], ""),
}


@pytest.mark.parametrize("host", HOSTS)
def test_the_best_kind_holds_and_the_others_say_why_not(tmp_path: Path, host: str) -> None:
    before, told, why = HOSTS[host]
    found = trial(tmp_path, *before)
    assert found[:4] == told
    assert why in found[4]


def test_a_kind_that_does_not_hold_cannot_be_forced(tmp_path: Path) -> None:
    """An unknown one neither."""
    with pytest.raises(UsageError, match="may be overlay, landlock, guard"):
        detect_isolation(str(tmp_path), {"GPU_ADVISOR_ISOLATION": "docker"})
    with pytest.raises(UsageError, match="does not hold here"):
        detect_isolation(str(tmp_path / "missing"), {"GPU_ADVISOR_ISOLATION": "landlock"})


# --- how the file tree is put together ----------------------------------------------------

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
    assert [step.path for step in found] == sorted(step.path for step in found)  # parents first
    return {step.path: step.how for step in found}


def test_a_folder_in_which_others_are_mounted_is_split() -> None:
    """Where its user may write in it, else it is shown read-only; what lies in it is covered."""
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


def test_root_writes_everywhere() -> None:
    """So that every split folder takes what is written in it."""
    found = steps(root=True)
    assert {found["/"], found["/home"], found["/home/me"], found["/data"]} == {"split"}
    assert "/var/tmp" not in found


def test_mounts_are_read_with_their_escapes_and_modes() -> None:
    """A space in a path is written as `\\040`."""
    found = {mount.path: mount for mount in read_mounts(MOUNTS.strip())}
    assert found["/data/my disk"] == Mount("/data/my disk", "ext4", read_only=False)
    assert found["/cdrom"].read_only
    assert list(found) == sorted(found)
