"""JSON with comments, trailing commas, duplicate keys and NaN.

`json.loads` reads a copy with comments and trailing commas blanked; tokens give places.
"""

import itertools
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
"""String, bracket or bare word; commas and colons lie between."""


def parse(text: str, name: str) -> list[Scalar]:
    blanked = _blanked(text)
    try:
        json.loads(blanked)
    except ValueError as problem:
        position, reason = getattr(problem, "pos", 0), getattr(problem, "msg", str(problem))
        raise syntax_error(name, text, position, f"not valid JSON: {reason}") from problem
    tokens = _TOKEN.finditer(blanked)
    return list(_leaves(next(tokens), tokens, ""))


def _blanked(text: str) -> str:
    """Blank out comments and trailing commas."""
    apart = list(_APART.finditer(text))
    comments = [(*token.span(), " " * len(token[0])) for token in apart if token["comment"]]
    strings = [
        (*token.span(), "s" * len(token[0])) for token in apart if not token["comment"]
    ]
    shape = spliced(text, [*comments, *strings])
    commas = (
        (comma.end() - 1, comma.end(), " ") for comma in _TRAILING_COMMA.finditer(shape)
    )
    return spliced(text, [*comments, *commas])


def _leaves(
    token: re.Match[str], rest: Iterator[re.Match[str]], path: str
) -> Iterator[Scalar]:
    """Scalars of the value that begins with `token`, in valid text."""
    if token[0] == "{":
        members = {}
        while (key := next(rest))[0] != "}":
            place = spelling.member(path, json.loads(key[0]))
            # of equal keys the last counts
            members[place] = list(_leaves(next(rest), rest, place))
        yield from itertools.chain.from_iterable(members.values())
    elif token[0] == "[":
        number = 0
        while (item := next(rest))[0] != "]":
            yield from _leaves(item, rest, spelling.member(path, number))
            number += 1
    else:
        yield Scalar(path, json.loads(token[0]), *token.span())


SYNTAX = Syntax(
    parse=parse,
    spell_text=lambda value, _: json.dumps(value),
    null="null",
    comment_line=re.compile(r"[ \t]*(?://|/\*|\*(?!/))([^\r\n]*)"),
    comment_behind=re.compile(r"[ \t,\])}]*(?://|/\*)([^\r\n]*)"),
)
