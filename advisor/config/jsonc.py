"""JSON with comments, trailing commas, duplicate keys and NaN.

`json.loads` gives the meaning, from a copy of the text in which comments and trailing commas are
blanked out. The tokens of the same copy give the place of every value.
"""

import json
import re
from collections.abc import Iterator

from advisor.config import spelling
from advisor.config.leaves import Scalar, Syntax, spliced, syntax_error

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_APART = re.compile(rf'{_STRING}|(?P<comment>//[^\r\n]*|/\*.*?\*/)|["/].*', re.DOTALL)
"""String, comment, or the unfinished beginning of one."""
_TRAILING_COMMA = re.compile(r"(?<=[^\s{\[,:])\s*,(?=\s*[}\]])")
_TOKEN = re.compile(rf'{_STRING}|[{{}}\[\]]|[^\s{{}}\[\],:"]+', re.DOTALL)
"""String, bracket or bare word; commas and colons lie between them."""


def parse(text: str, name: str) -> list[Scalar]:
    blanked = _blanked(text)
    try:
        json.loads(blanked)
    except ValueError as problem:
        position, reason = getattr(problem, "pos", 0), getattr(problem, "msg", str(problem))
        raise syntax_error(name, text, position, f"not valid JSON: {reason}") from problem
    reader = _Reader(_TOKEN.finditer(blanked))
    reader.value(next(reader.rest), "")
    return [leaf for leaf in reader.found if leaf]


def _blanked(text: str) -> str:
    """Blank out comments and trailing commas."""
    apart = list(_APART.finditer(text))
    comments = [(*each.span(), " " * len(each[0])) for each in apart if each["comment"]]
    strings = [(*each.span(), "s" * len(each[0])) for each in apart if not each["comment"]]
    shape = spliced(text, [*comments, *strings])
    commas = ((each.end() - 1, each.end(), " ") for each in _TRAILING_COMMA.finditer(shape))
    return spliced(text, [*comments, *commas])


class _Reader:
    """Reader of tokens that are known to be grammatical."""

    def __init__(self, tokens: Iterator[re.Match[str]]) -> None:
        self.found: list[Scalar | None] = []
        self.rest = tokens

    def value(self, token: re.Match[str], path: str) -> None:
        if token[0] == "{":
            self._object(path)
        elif token[0] == "[":
            self._array(path)
        else:
            self.found.append(Scalar(path, json.loads(token[0]), *token.span()))

    def _object(self, path: str) -> None:
        seen: dict[str, tuple[int, int]] = {}
        while (key := next(self.rest))[0] != "}":
            place = spelling.member(path, json.loads(key[0]))
            if place in seen:
                start, end = seen[place]
                self.found[start:end] = [None] * (end - start)
            began = len(self.found)
            self.value(next(self.rest), place)
            seen[place] = began, len(self.found)

    def _array(self, path: str) -> None:
        number = 0
        while (token := next(self.rest))[0] != "]":
            self.value(token, spelling.member(path, number))
            number += 1


SYNTAX = Syntax(
    parse=parse,
    spell_text=lambda value, _: json.dumps(value),
    null="null",
    comment_line=re.compile(r"[ \t]*(?://|/\*|\*(?!/))([^\r\n]*)"),
    comment_behind=re.compile(r"[ \t,\])}]*(?://|/\*)([^\r\n]*)"),
)
