"""Place and layout of a new key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.config.leaves import Leaf

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
