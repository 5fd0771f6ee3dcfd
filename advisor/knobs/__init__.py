"""Knobs: the settings of a program that change its speed, found in its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.knobs import finder
from advisor.knobs.findings import Findings, Reference
from advisor.knobs.links import find_links
from advisor.knobs.moves import Refusal, move, set_value
from advisor.knobs.values import PrecisionChoice, precision_choices

if TYPE_CHECKING:
    from advisor.documents import Document

__all__ = [
    "Findings",
    "PrecisionChoice",
    "Reference",
    "Refusal",
    "find",
    "move",
    "precision_choices",
    "set_value",
]


def find(*documents: Document) -> Findings:
    """Knobs, links, traps and output directories of configs and a command line.

    Never raises for what a document holds.
    """
    found = [finder.classify(document) for document in documents]
    configs = [one for one in found if one.document.format != "argv"]
    commands = [one for one in found if one.document.format == "argv"]
    return Findings(
        documents=documents,
        knobs=tuple(knob for one in found for knob in one.knobs),
        links=tuple(link for one in found for link in (*find_links(one), *one.links)),
        traps=tuple(trap for one in found for trap in one.traps),
        outputs=tuple(path for one in configs for path in one.outputs),
        output_flags=tuple(path for one in commands for path in one.outputs),
        references=tuple(reference for one in found for reference in one.references),
        notes=tuple(note for document in documents for note in document.notes),
    )
