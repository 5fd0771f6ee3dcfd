"""Figures of one report are drawn once: most tests look at the words around them."""

from collections.abc import Iterator

import pytest

from advisor.report import figures
from advisor.report.schema import Report


@pytest.fixture(scope="session", autouse=True)
def _drawn_once() -> Iterator[None]:
    """Drawings are kept by the whole report, so that equal ones are the same bytes."""
    drawn: dict[str, dict[str, bytes]] = {}
    draw = figures.draw

    def kept(report: Report) -> dict[str, bytes]:
        key = report.model_dump_json()
        if key not in drawn:
            drawn[key] = draw(report)
        return drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", kept)
        yield
