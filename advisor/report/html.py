"""HTML page of report.md, in one file.

The Markdown is rendered once more, not written once more: page and report.md cannot differ. What
the Markdown shows as text stays text here; of HTML in it only the template's own few tags pass.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

import advisor
from advisor.report import sections

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markdown_it.token import Token

    from advisor.report.schema import Report

FIGURES = "figures"
MOST_COLUMNS = 3
"""Columns that a narrow screen holds side by side."""
_SUMMARY = re.compile(r"<summary>(.*)</summary>")
_BREAKS = re.compile(r"[./](?=\w{2})")
"""Places at which a long name may break."""
_NUMBER = re.compile(r"text-align:\s*right")


def page(report: Report, drawn: Mapping[str, bytes], stem: str = "report") -> str:
    """`report` as a page with its figures, `drawn`, inside.

    `stem` is that of the files of patches beside it.
    """
    text = sections.render(report, stem, FIGURES, drawn)
    title = next((line for line in text.splitlines() if line.startswith("# ")), "# report")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            title=Markup(_plain(_parser().parseInline(title[2:]))),  # noqa: S704  is escaped
            body=Markup(_html(_parser().parse(text), drawn)),  # noqa: S704  the renderer escapes
        )
    )


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable("table")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(templates_folder()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def templates_folder() -> Path:
    """Folder `templates/` of the package or source tree."""
    package = Path(advisor.__file__).resolve().parent
    places = (package / "templates", package.parent / "templates")
    return next((place for place in places if place.is_dir()), places[0])


# --- tokens to HTML -----------------------------------------------------------------------


def _html(tokens: Sequence[Token], drawn: Mapping[str, bytes]) -> str:
    """HTML of these tokens."""
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
                out.append(f'<table class="{token.meta.get("class", "")}">\n')
            case "table_close":
                out.append("</table>\n")
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
    """Copy a token of the allowed kinds.

    Text, code spans, breaks, and tags without any attribute but those set here.
    """
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
        if name in {"class", "scope", "data-label"}
    )
    return f"<{token.tag}{attributes}>"


KNOWN_TAGS = {
    *("h1", "h2", "h3", "p", "ul", "ol", "li", "strong", "em"),
    *("thead", "tbody", "tr", "th", "td", "blockquote"),
}
"""Tags that a token may open. There are no links in a report: of one, the text would be left."""


def _own_tag(line: str) -> str:
    """Pass the template's own HTML lines.

    Any other is shown as text.
    """
    tag = line.strip()
    if tag in {"<details>", "</details>", "<br>"}:
        return f"{tag}\n"
    found = _SUMMARY.fullmatch(tag)
    if found:
        return f"<summary>{_html(_parser().parseInline(found[1]), {})}</summary>\n"
    return escape(line)


def _image(token: Token, drawn: Mapping[str, bytes]) -> str:
    """Embed the figure in place of its address.

    Nothing else is loaded from anywhere.
    """
    name = unquote(str(token.attrs.get("src", ""))).removeprefix(f"{FIGURES}/")
    alt = escape(_text(token.children or ()))
    if name not in drawn:
        return alt
    data = base64.b64encode(drawn[name]).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}">'


def _tables(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    opened = None
    for at, token in enumerate(tokens):
        if token.type == "table_open":
            opened = at
        elif token.type == "table_close" and opened is not None:
            yield list(tokens[opened : at + 1])


def _for_readers(table: list[Token]) -> None:
    """Mark table heads, and name cells for narrow screens."""
    body = next(at for at, token in enumerate(table) if token.type == "thead_close")
    heads = [token.content for token in table[:body] if token.type == "inline"]
    table[0].meta["class"] = "stack" if len(heads) > MOST_COLUMNS else ""
    if not any(heads):
        for token in table[1 : body + 1]:
            token.type, token.children, token.hidden = "head", [], True
    column = 0
    for at, token in enumerate(table):
        if token.type == "tr_open":
            column = 0
        elif token.type in {"th_open", "td_open"}:
            if _NUMBER.search(str(token.attrs.pop("style", ""))):
                token.attrs["class"] = "number"
            if at < body:
                token.attrs["scope"] = "col"
            elif column == 0:
                token.attrs["scope"] = "row"
                token.tag = table[at + 2].tag = "th"
            else:
                token.attrs["data-label"] = " ".join(
                    _text(_parser().parseInline(heads[column])).split()
                )
            column += 1


def _plain(tokens: Sequence[Token]) -> str:
    """Their text alone, escaped."""
    return escape(" ".join(_text(tokens).split()))


def _text(tokens: Sequence[Any]) -> str:
    return "".join(_text(token.children) if token.children else token.content for token in tokens)
