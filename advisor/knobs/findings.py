"""What the documents of one program hold for tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.documents import Document
    from advisor.model import Knob, Link, Trap


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A key that names another file, where values of this program live."""

    document: str
    path: str
    file: str
    """As written there, relative to the document's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Knobs and what surrounds them, over one or several documents."""

    documents: tuple[Document, ...]
    knobs: tuple[Knob, ...]
    links: tuple[Link, ...]
    traps: tuple[Trap, ...]
    outputs: tuple[str, ...]
    """Paths of the scalars, in configs, that name directories the program writes to."""
    output_flags: tuple[str, ...] = ()
    """The same on the command line."""
    references: tuple[Reference, ...] = ()
    notes: tuple[str, ...] = ()

    def document(self, name: str) -> Document:
        """The document called `name`. Raises KeyError."""
        for document in self.documents:
            if document.name == name:
                return document
        raise KeyError(name)

    def knob(self, document: str, path: str) -> Knob | None:
        """The knob at `path` of `document`, if there is one."""
        return next((k for k in self.knobs if (k.document, k.path) == (document, path)), None)
