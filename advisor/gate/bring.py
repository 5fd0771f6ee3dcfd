"""What git leaves out of a worktree: submodules, large files, and data that it ignores."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from advisor.errors import UsageError
from advisor.gate.git import git, run_git

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n"
)
POINTER_BYTES = 1024
"""A pointer is smaller."""


class KnobConstraint(NamedTuple):
    """A submodule as a commit records it."""

    path: str
    sha: str


def submodules(head: Path, base: Path) -> None:
    """Fill the folders of base's submodules from those of head, which has them already.

    One that head never took out is left empty in base too. Raises UsageError if the commit that
    base needs cannot be had.
    """
    _fill(head, base, git(base, "rev-parse", "HEAD") or "HEAD")


def _fill(source: Path, target: Path, commit: str) -> None:
    for link in _links(source, commit):
        inner = source / link.path
        if not (inner / ".git").exists():
            continue
        if git(inner, "cat-file", "-e", f"{link.sha}^{{commit}}") is None:
            run_git(inner, "fetch", "--quiet", "--no-tags", "origin", link.sha)
        place = target / link.path
        place.mkdir(parents=True, exist_ok=True)
        index = place.with_name(f".{place.name}.index")
        repository = git(inner, "rev-parse", "--absolute-git-dir") or ""
        words = (f"--git-dir={repository}", f"--work-tree={place}")
        variables = {"GIT_INDEX_FILE": str(index), "GIT_LFS_SKIP_SMUDGE": "1"}
        for step in (("read-tree", link.sha), ("checkout-index", "--all", "--force")):
            done = run_git(place, *words, *step, variables=variables)
            if done.returncode:
                said = done.stderr.strip().splitlines() or ["git gave no reason"]
                msg = (
                    f"Submodule {link.path} of base needs its commit {link.sha}, which is not "
                    f"here: {said[-1]}. Fetch it (actions/checkout with submodules: recursive "
                    "and fetch-depth: 0)."
                )
                raise UsageError(msg)
        index.unlink(missing_ok=True)
        _fill(inner, place, link.sha)


def _links(repository: Path, commit: str) -> Iterator[KnobConstraint]:
    """The submodules of a commit."""
    for line in (git(repository, "ls-tree", "-r", "-z", "--full-tree", commit) or "").split("\0"):
        facts, _, path = line.partition("\t")
        if facts.startswith("160000 commit "):
            yield KnobConstraint(path, facts.split()[2])


def large_files(head: Path, base: Path) -> None:
    """Put the content of Git LFS in the place of its pointers, where head has content.

    Raises UsageError if a file of base has none here.
    """
    missing = []
    store = Path(git(head, "rev-parse", "--path-format=absolute", "--git-common-dir") or "", "lfs")
    for path, oid in _pointers(base):
        kept = store / "objects" / oid[:2] / oid[2:4] / oid
        if kept.is_file():
            shutil.copyfile(kept, base / path)
        elif not (head / path).is_file() or _oid(head / path) is None:
            missing.append(path)
    if not missing:
        return
    run_git(base, "lfs", "pull")
    for path in missing:
        if _oid(base / path) is not None:
            msg = (
                f"{path} of base is a Git LFS pointer whose content is not here, while head has "
                "its own. Fetch it before: git lfs fetch origin BASE."
            )
            raise UsageError(msg)


def _pointers(top: Path) -> Iterator[tuple[str, str]]:
    """Files below `top` that stand for others, and the hash of those."""
    for path in (git(top, "ls-files", "-z", ":(attr:filter=lfs)") or "").split("\0"):
        oid = _oid(top / path) if path else None
        if oid is not None:
            yield path, oid


def _oid(path: Path) -> str | None:
    """Of the content that a pointer stands for; None of a file that is none."""
    try:
        if path.stat().st_size >= POINTER_BYTES:
            return None
        found = POINTER.match(path.read_bytes())
    except OSError:
        return None
    return found[1].decode() if found else None


def shared(top: Path, cwd: Path, paths: Iterable[str]) -> tuple[Path, ...]:
    """Where in head, whose top is `top`, the paths of `--link` lie; they are relative to `cwd`.

    Raises UsageError for one that cannot be shared.
    """
    return tuple(_shared(top.resolve(), cwd, path) for path in paths)


def _shared(top: Path, cwd: Path, path: str) -> Path:
    place = cwd / path
    if not Path(os.path.normpath(place)).is_relative_to(top):
        msg = f"--link {path!r} leads out of the checkout, where both arms see it anyway."
        raise UsageError(msg)
    if not place.exists():
        msg = f"--link {path!r} is not there: {place}. Name data of head that git ignores."
        raise UsageError(msg)
    if git(cwd, "ls-files", "--", path):
        msg = (
            f"--link {path!r} holds files that git tracks: base has its own of them. Name data "
            "that git ignores."
        )
        raise UsageError(msg)
    return place


def links(sources: Sequence[Path], paths: Sequence[str], base_cwd: Path) -> None:
    """Links in base to `sources`, ignored data of head. Raises UsageError if one cannot be."""
    for path, source in zip(paths, sources, strict=True):
        target = base_cwd / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.resolve())
        except OSError as problem:
            msg = f"--link {path!r} cannot be made in base: {problem.strerror}."
            raise UsageError(msg) from problem
