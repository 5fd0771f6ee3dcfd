"""What every reader hands over: the leaves of a document, where they lie, and its whole trace."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor.errors import ConfigSyntaxError
from advisor.model import JsonScalar, Scalar, Span

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 200
"""Deepest nesting that is read. Real configs stay below 20."""


class Leaf(NamedTuple):
    """One value that is neither a mapping nor a list. Offsets count characters of the text."""

    path: str
    value: JsonScalar
    start: int
    end: int
    atom: int
    """Which atom of the trace it is."""
    parent: str = ""
    """Path of the mapping or list that holds it."""
    why: str | None = None
    """Why it cannot be edited."""
    key: tuple[int, int] | None = None
    """Where its key is written; None for a list item."""
    flow: bool = False
    """Inside `{...}`, where members are separated by commas."""


@dataclass(slots=True)
class Leaves:
    """Collects what a reader finds, in document order; a duplicate key takes leaves back.

    `trace` is the whole document as one flat list of atoms (openings, keys, values,
    references): documents with equal traces mean the same to every loader, and it stays as
    small as the file where aliases would unfold.
    """

    trace: list[object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    found: list[Leaf | None] = field(default_factory=list)

    def drop(self, start: int, end: int) -> None:
        """Forget `found[start:end]`: a later duplicate of their key replaced them."""
        self.found[start:end] = [None] * (end - start)


class Parsed:
    """A document taken apart: its meaning at once, its scalars when they are asked for."""

    def __init__(self, text: str, bom: int, data: Any, leaves: Leaves, marker: str) -> None:
        """`bom` bytes stand before `text`; `marker` is the comment marker, `#` or `//`."""
        self.text = text
        self.data = data
        self.trace = leaves.trace
        self.aliases = leaves.aliases
        self.leaves: dict[str, Leaf] = {}
        self._bom = bom
        self._marker = marker
        alike: list[str] = []
        for leaf in leaves.found:
            if leaf is not None:
                if leaf.path in self.leaves:
                    alike.append(leaf.path)
                    leaf = leaf._replace(why="two different keys are written alike")  # noqa: PLW2901
                self.leaves[leaf.path] = leaf
        self.notes = (*leaves.notes, *(f"{path}: two keys are written alike" for path in alike))

    @cached_property
    def scalars(self) -> dict[str, Scalar]:
        """The leaves as the rest of the program sees them, in document order."""
        to_bytes = _byte_offsets(self.text, self._bom)
        comments = _Comments(self.text, self._marker)
        return {
            leaf.path: Scalar(
                path=leaf.path,
                value=leaf.value,
                text=self.text[leaf.start : leaf.end],
                span=Span(start=to_bytes(leaf.start), end=to_bytes(leaf.end)),
                editable=self.why_not(leaf) is None,
                why=self.why_not(leaf),
                comment=comments.near(leaf.start, leaf.end),
            )
            for leaf in self.leaves.values()
        }

    def why_not(self, leaf: Leaf) -> str | None:
        """Why the leaf cannot be edited, None if it can."""
        text = self.text[leaf.start : leaf.end]
        if leaf.why is None and ("\n" in text or "\r" in text):
            return "it spans several lines"
        if leaf.why is None and ("${" in text or "{{" in text):
            return f"it refers to another value: {text}"
        return leaf.why


class _Comments:
    """The comment lines directly above a value, then the comment that ends its own line."""

    def __init__(self, text: str, marker: str) -> None:
        opening = r"[ \t]#" if marker == "#" else r"//|/\*"
        whole = "#" if marker == "#" else r"//|/\*|\*(?!/)"
        self._text = text
        self._after = re.compile(rf"[ \t,\]}}]*(?:{opening})([^\r\n]*)")
        self._line = re.compile(rf"[ \t]*(?:{whole})([^\r\n]*)")
        self._starts = [0, *(found.end() for found in re.finditer("\r\n|\n|\r", text))]
        self._above: dict[int, tuple[str, ...]] = {}

    def near(self, start: int, end: int) -> str | None:
        said = self._lines_above(bisect_right(self._starts, start) - 1)
        found = self._after.match(self._text, end)
        if found:
            said = (*said, _stripped(found[1]))
        return "\n".join(part for part in said if part) or None

    def _lines_above(self, line: int) -> tuple[str, ...]:
        if line not in self._above:
            said: list[str] = []
            number = line - 1
            while number >= 0 and (found := self._line.match(self._text, self._starts[number])):
                said.append(_stripped(found[1]))
                number -= 1
            self._above[line] = tuple(reversed(said))
        return self._above[line]


def _stripped(comment: str) -> str:
    return comment.split("*/", maxsplit=1)[0].strip(" \t#/")


def _byte_offsets(text: str, bom: int) -> Callable[[int], int]:
    """From a character's offset in the text to its byte offset in the file."""
    if text.isascii():
        return lambda index: index + bom
    wide: list[int] = []
    shift = [bom]
    for found in re.finditer(r"[^\x00-\x7f]", text):
        wide.append(found.start())
        shift.append(shift[-1] + len(found[0].encode()) - 1)
    return lambda index: index + shift[bisect_left(wide, index)]


def syntax_error(name: str, text: str, position: int, problem: str) -> ConfigSyntaxError:
    """The error every reader raises; line and column count from 1."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    msg = f"{name}, line {line}, column {column}: {problem}. Correct it there and call again."
    return ConfigSyntaxError(msg)


def written_again(text: str, position: int, path: str) -> str:
    """The note on a duplicate key."""
    line = text.count("\n", 0, position) + 1
    return f"line {line}: {path} is written again; the last one counts"
