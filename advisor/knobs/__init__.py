"""Knobs: speed settings found in a program's documents.

finder.py              which leaves are knobs, of which phase, and values that live elsewhere
findings.py            knobs, constraints and look-alikes of one document
tree.py                leaves with their ancestors, siblings and comments
catalogue.py           catalogue.toml: rules for whole names
vocabulary.py          names.toml: weights of the words of a name
constraints.py         knobs that change together
candidate_values.py    values to try, and the linked changes that go with each
discovery.py           knobs without a telling name, found by experiment
default_arguments.py   loader arguments that a mapping may be given
confidence.py          how sure a knob is
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.knobs import finder
from advisor.knobs.candidate_values import InvalidChange, move, precision_choices
from advisor.knobs.constraints import find_links
from advisor.knobs.finder import phase_of_command
from advisor.knobs.findings import Findings, Reference

if TYPE_CHECKING:
    from advisor.config import Document
    from advisor.model import Knob, Phase

__all__ = [
    "Findings",
    "InvalidChange",
    "Reference",
    "find",
    "move",
    "phase_of_command",
    "precision_choices",
]


def find(document: Document, *, phase: Phase | None = None) -> Findings:
    """Find knobs, links, traps and output directories.

    `phase`: the phase that the command says it runs (`phase_of_command`); settings that a document
    gives no phase are of that one. Never raises for what a document holds.
    """
    found = finder.classify(document, phase)
    return Findings(
        document=document.name,
        knobs=tuple(_with_place(knob, document) for knob in found.knobs),
        links=(*find_links(found), *found.links),
        traps=found.traps,
        outputs=tuple(p for p in found.outputs if document.scalars[p].default_of is None),
        references=found.references,
        notes=document.notes,
    )


def _with_place(knob: Knob, document: Document) -> Knob:
    """Add the place of its default to a knob."""
    scalar = document.scalars.get(knob.path)
    if scalar is None or scalar.default_of is None or not knob.editable:
        return knob
    return replace(knob, why=f"{knob.why}; the program's own default, {scalar.default_of}")
