"""Setup of an arm, in the sandbox: only the checkout is writable."""

import contextlib
import os
import pwd
import re
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from advisor.errors import InterruptedByUserError
from advisor.gate.checkout import Checkout, git
from advisor.runner.job import Job
from advisor.runner.launch import Launched
from advisor.runner.output import plain, short_line
from advisor.sandbox.capabilities import checkout_policy, detect_isolation, require_walls
from advisor.sandbox.path_policy import is_within, named_caches, trusted_path

PACKAGE = str(Path(__file__).resolve().parents[1])
"""The package, whose probe every run imports."""
RUNNER_MARKS = (".runner", ".credentials")
"""Files in the folder of a GitHub runner."""
SYSTEM_HOMES = (
    "/", "/bin", "/sbin", "/usr", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys",
)  # fmt: skip
"""Homes of accounts that hold the system's files, too."""
ALWAYS_SHOWN = ("/run/opengl-driver", "/etc/resolv.conf")
SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
MADE_FOLDERS = (".venv", "build")
"""Made before a setup: Landlock allows nothing new beside `.git`."""
AS_ROOT = (
    "running as root: base and head get no disks, mounts, raw network or writable /proc/sys and "
    "/sys. An ordinary user is safer."
)
LIMIT_S = 3600.0
"""Longest setup of one checkout.

Judgement: a build of extensions takes long, and one that hangs holds a runner until then."""
TAIL_LINES = 20
"""Last lines of a failed setup that are shown."""
POLL_S = 0.2
"""Seconds between two looks; judgement."""


def set_up(
    checkout: Checkout,
    command: str,
    env: Mapping[str, str],
    *,
    scratch: Path,
    limit_s: float = LIMIT_S,
    cancel: threading.Event,
    tops: Iterable[Path] = (),
) -> str | None:
    """Run the setup; return its failure or None. `tops`: see `shown_paths`."""
    cwd, top = checkout.cwd, str(checkout.top)
    offer = detect_isolation(str(cwd), foreign=True)
    wanted = [checkout.top / name for name in MADE_FOLDERS if offer.kind == "landlock"]
    made = [folder for folder in wanted if not folder.exists()]
    for folder in made:
        folder.mkdir()
    hidden, visible = hidden_folders(), shown_paths(checkout, command, tops=tops)
    confined = checkout_policy(offer, top, scratch=scratch, hidden=hidden, shown=visible)
    temporary = scratch / "tmp"
    job = Job(
        argv=("bash", "-c", command),
        cwd=str(cwd),
        env={**os.environ, **env, "TMPDIR": str(temporary)},
        scratch=str(scratch),
        directories=(str(temporary),),
        temporary=(str(temporary), confined.layers),
        sandbox=confined,
    )
    deadline = time.monotonic() + limit_s
    with Launched(job) as launched:
        while not launched.ended:
            if cancel.is_set():
                msg = "Interrupted during --setup: nothing was measured."
                raise InterruptedByUserError(msg)
            if time.monotonic() > deadline:
                return f"--setup did not end within {limit_s / 60:.0f} minutes"
            launched.wait(POLL_S)
    for folder in made:
        with contextlib.suppress(OSError):  # filled, or what the setup made of it
            folder.rmdir()
    if launched.refused is not None:
        return f"--setup could not be started: {launched.refused}"
    if launched.exit_code == 0:
        return None
    output = plain(launched.stdout.tail()) + "\n" + plain(launched.stderr.tail())
    tail = [line for line in output.splitlines() if line.strip()][-TAIL_LINES:]
    said = "\n".join(map(short_line, tail)) or "it wrote nothing"
    return f"--setup ended with exit code {launched.exit_code}: {said}"


def unprotected(cwd: Path) -> str:
    """Reach of untrusted code on this host; empty if isolated. Raises IsolationError."""
    require_walls(str(cwd))
    offer = detect_isolation(str(cwd), foreign=True)
    if offer.kind != "guard":
        return ""
    return (
        "base and head can write to each other's files and to those that steer this job. They can "
        f"read the environment it began with ({offer.why_not_better})"
    )


def isolation_notes(cwd: Path, reach: str, withheld: Sequence[str]) -> list[str]:
    notes = [f"not isolated: {reach}"] if reach else []
    if withheld:
        notes.append(
            f"withheld from base and head: {', '.join(withheld)} (--keep-env hands over)"
        )
    if git(cwd, "config", "--local", "--get-regexp", r"^http\..*extraheader$"):
        notes.append(
            "this checkout keeps a token in .git/config, which base and head can read: check it "
            "out with persist-credentials: false"
        )
    return notes


def hidden_folders(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Places of secrets: homes, the runner's folder, and sockets of the session.

    Containers set HOME to a folder of their own, so the home of the account counts too.
    """
    homes = {environ.get("HOME") or str(Path("~").expanduser())}
    with contextlib.suppress(KeyError):  # a number without an account
        homes.add(pwd.getpwuid(os.geteuid()).pw_dir)
    folders = {"/run", environ.get("XDG_RUNTIME_DIR", "")}
    folders |= {place for home in homes for place in secrets_of(os.path.realpath(home))}
    if temporary := environ.get("RUNNER_TEMP"):
        folders.add(temporary)
        root = Path(temporary).resolve().parent.parent
        if any((root / mark).exists() for mark in RUNNER_MARKS):
            folders.add(str(root))
    real = {os.path.realpath(path) for path in folders if path} - {"/"}
    outer = {a for a in real if not any(a != b and is_within(a, b) for b in real)}
    return tuple(sorted(path for path in outer if Path(path).exists()))


def secrets_of(home: str, system: Sequence[str] = SYSTEM_HOMES) -> set[str]:
    """A home; of one that holds the system's files, its dotted entries.

    Users without an account get `/` in containers, and services `/usr/sbin`: without those no
    program runs.
    """
    if home not in system and not any(
        is_within(home, each) for each in system if each != "/"
    ):
        return {home}
    try:
        return {entry.path for entry in os.scandir(home) if entry.name.startswith(".")}
    except OSError:
        return set()


def shown_paths(
    checkout: Checkout,
    command: str,
    links: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    *,
    tops: Iterable[Path] = (),
) -> tuple[str, ...]:
    """Paths needed in hidden folders: checkout, interpreters and caches.

    What lies in a home is hidden from foreign code, and much that it cannot run without lies
    there. So what PATH, the command and the caches' variables name is shown again; a folder
    that has a hidden one inside is not. `tops`: checkouts of both arms, whose links show nothing.
    """
    repository = git(
        checkout.top, "rev-parse", "--path-format=absolute", "--git-common-dir"
    )
    paths = {str(checkout.top), *links, PACKAGE}
    paths |= {*ALWAYS_SHOWN, *_interpreter(Path(sys.executable).parent)}
    for variable in SEARCH_PATHS:
        for entry in environ.get(variable, "").split(os.pathsep):
            if entry.startswith("/"):
                paths |= {entry, *_interpreter(Path(entry))}
    home = environ.get("HOME") or str(Path("~").expanduser())
    text = re.sub(r"(?<!\S)~(?=/)|\$HOME\b|\$\{HOME\}", home, command)
    for word in re.findall(r"[^\s'\"=:;|&()<>]+", text):
        if word.startswith("/"):
            paths |= {word, *_interpreter(Path(word).parent)}
        elif "/" in word:
            paths |= _interpreter((checkout.cwd / word).parent)
    for cache, folder in named_caches(environ):
        if cache.variable == "HF_HOME":
            paths |= {f"{folder}/hub", f"{folder}/datasets"}  # beside them lies a token
        elif cache.variable != "XDG_CACHE_HOME":
            paths.add(folder)
    written = [os.path.realpath(top) for top in (checkout.top, *tops)]
    real, hidden = {trusted_path(path, written) for path in paths}, hidden_folders(environ)
    if repository:  # which no program writes
        real.add(os.path.realpath(repository))
    return tuple(sorted(p for p in real if not any(is_within(each, p) for each in hidden)))


def _interpreter(folder: Path) -> set[str]:
    """Environment folders around the programs in `folder`."""
    if folder.name == "shims":
        return {str(folder.parent)}
    paths: set[str] = set()
    for name in ("python", "python3"):
        program = folder / name
        real = program.resolve()
        # a link of the change may lead anywhere, but shows no more than an interpreter;
        # Path.exists would raise for a folder that may not be read
        is_python = os.access(program, os.F_OK) and real.name.startswith("python")
        for place in (program, real) if is_python else ():
            prefix = place.parent.parent
            paths |= {str(prefix / part) for part in ("bin", "lib", "lib64", "pyvenv.cfg")}
    return paths
