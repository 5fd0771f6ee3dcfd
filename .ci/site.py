"""Hook of mkdocs: links to files outside docs/ lead to the repository."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./|examples/)[^)]*)\)")


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    """Text of a page whose links out of the site show the file in the repository."""

    def in_repository(found: re.Match[str]) -> str:
        path, mark, anchor = found[2].partition("#")
        place = PurePosixPath("docs", path)
        parts: list[str] = []
        for part in place.parts:
            parts = parts[:-1] if part == ".." else [*parts, part]
        return (
            f"[{found[1]}]({config['repo_url']}/blob/main/{'/'.join(parts)}{mark}{anchor})"
        )

    return OUTSIDE.sub(in_repository, markdown)
