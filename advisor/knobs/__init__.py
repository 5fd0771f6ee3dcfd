"""Knobs: speed settings found in a program's documents.

finder.py              which leaves are knobs, and of which phase
references.py          values that live elsewhere
findings.py            knobs, constraints and look-alikes of one document
tree.py                leaves with their ancestors, siblings and comments
catalogue.py           catalogue.toml: rules for whole names
vocabulary.py          names.toml: weights of the words of a name
constraints.py         knobs that change together
candidate_values.py    values to try, and the linked changes that go with each
schedule.py            noise schedules of fewer steps with the same terminal signal
discovery.py           knobs without a telling name, found by experiment
"""

from advisor.knobs.candidate_values import InvalidChange, move, precision_choices
from advisor.knobs.finder import Findings, Reference, find, phase_of_command

__all__ = [
    "Findings",
    "InvalidChange",
    "Reference",
    "find",
    "move",
    "phase_of_command",
    "precision_choices",
]
