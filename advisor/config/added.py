"""Keys that a config may gain: settings of the program that the file does not hold.

Where a parser or a dataclass reads the config, each of its fields may stand in the file. A field
that is not there is a leaf without text, as an option is that was not typed: setting it adds one
line beside its siblings, spelled like theirs. Nothing else of the file changes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from advisor.config.leaves import Option, Scalar, Splice


class Line(NamedTuple):
    """How a format writes one more member of a mapping."""

    begin: str
    """What ends the member before; `{indent}` is that of the siblings."""
    key: str


LINES: Mapping[str, Line] = {
    "yaml": Line("{newline}{indent}", "{key}: "),
    "toml": Line("{newline}{indent}", "{key} = "),
    "json": Line(",{newline}{indent}", '"{key}": '),
    "json5": Line(",{newline}{indent}", '"{key}": '),
}
"""By format; into a Python config no key is added."""

_INDENT = re.compile(r"[ \t]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEHIND_COMMENT = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)")
_BEFORE_COMMA = re.compile(r"(?=[ \t]*,?[ \t]*(?:[\r\n]|\Z))")
_END = {
    "yaml": _BEHIND_COMMENT,
    "toml": _BEHIND_COMMENT,
    "json": _BEFORE_COMMA,
    "json5": _BEFORE_COMMA,
}
"""From a value to where its member's line ends."""
_ELSEWHERE = re.compile(
    r"""(?m)^\s*["']?(?:<<|_BASE_|_base_|_BASE_CONFIG_|includes?|defaults|extends)["']?\s*[:=]"""
)
"""Keys by which a file takes values from elsewhere: a missing one may stand there."""


def with_options(
    text: str, scalars: Sequence[Scalar], options: Sequence[Option], of: str
) -> list[Scalar]:
    """`scalars`, with a leaf for each option that has its place in the text and is not there."""
    if of not in LINES or _ELSEWHERE.search(text):
        return [*scalars]
    places = _places(text, scalars, of)
    added = []
    for option in options:
        mapping, _, key = option.flag.rpartition(".")
        begins = (option.flag, f"{option.flag}.", f"{option.flag}[")
        is_there = any(
            scalar.path == begins[0] or scalar.path.startswith(begins[1:])
            for scalar in scalars
        )
        if mapping in places and _KEY.fullmatch(key) and not is_there:
            at, _ = places[mapping]
            leaf = Scalar(option.flag, option.default, at, at, option=option, given=False)
            added.append(leaf)
    return [*scalars, *added]


def member(text: str, of: str, at: int, path: str, value: str) -> str:
    """Text that adds the setting `path` with a spelled `value` at `at`, behind a sibling."""
    line, start = LINES[of], max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    indent = _INDENT.match(text, start)
    newline = next((ending for ending in ("\r\n", "\n", "\r") if ending in text), "\n")
    begin = line.begin.format(newline=newline, indent=indent[0] if indent else "")
    return f"{begin}{line.key.format(key=path.rpartition('.')[2])}{value}"


def without(text: str, of: str, leaf: Scalar) -> Splice:
    """Splice that takes the line of an added setting out again."""
    start = max(text.rfind("\n", 0, leaf.start), text.rfind("\r", 0, leaf.start))
    start -= text[max(0, start - 1) : start + 1] == "\r\n"
    start -= LINES[of].begin[0] == "," == text[max(0, start - 1) : start]
    return max(0, start), leaf.end, ""


def _places(text: str, scalars: Sequence[Scalar], of: str) -> dict[str, tuple[int, int]]:
    """Where each mapping may gain a line: behind its last member that has a line of its own."""
    places: dict[str, tuple[int, int]] = {}
    for leaf, end in _alone_on_a_line(text, scalars, of):
        mapping = leaf.path.rpartition(".")[0]
        if leaf.start >= places.get(mapping, (0, -1))[1]:
            places[mapping] = (end, leaf.start)
    return places


def _alone_on_a_line(
    text: str, scalars: Sequence[Scalar], of: str
) -> Iterator[tuple[Scalar, int]]:
    for leaf in scalars:
        if "[" in leaf.path or leaf.start == leaf.end:
            continue
        start = max(text.rfind("\n", 0, leaf.start), text.rfind("\r", 0, leaf.start)) + 1
        key = re.escape(leaf.path.rpartition(".")[2])
        head = re.compile(rf"[ \t]*[\"']?{key}[\"']?[ \t]*[:=][ \t]*")
        begin = head.match(text, start)
        end = _END[of].match(text, leaf.end)
        if begin and begin.end() == leaf.start and end:
            yield leaf, end.end()
