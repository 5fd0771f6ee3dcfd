"""Hostile programs in a sandbox, run by the real supervisor for one user or another.

A small world lies below a folder of that user's: a project, a home that is hidden from foreign
code, and what lies beside both. An attack is Python's code for the program; it prints what it got
through, so an attack that was held prints nothing.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from advisor.runner.launch import START
from advisor.sandbox import scheduling
from advisor.sandbox.policy import Kind, SandboxPolicy

ROOT = Path(__file__).resolve().parents[2]
OTHER_USER = 54321
"""A number without a name: an ordinary user for tests that root runs."""
USERS = (0, OTHER_USER) if os.geteuid() == 0 else (os.geteuid(),)
LIMIT_S = 240.0
PRECIOUS = "precious"
HELPERS = """
import ctypes, errno, os, signal, socket, stat, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
HOME, PROJECT, BESIDE = {home!r}, {project!r}, {beside!r}
SECONDS, OUTSIDE = {seconds!r}, {outside!r}
def through(what): print(what, flush=True)
def call(number, *arguments):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return libc.syscall(ctypes.c_long(number), *words)
def tried(what, attempt):
    try: attempt()
    except (OSError, PermissionError): return
    through(what)
"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    output: str
    refused: str
    """Why the supervisor did not start the program; empty if it did."""
    changes: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class World:
    """A user's files, and trials beside them."""

    folder: Path
    user: int
    kind: Kind

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def beside(self) -> Path:
        """A folder that is neither hidden nor the program's own."""
        return self.folder / "beside"

    def attack(
        self,
        code: str,
        *,
        foreign: bool = True,
        network: bool = True,
        seconds: float = 5.0,
        outside: int = 0,
        prelude: str = "",
        **fields: Any,
    ) -> Outcome:
        """Run `code` in a sandbox; `foreign` code sees no home, and harms no other process.

        `prelude` is code for the supervisor, such as to leave out what an older kernel lacks.
        """
        scratch = Path(tempfile.mkdtemp(prefix="s", dir=self.folder))
        os.chown(scratch, self.user, self.user)
        policy = SandboxPolicy(
            kind=self.kind,
            passes=(str(scratch),),
            foreign=foreign,
            network=network,
            layers=f"{scratch}-layers",
            **{"hidden": (str(self.home),) if foreign else (), **fields},
        )
        start = HELPERS.format(
            home=str(self.home), project=str(self.project), beside=str(self.beside),
            seconds=seconds, outside=outside,
        )  # fmt: skip
        job = {
            "argv": [python(self.user), "-I", "-S", "-c", start + code],
            "cwd": str(self.project),
            "env": {"PATH": os.defpath, "TMPDIR": str(scratch), "HOME": str(self.home)},
            "scratch": str(scratch / ".kept"),
            "directories": [],
            "temporary": [],
            "spec": "",
            "candidates": [],
            "sandbox": asdict(policy),
            "scheduling": scheduling.read(),
        }
        (scratch / ".kept").mkdir()
        os.chown(scratch / ".kept", self.user, self.user)
        return _run(job, self.user, prelude)


def _run(job: dict[str, Any], user: int, prelude: str) -> Outcome:
    read, write = os.pipe()
    errors = os.dup(write)
    start = START.replace("main()", f"{prelude}; main()" if prelude else "main()")
    words = [python(user), "-I", "-S", "-B", "-c", start, str(ROOT)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        pass_fds=(write, errors), cwd="/", **_as(user),
    ) as supervisor:  # fmt: skip
        os.close(write)
        os.close(errors)
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        job |= {"stdout_fd": write, "stderr_fd": errors}
        supervisor.stdin.write(json.dumps(job).encode() + b"\n")
        supervisor.stdin.flush()
        refused, changes = "", None
        for line in supervisor.stdout:
            event = json.loads(line)
            refused = event["message"] if event["event"] == "refused" else refused
            if event["event"] in {"exited", "refused"}:
                supervisor.stdin.write(b"stop\n")
                supervisor.stdin.flush()
            if event["event"] == "gone":
                changes = event["changes"]
        supervisor.stdin.close()
    with os.fdopen(read, errors="replace") as file:
        return Outcome(output=file.read(), refused=refused, changes=changes)


def _as(user: int) -> dict[str, Any]:
    return {} if user == os.geteuid() else {"user": user, "group": user, "extra_groups": []}


def python(user: int) -> str:
    """An interpreter that the user may run."""
    if user == os.geteuid():
        return sys.executable
    return shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable


def may_run(user: int) -> bool:
    """Whether the user can run an interpreter, and read the package."""
    words = [python(user), "-I", "-S", "-c", "import sys; open(sys.argv[1])", __file__]
    try:
        return subprocess.run(words, check=False, capture_output=True, **_as(user)).returncode == 0
    except OSError:
        return False


@contextlib.contextmanager
def world(kind: Kind, user: int) -> Iterator[World]:
    """Lay out a user's files below /tmp, and take them away."""
    with tempfile.TemporaryDirectory(prefix="walls-", dir="/tmp") as folder:
        found = World(folder=Path(folder), user=user, kind=kind)
        for place in (found.home / ".ssh", found.project / "data", found.beside):
            place.mkdir(parents=True)
            (place / "mine.txt").write_text(PRECIOUS)
        for path in [found.folder, *found.folder.rglob("*")]:
            os.chown(path, user, user)
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield found
