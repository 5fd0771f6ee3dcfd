"""Job of a trial: its command, environment and files, as the supervisor gets them."""

import base64
import dataclasses
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor import clock
from advisor.config.originals import candidate_path
from advisor.model import Trial
from advisor.runner.supervisor import SPEC
from advisor.sandbox import scheduling
from advisor.sandbox.capabilities import cache_variables, trial_policy
from advisor.sandbox.path_policy import caches
from advisor.sandbox.policy import SandboxPolicy

PROBE = Path(__file__).resolve().parents[1] / "probe"
FOLDERS = ("probe", "outputs", "trackers", "results")
"""Folders of a trial's scratch; the last holds copies of files that a sandbox drops."""
LONGEST_TMP_BYTES = 60
"""Longest TMPDIR in bytes: a socket's path has 107, and multiprocessing adds about 40 to it.

The 107 are UNIX_PATH_MAX of `linux/un.h` without the ending zero (unix(7))."""
LONGEST_PATH = 4096
"""Bytes of the longest path on Linux: PATH_MAX of `linux/limits.h`, with the ending zero."""

TRACKER_FOLDERS = (
    "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "COMET_OFFLINE_DIRECTORY",
    "CLEARML_CACHE_DIR",
)  # fmt: skip
"""Variables of folders that trackers write to."""
TRACKER_ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
"""Variables of MLflow's servers: a folder as a file address stands in for them."""
TRACKER_MODES = {
    "WANDB_MODE": "offline",
    "SWANLAB_MODE": "offline",
    "COMET_START_ONLINE": "0",
    "CLEARML_OFFLINE_MODE": "1",
    "NEPTUNE_MODE": "debug",  # its offline mode writes into the working directory
}
"""Variables by which trackers stay offline, or off where offline is no way."""

_PIECES = re.compile(r"([\s=,:;'\"()\[\]{}&|<>]+)")
"""What separates words in a shell string; `split` keeps it, so the rest stays unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Job of one process, as sent to its supervisor."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    scratch: str
    directories: tuple[str, ...]
    """Folders that the supervisor makes, each in a folder that exists."""
    temporary: tuple[str, ...]
    """Folders that it removes after the job."""
    spec: str = ""
    """The probe's instructions as JSON, for the file SPEC; empty: the job has no probe."""
    candidates: tuple[tuple[str, str, str], ...] = ()
    """Each: path, content in base64, and the user's file that gives permissions."""
    sandbox: SandboxPolicy
    scheduling: dict[str, Any] = field(default_factory=scheduling.at_start)
    """CPUs, priorities and limits that the command begins with."""


def prepare(trial: Trial, environ: Mapping[str, str] = os.environ) -> Job:
    """Prepare the job of `trial` for `environ`. Raises UsageError.

    The probe comes in by PYTHONPATH and PATH alone: so it is in every Python that the program
    starts with its environment, and no file of the program or its installation is touched.
    """
    scratch = Path(trial.scratch).resolve()
    tmp = _temporary(scratch)
    kept = Path(trial.caches or scratch / "caches").resolve()
    given = {**environ, **dict(trial.env)}
    sandbox = trial_policy(trial, given, scratch=scratch, temporary=tmp, kept=kept)
    originals = [str(Path(trial.cwd, file.original)) for file in trial.files]
    # an overlay shows a candidate in its original's place; else it lies beside it, and the
    # command names it
    copies = {
        original: original if sandbox.throws_away else candidate_path(original, trial.id)
        for original in originals
    }
    env = _environment(given, sandbox, scratch=scratch, tmp=tmp, kept=kept)
    argv = (
        trial.command
        if sandbox.throws_away
        else replace_paths(trial.command, trial.cwd, copies)
    )
    return Job(
        argv=argv,
        cwd=trial.cwd,
        env=env,
        scratch=str(scratch),
        directories=tuple(map(str, (*(scratch / name for name in FOLDERS), tmp, kept))),
        temporary=(str(tmp), str(scratch / "trackers"), sandbox.layers),
        spec=json.dumps(_instructions(trial, sandbox, env, scratch=scratch, tmp=tmp)),
        candidates=tuple(
            (copies[original], base64.b64encode(file.content).decode(), original)
            for original, file in zip(originals, trial.files, strict=True)
        ),
        sandbox=sandbox,
    )


def _temporary(scratch: Path) -> Path:
    """TMPDIR of a trial: in scratch, or a short path elsewhere if that is too long for sockets."""
    tmp = scratch / "tmp"
    if len(os.fsencode(tmp)) <= LONGEST_TMP_BYTES:
        return tmp
    digest = hashlib.sha256(os.fsencode(scratch)).hexdigest()[:12]
    return Path(tempfile.gettempdir(), f"gpu-advisor-{digest}")


def _environment(
    given: Mapping[str, str],
    sandbox: SandboxPolicy,
    *,
    scratch: Path,
    tmp: Path,
    kept: Path,
) -> dict[str, str]:
    """Environment of the command: `given`, with caches, trackers and the probe in their places."""
    env = {
        **given,
        **cache_variables(sandbox, kept, given),
        **_tracker_variables(given, scratch / "trackers"),
        "TMPDIR": str(tmp),
        "PYTHONUNBUFFERED": "1",
        "MPLBACKEND": "Agg",
        "GPU_ADVISOR_SPEC": str(scratch / SPEC),
    }
    for name, folder, default in (("PYTHONPATH", "site", ""), ("PATH", "bin", os.defpath)):
        parts = (str(PROBE / folder), env.get(name, default))
        env[name] = os.pathsep.join(filter(None, parts))
    return env


def _instructions(
    trial: Trial,
    sandbox: SandboxPolicy,
    env: Mapping[str, str],
    *,
    scratch: Path,
    tmp: Path,
) -> dict[str, Any]:
    """What the probe is told: where to write, what to protect, and its plan."""
    plan = trial.plan
    if plan.unit_regex is not None and plan.mode == "window":
        # matching lines fill the window, and the parent counts them (`Monitor._window_full`)
        plan = dataclasses.replace(plan, mode="observe")
    return {
        "records": str(scratch / "probe"),
        "epoch": clock.EPOCH,
        "free": [str(scratch), str(tmp), *(folder for _, folder in caches(env))],
        "guarded": sandbox.kind == "guard",
        "layered": sandbox.kind == "overlay",
        "protect": trial.cwd,
        "allow_writes": trial.allow_writes,
        "made": [str(Path(trial.cwd, name)) for name in trial.made],
        "plan": dataclasses.asdict(plan),
        "origins": dataclasses.asdict(trial.origins) if trial.origins else None,
    }


def replace_paths(
    command: Sequence[str], cwd: str, copies: Mapping[str, str]
) -> tuple[str, ...]:
    """Replace paths in `command` by their copies.

    A path is known by its file, as a token or a part of one: `--config=a/b.json`,
    `bash -c "python run.py a/b.json"`. Its folder keeps the user's spelling.
    """
    by_identity = {os.path.realpath(original): copy for original, copy in copies.items()}
    return tuple(_replaced(token, cwd, by_identity) for token in command)


def _replaced(token: str, cwd: str, copies: Mapping[str, str]) -> str:
    head, equals, value = token.partition("=")
    if whole := _copy_of(token, cwd, copies):
        return whole
    if equals and (path := _copy_of(value, cwd, copies)):
        return f"{head}={path}"
    return "".join(_copy_of(piece, cwd, copies) or piece for piece in _PIECES.split(token))


def _copy_of(text: str, cwd: str, copies: Mapping[str, str]) -> str | None:
    """Path of the copy of the file that `text` names; None where there is none.

    A copy lies beside its original, so the name is exchanged and the folder stays as the user
    spelled it. Where a link led elsewhere, the copy's own path is given.
    """
    # an argument may be a whole program; no path on Linux is longer
    could_be = "\0" not in text and len(text) <= LONGEST_PATH
    copy = copies.get(_real(cwd, text)) if could_be else None
    if copy is None:
        return None
    folder, name = os.path.split(copy)
    spelled = os.path.dirname(text)  # noqa: PTH120  a Path would drop a leading `./`
    same = _real(cwd, spelled) == _real(cwd, folder)
    return os.path.join(spelled, name) if same else copy  # noqa: PTH118  spelling


def _real(cwd: str, text: str) -> str:
    return os.path.realpath(Path(cwd, text))


def _tracker_variables(given: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Variables that keep trackers from the network, with what they write in `folder`.

    A tracker that the user turned off by `disabled` stays off.
    """
    places = {
        **dict.fromkeys(TRACKER_FOLDERS, str(folder)),
        **dict.fromkeys(TRACKER_ADDRESSES, folder.joinpath("mlflow").as_uri()),
        **TRACKER_MODES,
    }
    return {name: value for name, value in places.items() if given.get(name) != "disabled"}
