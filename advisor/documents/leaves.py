"""What every reader produces, and the collector the readers share."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from advisor.errors import ConfigSyntaxError
from advisor.model import JsonScalar, Scalar, Span

MAX_DEPTH = 200
"""Deepest nesting that is read. Real configs stay below 20."""

Atom = Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A document taken apart.

    `trace` is the whole document, in order, as one flat list of atoms (openings, keys, values,
    references): two documents with equal traces mean the same to any loader. `atoms` says which
    atom is the value at a path. That is what edits are verified against.
    """

    data: Any
    scalars: dict[str, Scalar]
    atoms: dict[str, int]
    trace: list[Atom]
    notes: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    """Path of a reference to the path that holds the literal."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: str
    value: JsonScalar
    start: int
    end: int
    why: str | None
    atom: int


class Leaves:
    """Collects leaves in document order; duplicates can take earlier ones back."""

    def __init__(self, text: str, comment: re.Pattern[str], comment_line: re.Pattern[str]) -> None:
        self.trace: list[Atom] = []
        self.notes: list[str] = []
        self.aliases: dict[str, str] = {}
        self._text = text
        self._comment = comment
        self._comment_line = comment_line
        self._leaves: list[_Leaf | None] = []

    def add(self, path: str, value: JsonScalar, start: int, end: int, why: str | None) -> None:
        """A leaf whose atom is the one just appended to the trace."""
        atom = len(self.trace) - 1
        self._leaves.append(_Leaf(path, value, start, end, why, atom))

    def mark(self) -> int:
        """Position in the collection, to `drop` from later."""
        return len(self._leaves)

    def drop(self, start: int, end: int) -> None:
        """Forget the leaves between two marks: a later duplicate replaced them."""
        self._leaves[start:end] = [None] * (end - start)

    def parsed(self, data: Any, bom: int) -> Parsed:
        """Everything collected; `bom` bytes stand before the text."""
        to_bytes = byte_offsets(self._text, bom)
        comments = _Comments(self._text, self._comment, self._comment_line)
        scalars: dict[str, Scalar] = {}
        atoms: dict[str, int] = {}
        for leaf in self._leaves:
            if leaf is None:
                continue
            why = leaf.why
            text = self._text[leaf.start : leaf.end]
            if leaf.path in scalars:
                why = "two different keys read alike"
            elif why is None and "\n" in text:
                why = "it spans several lines"
            elif why is None and "${" in text:
                why = f"it refers to another value: {text}"
            scalars[leaf.path] = Scalar(
                path=leaf.path,
                value=leaf.value,
                text=text,
                span=Span(start=to_bytes(leaf.start), end=to_bytes(leaf.end)),
                editable=why is None,
                why=why,
                comment=comments.beside(leaf.start, leaf.end),
            )
            atoms[leaf.path] = leaf.atom
        return Parsed(
            data=data,
            scalars=scalars,
            atoms=atoms,
            trace=self.trace,
            notes=tuple(self.notes),
            aliases=self.aliases,
        )


class _Comments:
    """Finds the comment on a value's line, else the comment lines directly above it."""

    def __init__(self, text: str, after: re.Pattern[str], line: re.Pattern[str]) -> None:
        self._text = text
        self._after = after
        self._line = line
        self._starts = line_starts(text)

    def beside(self, start: int, end: int) -> str | None:
        found = self._after.match(self._text, end)
        if found:
            return found[1].strip() or None
        number = bisect_right(self._starts, start) - 1
        above: list[str] = []
        while number > 0:
            number -= 1
            whole = self._line.match(self._text, self._starts[number])
            if not whole:
                break
            above.insert(0, whole[1].strip())
        return "\n".join(above).strip() or None


def line_starts(text: str) -> list[int]:
    """Character offset at which each line begins."""
    return [0, *(found.end() for found in re.finditer("\n", text))]


def byte_offsets(text: str, bom: int = 0) -> Any:
    """A function from a character offset in `text` to the byte offset in the file."""
    if text.isascii():
        return lambda index: index + bom
    wide: list[int] = []
    shift = [bom]
    for found in re.finditer(r"[^\x00-\x7f]", text):
        wide.append(found.start())
        shift.append(shift[-1] + len(found[0].encode()) - 1)
    return lambda index: index + shift[bisect_right(wide, index - 1)]


def syntax_error(name: str, line: int, column: int, problem: str) -> ConfigSyntaxError:
    """The error every reader raises; line and column count from 1."""
    return ConfigSyntaxError(f"{name}, line {line}, column {column}: {problem}.")
