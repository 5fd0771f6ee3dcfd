"""Hook of mkdocs: links to files outside docs/ become plain text."""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./|examples/)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Text of a page without links that leave the site."""
    return OUTSIDE.sub(r"\1", markdown)
