"""Reports and templates as text: pure functions of their values."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import advisor
from advisor import numbers
from advisor.report import markdown, sections

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.report.schema import Report


def render(
    report: Report,
    stem: str = "report",
    figures_dir: str = "",
    figures: Iterable[str] = (),
) -> str:
    """`report` as the Markdown of `STEM.md`.

    `figures` are the names of those that lie in `figures_dir`.
    """
    page = sections.Page(
        report=report, stem=stem, figures_dir=figures_dir, figures=frozenset(figures)
    )
    return sections.render(page)


def template(name: str, **values: Any) -> str:
    """Any template of templates/ with `values`; all that is not Markdown is escaped."""
    return environment().get_template(name).render(values)


@cache
def environment() -> Environment:
    """Templates, and the filters that they may use."""
    found = Environment(
        loader=FileSystemLoader(templates_folder()),
        autoescape=True,  # escapes through _finalize: for Markdown, not for HTML
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {
        "cell": markdown.cell,
        "clip": markdown.clip,
        "code": markdown.code,
        "count": numbers.count,
        "duration": numbers.duration,
        "fenced": markdown.fenced,
        "many": numbers.many,
        "number": numbers.number,
        "percent": numbers.percent,
        "plural": numbers.plural,
        "ratio": numbers.ratio,
        "text": markdown.text,
    }
    return found


def templates_folder() -> Path:
    """`templates/` inside the installed package, or at the top of the source tree."""
    package = Path(advisor.__file__).resolve().parent
    places = (package / "templates", package.parent / "templates")
    return next((place for place in places if place.is_dir()), places[0])


def _finalize(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    if value is None:
        return markdown.as_markdown(numbers.NOT_MEASURED)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return markdown.as_markdown(numbers.number(value))
    return markdown.text(value)
