"""Knobs: the settings of a program that change its speed, found in its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.knobs import finder
from advisor.knobs.catalogue import catalogue
from advisor.knobs.findings import Findings
from advisor.knobs.links import find_links
from advisor.knobs.moves import Refusal, move
from advisor.knobs.values import choices, precision_choices

if TYPE_CHECKING:
    from advisor.documents import Document

__all__ = ["Findings", "Refusal", "choices", "find", "move", "precision_choices"]


def find(document: Document) -> Findings:
    """Knobs, links, traps and output directories of one document. Never raises for its contents."""
    found = finder.classify(document)
    named = finder.files(found.leaves, catalogue())
    return Findings(
        document=document.name,
        knobs=found.knobs,
        links=(
            *find_links(found.leaves, found.knobs),
            *found.references,
            *finder.file_links(named),
        ),
        traps=found.traps,
        outputs=finder.outputs(found.leaves, catalogue()),
        files=tuple(dict.fromkeys(name for _, name in named)),
        notes=document.notes,
    )
