"""report.md as one HTML page that needs nothing beside it.

The Markdown is rendered once more, not written once more: page and report.md cannot differ. What
the Markdown shows as text stays text here; of HTML in it only the template's own few tags pass.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from advisor.report import rendering

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markdown_it.token import Token

    from advisor.report.model import Report

FIGURES = "figures"
_SUMMARY = re.compile(r"<summary>(.*)</summary>")
_BREAKS = re.compile(r"[./](?=\w{2})")
"""Where a long name may go on in the next line."""
_NUMBER = re.compile(r"text-align:\s*right")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and what stands below it, as HTML."""

    id: str
    title: Markup
    body: Markup


def page(report: Report, drawn: Mapping[str, bytes] | None, stem: str = "report") -> str:
    """`report` as a page; `drawn` are its figures as SVG, None where they could not be drawn.

    `stem` is that of the files of patches beside it.
    """
    text = rendering.render(report, FIGURES if drawn is not None else None, stem)
    parts = list(_parts(_parser().parse(text)))
    first, *rest = [_section(number, part, drawn or {}) for number, part in enumerate(parts)]
    title = next((line for line in text.splitlines() if line.startswith("# ")), "# report")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            title=Markup(_plain(_parser().parseInline(title[2:]))),  # noqa: S704  is escaped
            first=first.body,
            sections=rest,
        )
    )


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable("table")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(rendering.templates_folder()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _parts(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """What stands before the first heading of level 2, then each of these with what follows."""
    part: list[Token] = []
    for token in tokens:
        if token.type == "heading_open" and token.tag == "h2" and token.level == 0:
            yield part
            part = []
        part.append(token)
    yield part


def _section(number: int, tokens: list[Token], drawn: Mapping[str, bytes]) -> Section:
    heading: list[Token] = []
    if tokens and tokens[0].tag == "h2":
        heading, tokens = tokens[1:2], tokens[3:]
    title = _html(heading, "", drawn)
    named = _plain(heading) if heading else "the result"
    return Section(id=f"s{number}", title=Markup(title), body=Markup(_html(tokens, named, drawn)))  # noqa: S704  the renderer escapes


# --- tokens to HTML -----------------------------------------------------------------------


def _html(tokens: Sequence[Token], named: str, drawn: Mapping[str, bytes]) -> str:
    """HTML of these tokens; `named`, escaped, is what their tables are called."""
    for table in _tables(tokens):
        _for_readers(table)
    out = []
    for token in _flat(tokens):
        match token.type:
            case "html_block" | "html_inline":
                out.append("".join(map(_own_tag, token.content.splitlines())))
            case "image":
                out.append(_image(token, drawn))
            case "table_open":
                out.append(f'<div class="wide" role="region" aria-label="{named}" tabindex="0">')
                out.append("<table>\n")
            case "table_close":
                out.append("</table></div>\n")
            case "fence" | "code_block":
                out.append(f'<pre tabindex="0"><code>{escape(token.content)}</code></pre>\n')
            case _:
                out.append(_plain_token(token))
    return "".join(out)


def _flat(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        if token.type == "inline":
            yield from _flat(token.children or ())
        elif not token.hidden:
            yield token


def _plain_token(token: Token) -> str:
    """Text, code spans, breaks, and tags without any attribute but those set here."""
    if token.type == "text":
        return escape(token.content)
    if token.type == "code_inline":
        return "<code>" + _BREAKS.sub(r"\g<0><wbr>", escape(token.content)) + "</code>"
    if token.type == "softbreak":
        return "\n"
    if token.nesting == 0:
        return f"<{token.tag}>" if token.tag in {"br", "hr"} else escape(token.content)
    if token.tag not in KNOWN_TAGS:
        return ""
    if token.nesting < 0:
        return f"</{token.tag}>" + ("\n" if token.block else "")
    attributes = "".join(
        f' {name}="{escape(str(value))}"'
        for name, value in token.attrs.items()
        if name in {"class", "scope"}
    )
    return f"<{token.tag}{attributes}>"


KNOWN_TAGS = {
    *("h1", "h2", "h3", "p", "ul", "ol", "li", "strong", "em"),
    *("thead", "tbody", "tr", "th", "td", "blockquote"),
}
"""Tags that a token may open. There are no links in a report: of one, the text would be left."""


def _own_tag(line: str) -> str:
    """A line of HTML that the Markdown template wrote; any other is shown as text."""
    tag = line.strip()
    if tag in {"<details>", "</details>", "<br>"}:
        return f"{tag}\n"
    found = _SUMMARY.fullmatch(tag)
    if found:
        return f"<summary>{_html(_parser().parseInline(found[1]), '', {})}</summary>\n"
    return escape(line)


def _image(token: Token, drawn: Mapping[str, bytes]) -> str:
    """The figure itself in place of its address; nothing else is loaded from anywhere."""
    name = unquote(str(token.attrs.get("src", ""))).removeprefix(f"{FIGURES}/")
    told = escape(_text(token.children or ()))
    if name not in drawn:
        return told
    data = base64.b64encode(drawn[name]).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{told}">'


def _tables(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    opened = None
    for at, token in enumerate(tokens):
        if token.type == "table_open":
            opened = at
        elif token.type == "table_close" and opened is not None:
            yield list(tokens[opened : at + 1])


def _for_readers(table: list[Token]) -> None:
    """Heads of columns and rows are told as such, and a row of empty heads is none."""
    body = next(at for at, token in enumerate(table) if token.type == "thead_close")
    if not any(token.content for token in table[:body]):
        for token in table[1 : body + 1]:
            token.type, token.children, token.hidden = "head", [], True
    row_begins = False
    for at, token in enumerate(table):
        if token.type == "tr_open":
            row_begins = True
        elif token.type in {"th_open", "td_open"}:
            if _NUMBER.search(str(token.attrs.pop("style", ""))):
                token.attrs["class"] = "number"
            if at < body:
                token.attrs["scope"] = "col"
            elif row_begins:
                token.attrs["scope"] = "row"
                token.tag = table[at + 2].tag = "th"
            row_begins = False


def _plain(tokens: Sequence[Token]) -> str:
    """Their text alone, escaped."""
    return escape(" ".join(_text(tokens).split()))


def _text(tokens: Sequence[Any]) -> str:
    return "".join(_text(token.children) if token.children else token.content for token in tokens)
