"""Isolation kinds of this host, and trial policies."""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from advisor.errors import IsolationError, UsageError
from advisor.machine.host import memory_limit_bytes
from advisor.model import Trial
from advisor.sandbox import selftest
from advisor.sandbox.layers import remove_tree
from advisor.sandbox.mounts import other_places
from advisor.sandbox.path_policy import (
    INDUCTOR,
    around,
    caches,
    downloads,
    is_within,
    mps_pipes,
)
from advisor.sandbox.policy import KINDS, LAYER_FOLDER, Kind, SandboxPolicy

FORCED = "GPU_ADVISOR_ISOLATION"
"""Variable: use this kind, or fail."""

MEMORY_SHARE = 4
"""Divisor of the memory: a trial's temporary writes may fill a quarter of it.

Judgement: a smaller divisor lets writes take the program's own memory, a larger one fails programs
that write checkpoints."""
LEAST_BYTES = 256 << 20
"""Room in bytes for a trial's temporary writes on a host of little memory.

Judgement: less fails programs that write a small checkpoint, more may fill the host's memory."""
ATTEMPT_LIMIT_S = 20.0
"""Longest self-test of one kind of isolation, in seconds.

Judgement: shorter gives up walls that hold on a busy host, longer delays the start if it hangs."""
TESTED_BYTES = 64 << 20
"""Bytes of the self-test's layers: they hold the copies beside mounts.

Judgement: a split folder copies up to 16 MiB (`overlay.COPIED_BYTES`). Less refuses an overlay on a
host with several such folders, more only takes memory."""


def detect_isolation(
    cwd: str, environ: Mapping[str, str] = os.environ, *, foreign: bool = False
) -> SandboxPolicy:
    """Find the best isolation for `cwd`. Raises UsageError.

    A kind holds if a self-test got through none of its walls; `foreign` code has more of them.
    """
    forced = environ.get(FORCED) or None
    if forced is not None and forced not in KINDS:
        msg = f"{FORCED} is {forced!r}; it may be {', '.join(KINDS)}, or not be set."
        raise UsageError(msg)
    detected = _detected(os.path.realpath(cwd), forced, foreign)
    if forced is not None and detected.kind != forced:
        msg = f"{FORCED} asks for {forced}, which does not hold here: {detected.why_not_better}."
        raise UsageError(msg)
    return detected


def require_walls(cwd: str, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse foreign code where only some of its walls stand. Raises IsolationError.

    Where none do, the caller knows that the code is not isolated, and says so.
    """
    of_foreign_code = detect_isolation(cwd, environ, foreign=True)
    of_own_code = detect_isolation(cwd, environ)
    if of_foreign_code.kind == "guard" and of_own_code.kind != "guard":
        msg = (
            f"Not all walls around base and head stand here: {of_foreign_code.why_not_better}. "
            f"Run on another host, or set {FORCED}=guard to run them without any."
        )
        raise IsolationError(msg)


@cache
def _detected(cwd: str, forced: str | None, foreign: bool) -> SandboxPolicy:
    refused: list[str] = []
    for kind in [kind for kind in KINDS if forced in (None, kind)]:
        reason = None if kind == "guard" else _try(kind, cwd, foreign=foreign)
        undecided = ""
        if reason is not None and kind == "landlock" and not foreign:
            undecided, reason = reason, _try(kind, cwd, undecided=reason)
        if reason is None:
            reasons = "; ".join(refused) or (f"{FORCED} asks for it" if forced else "")
            return SandboxPolicy(
                kind=kind, foreign=foreign, why_not_better=reasons, undecided=undecided
            )
        refused.append(f"{kind}: {reason}")
    return SandboxPolicy(kind="guard", foreign=foreign, why_not_better="; ".join(refused))


def _try(
    kind: Kind,
    cwd: str,
    layers: str | None = None,
    *,
    foreign: bool = False,
    undecided: str = "",
) -> str | None:
    """Return why `kind` fails here, with layers in memory or `layers`."""
    folder = ""
    try:
        if kind == "overlay" and (group := _foreign_group(cwd)):
            return group
        folder = tempfile.mkdtemp(prefix="gpu-advisor-attempt-", dir=layers)
        places = [os.path.join(folder, name) for name in ("layers", "hidden")]
        for place in places:
            os.mkdir(place)
        hidden = os.path.realpath(places[1]) if foreign else ""
        policy = SandboxPolicy(
            kind=kind,
            layers=places[0],
            upper_bytes=0 if layers else TESTED_BYTES,
            foreign=foreign,
            hidden=(hidden,) if foreign else (),
            network=not foreign,
            undecided=undecided,
        )
        given = {"policy": dataclasses.asdict(policy), "cwd": cwd, "hidden": hidden}
        with _server(wanted=foreign) as port:
            tried = subprocess.run(
                [sys.executable, "-I", "-S", selftest.__file__],
                input=json.dumps(given | {"port": port}),
                capture_output=True,
                text=True,
                check=False,
                timeout=ATTEMPT_LIMIT_S,
            )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    finally:
        remove_tree(folder)
    if tried.returncode or not tried.stdout:  # it broke off
        return [f"exit code {tried.returncode}", *tried.stderr.strip().splitlines()][-1]
    reason: str | None = json.loads(tried.stdout)
    return reason


@contextlib.contextmanager
def _server(*, wanted: bool) -> Iterator[int]:
    """Serve at a port of this host for the context; 0 where that cannot be."""
    with socket.socket() as server:
        port = 0
        if wanted:
            with contextlib.suppress(OSError):  # a host without a loopback
                server.bind(("127.0.0.1", 0))
                server.listen()
                port = server.getsockname()[1]
        yield port


def trial_policy(
    trial: Trial, environ: Mapping[str, str], *, scratch: Path, temporary: Path, kept: Path
) -> SandboxPolicy:
    """Make the policy of one trial. Raises UsageError.

    A program that may write in its directory may not write what is spared, nor beside it.
    A call's trials share `kept`. Layers lie beside the folders that a program really writes, as
    a link in their place would make a later layer of any folder of the user's.
    """
    detected = detect_isolation(trial.cwd, environ, foreign=trial.foreign)
    pipes = mps_pipes(environ)
    passes = list(filter(None, (str(scratch), str(kept), str(temporary), pipes)))
    if trial.allow_writes and detected.kind == "landlock":
        passes += _but(os.path.realpath(trial.cwd), map(os.path.realpath, trial.spared))
    filled: list[str] = []
    if detected.kind == "landlock" and not trial.foreign:
        filled = _downloads(environ, os.path.realpath(trial.cwd))
        passes += filled
    folder = environ.get(LAYER_FOLDER)
    on_disk = folder or (
        detected.kind == "overlay" and saves_as_usual(str(scratch.parent), trial.cwd)
    )
    tag = hashlib.sha256(os.fsencode(scratch)).hexdigest()[:12]
    return dataclasses.replace(
        detected,
        passes=tuple(passes),
        filled=tuple(filled),
        caches=_caches(environ, passes, kept) if detected.kind == "overlay" else (),
        layers=str(Path(folder, f"gpu-advisor-{tag}") if folder else _beside(scratch)),
        upper_bytes=0 if on_disk else _upper_bytes(),
        private_memory=pipes is None,
        hidden=_wherever_shown(trial.hidden),
        shown=trial.shown,
        network=trial.network,
    )


@cache
def saves_as_usual(folder: str, cwd: str) -> bool:
    """Layers may lie there: memory hides the time of saving."""
    same_disk = os.stat(folder).st_dev == os.stat(cwd).st_dev
    roomy = shutil.disk_usage(folder).free > _upper_bytes()
    return same_disk and roomy and _try("overlay", cwd, folder) is None


def checkout_policy(
    detected: SandboxPolicy,
    top: str,
    *,
    scratch: Path,
    hidden: Iterable[str],
    shown: Iterable[str],
) -> SandboxPolicy:
    """Make a policy that allows writes in checkout `top` outside `.git`."""
    top = os.path.realpath(top)
    repository = os.path.join(top, ".git")
    inside = _but(top, [repository]) if detected.kind == "landlock" else [top]
    return dataclasses.replace(
        detected,
        passes=(str(scratch), *inside),
        sealed=(repository,),
        hidden=_wherever_shown(hidden),
        shown=tuple(shown),
        layers=str(_beside(scratch)),
        upper_bytes=_upper_bytes(),
    )


def _wherever_shown(hidden: Iterable[str]) -> tuple[str, ...]:
    """Return hidden paths with all other places at which their files are mounted."""
    paths = tuple(hidden)
    if not paths:
        return ()
    text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    return tuple(dict.fromkeys((*paths, *other_places(paths, text))))


def cache_variables(
    policy: SandboxPolicy, kept: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return variables for a compile cache shared by trials.

    The program's own may be denied, lost with a layer, or below a trial's TMPDIR.
    """
    lost = [] if environ.get(INDUCTOR) else [INDUCTOR]
    for each, folder in caches(environ):
        passes = any(is_within(folder, passing) for passing in policy.passes)
        thrown_away = policy.kind == "overlay" and not os.path.isdir(folder)
        if each.rebuilt and not passes and (policy.kind == "landlock" or thrown_away):
            lost.append(each.variable)
    return {name: str(kept / name.lower()) for name in lost}


def _but(folder: str, spared: Iterable[str]) -> list[str]:
    inside = [path for path in spared if is_within(path, folder)]
    return (
        [path for path in around(inside) if is_within(path, folder)] if inside else [folder]
    )


def _downloads(environ: Mapping[str, str], cwd: str) -> list[str]:
    """Return folders that hold only downloads, those that are there."""
    home = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))
    rebuilt = (folder for cache, folder in caches(environ) if cache.rebuilt)
    apart, folders = [cwd, home, *rebuilt], set()
    for folder, is_made in downloads(environ):
        if any(is_within(path, folder) for path in apart):
            continue
        with contextlib.suppress(OSError):
            if is_made:
                os.makedirs(folder, 0o700)
        if os.path.isdir(folder):
            folders.add(os.path.realpath(folder))
    return sorted(folders)


def _caches(
    environ: Mapping[str, str], passes: list[str], kept: Path
) -> tuple[tuple[str, str], ...]:
    by_cache: dict[str, str] = {}
    for folder, name in sorted(
        (folder, entry.variable) for entry, folder in caches(environ)
    ):
        covered = any(is_within(folder, place) for place in [*passes, *by_cache])
        if not covered and os.path.isdir(folder) and os.access(folder, os.W_OK):
            by_cache[folder] = str(_beside(kept) / name.lower())
    return tuple(by_cache.items())


def _beside(folder: Path) -> Path:
    """Return the place of the layers that belong to a folder of programs."""
    return folder.with_name(f"{folder.name}-layers")


def _foreign_group(cwd: str) -> str | None:
    """Return a reason against an overlay, which holds one group alone."""
    group = Path(cwd).stat().st_gid
    if os.geteuid() == 0 or group == os.getegid():
        return None
    return f"{cwd} belongs to group {group}, which a namespace of user {os.geteuid()} cannot hold"


def _upper_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit_bytes()
    return max(LEAST_BYTES, min(memory, limit or memory) // MEMORY_SHARE)
