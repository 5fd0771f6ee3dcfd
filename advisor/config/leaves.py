"""Scalars of a document: paths, values and places.

A document is never written anew from its values: comments, order and spelling would change in a
file that somebody else maintains. Each scalar knows where it stands in the text, and an edit
replaces that stretch and nothing else. A scalar that cannot be replaced so, such as an alias of
another, says why.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from advisor.errors import ConfigSyntaxError
from advisor.model import JsonScalar

Form = Literal["apart", "joint", "bare", "pair"]
"""apart: `--workers 4`; joint: `--workers=4`, `data.workers=4`; bare: `--amp`, true by being
there; pair: `--amp` and `--no-amp`."""
FLAGS = ("bare", "pair")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Option that may be added to the command."""

    flag: str
    """As typed: `--batch-size`, `data.batch_size`."""
    default: JsonScalar
    """Value if not typed; None if unknown."""
    form: Form
    behind: int
    """Word of the command behind which it is added."""
    others: tuple[str, ...] = ()
    """Further spellings: `-b`."""
    choices: tuple[JsonScalar, ...] = ()
    """The only values it takes; empty: any."""
    comment: str | None = None
    """Help text of the option, as its parser declares it."""
    why: str | None = None
    """Reason why it cannot be set."""

    def words(self, value: str, truth: bool | None) -> list[str]:
        """Words that add the option with a spelled `value`."""
        if self.form == "apart":
            return [self.flag, value]
        if self.form == "joint":
            return [f"{self.flag}={value}"]
        if self.form == "pair" and truth is False:
            return [f"--no-{self.flag.removeprefix('--')}"]
        return [self.flag]


COMPUTED, ALIAS = "it is computed", "it repeats"
"""Beginnings of reasons: a value known only at run time; an alias."""
MAX_DEPTH = 200
"""Deepest nesting, in levels. Real configs stay below 20.

Judgement: a parser takes several calls a level, of the 1,000 that Python allows by default. Fewer
levels could refuse a config that a program wrote."""
TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"

_NOT_A_LITERAL = re.compile(r"[\r\n]|\$\{|\{\{")


class Scalar(NamedTuple):
    """Scalar of a text, with its place. Offsets count characters."""

    path: str
    """`a.b[0].c`; a key with others than `[A-Za-z0-9_/+-]` is written `["odd.key"]`."""
    value: JsonScalar
    start: int
    end: int
    why: str | None = None
    """Why not editable: an alias, an interpolation, a block scalar."""
    bare: bool = False
    """A flag without a value, such as `--amp`."""
    option: Option | None = None
    """Program's declaration of a flag, if known."""
    given: bool = True
    """False for an untyped option: its value is the default."""
    text: str = ""
    """The value as spelled in the file."""
    comment: str | None = None
    """Comment on the same line or directly above; help of an option."""

    @property
    def editable(self) -> bool:
        return self.why is None

    @property
    def derived(self) -> bool:
        """True if its value comes from others."""
        return (self.why or "").startswith((COMPUTED, ALIAS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """Functions and spellings of one format."""

    parse: Callable[[str, str], Iterable[Scalar]]
    """Read a text, called by a name in messages. Raises ConfigSyntaxError."""
    spell_text: Callable[[str, str], str]
    """Spell a string like the old one."""
    null: str | None = None
    true: str = "true"
    """Spelling of a boolean in place of another type."""
    comment_line: re.Pattern[str] = re.compile(r"[ \t]*#([^\r\n]*)")
    comment_behind: re.Pattern[str] = re.compile(r"[ \t,\])}]*#([^\r\n]*)")
    """A line that is a comment, and one behind a value."""


Splice = tuple[int, int, str]
"""Start and end of a stretch, and its replacement."""


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """Replace stretches of `text`, which do not overlap."""
    pieces, done = [], 0
    for start, end, replacement in sorted(splices):
        pieces += [text[done:start], replacement]
        done = end
    return "".join([*pieces, text[done:]])


def spelled(text: str, leaves: Iterable[Scalar], syntax: Syntax) -> Iterator[Scalar]:
    """Leaves with their spelling and comment, and the reason where they cannot be edited."""
    starts = line_starts(text)
    for leaf in leaves:
        spelling, comment = text[leaf.start : leaf.end], None
        reason = leaf.why or _why_not(spelling)
        if leaf.option is not None:
            reason, comment = reason or leaf.option.why, leaf.option.comment
        else:
            comment = _comment(text, starts, syntax, leaf.start, leaf.end)
        yield leaf._replace(text=spelling, why=reason, comment=comment)


def _why_not(text: str) -> str | None:
    match = _NOT_A_LITERAL.search(text)
    if match and match[0] in "\r\n":
        return "it spans several lines"
    return f"it refers to another value: {text}" if match else None


def _comment(
    text: str, starts: list[int], syntax: Syntax, start: int, end: int
) -> str | None:
    """Comment lines above the value's line, and the comment behind it."""
    first = line = bisect_right(starts, start) - 1
    while line and syntax.comment_line.match(text, starts[line - 1]):
        line -= 1
    lines = [syntax.comment_line.match(text, at) for at in starts[line:first]]
    lines.append(syntax.comment_behind.match(text, end))
    texts = (line[1].partition("*/")[0].strip(" \t#/") for line in lines if line)
    return "\n".join(filter(None, texts)) or None


def line_starts(text: str) -> list[int]:
    """Offset of each line, in characters."""
    return [0, *(ending.end() for ending in re.finditer("\r\n|\n|\r", text))]


_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
"""Mark of a template language, such as Jinja's: `{{ batch }}`, `{% if gpu %}`."""


def syntax_error(
    name: str, text: str, at: int | tuple[int, int], problem: str
) -> ConfigSyntaxError:
    """Syntax error at an offset, or at line and column from 1."""
    if isinstance(at, int):
        at = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    line, column = at
    here = "".join(text.split("\n")[line - 1 : line])
    if template := _TEMPLATE.search(here):
        msg = (
            f"{name}, line {line}, column {column}: {template[0]} is filled in by another "
            "program. Name the file that it makes of this template."
        )
        return ConfigSyntaxError(msg)
    msg = (
        f"{name}, line {line}, column {column}: {problem}. Correct it there and call again."
    )
    return ConfigSyntaxError(msg)
