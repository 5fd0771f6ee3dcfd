"""TOML: a scanner of text that `tomllib` accepted."""

import re
import tomllib
from collections.abc import Iterator

from advisor.config import spelling
from advisor.config.leaves import Scalar, Syntax, syntax_error
from advisor.config.spelling import double_quoted

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_KEY_PART = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'""")
_STRING = re.compile(
    r'''"""[^"\\]*(?:(?:\\.|"{1,2}(?!"))[^"\\]*)*"{3,5}'''
    r"""|\'{3}[^']*(?:'{1,2}(?!')[^']*)*'{3,5}"""
    r"""|"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*'""",
    re.DOTALL,
)
_DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d[^\s,\]}#]*")
_WORD = re.compile(r"[^\s,\]}#]+")
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")


def parse(text: str, name: str) -> list[Scalar]:
    try:
        tomllib.loads(text)
    except ValueError as problem:
        stated = f"not valid TOML: {_AT.sub('', str(problem)).strip()}"
        match = _AT.search(str(problem))
        at = (int(match[1]), int(match[2])) if match else len(text)
        raise syntax_error(name, text, at, stated) from problem
    return list(_Scanner(text).leaves())


def spell_text(value: str, old: str) -> str:
    if old[:1] == "'" and "'" not in value and value.isprintable():
        return f"'{value}'"
    return double_quoted(value)


class _Scanner:
    """Scanner of valid text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tables: dict[str, int] = {}
        """Number of tables so far, by path of their array."""

    def leaves(self) -> Iterator[Scalar]:
        table = ""
        while self._next():
            if self._next() == "[":
                table = self._header()
            else:
                yield from self._member(table)

    def _take(self, pattern: str | re.Pattern[str]) -> str:
        match = re.compile(pattern).match(self._text, self._at)
        if not match:
            return ""
        self._at = match.end()
        return match[0]

    def _next(self) -> str:
        """Next character behind blanks and comments."""
        self._take(_BLANK)
        return self._text[self._at : self._at + 1]

    def _keys(self) -> list[str]:
        parts: list[str] = []
        while not parts or self._take(r"[ \t]*\.[ \t]*"):
            part = self._take(_KEY_PART)
            quoted = part[:1] in ('"', "'")
            parts.append(next(iter(tomllib.loads(f"{part} = 0"))) if quoted else part)
        return parts

    def _header(self) -> str:
        """Read a `[a.b]` or `[[a.b]]` header."""
        is_array = bool(self._take(r"\[{1,2}[ \t]*").count("[") - 1)
        parts = self._keys()
        self._take(r"[ \t]*\]{1,2}")
        path = ""
        for number, part in enumerate(parts):
            path = spelling.member(path, part)
            if is_array and number == len(parts) - 1:
                self._tables[path] = self._tables.get(path, -1) + 1
            if path in self._tables:
                path = spelling.member(path, self._tables[path])
        return path

    def _member(self, path: str) -> Iterator[Scalar]:
        for part in self._keys():
            path = spelling.member(path, part)
        self._take(r"[ \t]*=[ \t]*")
        yield from self._value(path)

    def _value(self, path: str) -> Iterator[Scalar]:
        opening = self._text[self._at]
        if opening not in "[{":
            yield self._leaf(path)
            return
        self._at += 1
        index = 0
        while self._next() not in "]}":
            if opening == "[":
                yield from self._value(spelling.member(path, index))
                index += 1
            else:
                yield from self._member(path)
            self._next()
            self._take(",")
        self._at += 1

    def _leaf(self, path: str) -> Scalar:
        start = self._at
        word = self._take(_STRING) or self._take(_DATE_AND_TIME) or self._take(_WORD)
        read = tomllib.loads(f"x = {word}")["x"]
        value = read if isinstance(read, (str, int, float)) else word  # a date stays text
        reason = "it is a block of text" if word.startswith(('"""', "'''")) else None
        return Scalar(path, value, start, self._at, reason)


SYNTAX = Syntax(parse=parse, spell_text=spell_text)
