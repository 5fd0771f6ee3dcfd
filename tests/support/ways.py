"""Ways in which real programs write, one for each call of the kernel that they come to.

Run as `python ways.py RESULTS NAME ...` inside a trial: each way runs in its own folder of the
working directory, where `lay_out` has put files of the user's, and reads back what it wrote.
RESULTS becomes a JSON object: the name of each way and None, or why its view was wrong.
"""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

OLD_NS = 1_000_000_000_123_456_789
"""Modification time of everything that is the user's."""
BACK = "import os; from pathlib import Path; mine = Path('mine.txt')\n"
"""Before each of the Python programs."""
PYTHON = {
    "open": "open('mine.txt', 'w').write('new'); assert mine.read_text() == 'new'",
    "O_TRUNC by /proc/self/fd": """
f = os.open('mine.txt', os.O_RDONLY)
open(f'/proc/self/fd/{f}', 'w').close()
assert not mine.read_text()
""",
    "mmap": """
import mmap
with open('mine.txt', 'r+b') as f:
    m = mmap.mmap(f.fileno(), 0); m[:1] = b'X'; m.flush()
assert mine.read_text() == 'Xrecious'
""",
    "truncate": "os.truncate('mine.txt', 3); assert mine.read_text() == 'pre'",
    "fallocate": """
f = os.open('mine.txt', os.O_RDWR)
os.posix_fallocate(f, 0, 4096)
assert mine.stat().st_size == 4096
""",
    "unlink, write anew": "mine.unlink(); mine.write_text('n'); assert mine.read_text() == 'n'",
    "rotating saver": """
os.replace('last.pt', 'prev.pt')
Path('last.pt').write_bytes(b'3')
assert Path('prev.pt').read_bytes() == b'2'
""",
    "rename folder": """
os.rename('folder', 'old'); os.mkdir('folder'); Path('folder/a.txt').write_text('n')
assert Path('old/sub/b.txt').read_text() == 'b' and os.listdir('folder') == ['a.txt']
""",
    "rmtree, make anew": """
import shutil
shutil.rmtree('folder'); os.makedirs('folder/sub')
assert os.listdir('folder/sub') == []
""",
    "chmod": "os.chmod('mine.txt', 0o600); assert mine.stat().st_mode & 0o777 == 0o600",
    "touch": "os.utime('mine.txt'); assert mine.stat().st_mtime > 1.5e9",
    "touch by descriptor": """
os.utime(os.open('mine.txt', os.O_RDONLY))
assert mine.stat().st_mtime > 1.5e9
""",
    "xattr": """
os.setxattr('mine.txt', 'user.mine', b'new')
assert os.getxattr('mine.txt', 'user.mine') == b'new'
""",
    "remove xattr": "os.removexattr('mine.txt', 'user.mine'); assert not os.listxattr('mine.txt')",
    "hard link, then write": """
os.link('mine.txt', 'l')
Path('l').write_text('n')
assert mine.read_text() == 'n'
""",
    "latest symlink": """
os.unlink('latest'); os.mkdir('run2'); os.symlink('run2', 'latest')
assert os.readlink('latest') == 'run2'
""",
    "write through a symlink": """
Path('latest/a.txt').write_text('n')
assert Path('folder/a.txt').read_text() == 'n'
""",
    "outside the project": """
p = Path('../../elsewhere/mine.txt')
p.write_text('n')
assert p.read_text() == 'n'
""",
    "$HOME": "p = Path('~/mine.txt').expanduser(); p.write_text('n'); assert p.read_text() == 'n'",
    "dir_fd": """
os.unlink('a.txt', dir_fd=os.open('folder', os.O_RDONLY))
assert not os.path.exists('folder/a.txt')
""",
    "forked worker": """
import multiprocessing as m
p = m.get_context('fork').Process(target=lambda: mine.write_text('n'))
p.start(); p.join()
assert p.exitcode == 0 and mine.read_text() == 'n'
""",
    "sqlite3, write-ahead log": """
import sqlite3
c = sqlite3.connect('db.sqlite')
c.execute('pragma journal_mode=wal'); c.execute('insert into t values (2)')
c.commit(); c.close()
assert sqlite3.connect('db.sqlite').execute('select count(*) from t').fetchone() == (2,)
""",
    "fifo and socket": """
import socket
os.mkfifo('f')
s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen()
socket.socket(socket.AF_UNIX).connect('s'); s.accept()
""",
    "/dev/shm": """
p = Path('/dev/shm/gpu-advisor-ways')
p.write_text('n')
assert p.read_text() == 'n'
""",
    "shared memory left": """
from multiprocessing import resource_tracker, shared_memory as s
m = s.SharedMemory(name='gpu-advisor-ways-2', create=True, size=8)
resource_tracker.unregister(m._name, 'shared_memory')
m.buf[0] = 1
""",
    "/tmp by name": """
p = Path('/tmp/gpu-advisor-ways')
p.write_text('n')
assert p.read_text() == 'n'
""",
}
TORCH = {
    "torch.save": """
import torch
torch.save({'a': 1}, 'last.pt')
assert torch.load('last.pt') == {'a': 1}
""",
    "shared loader, file_system": """
import torch, torch.multiprocessing as m
m.set_sharing_strategy('file_system')
d = torch.utils.data.DataLoader(torch.arange(64), batch_size=8, num_workers=2)
assert sum(len(b) for b in d) == 64
mine.write_text('n')
""",
}
SHELL = {
    "sed -i": "sed -i s/precious/n/ mine.txt && grep -q n mine.txt",
    "git commit": """
git -C repo -c user.name=a -c user.email=a@b commit -qam n
git -C repo log --oneline | grep -q n
""",
    "a daemon that writes later": """
setsid sh -c 'trap "" TERM HUP; sleep 0.7; echo late > mine.txt' > /dev/null 2>&1 &
""",
}
LEFT_OUTSIDE = ("/dev/shm/gpu-advisor-ways", "/dev/shm/gpu-advisor-ways-2", "/tmp/gpu-advisor-ways")


def lay_out(root: Path, names: list[str]) -> Path:
    """Files of the user's for each way below `root`; returns the project, the working directory."""
    project = root / "project"
    for folder in [project / _folder(name) for name in names] + [root / "elsewhere", root / "home"]:
        (folder / "folder" / "sub").mkdir(parents=True)
        (folder / "mine.txt").write_text("precious")
        (folder / "mine.txt").chmod(0o640)
        os.setxattr(folder / "mine.txt", "user.mine", b"kept")
        (folder / "folder" / "a.txt").write_text("a")
        (folder / "folder" / "sub" / "b.txt").write_text("b")
        (folder / "last.pt").write_bytes(b"2")
        (folder / "prev.pt").write_bytes(b"1")
        (folder / "latest").symlink_to("folder")
        with sqlite3.connect(folder / "db.sqlite") as base:
            base.execute("create table t (a)")
            base.execute("insert into t values (1)")
        base.close()
        if folder.name == _folder("git commit"):
            _repository(folder / "repo")
    for path in sorted(root.rglob("*"), reverse=True):
        os.utime(path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)
    return project


def _repository(folder: Path) -> None:
    who = ["-c", "user.name=u", "-c", "user.email=u@v"]
    folder.mkdir()
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        (folder / "tracked.txt").write_text("first")
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    (folder / "tracked.txt").write_text("edited")


def seen(root: Path) -> dict[str, tuple[object, ...]]:
    """All that is to stay: of every path its kind, mode, owner, times, attributes and content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        content: object = None
        if path.is_symlink():
            content = path.readlink()
        elif path.is_file():
            content = path.read_bytes()
        attributes = tuple(
            (name, os.getxattr(path, name, follow_symlinks=False))
            for name in os.listxattr(path, follow_symlinks=False)
        )
        owner = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink)
        found[str(path.relative_to(root))] = (owner, status.st_mtime_ns, attributes, content)
    return found


def belongs(path: str, name: str) -> bool:
    """Whether a path of `seen` is among those that the way `name` may write to."""
    place = {"outside the project": "elsewhere", "$HOME": "home"}.get(name)
    folder = place or f"project/{_folder(name)}"
    return path == folder or path.startswith(f"{folder}/")


def _folder(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")


def attempt(name: str, folder: Path, home: Path) -> str | None:
    """Run one way in `folder`; None if its own view was right, else its last words."""
    environment = {**os.environ, "HOME": str(home)}
    if name not in SHELL:
        return _forked(BACK + {**PYTHON, **TORCH}[name], folder, environment)
    done = subprocess.run(
        ["bash", "-ec", SHELL[name]],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    message = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return message[-1] if done.returncode else None


def _forked(code: str, folder: Path, environment: dict[str, str]) -> str | None:
    """The same without the start of an interpreter."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        message = ""
        try:
            os.chdir(folder)
            os.environ.update(environment)
            exec(code, {"__name__": "way"})
        except BaseException as problem:
            message = f"{type(problem).__name__}: {problem}"
        os.write(write, message.encode())
        os._exit(1 if message else 0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        message = file.read().decode()
    _, status = os.waitpid(child, 0)
    return (message or f"exit code {os.waitstatus_to_exitcode(status)}") if status else None


if __name__ == "__main__":
    home = Path.cwd().parent / "home"
    results = {name: attempt(name, Path.cwd() / _folder(name), home) for name in sys.argv[2:]}
    Path(sys.argv[1]).write_text(json.dumps(results))
