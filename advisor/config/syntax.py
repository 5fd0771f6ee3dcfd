"""Reading and spelling of one config format, and the layout of a new key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.config import paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.config.leaves import Leaf, Parsed

Insertion = tuple[int, str]
"""Character offset and the text that goes in there."""

_NEWLINE = re.compile("\r\n|\n|\r")
_SEPARATOR = re.compile(r"[ \t]*[:=][ \t]*")
_BLANKS = {
    "//": re.compile(r"(?:[ \t]|/\*[^\r\n]*?\*/)*"),
    "#": re.compile(r"[ \t]*"),
}
_REST_OF_LINE = {
    "//": re.compile(r"(?:[ \t]|/\*[^\r\n]*?\*/)*(?://[^\r\n]*)?(\r\n|\n|\r)"),
    "#": re.compile(r"[ \t]*(?:#[^\r\n]*)?(\r\n|\n|\r)"),
}


def after(text: str, leaf: Leaf, key: str, value: str, marker: str) -> list[Insertion]:
    """Insertions that put `key` behind `leaf`.

    `key` and `value` are spelled already; `marker` is the comment marker, `#` or `//`.
    """
    member = _spaced_like(text, leaf, key, value)
    return _in_flow(text, leaf, member, marker) if leaf.flow else _in_block(text, leaf, member)


def _in_block(text: str, leaf: Leaf, member: str) -> list[Insertion]:
    """Insert a line below the sibling, equally indented."""
    lead = _lead(text, leaf)
    end = _NEWLINE.search(text, leaf.end)
    if end:
        return [(end.end(), f"{lead}{member}{end[0]}")]
    earlier = _NEWLINE.search(text)
    return [(len(text), f"{earlier[0] if earlier else chr(10)}{lead}{member}")]


def _in_flow(text: str, leaf: Leaf, member: str, marker: str) -> list[Insertion]:
    """Insert into `{...}` in the sibling's style."""
    before = _before_key(text, leaf)
    blank = _BLANKS[marker].match(text, leaf.end)
    comma = blank.end() if blank else leaf.end
    has_comma = text[comma : comma + 1] == ","
    rest = _REST_OF_LINE[marker].match(text, comma + has_comma)
    if before.strip() or not rest:
        tight = before.endswith(",") or (text[comma + 1 : comma + 2].strip() and has_comma)
        return [(leaf.end, f"{',' if tight else ', '}{member}")]
    if has_comma:
        return [(rest.end(), f"{before}{member},{rest[1]}")]
    return [(leaf.end, ","), (rest.end(), f"{before}{member}{rest[1]}")]


def _before_key(text: str, leaf: Leaf) -> str:
    """Text before the key on its line."""
    assert leaf.key
    start = max(text.rfind("\n", 0, leaf.key[0]), text.rfind("\r", 0, leaf.key[0])) + 1
    return text[start : leaf.key[0]]


def _lead(text: str, leaf: Leaf) -> str:
    """Indentation of the new line; dashes become blanks."""
    return re.sub(r"[-?](?=[ \t])", " ", _before_key(text, leaf))


def _spaced_like(text: str, leaf: Leaf, key: str, value: str) -> str:
    """Format `key: value` with the blanks of the sibling's separator."""
    assert leaf.key
    found = _SEPARATOR.match(text, leaf.key[1])
    between = found[0] if found else ": "
    is_tight = found is not None and found.end() == leaf.start < leaf.end
    return f"{key}{between if is_tight or between[-1:].isspace() else between + ' '}{value}"


def _as_it_is(key: str, sibling: str) -> str:
    del sibling
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """Functions and spellings of one format."""

    parse: Callable[[str, str], Parsed]
    """Read a text, called by a name in messages. Raises ConfigSyntaxError."""
    spell_text: Callable[[str, str], str]
    """Spell a string like the old one."""
    spell_key: Callable[[str, str], str] = _as_it_is
    """Spell a key like its sibling."""
    new_key: re.Pattern[str] = paths.NAME
    """Keys that may be added."""
    member: Callable[[str, str], str] = paths.member
    """Path of a key in a mapping."""
    insert: Callable[[str, Leaf, str, str, str], list[Insertion]] = after
    """Place a spelled key and value behind a leaf, beside a comment marker."""
    null: str | None = None
    true: str = "true"
    """Spelling of a boolean in a document that has none."""
    comment: str = "#"
    """Marker that begins a comment."""
