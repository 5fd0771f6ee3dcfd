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
    from collections.abc import Mapping, Sequence

    from markdown_it.token import Token

    from advisor.report.schema import Report

FIGURES = "figures"
_SUMMARY = re.compile(r"<summary>(.*)</summary>")
_LINKS = ("link", "autolink", "reference")
"""Rules of Markdown that a report never uses."""


def page(report: Report, drawn: Mapping[str, bytes], stem: str = "report") -> str:
    """`report` as a page with its figures, `drawn`, inside.

    `stem` is that of the files of patches beside it.
    """
    text = sections.render(report, stem, FIGURES, drawn)
    body = _parser().render(text, {"drawn": drawn})
    heading = next((line for line in text.splitlines() if line.startswith("# ")), "# report")
    title = re.sub(r"<[^>]*>", "", _parser().renderInline(heading[2:]))
    environment = Environment(
        loader=FileSystemLoader(templates_folder()),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.j2").render(
        report=report,
        title=Markup(title),  # noqa: S704  the renderer escapes
        body=Markup(body),  # noqa: S704  the renderer escapes
    )


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable("table").disable(_LINKS)
    for name, rule in {
        "html_block": _own_tags,
        "html_inline": _own_tags,
        "image": _image,
        "fence": _code_block,
        "code_block": _code_block,
        "table_open": lambda *_: '<div class="wide" tabindex="0"><table>\n',
        "table_close": lambda *_: "</table></div>\n",
    }.items():
        parser.add_render_rule(name, rule)
    return parser


def templates_folder() -> Path:
    """Folder `templates/` of the package or source tree."""
    package = Path(advisor.__file__).resolve().parent
    places = (package / "templates", package.parent / "templates")
    return next((place for place in places if place.is_dir()), places[0])


# --- tokens that are not rendered as usual ------------------------------------------------


def _own_tags(_: Any, tokens: Sequence[Token], at: int, *__: Any) -> str:
    """Pass the lines of HTML that the sections write; any other is text."""
    return "".join(map(_own_tag, tokens[at].content.splitlines()))


def _own_tag(line: str) -> str:
    tag = line.strip()
    if tag in {"<details>", "</details>", "<br>"}:
        return f"{tag}\n"
    if found := _SUMMARY.fullmatch(tag):
        return f"<summary>{_parser().renderInline(found[1])}</summary>\n"
    return escape(line)


def _image(_: Any, tokens: Sequence[Token], at: int, __: Any, env: dict[str, Any]) -> str:
    """Embed a figure; nothing is loaded from anywhere."""
    name = unquote(str(tokens[at].attrs.get("src", ""))).removeprefix(f"{FIGURES}/")
    alt = escape(_text(tokens[at].children or ()))
    drawn = env.get("drawn", {})
    if name not in drawn:
        return alt
    data = base64.b64encode(drawn[name]).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}">'


def _code_block(_: Any, tokens: Sequence[Token], at: int, *__: Any) -> str:
    return f'<pre tabindex="0"><code>{escape(tokens[at].content)}</code></pre>\n'


def _text(tokens: Sequence[Token]) -> str:
    return "".join(_text(token.children) if token.children else token.content for token in tokens)
