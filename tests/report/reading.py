"""Where a reader of a rendered report looks: its first screen, a section, the Markdown in it."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def first_screen(text: str) -> str:
    """All before the second heading."""
    return text.split("\n## ", maxsplit=1)[0]


def section(text: str, heading: str) -> str:
    """Body of the section whose heading starts so."""
    found = re.search(rf"^## {heading}.*?\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"no section {heading}"
    return found[1]
