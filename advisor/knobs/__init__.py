"""Knobs: speed settings found in a program's documents.

finder.py              which leaves are knobs, of which phase; values that live elsewhere
tree.py                leaves with their surroundings, and the findings of one document
catalogue.py           catalogue.toml: rules for whole names; noise schedules of fewer steps
vocabulary.py          names.toml: weights of the words of a name
constraints.py         knobs that change together
candidate_values.py    values to try, and the linked changes that go with each
discovery.py           knobs without a telling name, found by experiment
"""

from advisor.knobs.candidate_values import InvalidChange, move, precision_choices
from advisor.knobs.finder import find, phase_of_command
from advisor.knobs.tree import Findings, Reference

__all__ = [
    "Findings",
    "InvalidChange",
    "Reference",
    "find",
    "move",
    "phase_of_command",
    "precision_choices",
]
