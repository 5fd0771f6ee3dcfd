"""What a document holds for tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.model import Knob, Link, Trap


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a document holds for tuning."""

    document: str
    knobs: tuple[Knob, ...]
    links: tuple[Link, ...]
    traps: tuple[Trap, ...]
    outputs: tuple[str, ...]
    """Paths of the scalars that name directories the program writes to."""
    files: tuple[str, ...] = ()
    """Other files this document says it takes values from, as written there."""
    notes: tuple[str, ...] = ()

    def knob(self, path: str) -> Knob | None:
        """The knob at `path`, if there is one."""
        return next((knob for knob in self.knobs if knob.path == path), None)
