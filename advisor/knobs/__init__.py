"""Knobs: speed settings found in a program's documents."""

from advisor.knobs import process as process
from advisor.knobs.candidate_values import (
    InvalidChange as InvalidChange,
    move as move,
    precision_choices as precision_choices,
)
from advisor.knobs.finder import find as find, phase_of_command as phase_of_command
from advisor.knobs.tree import Findings as Findings
