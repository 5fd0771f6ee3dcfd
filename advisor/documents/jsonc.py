"""JSON as training scripts read it: comments, a trailing comma, duplicate keys, NaN.

`json.loads` gives the meaning, from a copy of the text whose comments are blanked out; a small
scanner over the same text gives the bytes of every value.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.documents import paths
from advisor.documents.leaves import MAX_DEPTH, Leaves, Parsed, syntax_error

if TYPE_CHECKING:
    from advisor.model import JsonScalar

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<comment>//[^\r\n]*|/\*.*?\*/)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<mark>[{}\[\],:])
      | (?P<word>[^\s{}\[\],:"/]+)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_AFTER = re.compile(r"[ \t,\]}]*(?://|/\*)([^\r\n]*?)(?:\*/[^\r\n]*)?(?=[\r\n]|\Z)")
_COMMENT_LINE = re.compile(r"[ \t]*(?://|/\*|\*)([^\r\n]*?)(?:\*/)?[ \t]*\r?\n")
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}

Token = tuple[str, int, int]


@dataclass(slots=True)
class _Frame:
    path: str
    is_list: bool
    index: int = 0
    key: str | None = None
    path_of_value: str = ""
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    began: int = 0


def parse(text: str, name: str, bom: int) -> Parsed:
    """Raises ConfigSyntaxError with line and column."""
    tokens, blanked = _tokens(text)
    depth = deepest = 0
    for kind, start, _ in tokens:
        if kind == "mark":
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(text[start], 0)
            deepest = max(deepest, depth)
            if depth > MAX_DEPTH:
                raise _error(name, text, start, f"nested more than {MAX_DEPTH} levels deep")
    try:
        data = json.loads(blanked)
    except json.JSONDecodeError as problem:
        raise _error(name, text, problem.pos, f"not valid JSON: {problem.msg}") from problem
    except ValueError as problem:
        raise _error(name, text, 0, f"not valid JSON: {problem}") from problem
    return _walk(text, tokens).parsed(data, bom)


def is_strict(text: str) -> bool:
    """Whether `json.loads` takes the text as it is."""
    return _tokens(text)[1] == text


def spell(value: JsonScalar, old: str | None) -> str:
    """`value` as JSON. A string never holds `//` or `/*`: comment strippers would cut it."""
    del old
    if isinstance(value, str):
        quoted = json.dumps(value)
        return quoted.replace("/", "\\/") if "//" in value or "/*" in value else quoted
    return json.dumps(value)


def survives_naive_stripper(text: str, data: object) -> bool:
    """Whether a loader that cuts every line at `//` reads `data` too."""
    stripped = "\n".join(line.split("//")[0] for line in text.splitlines())
    try:
        return repr(json.loads(stripped)) == repr(data)
    except (ValueError, RecursionError):
        return False


def _tokens(text: str) -> tuple[list[Token], str]:
    """Significant tokens, and the text with comments and trailing commas blanked out."""
    tokens: list[Token] = []
    pieces: list[str] = []
    done = position = 0
    while found := _TOKEN.match(text, position):
        position = found.end()
        kind = found.lastgroup or ""
        if kind == "comment":
            pieces += [text[done : found.start()], re.sub(r"[^\r\n]", " ", found[0])]
            done = position
        elif kind != "space":
            if found[0] in ("}", "]") and len(tokens) > 1 and _is_trailing(text, tokens):
                _, comma, _ = tokens.pop()
                pieces.append(text[done : found.start()])
                done = found.start()
                _blank(pieces, found.start() - comma)
            tokens.append((kind, found.start(), position))
    pieces.append(text[done:])
    return tokens, "".join(pieces)


def _is_trailing(text: str, tokens: list[Token]) -> bool:
    comma, before = tokens[-1], tokens[-2]
    return text[comma[1]] == "," and text[before[1]] not in "{[,:"


def _blank(pieces: list[str], back: int) -> None:
    """Blank the one character that lies `back` characters before the end of `pieces`."""
    for number in range(len(pieces) - 1, -1, -1):
        if back <= len(pieces[number]):
            at = len(pieces[number]) - back
            pieces[number] = pieces[number][:at] + " " + pieces[number][at + 1 :]
            return
        back -= len(pieces[number])


def _walk(text: str, tokens: list[Token]) -> Leaves:
    """Leaves of tokens that are known to be grammatical."""
    leaves = Leaves(text, _COMMENT_AFTER, _COMMENT_LINE)
    stack: list[_Frame] = []
    for kind, start, end in tokens:
        lexeme = text[start:end]
        frame = stack[-1] if stack else None
        if kind == "mark":
            if lexeme in "{[":
                leaves.trace.append(lexeme)
                path = _place(frame)
                stack.append(_Frame(path, is_list=lexeme == "[", began=leaves.mark()))
            elif lexeme in "}]":
                leaves.trace.append(lexeme)
                stack.pop()
                _close(stack, leaves)
        elif frame and not frame.is_list and frame.key is None:
            frame.key = str(json.loads(lexeme))
            leaves.trace.append(("key", frame.key))
            frame.path_of_value = paths.member(frame.path, frame.key)
            frame.began = leaves.mark()
            if frame.key in frame.seen:
                leaves.drop(*frame.seen[frame.key])
                line = text.count("\n", 0, start) + 1
                leaves.notes.append(
                    f"line {line}: {frame.path_of_value} is written again; the last one counts"
                )
        else:
            value = _value(kind, lexeme)
            leaves.trace.append(("value", type(value).__name__, repr(value)))
            leaves.add(_place(frame), value, start, end, None)
            _close(stack, leaves)
    return leaves


def _place(frame: _Frame | None) -> str:
    """Path of the value that begins now."""
    if frame is None:
        return ""
    return paths.item(frame.path, frame.index) if frame.is_list else frame.path_of_value


def _close(stack: list[_Frame], leaves: Leaves) -> None:
    """A value ended: its holder waits for the next item or key."""
    if not stack:
        return
    frame = stack[-1]
    if frame.key is not None:
        frame.seen[frame.key] = (frame.began, leaves.mark())
        frame.key = None
    frame.index += 1


def _value(kind: str, lexeme: str) -> JsonScalar:
    if kind == "string":
        return str(json.loads(lexeme)) if "\\" in lexeme else lexeme[1:-1]
    if lexeme in _WORDS:
        return _WORDS[lexeme]
    return float(lexeme) if any(mark in lexeme for mark in ".eE") else int(lexeme)


def _error(name: str, text: str, position: int, problem: str) -> Exception:
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return syntax_error(name, line, column, problem)
