"""Identity of the project files that each arm loaded.

A shared editable install, an absolute path or `cd $GITHUB_WORKSPACE` gives both arms the code of
head, and a slowdown would pass as noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from advisor.files import within
from advisor.gate.checkout import Checkout, git
from advisor.gate.schema import ARMS, LoadedEntry, ProgramEntry, Variant
from advisor.model import Origins
from advisor.probe.origins import FILE
from advisor.runner.job import PROBE

LOADED_BYTES = 16 << 20
FOREIGN_KEPT = 8
NAMED = 3
"""Files named in one sentence."""
ENVIRONMENTS = ("site-packages", "dist-packages")
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
HASH_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Files that differ between the arms."""

    tops: Mapping[Variant, Path]
    """Links resolved."""
    changed: Mapping[str, Mapping[Variant, str | None]]
    """By file that differs: SHA-256 in each arm, None where it is not there."""
    shared: tuple[Path, ...] = ()
    """Data that both arms were given on purpose."""

    @property
    def asked(self) -> Origins:
        """Instructions for the probe."""
        names = {PurePath(path).name for path in self.changed}
        roots = tuple(self.tops.values())
        return Origins(roots=tuple(map(str, roots)), names=tuple(sorted(names)))


def difference(base: Checkout, head: Checkout, shared: Sequence[Path] = ()) -> Difference | None:
    """Compare the files of two checkouts. None if both are the same folder."""
    if base.top == head.top:
        return None
    tops: dict[Variant, Path] = {"base": base.top.resolve(), "head": head.top.resolve()}
    words = ("diff", "--name-only", "-z", "--no-renames", "--no-textconv")
    listed = git(head.top, *words, base.revision.sha or "HEAD")
    new = git(head.top, "ls-files", "-z", "--others", "--exclude-standard")
    changed: dict[str, Mapping[Variant, str | None]] = {}
    for path in sorted({*(listed or "").split("\0"), *(new or "").split("\0")} - {""}):
        hashes = {arm: _digest(tops[arm] / path) for arm in ARMS}
        if hashes["base"] != hashes["head"] or not any(hashes.values()):  # a submodule has none
            changed[path] = hashes
    resolved = tuple(path.resolve() for path in shared)
    return Difference(tops=tops, changed=changed, shared=resolved)


def loaded(scratch: Path, top: Path, between: Difference) -> LoadedEntry:
    """Files that a run reported as loaded. The report is read as untrusted."""
    top = top.resolve()
    foreign: list[str] = []
    changed: dict[str, str] = {}
    copies: dict[str, str] = {}
    for how, path, digest in _lines(scratch):
        if any(Path(path).is_relative_to(folder) for folder in (PROBE, *between.shared)):
            continue  # ours, or shared on purpose
        around = [each for each in between.tops.values() if Path(path).is_relative_to(each)]
        # one checkout may hold the other
        owner = max(around, key=lambda each: len(each.parts), default=None)
        inside = str(Path(path).relative_to(owner)) if owner else path
        if owner is not None and not _in_environment(path, owner):
            if owner != top and (how == "ran" or inside in between.changed):
                foreign.append(inside)
            elif owner == top and inside in between.changed and digest:
                changed[inside] = digest[:HASH_CHARS]
        elif digest:
            copies |= dict.fromkeys(_copied(path, digest, between), digest[:HASH_CHARS])
    return LoadedEntry(
        foreign=sorted(set(foreign))[:FOREIGN_KEPT],
        changed={**copies, **changed},
    )


def why_same_code(program: ProgramEntry) -> str | None:
    """Reason that both arms ran the same code."""
    versions: dict[Variant, dict[str, set[str]]] = {"base": {}, "head": {}}
    for run in program.runs:
        if run.loaded and run.loaded.foreign:
            other = "head" if run.arm == "base" else "base"
            return (
                f"{run.arm} loaded {_some(run.loaded.foreign)} of {other}: {other} was measured "
                "twice. Install each arm into its own checkout (--setup), and name files in the "
                "command by relative paths"
            )
        for path, digest in run.loaded.changed.items() if run.loaded else ():
            versions[run.arm].setdefault(path, set()).add(digest)
    same = [
        path
        for path, hashes in versions["base"].items()
        if hashes == versions["head"].get(path) and len(hashes) == 1
    ]
    if not same:
        return None
    return (
        f"base and head loaded the same {_some(sorted(same))}, which differs between them: one of "
        "them was measured twice. Install each arm into its own checkout (--setup)"
    )


def unseen(program: ProgramEntry, between: Difference | None) -> str | None:
    """Warning if neither arm loaded a changed file."""
    seen = [run.loaded for run in program.runs if run.loaded]
    arms = {run.arm for run in program.runs if run.loaded}
    if between is None or not between.changed or len(arms) < len(ARMS):
        return None
    if any(each.changed for each in seen):
        return None
    return (
        f"{program.name}: no file that differs between base and head "
        f"({_some(sorted(between.changed))}) was seen to be loaded by either, so this says little "
        "about the change"
    )


def _lines(scratch: Path) -> Iterator[tuple[str, str, str | None]]:
    """Kind, absolute path and SHA-256 of each reported file."""
    try:
        data = within.read(scratch, f"probe/{FILE}", LOADED_BYTES)
    except OSError:
        return
    for line in data.splitlines():
        try:
            entry = json.loads(line)
            how, path, digest = entry["how"], entry["path"], entry["sha256"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if isinstance(how, str) and isinstance(path, str) and isinstance(digest, str | None):
            yield how, path, digest


def _in_environment(path: str, top: Path) -> bool:
    """True if the path lies in an environment."""
    parts = Path(path).relative_to(top).parts
    if any(part in ENVIRONMENTS for part in parts):
        return True
    folders = [top.joinpath(*parts[:depth]) for depth in range(1, len(parts))]
    return any((folder / mark).exists() for folder in folders for mark in ENVIRONMENT_MARKS)


def _copied(path: str, digest: str, between: Difference) -> Iterator[str]:
    """Changed files of which `path` elsewhere is a copy."""
    name = PurePath(path).name
    for changed, hashes in between.changed.items():
        if PurePath(changed).name == name and digest in hashes.values() and digest != EMPTY:
            yield changed


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + more


EMPTY = hashlib.sha256(b"").hexdigest()
"""Every package has such a file."""
