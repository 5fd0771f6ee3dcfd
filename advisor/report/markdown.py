"""Untrusted text as harmless Markdown.

Config values, paths and log ends are read on GitHub. `Markup` here means safe Markdown.
"""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_ESCAPE_ANYWHERE = re.compile(r"([\\*`\[\]~$])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_ESCAPE_LEADING = re.compile(r"^(\d{0,9})([.)+#=-])(?=[.#=-]*(?:\s|$))")
JOINER = "\u2060"
"""Word joiner: invisible, and keeps GitHub from linking a word."""
_CALLS = re.compile(
    r"@(?=\w)|#(?=\d)|\b(?:https?|ftp|mailto|xmpp)(?=:)|\bwww(?=\.)|\bGH(?=-\d)",
    re.IGNORECASE,
)
"""Mentions, references to issues, bare links and mail addresses."""
_HTML = re.compile(r"&(?=#?\w+;)|<(?=[A-Za-z/!?])|^\s*>")
"""Beginnings of entities, tags and quotes; `memory<=7GiB` stays as it is."""
_PIPE = re.compile(r"(\\*)\|")
# Terminal control, and marks that reorder text.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def as_markdown(raw: str) -> Markup:
    return Markup(raw)  # noqa: S704  the mark means escaped for Markdown here, not for HTML


def text(value: object) -> Markup:
    """Line of prose, with code spans and nothing else."""
    if isinstance(value, Markup):
        return value
    line = one_line(str(value))
    pieces, at = [], 0
    for span in _CODE_SPAN.finditer(line):
        pieces += [_escape(line[at : span.start()], leading=at == 0), span[0]]
        at = span.end()
    pieces.append(_escape(line[at:], leading=at == 0))
    return as_markdown("".join(pieces))


def code(value: object) -> Markup:
    """Inline code span around any text."""
    line = one_line(str(value))
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if not line or line[0] == "`" or line[-1] == "`" else ""
    return as_markdown(f"{fence}{pad}{line}{pad}{fence}")


def value(content: Any, limit: int = 60) -> Markup:
    """Config value as JSON, or `not set`."""
    if content is None:
        return as_markdown("not set")
    spelled = json.dumps(content, ensure_ascii=False)
    return code(spelled if len(spelled) <= limit else f"{spelled[: limit - 3]}...")


def cell(content: object) -> Markup:
    """Cell of a table; a pipe does not end it."""
    line = text(content).replace("\n", " ")
    # Before a pipe an odd number of backslashes, or the row is split there.
    return as_markdown(
        _PIPE.sub(lambda run: run[1] + "\\" * (1 + len(run[1]) % 2) + "|", line)
    )


def table(head: Sequence[object], align: str, rows: Iterable[Sequence[object]]) -> Markup:
    """Table, or nothing without rows; `align` has `l` or `r` a column."""
    marks = [":--" if letter == "l" else "--:" for letter in align]
    lines = list(map(_row, rows))
    return as_markdown(
        "\n".join([_row(head), f"|{'|'.join(marks)}|", *lines] if lines else [])
    )


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(cell(content) for content in cells)} |"


def stacked(*blocks: str) -> Markup:
    """Blocks with a blank line between; an empty one is left out."""
    return as_markdown("\n\n".join(filter(None, blocks)))


def details(summary_: object, *blocks: str) -> Markup:
    """Blocks that open on a click on `summary_`; empty without blocks."""
    head = f"<details>\n<summary>{summary(summary_)}</summary>"
    body = stacked(*blocks)
    return stacked(head, body, "</details>") if body else body


def summary(content: object) -> Markup:
    """Text of a `<summary>`."""
    return as_markdown(_calm(one_line(str(content))))


def fenced(content: str, language: str = "") -> Markup:
    """Code block with a fence longer than any inside; nothing without content."""
    body = _visible(content.replace("\r\n", "\n").replace("\r", "\n")).strip("\n")
    fence = "`" * max(3, _longest_run(body) + 1)
    return as_markdown(f"{fence}{language}\n{body}\n{fence}" if body else "")


def one_line(raw: str) -> str:
    """`raw` on one line, without terminal control."""
    return _visible(" ".join(_ANSI.sub("", raw).split()))


def _escape(part: str, *, leading: bool) -> str:
    part = _ESCAPE_ANYWHERE.sub(r"\\\g<0>", part)
    return _calm(_ESCAPE_LEADING.sub(r"\1\\\2", part) if leading else part)


def _calm(part: str) -> str:
    """`part` without HTML, mentions and links."""
    calm = _HTML.sub(lambda match: escape(match[0], quote=False), part)
    return _CALLS.sub(lambda match: f"{match[0]}{JOINER}", calm)


def _visible(raw: str) -> str:
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", _ANSI.sub("", raw))


def _longest_run(raw: str) -> int:
    return max((len(run) for run in re.findall("`+", raw)), default=0)
