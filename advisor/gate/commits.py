"""The commits of a range, and which of them can be the first bad one.

A commit that is good clears all that it is built on; one that is bad clears all that it is not
built on. The next to be asked is the one whose answer clears most, whatever it is. Only commits
that are built on the good end are suspects: a branch that left before it is judged where it comes
in, by its merge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from advisor.errors import UsageError
from advisor.gate.base import FETCH, commit_of, is_ancestor
from advisor.gate.git import git

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.gate.base import Checkout


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of the range."""

    sha: str
    subject: str
    parents: tuple[str, ...]
    """In the range or outside."""


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """Commits one of which is the first bad one."""

    commits: tuple[Commit, ...]
    """Every commit behind its parents; the last is bad."""
    skipped: frozenset[str] = frozenset()
    """What cannot be told to be good or bad."""

    def ask(self) -> Commit | None:
        """The commit that halves them best; None if there is none left to ask."""
        asked = [c for c in self.commits[:-1] if c.sha not in self.skipped]
        return max(asked, key=lambda commit: self._least_cleared(commit.sha), default=None)

    def good(self, sha: str) -> Suspects:
        """Without `sha` and what it is built on."""
        return self._those(lambda place: not self._holds[sha] >> place & 1)

    def bad(self, sha: str) -> Suspects:
        """`sha` and what it is built on."""
        return self._those(lambda place: bool(self._holds[sha] >> place & 1))

    def skip(self, sha: str) -> Suspects:
        return replace(self, skipped=self.skipped | {sha})

    @cached_property
    def _holds(self) -> dict[str, int]:
        """By commit: one bit for each place in `commits` that it is built on, its own too."""
        found: dict[str, int] = {}
        for place, commit in enumerate(self.commits):
            own = 1 << place
            for parent in commit.parents:
                own |= found.get(parent, 0)
            found[commit.sha] = own
        return found

    def _least_cleared(self, sha: str) -> int:
        older = self._holds[sha].bit_count()
        return min(older, len(self.commits) - older)

    def _those(self, wanted: Callable[[int], bool]) -> Suspects:
        return replace(
            self, commits=tuple(c for place, c in enumerate(self.commits) if wanted(place))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """GOOD..BAD as it was given."""

    good: str
    bad: str
    suspects: Suspects


def read(head: Checkout, text: str, *, first_parent: bool) -> Span:
    """The range `text` of the repository of `head`; `first_parent` follows its main line alone.

    Raises UsageError for what is no range, and for one that has no order.
    """
    good_ref, dots, bad_ref = text.partition("..")
    if not dots or not good_ref or bad_ref.startswith("."):
        msg = f"--bisect {text!r} is no range. Write GOOD..BAD, such as v1.4.0..HEAD."
        raise UsageError(msg)
    good, bad = _named(head, text, good_ref), _named(head, text, bad_ref or "HEAD")
    if good == bad:
        msg = f"--bisect {text!r}: both are {good[:12]}, so there is no commit between them."
        raise UsageError(msg)
    if not is_ancestor(head, good, bad):
        parted = git(head.top, "merge-base", good, bad)
        hint = f" They part at {parted[:12]}: begin there." if parted else ""
        msg = (
            f"--bisect {text!r}: {bad_ref or 'HEAD'} is not built on {good_ref}, so no commit "
            f"between them can be the first bad one.{hint}"
        )
        raise UsageError(msg)
    way = ("--first-parent",) if first_parent else ("--ancestry-path",)
    listed = git(
        head.top,
        *("rev-list", "--topo-order", "--reverse", "--format=%s%n%P", *way, f"{good}..{bad}"),
    )
    found = tuple(_parsed(listed or ""))
    if first_parent and (not found or good not in found[0].parents[:1]):
        msg = (
            f"--bisect {text!r}: {good_ref} is not on the main line of {bad_ref or 'HEAD'}, which "
            "--first-parent follows. Leave --first-parent out, or name a commit of that line."
        )
        raise UsageError(msg)
    return Span(good=good, bad=bad, suspects=Suspects(commits=found))


def _named(head: Checkout, text: str, ref: str) -> str:
    sha = commit_of(head, ref)
    if sha is None:
        msg = f"--bisect {text!r}: {ref!r} names no commit here. Correct it, or {FETCH}"
        raise UsageError(msg)
    return sha


def _parsed(listed: str) -> list[Commit]:
    """Three lines a commit: `commit SHA`, its subject, its parents."""
    lines = listed.split("\n")
    return [
        Commit(
            sha=lines[at].split()[1], subject=lines[at + 1], parents=tuple(lines[at + 2].split())
        )
        for at in range(0, len(lines) - 2, 3)
    ]
