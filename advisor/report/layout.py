"""Templates of `templates/`: what a report looks like, in one file each.

Markdown templates print untrusted text: whatever `{{ }}` prints is escaped for Markdown,
unless a filter or the view made it safe before.
"""

import functools
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from advisor.report import markdown

FOLDERS = [folder / "templates" for folder in Path(__file__).resolve().parents[1:3]]
"""Of the package, or else of the source tree."""


@functools.cache
def _environment(*, html: bool) -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDERS),
        autoescape=html,  # noqa: S701  Markdown has an escape of its own: finalize
        finalize=None if html else markdown.text,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
    )
    made.filters["code"] = markdown.code
    made.filters["value"] = markdown.value
    made.filters["cell"] = markdown.cell
    made.filters["fenced"] = markdown.fenced
    made.filters["summary"] = markdown.summary
    return made


def render(name: str, view: dict[str, Any]) -> str:
    """Render a template with a view; HTML by the ending `.html.j2`, else Markdown."""
    template = _environment(html=name.endswith(".html.j2")).get_template(name)
    return template.render(view)


def source(name: str) -> str:
    """Text of a file beside the templates."""
    loader = _environment(html=True).loader
    assert loader is not None
    return loader.get_source(_environment(html=True), name)[0]
