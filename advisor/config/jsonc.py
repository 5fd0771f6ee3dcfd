"""JSON with comments, trailing commas, duplicate keys and NaN.

`json.loads` gives the meaning, from a copy of the text whose comments are blanked out; a small
scanner over the same text gives the place of every value.
"""

import json
import re

from advisor.config import spelling
from advisor.config.leaves import MAX_DEPTH, TOO_DEEP, Parsed, Scalar, Syntax, spliced, syntax_error

_LEXEME = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<comment>//[^\r\n]*|/\*.*?\*/)
      | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*")
      | (?P<mark>[{}\[\],:])
      | (?P<word>[^\s{}\[\],:"/]+)""",
    re.VERBOSE | re.DOTALL,
)

_DEEPER = {"{": 1, "[": 1, "}": -1, "]": -1}

Lexeme = tuple[int, int]
"""Start and end."""


def parse(text: str, name: str) -> Parsed:
    """Raises ConfigSyntaxError with line and column."""
    lexemes, blanked = _scan(text, name)
    try:
        json.loads(blanked)
    except ValueError as problem:
        position, reason = getattr(problem, "pos", 0), getattr(problem, "msg", str(problem))
        raise syntax_error(name, text, position, f"not valid JSON: {reason}") from problem
    reader = _Reader(text, lexemes)
    reader.value(next(reader.rest), "")
    return Parsed(text, filter(None, reader.found))


def _scan(text: str, name: str) -> tuple[list[Lexeme], str]:
    """Scan lexemes, and blank out comments and trailing commas."""
    lexemes: list[Lexeme] = []
    unread: list[Lexeme] = []
    position = depth = 0
    while found := _LEXEME.match(text, position):
        start, position = found.span()
        kind = found.lastgroup or ""
        if kind == "comment":
            unread.append((start, position))
            continue
        if kind == "space":
            continue
        if kind == "mark":
            depth += _DEEPER.get(text[start], 0)
            if depth > MAX_DEPTH:
                raise syntax_error(name, text, start, TOO_DEEP)
            if text[start] in "}]" and _ends_in_trailing_comma(text, lexemes):
                unread.append(lexemes.pop())
        lexemes.append((start, position))
    blanks = ((start, end, re.sub(r"[^\r\n]", " ", text[start:end])) for start, end in unread)
    return lexemes, spliced(text, blanks)


def _ends_in_trailing_comma(text: str, lexemes: list[Lexeme]) -> bool:
    if len(lexemes) < 2:
        return False
    (before, _), (last, _) = lexemes[-2:]
    return text[last] == "," and text[before] not in "{[,:"


class _Reader:
    """Leaves of lexemes that are known to be grammatical."""

    def __init__(self, text: str, lexemes: list[Lexeme]) -> None:
        self.found: list[Scalar | None] = []
        self.rest = (lexeme for lexeme in lexemes if text[lexeme[0]] not in ",:")
        self._text = text

    def value(self, lexeme: Lexeme, path: str) -> None:
        """Read the value at `path`."""
        start, end = lexeme
        if self._text[start] == "{":
            self._object(path)
        elif self._text[start] == "[":
            self._array(path)
        else:
            value = json.loads(self._text[start:end])
            self.found.append(Scalar(path, value, start, end))

    def _object(self, path: str) -> None:
        seen: dict[str, tuple[int, int]] = {}
        while self._text[(key := next(self.rest))[0]] != "}":
            place = spelling.member(path, json.loads(self._text[slice(*key)]))
            if place in seen:
                start, end = seen[place]
                self.found[start:end] = [None] * (end - start)
            began = len(self.found)
            self.value(next(self.rest), place)
            seen[place] = began, len(self.found)

    def _array(self, path: str) -> None:
        number = 0
        while self._text[(lexeme := next(self.rest))[0]] != "]":
            self.value(lexeme, spelling.item(path, number))
            number += 1


SYNTAX = Syntax(
    parse=parse,
    spell_text=lambda value, _: json.dumps(value),
    null="null",
    comment_line=re.compile(r"[ \t]*(?://|/\*|\*(?!/))([^\r\n]*)"),
    comment_behind=re.compile(r"[ \t,\])}]*(?://|/\*)([^\r\n]*)"),
)
