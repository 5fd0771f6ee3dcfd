"""Templates to text: report.md and the job summary, pure functions of the report."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import advisor
from advisor import numbers
from advisor.report import (
    figures,
    markdown,
    view,
)

if TYPE_CHECKING:
    from advisor.report.model import Report


def patch_file(stem: str, number: int) -> str:
    """Name of the file beside `STEM.md` that holds the patch of advice `number`, from 1."""
    return f"{stem}-advice-{number}.patch"


def render(report: Report, figures_dir: str | None = None, stem: str = "report") -> str:
    """`report` as the Markdown of `STEM.md`.

    `figures_dir` is the folder with the figures, relative to the Markdown file; None if they
    could not be drawn, and then the text says how to get them.
    """
    return template("report.md.j2", report=report, figures_dir=figures_dir, stem=stem)


def summary(report: Report) -> str:
    """The first screen of `report`, for a CI job summary."""
    return template("summary.md.j2", report=report)


def template(name: str, **values: Any) -> str:
    """Any template of templates/ with `values`; what is not marked as Markdown is escaped."""
    return environment().get_template(name).render(values)


@cache
def environment() -> Environment:
    """Where templates are found, and the filters they may use."""
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
        "gain": numbers.gain,
        "gib": numbers.gib,
        "many": numbers.many,
        "memory": numbers.memory,
        "measure": numbers.measure,
        "number": numbers.number,
        "one": numbers.one,
        "percent": numbers.percent,
        "plural": numbers.plural,
        "ratio": numbers.ratio,
        "text": markdown.text,
        "url": lambda path: markdown.as_markdown(quote(str(path))),
        "value": markdown.value,
    }
    found.globals |= {
        "figures": figures,
        "patch_file": patch_file,
        "view": view,
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
