"""JSON with comments, trailing commas, duplicate keys and NaN.

`json.loads` gives the meaning, from a copy of the text whose comments are blanked out; a small
scanner over the same text gives the place of every value.
"""

from __future__ import annotations

import json
import re

from advisor.config import spelling
from advisor.config.leaves import (
    MAX_DEPTH,
    MAX_VALUES,
    Leaf,
    Leaves,
    Parsed,
    Syntax,
    syntax_error,
    too_many,
)
from advisor.model import JsonScalar

_LEXEME = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<comment>//[^\r\n]*|/\*.*?\*/)
      | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*")
      | (?P<mark>[{}\[\],:])
      | (?P<word>[^\s{}\[\],:"/]+)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: dict[str, JsonScalar] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}

_DEEPER = {"{": 1, "[": 1, "}": -1, "]": -1}

MAX_LEXEMES = 4 * MAX_VALUES
"""A member has four: key, colon, value and comma."""

Lexeme = tuple[str, int, int]
"""Kind, start and end."""


def parse(text: str, name: str) -> Parsed:
    """Raises ConfigSyntaxError with line and column."""
    lexemes, blanked = _scan(text, name)
    try:
        json.loads(blanked)
    except ValueError as problem:
        position = problem.pos if isinstance(problem, json.JSONDecodeError) else 0
        reason = problem.msg if isinstance(problem, json.JSONDecodeError) else str(problem)
        raise syntax_error(name, text, position, f"not valid JSON: {reason}") from problem
    reader = _Reader(text, lexemes)
    reader.value(next(reader.rest), "")
    return Parsed(text, reader.leaves)


def spell_text(value: str, old: str) -> str:
    """Spell a JSON string safe for comment strippers."""
    del old
    quoted = json.dumps(value)
    if "//" in value or "/*" in value:
        quoted = quoted.replace("/", "\\/").replace("/*", "/\\u002a")
    return quoted


def _scan(text: str, name: str) -> tuple[list[Lexeme], str]:
    """Scan lexemes, and blank out comments and trailing commas."""
    lexemes: list[Lexeme] = []
    blanks: list[tuple[int, int]] = []
    position = depth = 0
    while found := _LEXEME.match(text, position):
        start, position = found.span()
        kind = found.lastgroup or ""
        if kind == "comment":
            blanks.append((start, position))
            continue
        if kind == "space":
            continue
        if kind == "mark":
            depth += _DEEPER.get(text[start], 0)
            if depth > MAX_DEPTH:
                problem = f"nested more than {MAX_DEPTH} levels deep"
                raise syntax_error(name, text, start, problem)
            if text[start] in "}]" and _ends_in_trailing_comma(text, lexemes):
                blanks.append(lexemes.pop()[1:])
        lexemes.append((kind, start, position))
        if len(lexemes) > MAX_LEXEMES:
            raise too_many(name)
    pieces, done = [], 0
    for start, end in sorted(blanks):
        pieces += [text[done:start], re.sub(r"[^\r\n]", " ", text[start:end])]
        done = end
    return lexemes, "".join([*pieces, text[done:]])


def _ends_in_trailing_comma(text: str, lexemes: list[Lexeme]) -> bool:
    if len(lexemes) < 2:
        return False
    (_, before, _), (_, last, _) = lexemes[-2:]
    return text[last] == "," and text[before] not in "{[,:"


class _Reader:
    """Leaves of lexemes that are known to be grammatical."""

    def __init__(self, text: str, lexemes: list[Lexeme]) -> None:
        self.leaves = Leaves()
        self.rest = (lexeme for lexeme in lexemes if text[lexeme[1]] not in ",:")
        self._text = text

    def value(self, lexeme: Lexeme, path: str) -> None:
        """Read the value at `path`."""
        kind, start, end = lexeme
        if self._text[start] == "{":
            self._object(path)
        elif self._text[start] == "[":
            self._array(path)
        else:
            value = _value(kind, self._text[start:end])
            self.leaves.found.append(Leaf(path, value, start, end))

    def _object(self, path: str) -> None:
        seen: dict[str, tuple[int, int]] = {}
        while self._text[(key := next(self.rest))[1]] != "}":
            place = spelling.member(path, str(_value(key[0], self._text[key[1] : key[2]])))
            if place in seen:
                self.leaves.drop(*seen[place])
                self.leaves.again[place] = key[1]
            began = len(self.leaves.found)
            self.value(next(self.rest), place)
            seen[place] = began, len(self.leaves.found)

    def _array(self, path: str) -> None:
        number = 0
        while self._text[(lexeme := next(self.rest))[1]] != "]":
            self.value(lexeme, spelling.item(path, number))
            number += 1


def _value(kind: str, word: str) -> JsonScalar:
    if kind == "string":
        return str(json.loads(word)) if "\\" in word else word[1:-1]
    if word in _WORDS:
        return _WORDS[word]
    return float(word) if any(mark in word for mark in ".eE") else int(word)


SYNTAX = Syntax(parse=parse, spell_text=spell_text, null="null", comment="//")
