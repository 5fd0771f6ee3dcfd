"""Originals of rewritten configs, and `revert`.

Before a rewrite the state folder keeps a config's bytes and edited values. `revert` gives
them back byte for byte. In a file edited since, our values go back and the rest stays; if one
of them was edited too, nothing is changed and a diff is shown.
A rewrite without a value in the config was never put in place, or was undone by hand.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.config import added, document as documents, swap
from advisor.config.leaves import Scalar
from advisor.errors import (
    AdvisorError,
    RevertConflictError,
    StateBusyError,
    StateUnusableError,
)
from advisor.files import atomic, reading
from advisor.model import Change
from advisor.state import existing_folders, project_root


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    number: int
    original: bytes
    tuned: bytes
    changes: tuple[dict[str, Any], ...]
    """Path, old value, new value, old spelling."""


class Versions:
    """Rewrites of one config, oldest first."""

    def __init__(self, state: Path, config: Path) -> None:
        self._config = config
        self.folder = state / "versions" / _key(state, config)
        self._quality = self.folder / "quality"

    def all(self) -> list[Version]:
        """Rewrites not reverted yet; unreadable ones are left out."""
        versions = []
        for path in self._files():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                versions.append(
                    _version(int(path.stem), reading.from_json(path.read_bytes()))
                )
        return versions

    def keep(
        self, original: documents.Document, tuned: bytes, changes: list[Change]
    ) -> Version:
        """Remember a rewrite in advance. Raises StateUnusableError.

        Called before the config is written: a call killed between the two leaves a version
        without a rewrite, which `recover` removes. The other order would leave a rewrite
        without an original.
        """
        taken = [int(path.stem) for path in self._files()]
        kept = {
            "changes": [
                {
                    "path": c.path,
                    "old": c.old,
                    "new": c.new,
                    "text": spelled_before(original.scalars[c.path]),
                }
                for c in changes
            ],
            "original": original.raw.decode(),
            "tuned": tuned.decode(),
        }
        version = _version(max(taken, default=0) + 1, kept)
        self._write(self._place(version), kept, f"The original of {self._config}")
        return version

    def _write(self, path: Path, content: object, what: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            atomic.place(path, json.dumps(content, indent=2).encode(), 0o600)
        except OSError as problem:
            msg = (
                f"{what} could not be kept in {path.parent}: {problem.strerror}. "
                "So the config was left as it was. Mend that and call again."
            )
            raise StateUnusableError(msg) from problem

    def forget(self, version: Version) -> None:
        self._place(version).unlink(missing_ok=True)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock out other calls. Raises StateBusyError and StateUnusableError."""
        try:
            self._quality.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.folder / "lock").open("ab")
        except OSError as problem:
            msg = (
                f"{problem.filename} cannot hold originals and measurements: {problem.strerror}. "
                "Move what is there, or make it writable, and call again."
            )
            raise StateUnusableError(msg) from problem
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                msg = (
                    f"Another gpu-advisor works on {self._config}. "
                    "Wait until it ends, or stop it, and call again."
                )
                raise StateBusyError(msg) from None
            except OSError:
                pass  # a file system without locks
            yield

    def recover(self) -> list[str]:
        """Clean up after killed calls while `held`; return messages."""
        notes = swap.recover(self._config)
        for draft in self.folder.rglob(f"*{atomic.DRAFT}"):
            draft.unlink(missing_ok=True)
        with contextlib.suppress(AdvisorError):
            current = swap.read_bytes(self._config)
            for version in reversed(self.all()):
                if in_place(version, current, self._config):
                    break
                self.forget(version)
        return notes

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9][0-9][0-9][0-9].json"))

    def _place(self, version: Version) -> Path:
        return self.folder / f"{version.number:04d}.json"

    # The original's quality, measured once, outlives rewrites: no tolerance adds up.

    def quality_reference(self, measure_key: str) -> dict[str, float] | None:
        """Original quality for `measure_key`, if the config descends from it."""
        with contextlib.suppress(OSError, ValueError):
            file = self._quality / f"{measure_key}.json"
            kept: dict[str, float] = reading.from_json(file.read_bytes())
            return kept if self.all() else None
        return None

    def keep_quality_reference(self, measure_key: str, values: dict[str, float]) -> None:
        """Remember the original's quality. Raises StateUnusableError."""
        self._write(
            self._quality / f"{measure_key}.json", values, "The quality of the original"
        )


def _version(number: int, kept: dict[str, Any]) -> Version:
    original, tuned = kept["original"].encode(), kept["tuned"].encode()
    return Version(
        number=number, original=original, tuned=tuned, changes=tuple(kept["changes"])
    )


def recover(config: Path) -> list[str]:
    """Remove leftovers of killed calls; return notes.

    Raises StateBusyError and StateUnusableError.
    """
    notes: list[str] = []
    for state in existing_folders(project_root(config)):
        versions = Versions(state, config)
        if os.access(versions.folder, os.W_OK):  # else no call could leave anything
            with versions.held():
                notes += versions.recover()
    remove_candidates(config)
    return notes


def in_place(version: Version, current: bytes, config: Path) -> bool:
    """True unless every value of `version` is as it was before.

    The bytes it wrote count as in place, and so does a file that cannot be parsed.
    """
    if current == version.tuned:
        return True
    if current == version.original:
        return False
    try:
        scalars = _parsed(current, config).scalars
    except AdvisorError:
        return True
    return not all(
        is_old(change, scalars.get(change["path"])) for change in version.changes
    )


def spelled_before(scalar: Scalar) -> str | None:
    """Spelling of a value before it was tuned; None where its line was not there."""
    return scalar.text if scalar.given else None


def is_old(change: Mapping[str, Any], scalar: Scalar | None) -> bool:
    """True if `scalar` is as it was before `change`; None: the config has no such value."""
    if scalar is None:
        return change["text"] is None
    return scalar.value == change["old"] and change["text"] is not None


def undo(version: Version, current: bytes, config: Path) -> bytes:
    """Take `version` back from `current`, the bytes of `config`.

    An untouched file gives the original; else only our values go back.
    Raises RevertConflictError with a diff where one does not.
    """
    if current == version.tuned:
        return version.original
    document = _parsed(current, config)
    splices = []
    for change in version.changes:
        scalar = document.scalars.get(change["path"])
        if scalar is None or scalar.value != change["new"]:
            state = "is gone" if scalar is None else f"is now {scalar.text}"
            msg = (
                f"{config} was edited since it was tuned: {change['path']} {state}, we wrote"
                f" {json.dumps(change['new'])}. Nothing was changed. Put it back by hand:\n"
                + documents.masked_diff(
                    _parsed(version.tuned, config), document, str(config)
                )
            )
            raise RevertConflictError(msg)
        if change["text"] is None:
            splices.append(added.without(document.text, document.format, scalar))
        else:
            splices.append((scalar.start, scalar.end, change["text"]))
    reverted = document.spliced(splices)
    _parsed(reverted, config)
    return reverted


def _parsed(content: bytes, config: Path) -> documents.Document:
    """Parse `content`; the file `config` is read as well, only for its format."""
    return documents.parse(content, documents.read(config).format, str(config))


def _key(state: Path, path: Path) -> str:
    """Key of `path`, stable when the project moves."""
    real, root = os.path.realpath(path), os.path.realpath(state.parent)
    inside = os.path.relpath(real, root) if Path(real).is_relative_to(root) else real
    return hashlib.sha256(os.fsencode(inside)).hexdigest()[:16]


def candidate_path(original: str, trial_id: str) -> str:
    path = Path(original).absolute()
    tag = re.sub(r"[^A-Za-z0-9_-]", "-", trial_id)
    if path.suffix == ".py":  # a name that can be imported
        return str(path.with_name(f"gpu_advisor_{tag.replace('-', '_')}_{path.name}"))
    return str(path.with_name(f".{path.stem}.gpu-advisor-{tag}{path.suffix}"))


def remove_candidates(config: Path) -> None:
    """Remove candidates that a killed call left beside `config`."""
    start, end = Path(candidate_path(str(config), "TAG")).name.rsplit("TAG", 1)
    with contextlib.suppress(OSError):
        for path in config.absolute().parent.iterdir():
            tag = path.name.removeprefix(start).removesuffix(end)
            if path.name == f"{start}{tag}{end}" and tag.isdecimal():
                path.unlink()
