"""HTML page of report.md, in one file.

The Markdown is rendered once more, not written once more: page and report.md cannot differ. All
HTML in it is the sections' own, because they escape every text.
"""

from __future__ import annotations

import base64
import re

from markdown_it import MarkdownIt
from markupsafe import Markup

from advisor.report import figures, sections
from advisor.report.schema import Report

EMBEDDED = "data:image/svg+xml;base64,"


class _Parser(MarkdownIt):
    """Markdown of a report; of targets only embedded figures are taken."""

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": True})
        self.enable("table").disable(("link", "autolink", "reference"))

    def validateLink(self, url: str) -> bool:  # noqa: N802  the library's name
        return url.startswith(EMBEDDED)


def page(report: Report, drawn: bytes | None, stem: str = "report") -> str:
    """`report` as a page with its figure, `drawn`, inside.

    `stem` is that of the files of patches beside it.
    """
    image = EMBEDDED + base64.b64encode(drawn).decode() if drawn else ""
    text, parser = sections.render(report, stem, image), _Parser()
    heading = next((line for line in text.splitlines() if line.startswith("# ")), "# report")
    title = re.sub(r"<[^>]*>", "", parser.renderInline(heading[2:]))
    return figures.template("page.html.j2").render(
        report=report,
        title=Markup(title),  # noqa: S704  the renderer escapes
        body=Markup(parser.render(text)),  # noqa: S704  the renderer escapes
    )
