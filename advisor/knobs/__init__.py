"""Knobs: the settings of a program that change its speed, found in its documents.

finder.py      which leaves are knobs, which only look like it, and why: findings.py
tree.py        the leaves with what stands around them
catalogue.py   catalogue.toml: whole names that mean something else than their words say
vocabulary.py  names.toml: what the words of a name say by themselves
names.py       what they and what stands around a name speak for
phases.py      train, eval, test, or any
references.py  leaves whose values live elsewhere
values.py      precisions in the spelling that a file uses
multiples.py   what a comment says a value must be a multiple of
links.py       knobs that move together; moves.py moves them, or refuses with the reason
schedule.py    how much signal a noise schedule leaves with fewer steps
traces.py      what a setting leaves behind in what is seen
suspects.py    values that no name tells of; tryout.py says what to move them to
joining.py     suspects that were followed join the knobs
absent.py      loader arguments that a mapping does not have yet
sureness.py    how sure a knob is
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.knobs import finder
from advisor.knobs.finder import phase_of_command
from advisor.knobs.findings import Findings, Reference
from advisor.knobs.links import find_links
from advisor.knobs.moves import InvalidChange, move
from advisor.knobs.values import precision_choices

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


def find(document: Document, *, told: Phase | None = None) -> Findings:
    """Knobs, links, traps and output directories of a config or a command line.

    `told`: the phase that the command says it runs (`phase_of_command`); settings that a document
    gives no phase are of that one. Never raises for what a document holds.
    """
    found = finder.classify(document, told)
    return Findings(
        document=document.name,
        knobs=tuple(_told_where(knob, document) for knob in found.knobs),
        links=(*find_links(found), *found.links),
        traps=found.traps,
        outputs=tuple(p for p in found.outputs if document.scalars[p].default_of is None),
        references=found.references,
        notes=document.notes,
    )


def _told_where(knob: Knob, document: Document) -> Knob:
    """A knob that is not written in the document says where its default is."""
    scalar = document.scalars.get(knob.path)
    if scalar is None or scalar.default_of is None or not knob.editable:
        return knob
    return replace(knob, why=f"{knob.why}; the program's own default, {scalar.default_of}")
