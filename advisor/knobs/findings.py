"""Knobs, constraints and look-alikes of a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.model import FalseMatch, JsonScalar, Knob, KnobConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Key that names another file with values."""

    path: str
    file: str
    """As written there, relative to the document's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Value that the program follows, whatever its name."""

    document: str
    path: str
    kind: str
    shown_in: str
    """The kind of what it was seen in: a global batch may show in the accumulation."""
    value: JsonScalar
    """As it stands in the document."""
    scope: str | None
    moved_to: JsonScalar
    before: float
    """Observations with `value`, and with `moved_to`."""
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The knobs of one document, and what surrounds them."""

    document: str
    """Its name: the path as the user wrote it, or `command line`."""
    knobs: tuple[Knob, ...]
    links: tuple[KnobConstraint, ...]
    traps: tuple[FalseMatch, ...]
    outputs: tuple[str, ...]
    """Paths of the scalars that name directories the program writes to."""
    references: tuple[Reference, ...] = ()
    notes: tuple[str, ...] = ()
    followed: tuple[Followed, ...] = ()
    """Knobs that a run showed and no name did; they are among `knobs`."""

    def knob(self, path: str) -> Knob | None:
        """The knob at `path`, if there is one."""
        return next((knob for knob in self.knobs if knob.path == path), None)

    def name_of(self, path: str) -> str:
        """Shortest unique end of `path`."""
        others = [f".{knob.path}" for knob in self.knobs if knob.path != path]
        parts = path.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        own = (end for end in ends if not any(other.endswith(f".{end}") for other in others))
        return next(own, path)
