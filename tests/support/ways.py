"""Ways in which real programs write, as data: each a small program that lies to nobody.

Run as `python ways.py RESULTS NAME ...` inside a trial: each way runs in its own folder of the
working directory, where `lay_out` has put files of the user's, and reads back what it wrote.
RESULTS becomes a JSON object: the name of each way and None, or why its view was wrong.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

OLD_NS = 1_000_000_000_123_456_789
"""Modification time of everything that is the user's."""


class Way(NamedTuple):
    how: str
    """py: a Python program, with the interpreter's arguments after it. sh: a shell's."""
    code: str
    torch: bool = False


BACK = "import os; from pathlib import Path; mine = Path('mine.txt')\n"

WAYS: dict[str, Way] = {
    "open w": Way("py", "open('mine.txt', 'w').write('new'); assert mine.read_text() == 'new'"),
    "open a": Way("py", "open('mine.txt', 'a').write('!'); assert mine.read_text() == 'precious!'"),
    "open r+": Way("py", "open('mine.txt', 'r+').write('P'); assert mine.read_text()[:2] == 'Pr'"),
    "open x beside": Way("py", "open('new.txt', 'x').write('a'); assert os.path.getsize('new.txt') == 1"),
    "O_TRUNC": Way("py", "os.close(os.open('mine.txt', os.O_WRONLY | os.O_TRUNC)); assert not mine.read_text()"),
    "O_TRUNC by /proc/self/fd": Way(
        "py", "f = os.open('mine.txt', os.O_RDONLY); open(f'/proc/self/fd/{f}', 'w').close(); assert not mine.read_text()"
    ),
    "write by /proc/self/cwd": Way("py", "open('/proc/self/cwd/mine.txt', 'w').write('b'); assert mine.read_text() == 'b'"),
    "mmap": Way(
        "py",
        "import mmap\nwith open('mine.txt', 'r+b') as f:\n    m = mmap.mmap(f.fileno(), 0); m[:1] = b'X'; m.flush()\n"
        "assert mine.read_text() == 'Xrecious'",
    ),
    "truncate": Way("py", "os.truncate('mine.txt', 3); assert mine.read_text() == 'pre'"),
    "fallocate": Way("py", "f = os.open('mine.txt', os.O_RDWR); os.posix_fallocate(f, 0, 4096); assert mine.stat().st_size == 4096"),
    "unlink": Way("py", "os.unlink('mine.txt'); assert not mine.exists()"),
    "unlink, write anew": Way("py", "mine.unlink(); mine.write_text('anew'); assert mine.read_text() == 'anew'"),
    "rename away": Way("py", "os.rename('mine.txt', 'moved'); assert Path('moved').read_text() == 'precious' and not mine.exists()"),
    "rename over": Way("py", "Path('t').write_text('n'); os.replace('t', 'mine.txt'); assert mine.read_text() == 'n'"),
    "rotating saver": Way(
        "py", "os.replace('last.pt', 'prev.pt'); Path('last.pt').write_bytes(b'3'); assert Path('prev.pt').read_bytes() == b'2'"
    ),
    "temporary file, then rename": Way(
        "py",
        "import tempfile\nwith tempfile.NamedTemporaryFile(dir='.', delete=False) as f: f.write(b'4')\n"
        "os.replace(f.name, 'last.pt'); assert Path('last.pt').read_bytes() == b'4'",
    ),
    "rename folder": Way(
        "py",
        "os.rename('folder', 'old'); os.mkdir('folder'); Path('folder/a.txt').write_text('n')\n"
        "assert Path('old/sub/b.txt').read_text() == 'b' and os.listdir('folder') == ['a.txt']",
    ),
    "replace folder": Way("py", "os.mkdir('to'); Path('folder').replace('to'); assert Path('to/a.txt').read_text() == 'a'"),
    "rename folder in a shell": Way("sh", "mv folder old && mkdir folder && test -f old/sub/b.txt && test ! -e folder/a.txt"),
    "rmdir": Way("py", "os.rmdir('empty'); assert not os.path.exists('empty')"),
    "rmtree": Way("py", "import shutil; shutil.rmtree('folder'); assert not os.path.exists('folder')"),
    "rmtree, make anew": Way(
        "py", "import shutil; shutil.rmtree('folder'); os.makedirs('folder/sub'); assert os.listdir('folder/sub') == []"
    ),
    "mkdir": Way("py", "os.makedirs('runs/1/x'); Path('runs/1/x/y').touch(); assert os.path.exists('runs/1/x/y')"),
    "chmod": Way("py", "os.chmod('mine.txt', 0o600); assert mine.stat().st_mode & 0o777 == 0o600"),
    "chmod of a folder": Way("py", "os.chmod('folder', 0o700); assert os.stat('folder').st_mode & 0o777 == 0o700"),
    "chmod, then write": Way("py", "os.chmod('mine.txt', 0o666); mine.write_text('n'); assert mine.read_text() == 'n'"),
    "touch": Way("py", "os.utime('mine.txt'); assert mine.stat().st_mtime > 1.5e9"),
    "touch, then write": Way("py", "mine.touch(); mine.write_text('n'); assert mine.read_text() == 'n'"),
    "touch by descriptor": Way("py", "f = os.open('mine.txt', os.O_RDONLY); os.utime(f); assert mine.stat().st_mtime > 1.5e9"),
    "xattr": Way("py", "os.setxattr('mine.txt', 'user.mine', b'new'); assert os.getxattr('mine.txt', 'user.mine') == b'new'"),
    "remove xattr": Way("py", "os.removexattr('mine.txt', 'user.mine'); assert os.listxattr('mine.txt') == []"),
    "hard link, then write": Way("py", "os.link('mine.txt', 'l'); Path('l').write_text('n'); assert mine.read_text() == 'n'"),
    "symlink, then write": Way("py", "os.symlink('mine.txt', 'l'); Path('l').write_text('n'); assert mine.read_text() == 'n'"),
    "latest symlink": Way(
        "py", "os.unlink('latest'); os.mkdir('run2'); os.symlink('run2', 'latest'); assert os.readlink('latest') == 'run2'"
    ),
    "write through a symlink": Way("py", "Path('latest/a.txt').write_text('n'); assert Path('folder/a.txt').read_text() == 'n'"),
    "absolute path": Way("py", "p = os.path.abspath('mine.txt'); open(p, 'w').write('n'); assert mine.read_text() == 'n'"),
    "../ path": Way("py", "p = Path('..', Path.cwd().name, 'mine.txt'); p.write_text('n'); assert mine.read_text() == 'n'"),
    "outside the project": Way("py", "p = Path('../../elsewhere/mine.txt'); p.write_text('n'); assert p.read_text() == 'n'"),
    "$HOME": Way("py", "p = Path('~/mine.txt').expanduser(); p.write_text('n'); assert p.read_text() == 'n'"),
    "after chdir": Way("py", "os.chdir('folder'); open('a.txt', 'w').write('n'); assert Path('a.txt').read_text() == 'n'"),
    "dir_fd": Way("py", "d = os.open('folder', os.O_RDONLY); os.unlink('a.txt', dir_fd=d); assert not os.path.exists('folder/a.txt')"),
    "python -I": Way("py -I", "open('mine.txt', 'w').write('n'); assert mine.read_text() == 'n'"),
    "python -E": Way("py -E", "open('mine.txt', 'w').write('n'); assert mine.read_text() == 'n'"),
    "env -i": Way("sh", "env -i /bin/sh -c 'echo n > mine.txt' && grep -q n mine.txt"),
    "C fopen": Way(
        "py",
        "import ctypes; c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p\n"
        "f = c.fopen(b'mine.txt', b'w'); assert f; c.fputs(b'n', ctypes.c_void_p(f)); c.fclose(ctypes.c_void_p(f))\n"
        "assert mine.read_text() == 'n'",
    ),
    "cp in a child": Way("py", "import subprocess; subprocess.run(['cp', 'last.pt', 'mine.txt'], check=True); assert mine.read_text() == '2'"),
    "mv in a child": Way("sh", "mv last.pt prev.pt && test ! -e last.pt && grep -q 2 prev.pt"),
    "rm -rf in a child": Way("sh", "rm -r folder && test ! -e folder"),
    "ln -sfn": Way("sh", "mkdir run2 && ln -sfn run2 latest && test $(readlink latest) = run2"),
    "shell redirection": Way("sh", "bash -c 'echo n > mine.txt' && grep -q n mine.txt"),
    "tee -a": Way("sh", "echo n | tee -a mine.txt > /dev/null && grep -q n mine.txt"),
    "sed -i": Way("sh", "sed -i s/precious/n/ mine.txt && grep -q n mine.txt"),
    "dd": Way("sh", "dd if=/dev/zero of=mine.txt bs=1 count=2 conv=notrunc status=none && test $(wc -c < mine.txt) = 8"),
    "git commit": Way("sh", "git -C repo -c user.name=a -c user.email=a@b commit -qam n && git -C repo log --oneline | grep -q n"),
    "git checkout of files": Way("sh", "git -C repo checkout -q -- tracked.txt && grep -q first repo/tracked.txt"),
    "git gc": Way("sh", "git -C repo gc -q && git -C repo rev-parse HEAD > /dev/null"),
    "double fork": Way(
        "py",
        "if not os.fork():\n    os.setsid()\n    if not os.fork(): mine.write_text('n')\n    os._exit(0)\n"
        "import time; os.wait()\nfor _ in range(100):\n    time.sleep(0.02)\n    if mine.read_text() == 'n': break\n"
        "else: raise PermissionError('mine.txt')",
    ),
    "a daemon that writes later": Way("sh", "setsid sh -c 'trap \"\" TERM HUP; sleep 0.7; echo late > mine.txt' > /dev/null 2>&1 &"),
    "child with close_fds": Way(
        "py", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', \"open('mine.txt', 'w').write('n')\"], close_fds=True, check=True)\nassert mine.read_text() == 'n'"
    ),
    "forked worker": Way(
        "py",
        "import multiprocessing as m\ndef work(): open('mine.txt', 'w').write('n')\n"
        "p = m.get_context('fork').Process(target=work); p.start(); p.join(); assert p.exitcode == 0 and mine.read_text() == 'n'",
    ),
    "sqlite3": Way(
        "py", "import sqlite3; c = sqlite3.connect('db.sqlite'); c.execute('insert into t values (2)'); c.commit(); assert len(list(c.execute('select * from t'))) == 2"
    ),
    "sqlite3, write-ahead log": Way(
        "py", "import sqlite3; c = sqlite3.connect('db.sqlite'); c.execute('pragma journal_mode=wal'); c.execute('insert into t values (2)'); c.commit(); c.close(); assert sqlite3.connect('db.sqlite').execute('select count(*) from t').fetchone() == (2,)"
    ),
    "pickle": Way("py", "import pickle; pickle.dump({1: 2}, open('last.pt', 'wb')); assert pickle.load(open('last.pt', 'rb')) == {1: 2}"),
    "shelve": Way("py", "import shelve\nwith shelve.open('shelf') as s: s['a'] = 1\nwith shelve.open('shelf') as s: assert s['a'] == 1"),
    "dbm": Way("py", "import dbm.dumb\nwith dbm.dumb.open('db', 'n') as d: d['a'] = 'b'\nwith dbm.dumb.open('db') as d: assert d['a'] == b'b'"),
    "zipfile append": Way("py", "import zipfile\nwith zipfile.ZipFile('mine.zip', 'a') as z: z.writestr('b', 'b')\nassert len(zipfile.ZipFile('mine.zip').namelist()) == 2"),
    "tarfile extract": Way("py", "import tarfile; tarfile.open('mine.tar').extractall('.'); assert mine.read_text() == 'from tar'"),
    "logging": Way("py", "import logging; logging.basicConfig(filename='mine.txt'); logging.error('n'); logging.shutdown(); assert 'ERROR' in mine.read_text()"),
    "csv": Way("py", "import csv\nwith open('mine.txt', 'a', newline='') as f: csv.writer(f).writerow([1])\nassert '1' in mine.read_text()"),
    "copy_file_range": Way(
        "py", "a = os.open('last.pt', os.O_RDONLY); b = os.open('mine.txt', os.O_WRONLY)\n"
        "try: os.copy_file_range(a, b, 1)\nexcept OSError as e:\n    if e.errno != 18: raise\n    os.sendfile(b, a, 0, 1)\n"
        "assert mine.read_text() == '2recious'",
    ),
    "sendfile": Way(
        "py", "a = os.open('last.pt', os.O_RDONLY); b = os.open('mine.txt', os.O_WRONLY); os.sendfile(b, a, 0, 1); assert mine.read_text() == '2recious'"
    ),
    "pwrite": Way("py", "f = os.open('mine.txt', os.O_RDWR); os.pwrite(f, b'X', 2); assert mine.read_text() == 'prXcious'"),
    "os.open in C++ style": Way("py", "f = os.open('mine.txt', os.O_WRONLY | os.O_CREAT, 0o644); os.write(f, b'n'); assert mine.read_text() == 'nrecious'"),
    "shutil.copy2": Way("py", "import shutil; shutil.copy2('last.pt', 'mine.txt'); assert mine.read_text() == '2'"),
    "shutil.move": Way("py", "import shutil; shutil.move('folder', 'moved'); assert Path('moved/a.txt').read_text() == 'a'"),
    "copytree over": Way("py", "import shutil; shutil.copytree('folder', 'other', dirs_exist_ok=True); assert Path('other/a.txt').read_text() == 'a'"),
    "mkfifo, socket": Way(
        "py", "import socket; os.mkfifo('f'); s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect('s'); s.accept()"
    ),
    "/dev/shm": Way("py", "p = Path('/dev/shm/gpu-advisor-ways'); p.write_text('n'); assert p.read_text() == 'n'"),
    "shared memory left": Way(
        "py",
        "from multiprocessing import resource_tracker, shared_memory as s; m = s.SharedMemory(name='gpu-advisor-ways-2', create=True, size=8)\n"
        "resource_tracker.unregister(m._name, 'shared_memory'); m.buf[0] = 1",
    ),
    "/tmp by name": Way("py", "p = Path('/tmp/gpu-advisor-ways'); p.write_text('n'); assert p.read_text() == 'n'"),
    "/var/tmp by name": Way("py", "p = Path('/var/tmp/gpu-advisor-ways'); p.write_text('n'); assert p.read_text() == 'n'"),
    "np.save": Way("py", "import numpy as np; np.save('arr.npy', np.ones(3)); assert np.load('arr.npy').sum() == 3"),
    "np.memmap": Way(
        "py", "import numpy as np; a = np.memmap('raw.bin', dtype='u1', mode='r+'); a[0] = 7; a.flush(); assert Path('raw.bin').read_bytes()[0] == 7"
    ),
    "torch.save": Way("py", "import torch; torch.save({'a': 1}, 'last.pt'); assert torch.load('last.pt') == {'a': 1}", torch=True),
    "torch.jit.save": Way(
        "py", "import torch; m = torch.jit.script(torch.nn.Linear(1, 1)); torch.jit.save(m, 'last.pt'); torch.jit.load('last.pt')", torch=True
    ),
    "shared loader, file_system": Way(
        "py",
        "import torch, torch.multiprocessing as m; m.set_sharing_strategy('file_system')\n"
        "d = torch.utils.data.DataLoader(torch.arange(64), batch_size=8, num_workers=2)\n"
        "assert sum(len(b) for b in d) == 64; Path('mine.txt').write_text('n')",
        torch=True,
    ),
}  # fmt: skip
LEFT_OUTSIDE = (
    "/dev/shm/gpu-advisor-ways",
    "/dev/shm/gpu-advisor-ways-2",
    "/tmp/gpu-advisor-ways",
    "/var/tmp/gpu-advisor-ways",
)


def lay_out(root: Path, names: list[str]) -> Path:
    """Files of the user's for each way below `root`; returns the project, the working directory."""
    project = root / "project"
    for folder in [project / _folder(name) for name in names] + [root / "elsewhere", root / "home"]:
        (folder / "folder" / "sub").mkdir(parents=True)
        (folder / "empty").mkdir()
        (folder / "mine.txt").write_text("precious")
        (folder / "mine.txt").chmod(0o640)
        os.setxattr(folder / "mine.txt", "user.mine", b"kept")
        (folder / "folder" / "a.txt").write_text("a")
        (folder / "folder" / "sub" / "b.txt").write_text("b")
        (folder / "last.pt").write_bytes(b"2")
        (folder / "prev.pt").write_bytes(b"1")
        (folder / "latest").symlink_to("folder")
        (folder / "raw.bin").write_bytes(bytes(16))
        with sqlite3.connect(folder / "db.sqlite") as base:
            base.execute("create table t (a)")
            base.execute("insert into t values (1)")
        base.close()
        if folder.name.startswith("git"):
            _repository(folder / "repo")
        if folder.name == "zipfile-append":
            _archive("zip", folder)
        if folder.name == "tarfile-extract":
            _archive("tar", folder)
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


def _archive(kind: str, folder: Path) -> None:
    import tarfile
    import zipfile

    if kind == "zip":
        with zipfile.ZipFile(folder / "mine.zip", "w") as packed:
            packed.writestr("a", "a")
    else:
        (folder / "mine.txt").write_text("from tar")
        with tarfile.open(folder / "mine.tar", "w") as packed:
            packed.add(folder / "mine.txt", "mine.txt")
        (folder / "mine.txt").write_text("precious")


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


def kept(before: tuple[object, ...], after: tuple[object, ...] | None) -> bool:
    """Whether a file is what it was; a folder may have got other entries."""
    if after is None:
        return False
    owner = before[0]
    assert isinstance(owner, tuple)
    if stat.S_ISDIR(owner[0]):
        return before[0][:3] == after[0][:3]  # type: ignore[index]
    return before == after


def _folder(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")


def attempt(name: str, folder: Path, home: Path) -> str | None:
    """Run one way in `folder`; None if its own view was right, else its last words."""
    way = WAYS[name]
    language, *options = way.how.split()
    if language == "py" and not options:
        return _forked(BACK + way.code, folder, home)
    interpreter = [sys.executable, *options, "-c", BACK + way.code]
    done = subprocess.run(
        interpreter if options else ["bash", "-c", way.code],
        cwd=folder,
        env={**os.environ, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    message = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return message[-1] if done.returncode else None


def _forked(code: str, folder: Path, home: Path) -> str | None:
    """The same without the start of an interpreter."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        message = ""
        try:
            os.chdir(folder)
            os.environ["HOME"] = str(home)
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


def main() -> None:
    """Run the ways, one after another."""
    project = Path.cwd()
    home = project.parent / "home"
    results = {name: attempt(name, project / _folder(name), home) for name in sys.argv[2:]}
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
