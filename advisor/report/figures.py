"""Figures of a report, as SVG. matplotlib is imported only when something is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.report.model import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure that a report has data for."""

    file: str
    alt: str


def plan(report: Report) -> tuple[Figure, ...]:
    """The figures that `report` has data for, in the order of reading."""
    return ()


def draw(report: Report, folder: Path) -> bool:
    """Draw the planned figures into `folder`; False where matplotlib is not installed."""
    return False
