"""Knobs: the settings of a program that change its speed, found in its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.knobs import finder
from advisor.knobs.finder import phase_of_command
from advisor.knobs.findings import Findings, Reference
from advisor.knobs.links import find_links
from advisor.knobs.moves import Refusal, move
from advisor.knobs.values import precision_choices

if TYPE_CHECKING:
    from advisor.documents import Document
    from advisor.model import Phase

__all__ = [
    "Findings",
    "Reference",
    "Refusal",
    "find",
    "move",
    "phase_of_command",
    "precision_choices",
]


def find(document: Document, *, told: Phase | None = None) -> Findings:
    """Knobs, links, traps and output directories of a config or a command line.

    `told`: the phase that the command says it runs (`phase_of_command`); settings that a document
    gives no phase are of that one. Never raises for what a document holds.
    """
    found = finder.classify(document, told)
    return Findings(
        document=document.name,
        knobs=found.knobs,
        links=(*find_links(found), *found.links),
        traps=found.traps,
        outputs=found.outputs,
        references=found.references,
        notes=document.notes,
    )
