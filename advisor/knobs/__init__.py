"""Knobs: the settings of a program that change its speed, found in its documents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.knobs import finder
from advisor.knobs.findings import Findings, Followed, Reference
from advisor.knobs.links import find_links
from advisor.knobs.moves import Refusal, move
from advisor.knobs.suspects import knob_of
from advisor.knobs.values import precision_choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.documents import Document
    from advisor.model import Phase

__all__ = ["Findings", "Followed", "Reference", "Refusal", "find", "move", "precision_choices"]


def find(document: Document, followed: Sequence[Followed] = (), phase: Phase = "any") -> Findings:
    """Knobs, links, traps and output directories of a config or a command line.

    `followed`: what a run of `phase` showed to be knobs too. Never raises for what a document
    holds.
    """
    found = finder.classify(document)
    also = {each.path: knob_of(each, phase) for each in reversed(followed)}
    found = replace(found, knobs=(*found.knobs, *also.values()))
    return Findings(
        document=document.name,
        knobs=found.knobs,
        links=(*find_links(found), *found.links),
        traps=found.traps,
        outputs=found.outputs,
        references=found.references,
        notes=document.notes,
        followed=tuple(followed),
    )
