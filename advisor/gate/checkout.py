"""Checkouts of both arms, and the code that differs.

Git starts no program of a repository here: no hook, monitor, filter or prompt. The code of a fork
would else run outside of every wall, before it was measured.

That both arms really ran their own code is observed. An editable install, a path in the command
or PYTHONPATH may make both import the same files; the gate would then compare a commit with
itself and be green for ever. So the probe tells which files each run has loaded.
"""

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from advisor.errors import NoBaselineError, UsageError
from advisor.executor.engines.scratch_dir import scratch_folder
from advisor.files import reading
from advisor.gate.schema import ARMS, Arm, LoadedEntry, ProgramEntry, Revision
from advisor.model import Origins
from advisor.probe.origins import FILE
from advisor.runner.job import PROBE

QUIET = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.attributesFile=/dev/null",
    "-c", "safe.directory=*",
)  # fmt: skip
"""Options of git: no hook or attribute of the checkout acts, and anyone may own its folder."""
ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
FILTERS = r"^filter\..*\.(clean|smudge|process|required)$"
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
FETCH = "fetch the whole history (actions/checkout with fetch-depth: 0)."


def git(cwd: Path, *args: str) -> str | None:
    """Run git and strip its output; None if it failed."""
    done = run_git(cwd, *args)
    return done.stdout.strip() if done.returncode == 0 else None


def run_git(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run git without filters. Raises UsageError without git."""
    listed = _run(cwd, QUIET, ("config", "--name-only", "-z", "--get-regexp", FILTERS))
    names = filter(None, listed.stdout.split("\0"))
    off = [f"{name}={'false' if name.endswith('.required') else ''}" for name in names]
    return _run(cwd, (*QUIET, *(word for option in off for word in ("-c", option))), args)


def _run(
    cwd: Path, options: Sequence[str], args: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run git without the caller's GIT_ variables, which may name another repository."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", *options, "-C", str(cwd), *args],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            env={**kept, **ENVIRONMENT},
            check=False,
        )
    except OSError as problem:
        msg = f"git could not be started: {problem.strerror}. The gate needs it to check out base."
        raise UsageError(msg) from problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """Code of one arm, and its working folder, links resolved."""

    top: Path
    cwd: Path
    revision: Revision


def head_checkout(cwd: Path) -> Checkout:
    """Checkout around `cwd`; uncommitted changes belong to head."""
    top = git(cwd, "rev-parse", "--show-toplevel")
    if top is None:
        msg = (
            f"{cwd} is in no git repository, so there is no base. Call the gate inside one."
        )
        raise UsageError(msg)
    dirty = bool(git(cwd, "status", "--porcelain", "--untracked-files=no"))
    sha = git(cwd, "rev-parse", "HEAD")
    ref = git(cwd, "rev-parse", "--abbrev-ref", "HEAD")
    revision = Revision(sha=sha, ref=ref, dirty=dirty)
    return Checkout(top=Path(top), cwd=cwd.resolve(), revision=revision)


def base_revision(
    head: Checkout, base_ref: str | None, environ: Mapping[str, str] = os.environ
) -> Revision:
    """Commit to compare head with: the first that the code finds.

    Raises NoBaselineError without one; UsageError if only absent here: such a job would
    never compare anything.
    """
    if base_ref:
        return _required(head, base_ref, "--base-ref", base_ref)
    event = read_event(environ)
    if group := fact(event, "merge_group", "base_sha"):
        return _required(
            head, group, "The base of this merge group", "base of the merge group"
        )
    tip = fact(event, "pull_request", "head", "sha")
    if tip and commit_of(head, "HEAD^2") == tip:
        # The event's target may be many commits old.
        return Revision(
            sha=commit_of(head, "HEAD^1"), ref="first parent of the merge commit"
        )
    before = fact(event, "before") if environ.get("GITHUB_EVENT_NAME") == "push" else ""
    if before.strip("0") and (commit_of(head, before) or not event.get("forced")):
        return _required(
            head, before, "The state before this push", "state before the push"
        )
    targets = _targets(head, event)
    ref = next((ref for ref in targets if commit_of(head, ref)), None)
    if ref is None and "pull_request" in event:
        # With its own previous commit a second push would hide what the first slowed.
        _required(head, targets[-1], "The target", targets[-1])
    if ref is not None:
        common = git(head.top, "merge-base", "HEAD", ref)
        if common is None:
            msg = f"HEAD and {ref} have no common commit here. Give --base-ref, or {FETCH}"
            raise UsageError(msg)
        if common != head.revision.sha:
            return Revision(sha=common, ref=f"merge-base with {ref}")
    if head.revision.dirty:
        return Revision(sha=head.revision.sha, ref="HEAD, without the uncommitted changes")
    whole = git(head.top, "rev-parse", "--is-shallow-repository") != "true"
    if whole and commit_of(head, "HEAD^1") is None:
        msg = "HEAD is the first commit, so there is nothing to compare it with."
        raise NoBaselineError(msg)
    return _required(head, "HEAD^1", "The parent of HEAD", "first parent of HEAD")


def _required(head: Checkout, ref: str, role: str, name: str) -> Revision:
    """Commit of `ref`, called `name`. Raises UsageError if absent here."""
    sha = commit_of(head, ref)
    if sha is None:
        msg = f"{role}, {ref!r}, is not in this clone. Give --base-ref, or {FETCH}"
        raise UsageError(msg)
    return Revision(sha=sha, ref=name)


def commit_of(head: Checkout, ref: str) -> str | None:
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options")
    return git(head.top, *words, f"{ref}^{{commit}}")


def _targets(head: Checkout, event: Mapping[str, Any]) -> list[str]:
    """Branches that head may be merged into, likeliest first."""
    if "pull_request" in event:
        base = ("pull_request", "base")
        return [fact(event, *base, "sha"), f"origin/{fact(event, *base, 'ref')}"]
    default = git(head.top, "symbolic-ref", "--quiet", "refs/remotes/origin/HEAD")
    default_branch = f"origin/{fact(event, 'repository', 'default_branch')}"
    return [
        default_branch,
        default or default_branch,
        "origin/main",
        "origin/master",
        "main",
        "master",
    ]


def fact(event: Mapping[str, Any], *path: str) -> str:
    """Text at `path` of an event; empty without one."""
    value: Any = event
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return str(value or "")


def read_event(environ: Mapping[str, str]) -> dict[str, Any]:
    """Event of this job; empty outside GitHub. Raises UsageError if unreadable."""
    path = environ.get("GITHUB_EVENT_PATH", "")
    if not path:
        if environ.get("GITHUB_ACTIONS") == "true":
            msg = "GITHUB_EVENT_PATH is not set in a GitHub job, so the event is not known."
            raise UsageError(msg)
        return {}
    try:
        event = reading.from_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        msg = f"The event file {path} cannot be read ({problem}). Nothing was run."
        raise UsageError(msg) from problem
    if not isinstance(event, dict):
        msg = f"The event file {path} holds no JSON object. Nothing was run."
        raise UsageError(msg)
    return event


def base_of(
    head: Checkout, base_ref: str | None, links: Sequence[str]
) -> contextlib.AbstractContextManager[Checkout]:
    """Base from a second checkout in `base_ref`, or a worktree."""
    folder = Path(base_ref or "")
    if not base_ref or not (folder / ".git").exists():
        return base_checkout(head, base_revision(head, base_ref), links)
    second = head_checkout(folder.resolve())
    cwd = second.top / head.cwd.relative_to(head.top)
    if second.top == head.top or not cwd.is_dir():
        msg = f"--base-ref {folder} is no second checkout that holds {cwd}. Check base out there."
        raise UsageError(msg)
    return contextlib.nullcontext(replace(second, cwd=cwd))


@contextlib.contextmanager
def base_checkout(
    head: Checkout, revision: Revision, links: Sequence[str] = ()
) -> Iterator[Checkout]:
    """Temporary worktree of `revision`, outside the repository."""
    git(head.top, "worktree", "prune")  # left by a killed gate
    try:
        with scratch_folder() as folder:
            top = folder.resolve() / head.top.name
            words = ("worktree", "add", "--detach", "--quiet", str(top), revision.sha or "")
            made = run_git(head.top, *words)
            if made.returncode:
                msg = f"git could not check out {revision.sha}: {made.stderr.strip()}"
                raise NoBaselineError(msg)
            _require_whole(top, head.top)
            cwd = top / head.cwd.relative_to(head.top)
            if not cwd.is_dir():
                msg = f"{(revision.sha or '')[:12]} has no folder {cwd.relative_to(top)}"
                raise NoBaselineError(msg)
            _link(head, links, cwd)
            yield Checkout(top=top, cwd=cwd, revision=revision)
    finally:
        git(head.top, "worktree", "prune")


def _require_whole(base: Path, head: Path) -> None:
    """Refuse submodules and LFS files: no worktree has them. Raises UsageError."""
    listed = (git(base, "ls-files", "-s", "-z") or "").split("\0")
    modules = [line.partition("\t")[2] for line in listed if line.startswith("160000 ")]
    tracked = (git(base, "ls-files", "-z", ":(attr:filter=lfs)") or "").split("\0")
    pointers = [
        p for p in tracked if p and _is_pointer(base / p) and not _is_pointer(head / p)
    ]
    missing = [path for path in modules if any((head / path).glob("*"))] + pointers
    if missing:
        msg = (
            f"{missing[0]} of base is a submodule or a Git LFS file, which a worktree does not "
            "hold. Check base out beside head (a second actions/checkout with path: base), and "
            "give --base-ref ./base."
        )
        raise UsageError(msg)


def _is_pointer(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return reading.read_on(path.parent, path.name, 0, len(LFS_POINTER)) == LFS_POINTER
    return False


def shared_data(head: Checkout, paths: Sequence[str]) -> tuple[Path, ...]:
    """Places in head of the `--link` paths."""
    for path in paths:
        place = head.cwd / path
        outside = not Path(os.path.normpath(place)).is_relative_to(head.top)
        problem = ""
        if outside and not Path(path).is_absolute():
            problem = "leads out of the checkout. Give data elsewhere by an absolute path"
        elif not place.exists():
            problem = f"is not there: {place}. Name data of head that git ignores"
        elif not outside and git(head.cwd, "ls-files", "--", path):
            problem = (
                "holds files that git tracks: base has its own. Name data that git ignores"
            )
        elif not outside and _by_a_link_of_the_change(head, path):
            problem = (
                "leads through a link that git tracks, which a change may point anywhere. "
                "Name the data by the path of its own"
            )
        if problem:
            msg = f"--link {path!r} {problem}."
            raise UsageError(msg)
    return tuple((head.cwd / path).resolve() for path in paths)


def _by_a_link_of_the_change(head: Checkout, path: str) -> bool:
    above = [parent for parent in Path(path).parents if (head.cwd / parent).is_symlink()]
    return any(git(head.cwd, "ls-files", "--", str(parent)) for parent in above)


def _link(head: Checkout, paths: Sequence[str], base_cwd: Path) -> None:
    for path in paths:
        if Path(path).is_absolute():
            continue  # both arms see it there
        target = base_cwd / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to((head.cwd / path).resolve())
        except OSError as problem:
            msg = f"--link {path!r} cannot be made in base: {problem.strerror}."
            raise UsageError(msg) from problem


LOADED_BYTES = 16 << 20
"""Largest list of loaded files, in bytes, that is read; of a longer one no file is checked.

Judgement: 10,000 entries of 400 bytes have 4 MB. Smaller leaves a large program unchecked, larger
lets a run that is not trusted fill our memory."""
LOADED_FILES = 10_000
"""Files that one run may report; torch's own are no more than 3,000.

Judgement: fewer leaves the last files of a large program unchecked. More takes long, as each is
looked up on the disk."""
PATH_CHARS = 4096
"""Longest path that Linux opens: PATH_MAX of `linux/limits.h`, in bytes with the ending zero."""
PATH_PARTS = 64
"""Most parts of a path, since each is looked up once. Judgement."""
FOREIGN_KEPT = 8
"""Files of the other arm that are recorded."""
NAMED = 3
"""Names in a sentence; it counts the rest."""
ENVIRONMENTS = {"site-packages", "dist-packages"}
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
HASH_CHARS = 16
"""Characters of a digest that are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Files that differ between the arms."""

    tops: Mapping[Arm, Path]
    changed: Mapping[str, Mapping[Arm, str | None]]
    """By file: SHA-256 in each arm, None where absent."""
    shared: tuple[Path, ...] = ()
    """Data that both arms were given on purpose."""

    @property
    def by_content(self) -> dict[tuple[str, str | None], str]:
        """Changed files by name and SHA-256, to know a copy elsewhere."""
        return {
            (PurePath(path).name, sha): path
            for path, hashes in self.changed.items()
            for sha in hashes.values()
            if sha != EMPTY
        }

    @property
    def asked(self) -> Origins:
        """Instructions for the probe."""
        names = sorted({PurePath(path).name for path in self.changed})
        return Origins(roots=tuple(map(str, self.tops.values())), names=tuple(names))


def difference(
    base: Checkout, head: Checkout, shared: Sequence[Path] = ()
) -> Difference | None:
    """Compare files of two checkouts; None if both are one folder."""
    if base.top == head.top:
        return None
    tops: dict[Arm, Path] = {"base": base.top, "head": head.top}
    words = ("diff", "--name-only", "-z", "--no-renames", "--no-textconv")
    listed = git(head.top, *words, base.revision.sha or "HEAD")
    new = git(head.top, "ls-files", "-z", "--others", "--exclude-standard")
    changed: dict[str, Mapping[Arm, str | None]] = {}
    for path in sorted({*(listed or "").split("\0"), *(new or "").split("\0")} - {""}):
        hashes = {arm: _digest(tops[arm] / path, tops[arm]) for arm in ARMS}
        # a submodule has none
        if hashes["base"] != hashes["head"] or not any(hashes.values()):
            changed[path] = hashes
    return Difference(tops=tops, changed=changed, shared=tuple(shared))


def loaded(scratch: Path, top: Path, between: Difference) -> LoadedEntry:
    """Files that a run reported as loaded, read as untrusted.

    `foreign`: files of the other arm's checkout. `changed`: files that differ between the arms,
    with a digest of what was loaded, also where that is a copy outside of both checkouts, such as
    an installed package.
    """
    foreign: list[str] = []
    changed: dict[str, str] = {}
    copies = between.by_content
    lines, cut = _lines(scratch)
    for how, path, digest in _entries(lines):
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
        elif digest and (copied := copies.get((PurePath(path).name, digest))):
            changed.setdefault(copied, digest[:HASH_CHARS])
    kept = sorted(set(foreign))[:FOREIGN_KEPT]
    return LoadedEntry(foreign=kept, changed=changed, cut=cut)


def why_same_code(program: ProgramEntry) -> str | None:
    """Reason that both arms ran the same code."""
    versions: dict[Arm, dict[str, set[str]]] = {"base": {}, "head": {}}
    for run in program.runs:
        entry = run.loaded or LoadedEntry()
        if entry.foreign:
            other = "head" if run.arm == "base" else "base"
            return (
                f"{run.arm} loaded {_some(entry.foreign)} of {other}: {other} was measured "
                "twice. Install each arm into its own checkout (--setup), and name files in the "
                "command by relative paths"
            )
        for path, digest in entry.changed.items():
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


def left_file(scratch: Path, name: str, limit_bytes: int) -> bytes | None:
    """File that a run left in `scratch`; None if unreadable."""
    with contextlib.suppress(OSError):
        return reading.read(scratch, name, limit_bytes)
    return None


def _lines(scratch: Path) -> tuple[list[bytes], bool]:
    """Lines of the list of files that a run left, and whether they are not all of it."""
    name = f"probe/{FILE}"
    data = left_file(scratch, name, LOADED_BYTES)
    if data is None:  # none was left, or it is too long
        return [], os.path.lexists(scratch / name)
    lines = data.splitlines()
    return lines[:LOADED_FILES], len(lines) > LOADED_FILES


def _entries(lines: Sequence[bytes]) -> Iterator[tuple[str, str, str | None]]:
    """Kind, absolute path and SHA-256 of each reported file."""
    for line in lines:
        try:
            entry = reading.from_json(line)
            how, path, digest = entry["how"], entry["path"], entry["sha256"]
        except (ValueError, TypeError, KeyError):
            continue
        if (
            isinstance(how, str)
            and isinstance(path, str)
            and isinstance(digest, str | None)
            and is_path(path)
        ):
            yield how, path, digest


def is_path(text: str) -> bool:
    """True for what could name a file: no other is looked up."""
    return len(text) <= PATH_CHARS and text.count("/") <= PATH_PARTS and text.isprintable()


def _in_environment(path: str, top: Path) -> bool:
    parts = Path(path).relative_to(top).parts
    if not ENVIRONMENTS.isdisjoint(parts):
        return True
    folders = [top.joinpath(*parts[:depth]) for depth in range(1, len(parts))]
    return any((folder / mark).exists() for folder in folders for mark in ENVIRONMENT_MARKS)


def _digest(path: Path, top: Path) -> str | None:
    """SHA-256 of a file in the checkout `top`; None without one.

    Of a link that leads out it is that of the link: a change may point it at a file of the
    kernel's that never ends.
    """
    try:
        if not path.resolve().is_relative_to(top.resolve()):
            return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, RuntimeError):  # a circle of links
        return None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + more


EMPTY = hashlib.sha256(b"").hexdigest()
"""Every package has such a file."""
