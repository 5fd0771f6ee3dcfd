"""Knobs, constraints and look-alikes of a document."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model import FalseMatch, Knob, KnobConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Key that names another file with values."""

    path: str
    file: str
    """As written there, relative to the document's folder."""


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
