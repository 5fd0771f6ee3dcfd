"""Knobs: speed settings found in a program's documents."""

from advisor.knobs.candidate_values import InvalidChange, move, precision_choices
from advisor.knobs.finder import find, phase_of_command
from advisor.knobs.tree import Findings

__all__ = [
    "Findings",
    "InvalidChange",
    "find",
    "move",
    "phase_of_command",
    "precision_choices",
]
