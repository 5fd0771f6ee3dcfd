"""What a trial is under each kind: what it sees, what it is told, what is told of it."""

import contextlib
import errno
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from advisor.machine.host import memory_limit_bytes
from advisor.model import TrialFile
from advisor.sandbox import capabilities
from advisor.sandbox.capabilities import FORCED
from advisor.sandbox.deputies import connecting, metadata, others
from advisor.sandbox.kernel import keeps_all_users
from advisor.sandbox.seccomp import SyscallNotification, error_of
from tests.support.ways import seen

ROOT = Path(__file__).resolve().parents[2]


RESUMES = """
import os
step = int(open("last.pt").read()) if os.path.exists("last.pt") else 0
print("starts at", step)
if os.path.exists("last.pt"): os.replace("last.pt", "prev.pt")
open("last.pt", "w").write(str(step + 40))
assert open("last.pt").read() == str(step + 40)
"""


def test_each_trial_starts_from_the_users_own_checkpoint(do, project) -> None:
    """What resumes by itself never resumes from a trial, and the tree stays byte for byte."""
    (project / "last.pt").write_text("7")
    (project / ".gitignore").write_text("*.pt")
    who = ["-c", "user.name=u", "-c", "user.email=u@v"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    before = seen(project)
    for _ in range(2):
        run = do.measured("overlay", RESUMES)
        assert run.stdout_tail == "starts at 7\n"
    assert seen(project) == before


def test_files_that_would_have_changed_are_listed(do, project) -> None:
    """Created, changed in content or mode, removed; nothing that was only read or opened."""
    for name in ("changed", "mode", "opened", "gone", "same"):
        (project / name).write_text(name)
    run = do.measured(
        "overlay", "bash", "-c",
        "echo x >> changed; chmod 700 mode; : >> opened; rm gone; cat same; mkdir -p new/a;"
        "touch new/a/b __pycache__; echo a > .git",
    )  # fmt: skip
    assert run.files_created == (".git", "new/a/b")
    assert run.notes == (
        "the program changed or removed changed, mode, gone, thrown away with the trial",
    )
    assert run.isolation == "overlay"


def test_the_candidate_stands_in_the_place_of_the_config(do, project) -> None:
    """Of a config behind a link too; no file appears beside it, no argument is rewritten."""
    real = project / "real.json"
    real.write_text('{"batch": 1}')
    real.chmod(0o640)
    (project / "link.json").symlink_to("real.json")
    before = seen(project)
    run = do.measured(
        "overlay",
        "sh", "-c", "ls; cat link.json real.json; stat -c %a real.json; echo $0", "link.json",
        files=(TrialFile(original=str(project / "link.json"), content=b'{"batch": 2}'),),
    )  # fmt: skip
    assert run.stdout_tail.split() == [
        "link.json", "mine.txt", "real.json", '{"batch":', '2}{"batch":', "2}640", "link.json",
    ]  # fmt: skip
    assert seen(project) == before
    assert run.files_created == ()
    assert run.notes == ()


def test_two_hundred_files_of_a_kind_are_listed(do, project) -> None:
    for number in range(250):
        (project / f"old{number}").touch()
    run = do.measured("overlay", "bash", "-c", "rm old*; touch $(seq 250)")
    assert len(run.files_created) == len(run.files_changed) == 200


def test_a_second_name_of_a_file_keeps_its_content(do, project) -> None:
    """An overlay copies a file by one of its names."""
    (project / "second.txt").hardlink_to(project / "mine.txt")
    run = do.measured("overlay", "bash", "-c", "echo new > mine.txt; cat second.txt")
    assert run.stdout_tail == "precious"


def test_new_files_of_items_are_looked_into(do, project) -> None:
    """A file that grew also holds items of earlier runs, so only new and rewritten ones count."""
    (project / "grown.csv").write_text("1\n2\n")
    (project / "rewritten.csv").write_text("1\n2\n3\n4\n")
    run = do.measured(
        "overlay", "bash", "-c",
        "echo 3 >> grown.csv; echo 9 > rewritten.csv; mkdir out; echo '{\"a\": 1}' > out/p.jsonl;"
        "echo x > notes.txt; ln -s p.jsonl out/q.jsonl; mkfifo out/pipe.csv",
    )  # fmt: skip
    assert {(result.path, result.items, result.first[0][-1]) for result in run.results} == {
        ("out/p.jsonl", 1, 1.0),
        ("rewritten.csv", 1, 9.0),
    }


def test_sixteen_result_files_of_64_mib_are_copied_out(do) -> None:
    run = do.measured(
        "overlay", "bash", "-c",
        "for n in $(seq 20); do echo $n > r$n.jsonl; done\n"
        f"truncate -s {64 << 20} fits.flac; truncate -s {(64 << 20) + 1} large.flac",
    )  # fmt: skip
    names = {result.path for result in run.results}
    assert len(names) == 16
    assert "fits.flac" in names
    assert "large.flac" not in names


PREPARES = """
import json, torch
json.dump(list(range(300)), open("data.json", "w"))
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(64, 4)), batch_size=4)
net = torch.nn.Linear(4, 1)
with torch.no_grad(), open("out.jsonl", "w") as out:
    for (x,) in data:
        out.write(json.dumps(float(net(x).mean())) + chr(10))
"""


@pytest.mark.slow
def test_data_that_a_program_prepares_as_it_starts_is_no_result(do, project) -> None:
    """It holds as many items whatever the work: more work would look as if results were lost."""
    pytest.importorskip("torch")
    (project / "sample.py").write_text(PREPARES)
    run = do.measured("overlay", sys.executable, "sample.py")
    assert [(result.path, result.items) for result in run.results] == [("out.jsonl", 16)]


def test_folders_are_renamed_by_the_program_itself(do, project) -> None:
    """The kernel refuses, as in containers: Python, `mv` and `shutil.move` copy; C does not."""
    for name in ("by python", "by mv", "by shutil", "by C", "empty", "full/x"):
        (project / name / "sub").mkdir(parents=True)
        (project / name / "sub" / "file").write_text(name)
    code = (
        "import ctypes, errno, os, pathlib, shutil, subprocess\n"
        "os.rename('by python', 'new'); pathlib.Path('new').rename('newer')\n"
        "assert open('newer/sub/file').read() == 'by python' and not os.path.exists('by python')\n"
        "subprocess.run(['mv', 'by mv', 'moved'], check=True); shutil.move('by shutil', 'new2')\n"
        "assert open('moved/sub/file').read() == 'by mv'\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.rename(b'by C', b'c') == -1 and ctypes.get_errno() == errno.EXDEV\n"
        "for old, new, problem in (('full', 'empty', errno.ENOTEMPTY),\n"
        "        ('full', 'full/inside', errno.EINVAL), ('nowhere', 'x', errno.ENOENT)):\n"
        "    try: os.rename(old, new); raise SystemExit(new)\n"
        "    except OSError as found: assert found.errno == problem, found\n"
        "os.mkdir('tmp-checkpoint'); os.rename('tmp-checkpoint', 'checkpoint-1')\n"
        "open('/tmp/gpu-advisor-walls', 'w').close()\n"
        "try: os.rename('/tmp/gpu-advisor-walls', '/var/tmp/gpu-advisor-walls')\n"
        "except OSError as found: print(found.errno)"
    )
    before = seen(project)
    run = do.measured("overlay", code)
    assert run.stdout_tail.strip() == str(errno.EXDEV)
    assert seen(project) == before


def test_what_is_written_is_bounded(do, monkeypatch) -> None:
    """More than fits is a failure of its own, with the size and the variable that moves it."""
    monkeypatch.setattr(capabilities, "saves_as_usual", lambda folder, cwd: False)
    monkeypatch.setattr(capabilities, "LEAST_BYTES", 16 << 20)
    monkeypatch.setattr(capabilities, "MEMORY_SHARE", 1 << 40)
    failure = do.failed("overlay", "open('big', 'wb').write(bytes(64 << 20))")
    assert failure.kind == "disk-full"
    assert "16 MiB" in failure.evidence
    assert "GPU_ADVISOR_LAYER_FOLDER" in failure.next_step


SIZE = "import os; s = os.statvfs('.'); print(s.f_blocks * s.f_frsize)"
"""A program that tells the room for its writes."""


def test_writes_in_memory_may_take_a_quarter_of_it(do, monkeypatch) -> None:
    monkeypatch.setattr(capabilities, "saves_as_usual", lambda folder, cwd: False)
    memory = min(psutil.virtual_memory().total, memory_limit_bytes() or sys.maxsize)
    room = int(do.measured("overlay", SIZE).stdout_tail)
    assert abs(room - max(memory // 4, 256 << 20)) < 1 << 20


def test_saving_takes_as_long_as_on_the_disk_of_the_project(do, project, tmp_path) -> None:
    """Layers lie on it where the scratch files do, and in memory elsewhere."""
    assert capabilities.saves_as_usual(str(tmp_path), str(project))
    assert not capabilities.saves_as_usual("/dev/shm", str(project))
    size = os.statvfs(tmp_path)
    assert int(do("overlay", SIZE).stdout_tail) == size.f_blocks * size.f_frsize


def test_a_disk_of_little_room_holds_no_layers(project, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(capabilities, "_upper_bytes", lambda: sys.maxsize)
    uncached = capabilities.saves_as_usual.__wrapped__
    assert not uncached(str(tmp_path), str(project))


def test_layers_may_lie_on_a_disk(do, project, tmp_path) -> None:
    """In a folder that is named, and that is empty again afterwards."""
    layers = tmp_path / "layers"
    layers.mkdir()
    code = (
        "import os; os.rename('mine.txt', 'b'); os.makedirs('c/d')\n"
        f"print(*(name[:12] for name in os.listdir({str(layers)!r})))"
    )
    run = do.measured("overlay", code, env=(("GPU_ADVISOR_LAYER_FOLDER", str(layers)),))
    assert run.stdout_tail == "gpu-advisor-\n"
    assert run.files_created == ("b",)
    assert list(layers.iterdir()) == []
    assert [path.name for path in project.iterdir()] == ["mine.txt"]


def test_caches_are_kept_for_the_later_trials_of_a_call(do, tmp_path) -> None:
    """They show what the user's hold already; the user's own stay as they are."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "old").write_text("old")
    env = (("XDG_CACHE_HOME", str(cache)), ("C", str(cache)))
    kept = str(tmp_path / "kept")
    code = "import os; p = os.environ['C']; print(sorted(os.listdir(p))); open(p + '/new', 'w')"
    outputs = [do("overlay", code, env=env, caches=kept).stdout_tail for _ in range(2)]
    assert outputs == ["['old']\n", "['new', 'old']\n"]
    assert [path.name for path in cache.iterdir()] == ["old"]


def test_a_cache_may_be_written_over_under_the_guard(do, project) -> None:
    """It lies in the working directory, where other files may not."""
    for name in ("cache", "other"):
        (project / name).mkdir()
        (project / name / "file").write_text("old")
    env = (("XDG_CACHE_HOME", str(project / "cache")),)
    do.measured("guard", "open('cache/file', 'w').write('new')", env=env)
    assert (project / "cache" / "file").read_text() == "new"
    failure = do.failed("guard", "open('other/file', 'w').write('new')", env=env)
    assert failure.kind == "outputs-not-apart"
    assert (project / "other" / "file").read_text() == "old"


PLANTS_LINKS = """
# each folder that is really written gives its place to a link to the user's
import os, sys
for top in (os.environ["KEPT"], os.path.dirname(os.environ["TMPDIR"])):
    for place, folders, _ in os.walk(top, topdown=False):
        for name in folders:
            try: os.rename(f"{place}/{name}", f"{place}/{name}.gone")
            except OSError: continue
            os.symlink(os.environ["MINE"], f"{place}/{name}")
"""


@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "own"])
def test_links_that_a_trial_leaves_lead_no_later_layer_out(do, tmp_path, foreign) -> None:
    """Layers are made by the supervisor, with the user's rights, before a trial is shut in."""
    mine, cache, kept = (tmp_path / name for name in ("mine", "cache", "kept"))
    for folder in (mine / "upper", mine / "work", cache):
        folder.mkdir(parents=True)
    (mine / "key").write_text("precious")
    before = seen(mine)
    env = (("XDG_CACHE_HOME", str(cache)), ("MINE", str(mine)), ("KEPT", str(kept)))
    fills = "import os; c = os.environ['XDG_CACHE_HOME']; open(c + '/x', 'w'); print(os.listdir(c))"
    fields: dict[str, Any] = {"env": env, "caches": str(kept), "foreign": foreign}
    without_probe = (sys.executable, "-S", "-c", PLANTS_LINKS)  # whose renames may copy
    do("overlay", *without_probe, **fields)
    run = do.measured("overlay", fills, **fields)
    assert run.stdout_tail == "['x']\n"
    assert seen(mine) == before


def test_users_and_groups_keep_their_numbers_and_devices_work(do) -> None:
    """The host's network and processes are there. Shared memory is the trial's own, and as large.

    An ordinary user sees no other user's number; what they own looks like nobody's.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = (
            f"import os, socket; socket.create_connection({server.getsockname()})\n"
            f"os.kill({os.getpid()}, 0); assert os.path.exists('/proc/{os.getpid()}/stat')\n"
            "open('/dev/null', 'w').write('x'); assert os.urandom(1)\n"
            "assert os.path.isdir('/sys/class')\n"
            "open('/dev/shm/x', 'w'); s = os.statvfs('/dev/shm')\n"
            "print(os.getuid(), os.getgid(), os.stat('.').st_uid, os.stat('/etc/passwd').st_uid,\n"
            "      s.f_blocks * s.f_frsize, *os.listdir('/dev/shm'))"
        )
        run = do.measured("overlay", code)
    owner, space = Path("/etc/passwd").stat().st_uid, os.statvfs("/dev/shm")
    seen_owner = owner if keeps_all_users() or owner == os.getuid() else 65534
    size = space.f_blocks * space.f_frsize
    numbers = (os.getuid(), os.getgid(), os.getuid(), seen_owner, size)
    assert run.stdout_tail == f"{' '.join(map(str, numbers))} x\n"


def test_under_cudas_service_its_pipes_and_shared_memory_are_the_hosts(do, tmp_path) -> None:
    """A client speaks with its server by both."""
    pipes, shared = tmp_path / "pipes", Path(f"/dev/shm/gpu-advisor-mps-{os.getpid()}")
    pipes.mkdir()
    os.mkfifo(pipes / "control")
    reader = os.open(pipes / "control", os.O_RDONLY | os.O_NONBLOCK)
    code = (
        f"import os; pipe = os.open({str(pipes / 'control')!r}, os.O_WRONLY | os.O_NONBLOCK)\n"
        f"os.write(pipe, b'hello'); open({str(shared)!r}, 'w')"
    )
    try:
        do.measured("overlay", code, env=(("CUDA_MPS_PIPE_DIRECTORY", str(pipes)),))
        assert os.read(reader, 9) == b"hello"
        assert shared.exists()
    finally:
        os.close(reader)
        shared.unlink(missing_ok=True)


def test_a_socket_of_another_process_can_be_reached(do) -> None:
    """An ssh agent, a display, a container engine, wherever it lies."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as server:
        place = Path(folder, "deep", "down", "below", "s")
        place.parent.mkdir(parents=True)
        server.bind(str(place))
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('{place}'); print('there')"
        run = do.measured("overlay", code)
    assert run.stdout_tail == "there\n"


@pytest.mark.parametrize(
    "command",
    [
        ("open('mine.txt', 'w')",),
        ("import sqlite3; sqlite3.connect('new.db').execute('create table t (a)')",),
        ("bash", "-c", "echo a > mine.txt || exit 1"),
        ("chmod", "600", "mine.txt"),
    ],
    ids=lambda command: command[0].partition(";")[0],
)
def test_a_denied_write_is_a_failure_that_names_the_file(do, project, command) -> None:
    """From Python, a shell, a child, C."""
    failure = do.failed("landlock", *command)
    assert failure.kind == "write-denied", failure.evidence
    if "sqlite3" not in command[0]:
        assert str(project / "mine.txt") in failure.evidence
    assert "--allow-writes" in failure.next_step
    assert "output-flags" in failure.next_step
    assert (project / "mine.txt").read_text() == "precious"


def test_a_file_that_the_user_may_not_write_either_is_no_denial_of_ours(do) -> None:
    """/proc tells of it in the same words."""
    failure = do.failed("landlock", "open('/proc/1/oom_score_adj_', 'w')")
    assert failure.kind != "write-denied"


def test_the_trials_own_folders_and_caches_can_be_written_under_landlock(do, tmp_path) -> None:
    """TMPDIR, /dev/shm, the outputs; compile caches are pointed to a folder of the call."""
    names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
    code = (
        "import os, tempfile; tempfile.mkstemp(); os.chmod(tempfile.mkdtemp(), 0o755)\n"
        "open('/dev/shm/gpu-advisor-own', 'w'); os.unlink('/dev/shm/gpu-advisor-own')\n"
        "open(os.path.dirname(os.environ['GPU_ADVISOR_SPEC']) + '/outputs/x', 'w')\n"
        f"for name in {names}:\n"
        "    os.makedirs(os.environ[name]); print(os.environ[name])"
    )
    run = do.measured("landlock", code, caches=str(tmp_path / "kept"))
    places = [str(tmp_path / "kept" / name.lower()) for name in names]
    assert run.stdout_tail.split() == places
    assert run.isolation == "landlock"


@pytest.mark.parametrize("variable", ["HF_HOME", "TORCH_HOME"])
def test_a_cache_of_downloads_is_filled_under_landlock(do, project, tmp_path, variable) -> None:
    """A library that reads a model locks its folder. A cache around the project stays shut."""
    cache = tmp_path / "cache"
    write = f"import os; open(os.environ[{variable!r}] + '/hub/model.lock', 'w')"
    do.measured("landlock", write, env=((variable, str(cache)),))  # which was not there
    assert [path.name for path in (cache / "hub").iterdir()] == ["model.lock"]
    write = "import os; open(os.environ['HF_HUB_CACHE'] + '/model.lock', 'w')"
    failure = do.failed("landlock", write, env=(("HF_HUB_CACHE", str(project.parent)),))
    assert failure.kind == "write-denied"


@pytest.mark.parametrize("name", ["token", "other/file"])
def test_what_is_no_download_in_a_cache_stays_shut_under_landlock(do, tmp_path, name) -> None:
    """A token beside the models, and what other programs keep in ~/.cache."""
    for variable in ("HF_HOME", "XDG_CACHE_HOME"):
        file = tmp_path / variable / name
        file.parent.mkdir(parents=True)
        file.write_text("precious")
        for code in ("open({0!r}, 'w')", "import os; os.unlink({0!r})"):
            env = ((variable, str(tmp_path / variable)),)
            failure = do.failed("landlock", code.format(str(file)), env=env)
            assert failure.kind == "write-denied"
        assert file.read_text() == "precious"


def test_changes_in_a_cache_of_downloads_are_listed_under_landlock(do, tmp_path) -> None:
    """They are real. New files are what the folder is for."""
    hub = tmp_path / "cache" / "hub"
    hub.mkdir(parents=True)
    for name in ("changed", "gone", "same"):
        (hub / name).write_text(name)
    code = (
        f"import os; os.chdir({str(hub)!r}); open('changed', 'a').write('x'); os.unlink('gone')\n"
        "open('new', 'w'); open('same').read()"
    )
    run = do.measured("landlock", code, env=(("HF_HOME", str(hub.parent)),))
    assert run.notes == (f"the program changed or removed {hub}/changed, {hub}/gone",)
    assert run.files_created == ()
    assert {path.name: path.read_text() for path in hub.iterdir()} == {
        "changed": "changedx", "same": "same", "new": "",
    }  # fmt: skip


@pytest.mark.parametrize(("files", "listed"), [(1999, True), (2000, False)])
def test_changes_in_a_large_cache_of_downloads_are_not_listed(do, tmp_path, files, listed) -> None:
    hub = tmp_path / "cache" / "hub"
    hub.mkdir(parents=True)
    for number in range(files):
        (hub / str(number)).touch()
    code = f"open({str(hub / '7')!r}, 'w').write('x')"
    run = do.measured("landlock", code, env=(("HF_HOME", str(hub.parent)),))
    assert bool(run.notes) is listed


def test_a_call_that_cannot_be_judged_is_denied(project) -> None:
    """A thread that ended, or whose memory cannot be read, changes no file of the user's."""
    ended = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, check=True)
    calls = [*metadata([str(project)]), *connecting([str(project)]), *others(signals=True)]
    for call in calls:
        notice = SyscallNotification(1, int(ended.stdout), call, (7, 7, 7, 0, 0, 0))
        if call.act:
            assert error_of(notice)


def test_the_user_may_allow_writes_under_landlock(do, project) -> None:
    """In the working directory, then, for real."""
    do.measured("landlock", "open('mine.txt', 'w').write('new')", allow_writes=True)
    assert (project / "mine.txt").read_text() == "new"


def test_nothing_is_left_when_the_whole_tree_is_killed(tmp_path, project) -> None:
    """kill -9 of the caller, of the supervisor and of the program: no mount, process or change."""
    code = (
        "import sys\nfrom advisor.model import *\nfrom advisor.runner.trial import run_trial\n"
        "run_trial(Trial(id='1', purpose='baseline', label='o', candidate=Candidate(),\n"
        "    cwd=sys.argv[1], scratch=sys.argv[2], command=('sh', '-c',\n"
        "    'echo new > mine.txt; touch $TMPDIR/there; exec sleep 600')))\n"
    )
    scratch = str(tmp_path / "scratch")
    words = [sys.executable, "-c", code, str(project), scratch]
    caller = psutil.Popen(words, cwd=ROOT, env={**os.environ, FORCED: "overlay"})
    deadline = time.monotonic() + 120
    while len(family := [caller, *caller.children(recursive=True)]) < 3 or not _sleeps(family):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    mounts = [Path(f"/proc/{process.pid}/mountinfo").read_text() for process in family]
    assert any(scratch in text for text in mounts)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # the supervisor ends it, too
            process.kill()
    psutil.wait_procs(family, timeout=60)
    assert [process for process in family if process.is_running()] == []
    assert scratch not in Path("/proc/self/mountinfo").read_text()
    assert (project / "mine.txt").read_text() == "precious"


def _sleeps(family: list[psutil.Process]) -> bool:
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # such as a self-test that ended
            if process.name() == "sleep":
                return True
    return False
