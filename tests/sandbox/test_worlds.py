"""Odd worlds in which a trial has to work, or to say why not: containers, mounts, homes."""

import codecs
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from advisor.sandbox import kernel, open_sandbox, overlay
from advisor.sandbox.mounts import FOLDERS_LIMIT, FileTree, Mount, plan
from advisor.sandbox.policy import SandboxPolicy
from tests.sandbox.conftest import NAMESPACE, ROOT, Outcome, outcome_of
from tests.support.processes import ran
from tests.support.walls import python

pytestmark = pytest.mark.slow

WRITES = "echo new > mine.txt; mkdir -p runs/1; echo x > runs/1/a; echo y > $TMPDIR/y; cat mine.txt"
SET_DUMPABLE = 4
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="needs root")


def trial(
    folder: Path, world: str = "", *, script: str = WRITES, project: str = "project", **env: str
) -> Outcome:
    """A trial of `script` after the shell commands `world`, in a mount namespace of its own.

    Both run in `folder`, in which lies `project` with a file of the user's.
    """
    (folder / "project").mkdir(exist_ok=True)
    mine = folder / "project" / "mine.txt"
    mine.write_text("precious")
    before = (*NAMESPACE, "sh", "-ec", f'{world}\ncd "$0"; exec "$@"', str(ROOT))
    command = ("sh", "-ec", script)
    found = outcome_of(before, folder / project, *command, cwd=folder, env={**os.environ, **env})
    assert mine.read_text() == "precious"
    assert not (folder / "project" / "runs").exists()
    return found


MASKED = """
for each in sys irq bus fs; do
    if [ -e /proc/$each ]; then
        mount --bind /proc/$each /proc/$each; mount -o remount,bind,ro /proc/$each
    fi
done
mount --bind /dev/null /proc/timer_list
"""

# Where the tests' own environment lies in /tmp, its libraries must stay executable there.
INTERPRETER_MAY_RUN = (
    f"mount --bind '{sys.prefix}' '{sys.prefix}'; mount -o remount,bind,exec '{sys.prefix}'"
)

WORLDS = {
    "a container": f"{MASKED}\nmount --bind /etc/hostname project/other.txt"
    + ("\numount -l /dev/shm" if IS_ROOT else ""),  # others may not take a host's mount away
    "little of everything": (
        "mount --bind /tmp /tmp; mount -o remount,bind,noexec,nosuid,nodev /tmp\n"
        f"{INTERPRETER_MAY_RUN}\n"
        "mount -t tmpfs -o size=64k,noexec none /dev/shm; umask 777; ulimit -n 64"
    ),
    "disks in folders": (
        "mkdir old; mount --rbind /dev old; mount -t tmpfs none /dev; mkdir /dev/mapper /dev/bsg\n"
        "for each in null zero full random urandom tty ptmx; do\n"
        "    touch /dev/$each; mount --bind old/$each /dev/$each\n"
        "done; touch /dev/mapper/control\n"
        "for each in pts shm; do mkdir /dev/$each; mount --rbind old/$each /dev/$each; done"
    ),
    "hidden processes of others": "mount -t proc -o hidepid=invisible proc /proc || true",
    "no home": "unset HOME",
    "a home that is a file": "HOME=/etc/passwd",
    "a read-only root": (
        "mkdir project/etc; mount --bind /etc project/etc; mount --bind . .\n"
        "mount -o remount,bind,ro /; export TMPDIR=$PWD"
    ),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_the_overlay_holds(tmp_path, world) -> None:
    """And the program sees what it wrote."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "other.txt").touch()
    found = trial(tmp_path, world)
    assert found[:3] == ("overlay", "new\n", ""), found


def test_folders_of_disks_look_empty(tmp_path) -> None:
    script = "ls -A /dev/mapper /dev/bsg"
    found = trial(tmp_path, WORLDS["disks in folders"], script=script)
    assert found[:2] == ("overlay", "/dev/bsg:\n\n/dev/mapper:\n")


def test_where_proc_is_read_only_or_missing_landlock_holds_and_says_why(tmp_path) -> None:
    found = trial(tmp_path, "mount -o remount,bind,ro /proc", script="cat mine.txt")
    assert found.isolation == "landlock"
    assert found.output == "precious"
    assert "/proc/self/" in found.why_not_better
    assert "Read-only file system" in found.why_not_better


def test_data_on_another_mount_than_the_project_is_covered_too(tmp_path) -> None:
    world = (
        "mkdir data; mount -t tmpfs none data; echo mine > data/d; mount --bind data data\n"
        "trap 'grep -qx mine data/d && test ! -e data/new' EXIT; set -- sh -c '\"$@\"' - \"$@\""
    )
    world = world.replace('exec "$@"', '"$@"')
    script = "echo more >> ../data/d; touch ../data/new; cat ../data/d"
    assert trial(tmp_path, world, script=script)[:3] == ("overlay", "mine\nmore\n", "")


def test_a_project_behind_a_link_is_the_same_project(tmp_path) -> None:
    (tmp_path / "link").symlink_to("project")
    assert trial(tmp_path, project="link")[:3] == ("overlay", "new\n", "")


@needs_root
def test_root_may_do_with_files_of_others_what_it_may_outside(tmp_path) -> None:
    """A container's root works in a folder that belongs to a user of the host."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "mine.txt").touch()
    world = "chown -R 1234:1234 project; chmod 700 project; chmod 600 project/mine.txt"
    script = (
        f"{WRITES}; chown 4321:4321 mine.txt; stat -c %u:%g mine.txt\n"
        "setpriv --reuid 1234 --regid 1234 --clear-groups id -u"
    )
    assert trial(tmp_path, world, script=script)[:3] == ("overlay", "new\n4321:4321\n1234\n", "")


def does(user: int, work: Callable[[], None], layers: str, project: str) -> bool:
    """Whether `work` ends well for `user`, in a process of theirs that an overlay isolates."""
    codecs.lookup("ascii")  # whoever it is may not be able to import it any more
    child = os.fork()
    if not child:
        done = False
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            kernel.prctl(SET_DUMPABLE, 1)  # else /proc/self is root's
            policy = asdict(SandboxPolicy(kind="overlay", layers=layers, upper_bytes=1 << 20))
            open_sandbox(policy, project).enter()
            work()
            done = True
        os._exit(0 if done else 1)
    return os.waitpid(child, 0)[1] == 0


@needs_root
def test_a_user_with_nobodys_number_writes_where_all_may() -> None:
    """In a namespace, files of all who have no number there look like nobody's own."""
    written = Path("/var/tmp/gpu-advisor-test")

    def write() -> None:
        written.write_text("mine")
        assert written.read_text() == "mine"

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 65534, 65534)
        assert does(65534, write, f"{folder}/l", folder)
    assert not written.exists()


@needs_root
def test_where_a_folder_above_is_of_another_group_all_is_written() -> None:
    """A namespace holds one group of its user; an overlay may copy up nothing of another's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        mine = Path(folder, "team", "me")
        mine.mkdir(parents=True)
        for path in (Path(folder), mine.parent, mine):
            os.chown(path, 4321, 0 if path.name == "team" else 4321)
        (mine.parent / "theirs").touch()
        (mine.parent / "theirs").chmod(0o666)

        def make() -> None:
            for path in (mine, mine.parent):
                (path / "runs").mkdir()
            with pytest.raises(OSError, match="theirs"):
                (mine.parent / "theirs").write_text("x")

        assert does(4321, make, f"{folder}/l", str(mine))
        assert not list(Path(folder).rglob("runs"))


@needs_root
def test_folders_of_others_are_denied_within_the_project_and_away_from_it() -> None:
    """Although this user may write them; what lies beside the project is written."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        top, project = Path(folder), Path(folder, "project")
        folders = ("project/theirs", "beside", "others/mine")
        for name in folders:
            (top / name).mkdir(parents=True)
        (project / "file").touch()
        for path in (project / "theirs", project / "file"):
            path.chmod(0o777)
        top.chmod(0o755)
        for path in (project, top / "beside", top / "others/mine"):
            os.chown(path, 4321, 4321)

        def make() -> None:
            (project / "new").touch()
            (top / "beside" / "new").touch()
            for path in (project / "theirs/new", project / "file", top / "others/mine/new"):
                with pytest.raises(OSError, match=path.name):
                    path.write_text("x")

        assert does(4321, make, f"{folder}-layers", str(project))
        assert not list(top.rglob("new"))


@needs_root
def test_a_project_of_another_group_is_not_covered() -> None:
    """A namespace of an ordinary user holds one group. Landlock needs none."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 4321, 1234)
        code = (
            "import os, sys; from advisor.sandbox import capabilities\n"
            "sys.executable = sys.argv[2]\n"
            "os.setgroups([1234]); os.setresgid(4321, 4321, 4321); os.setresuid(4321, 4321, 4321)\n"
            "offer = capabilities.detect_isolation(sys.argv[1], {})\n"
            "print(offer.kind, offer.why_not_better)"
        )
        found = ran(sys.executable, "-c", code, folder, python(4321), cwd=ROOT)
    assert found.stdout.startswith("landlock overlay: "), found.stderr
    assert "belongs to group 1234" in found.stdout


def test_an_overlay_in_which_nothing_can_be_made_is_not_offered(tmp_path) -> None:
    """Such as over file systems that take none: there the project is only shown."""
    world = "\n".join(
        f"mkdir u{each} w{each}; mount -t overlay overlay project -o "
        f"userxattr,lowerdir=project,upperdir=u{each},workdir=w{each}"
        for each in range(2)  # the kernel stacks no more
    )
    found = trial(tmp_path, world, script="cat mine.txt")
    assert found.isolation == "landlock"
    assert found.output == "precious"
    assert f"nothing can be made in {tmp_path}/project: " in found.why_not_better


def test_what_takes_no_overlay_is_read_only_and_a_note_says_so(tmp_path) -> None:
    world = "mkdir data; echo mine > data/d\n" + "\n".join(
        f"mkdir u{each} w{each}; mount -t overlay overlay data -o "
        f"userxattr,lowerdir=data,upperdir=u{each},workdir=w{each}"
        for each in range(2)  # the kernel stacks no more
    )
    script = "cat ../data/d; touch ../data/new 2>&1 || true"
    found = trial(tmp_path, world, script=script)
    assert found.isolation == "overlay"
    assert found.output.startswith("mine\n")
    assert "Read-only file system" in found.output
    assert found.notes == [f"shown read-only to the program: {tmp_path}/data"]


IN_MEMORY = """
import os, sys
from dataclasses import asdict
from advisor.sandbox import open_sandbox
from advisor.sandbox.policy import SandboxPolicy
project, layers = sys.argv[1:]
policy = SandboxPolicy(kind="overlay", layers=layers, upper_bytes=64 << 20)
open_sandbox(asdict(policy), project).enter()
os.chdir(project)
open("mine.txt", "w").write("new")
space = os.statvfs("."); print(space.f_blocks * space.f_frsize == 64 << 20)
"""


@pytest.mark.parametrize(("before", "in_memory"), [((), True), (("setxattr",), False)])
def test_before_linux_6_6_no_layer_lies_in_memory(tmp_path, before, in_memory) -> None:
    """Its memory keeps no attributes, so layers lie on a disk, whose room bounds them."""
    mine = tmp_path / "project" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("precious")
    refuse = (sys.executable, str(Path(__file__).with_name("refuse.py")), *before)
    words = (sys.executable, "-c", IN_MEMORY, str(mine.parent), str(tmp_path / "layers"))
    done = ran(*(refuse if before else ()), *words, cwd=ROOT)
    assert done.stdout == f"{in_memory}\n", done.stderr
    assert mine.read_text() == "precious"


def test_large_files_beside_a_mount_cost_no_memory(tmp_path) -> None:
    """The folder is put together anew: 16 MiB are copied, what is larger is shown read-only."""
    world = (
        "mkdir project/disk; mount -t tmpfs none project/disk\n"
        "truncate -s 900M project/large.bin; truncate -s 3M project/small.bin\n"
        "truncate -s 9M project/one.bin; cp project/one.bin project/two.bin"
    )
    script = (
        "for n in small large one two; do (echo n >> $n.bin) 2> /dev/null || echo $n; done\n"
        "stat -c %s small.bin large.bin"
    )
    found = trial(tmp_path, world, script=script)
    assert found.isolation == "overlay"
    large, second, *sizes = found.output.split()
    assert large == "large"
    assert second in {"one", "two"}  # with the other 12 MiB are copied
    assert sizes == [str((3 << 20) + 2), str(900 << 20)]


def test_a_folder_of_too_many_folders_beside_a_mount_is_said(tmp_path) -> None:
    """Each of them would be a mount."""
    for number in range(FOLDERS_LIMIT + 1):
        (tmp_path / str(number)).mkdir()
    mounts = [Mount(str(path), "ext4", read_only=False) for path in (tmp_path, tmp_path / "7")]
    with pytest.raises(OSError, match="over 1000 folders"):
        plan(mounts, ["/"], FileTree(), private_memory=False)


def test_files_that_come_and_go_meanwhile_spoil_nothing(tmp_path) -> None:
    """/tmp is a folder of others', too."""
    folder = tmp_path / "busy"
    folder.mkdir()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for number in range(20):
                (folder / str(number)).write_bytes(b"x")
            for number in range(20):
                (folder / str(number)).unlink()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(60):
            overlay._copied(str(folder), str(tmp_path / f"base{number}"))
    finally:
        stop.set()
        thread.join()
