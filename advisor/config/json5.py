"""JSON5: bare keys, single quotes, hexadecimal numbers, comments and trailing commas.

The grammar of json5.org, read with the place of each value. Libraries that read it give values
alone, and an edit needs places.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

from advisor.config import jsonc, spelling
from advisor.config.leaves import MAX_DEPTH, TOO_DEEP, Scalar, syntax_error
from advisor.model import JsonScalar

_APART = re.compile(r"(?:[\s\ufeff]|//[^\r\n\u2028\u2029]*|/\*.*?\*/)*", re.DOTALL)
"""Space and comments between tokens."""
_STRING = re.compile(
    r'"(?:[^"\\\r\n]|\\(?:\r\n|.))*"' + "|" + r"'(?:[^'\\\r\n]|\\(?:\r\n|.))*'", re.DOTALL
)
_KEY = re.compile(r"(?:[^\W\d]|\$)(?:\w|[$\u200c\u200d])*")
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<word>Infinity|NaN)"
    r"|(?P<decimal>(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?))(?![\w$.])"
)
_WORDS: dict[str, JsonScalar] = {"true": True, "false": False, "null": None}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(\r\n|.))", re.DOTALL)
_CONTROL = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_LINE_ENDS = ("\r\n", "\n", "\r", "\u2028", "\u2029")


def parse(text: str, name: str) -> list[Scalar]:
    reader = _Reader(text, name)
    scalars = list(reader.value("", 0))
    reader.skip()
    if reader.at < len(text):
        reader.refuse("more text behind the end")
    return scalars


class _Reader:
    """Place in a text, which each value that is read moves on."""

    def __init__(self, text: str, name: str) -> None:
        self.at = 0
        self._text = text
        self._name = name

    def skip(self) -> None:
        """Go to the next token."""
        space = _APART.match(self._text, self.at)
        self.at = space.end() if space else self.at

    def refuse(self, stated: str) -> NoReturn:
        raise syntax_error(self._name, self._text, self.at, f"not valid JSON5: {stated}")

    def value(self, path: str, depth: int) -> Iterator[Scalar]:
        """Scalars of the value that comes next."""
        self.skip()
        if depth > MAX_DEPTH:
            raise syntax_error(self._name, self._text, self.at, TOO_DEEP)
        opening = self._text[self.at : self.at + 1]
        if opening == "{":
            yield from self._object(path, depth)
        elif opening == "[":
            for number in self._items("]"):
                yield from self.value(spelling.member(path, number), depth + 1)
        else:
            start, value = self.at, self._scalar()
            yield Scalar(path, value, start, self.at)

    def _object(self, path: str, depth: int) -> Iterator[Scalar]:
        members: dict[str, list[Scalar]] = {}
        for _ in self._items("}"):
            place = spelling.member(path, self._key())
            self.skip()
            if not self._takes(":"):
                self.refuse("a colon should stand behind a key")
            # of equal keys the last counts
            members[place] = list(self.value(place, depth + 1))
        for leaves in members.values():
            yield from leaves

    def _items(self, closing: str) -> Iterator[int]:
        """Number of each item, which the caller reads, up to the closing bracket."""
        self.at += 1
        number = 0
        while True:
            self.skip()
            if self._takes(closing):
                return
            yield number
            number += 1
            self.skip()
            if not self._takes(",") and self._text[self.at : self.at + 1] != closing:
                self.refuse(f"a comma or {closing} should stand here")

    def _takes(self, mark: str) -> bool:
        taken = self._text.startswith(mark, self.at)
        self.at += len(mark) * taken
        return taken

    def _key(self) -> str:
        if bare := _KEY.match(self._text, self.at):
            self.at = bare.end()
            return bare[0]
        return self._string("a key should stand here")

    def _scalar(self) -> JsonScalar:
        if number := _NUMBER.match(self._text, self.at):
            self.at = number.end()
            return _number(number)
        word = _KEY.match(self._text, self.at)
        if word and word[0] in _WORDS:
            self.at = word.end()
            return _WORDS[word[0]]
        return self._string("a value should stand here")

    def _string(self, wanted: str) -> str:
        match = _STRING.match(self._text, self.at)
        if match is None:
            self.refuse(wanted)
        self.at = match.end()
        return _ESCAPE.sub(_meant, match[0][1:-1])


def _number(match: re.Match[str]) -> JsonScalar:
    sign = -1 if match["sign"] == "-" else 1
    if match["hex"]:
        return sign * int(match["hex"], 16)
    if match["word"]:
        return sign * float(match["word"].lower())
    whole = match["decimal"].isdigit()
    return sign * (int(match["decimal"]) if whole else float(match["decimal"]))


def _meant(escape: re.Match[str]) -> str:
    """Character of an escape; none of a line that goes on."""
    code, plain = escape[1] or escape[2], escape[3]
    if code:
        return chr(int(code, 16))
    return "" if plain in _LINE_ENDS else _CONTROL.get(plain, plain)


def _spell_text(value: str, old: str) -> str:
    quoted = json.dumps(value)
    if old[:1] != "'":
        return quoted
    return "'" + quoted[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"


SYNTAX = replace(jsonc.SYNTAX, parse=parse, spell_text=_spell_text)
