"""What every reader hands over: the leaves of a document, where they lie, and its whole trace."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor.errors import ConfigSyntaxError, ConfigUnreadableError
from advisor.model import JsonScalar, Scalar, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from advisor.config.options import Option

COMPUTED = "it is computed"
"""Begins why a value that only a run can tell is left alone."""
MAX_DEPTH = 200
"""Deepest nesting that is read. Real configs stay below 20."""

MAX_VALUES = 50_000
"""Most values a document may hold. Real configs stay below 5,000; data files do not."""

MAX_NOTES = 20

_NOT_A_LITERAL = re.compile(r"[\r\n]|\$\{|\{\{")


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
    bare: bool = False
    """True by being there, false by being left out: a flag such as `--amp`."""
    option: Option | None = None
    """What the program's source says of it, where that is known: of flags only."""
    given: bool = True
    """False: not written here; the value is the option's default, and setting it adds a flag."""


@dataclass(slots=True)
class Leaves:
    """Collects what a reader finds, in document order; a duplicate key takes leaves back.

    `trace` is the whole document as one flat list of atoms (openings, keys, values,
    references): documents with equal traces mean the same to every loader, and it stays as
    small as the file where aliases would unfold.
    """

    trace: list[object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    again: dict[str, int] = field(default_factory=dict)
    """Path of a key that is written more than once, to where it is written last."""
    aliases: dict[str, str] = field(default_factory=dict)
    found: list[Leaf | None] = field(default_factory=list)
    is_strict: bool = True
    """False for JSON that only a tolerant loader reads."""

    def drop(self, start: int, end: int) -> None:
        """Forget `found[start:end]`: a later duplicate of their key replaced them."""
        self.found[start:end] = [None] * (end - start)


class Parsed:
    """A document taken apart: what it means, and its leaves by path, in document order."""

    def __init__(self, text: str, bom: int, data: Any, leaves: Leaves, marker: str) -> None:
        """`bom` bytes stand before `text`; `marker` is the comment marker, `#` or `//`."""
        self.text = text
        self.data = data
        self.trace = leaves.trace
        self.aliases = leaves.aliases
        self.is_strict = leaves.is_strict
        self.leaves: dict[str, Leaf] = {}
        notes = [*leaves.notes, *self._on_duplicates(leaves.again)]
        for leaf in leaves.found:
            if leaf is not None:
                if leaf.path in self.leaves:
                    notes.append(f"{leaf.path}: two different keys are written alike")
                    leaf = leaf._replace(why="two different keys are written alike")  # noqa: PLW2901
                self.leaves[leaf.path] = leaf
        self.notes = _first(notes)
        self.scalars = Scalars(self, text, bom, marker)

    def _on_duplicates(self, again: dict[str, int]) -> list[str]:
        starts = line_starts(self.text) if again else []
        return [
            f"{path} is written more than once; the last one, on line "
            f"{bisect_right(starts, position)}, counts"
            for path, position in again.items()
        ]


class Scalars(Mapping[str, Scalar]):
    """The leaves as the rest of the program sees them, in document order, each built when asked."""

    def __init__(self, parsed: Parsed, text: str, bom: int, marker: str) -> None:
        self._parsed = parsed
        self._text = text
        self._built: dict[str, Scalar] = {}
        self._to_bytes = _byte_offsets(text, bom)
        self._comments = _Comments(text, marker)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed.leaves)

    def __len__(self) -> int:
        return len(self._parsed.leaves)

    def __getitem__(self, path: str) -> Scalar:
        if path not in self._built:
            self._built[path] = self._build(self._parsed.leaves[path])
        return self._built[path]

    def _build(self, leaf: Leaf) -> Scalar:
        text = self._text[leaf.start : leaf.end]
        why = leaf.why or _why_not(text)
        comment = self._comments.near(leaf.start, leaf.end)
        if leaf.option is not None:
            why, comment = why or leaf.option.why, leaf.option.comment
        return Scalar(
            path=leaf.path,
            value=leaf.value,
            text=text,
            span=Span(start=self._to_bytes(leaf.start), end=self._to_bytes(leaf.end)),
            editable=why is None,
            why=why,
            comment=comment,
            choices=leaf.option.choices if leaf.option else (),
            default_of=leaf.option.source if leaf.option and not leaf.given else None,
        )


def _why_not(text: str) -> str | None:
    """Why a value spelled like this cannot be edited, None if it can."""
    found = _NOT_A_LITERAL.search(text)
    if not found:
        return None
    if found[0] in "\r\n":
        return "it spans several lines"
    return f"it refers to another value: {text}"


class _Comments:
    """The comment lines directly above a value, then the comment that ends its own line."""

    def __init__(self, text: str, marker: str) -> None:
        opening = "#" if marker == "#" else r"//|/\*"
        whole = "#" if marker == "#" else r"//|/\*|\*(?!/)"
        self._text = text
        self._after = re.compile(rf"[ \t,\])}}]*(?:{opening})([^\r\n]*)")
        self._line = re.compile(rf"[ \t]*(?:{whole})([^\r\n]*)")
        self._above: dict[int, tuple[str, ...]] = {}

    @cached_property
    def _starts(self) -> list[int]:
        return line_starts(self._text)

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


def line_starts(text: str) -> list[int]:
    """Offset at which each line begins, in characters."""
    return [0, *(found.end() for found in re.finditer("\r\n|\n|\r", text))]


def _first(notes: list[str]) -> tuple[str, ...]:
    """No more notes than someone would read."""
    if len(notes) <= MAX_NOTES:
        return tuple(notes)
    return (*notes[:MAX_NOTES], f"and {len(notes) - MAX_NOTES} more of the kind")


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


def too_many(name: str) -> ConfigUnreadableError:
    """The error of a file that is no config but data."""
    msg = f"{name} holds more than {MAX_VALUES:,} values. Name the config, not a data file."
    return ConfigUnreadableError(msg)
