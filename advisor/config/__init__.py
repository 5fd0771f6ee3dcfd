"""Configs and commands, read and edited byte-exactly: JSON, YAML, TOML, Python, argv.

document.py    one config: its bytes, what they mean, where each value lies, and other values there
edits.py       replaced stretches of bytes, and whether only they changed the meaning; pure
leaves.py      what every reader hands over: leaves, and the whole trace
paths.py       the path of a leaf: `a.b[0].c`
formats.py     the formats as a table: how each is read, and what it writes in its own way
jsonc.py yaml.py toml.py python.py argv.py   the readers
constants.py   what a Python expression is worth, without running it
assigned.py    which leaves still count where statements follow each other
options.py     an option that a command's program offers beside what was typed
spelling.py    how a new value is written
insertion.py   where the text of a new key goes
files.py       bytes from the disk
replacing.py   a config's bytes replaced in one step, and what a killed call left behind
diffing.py     what changed, for people to read
"""

from advisor.config.diffing import masked_diff
from advisor.config.document import (
    Absent,
    Document,
    of_command,
    parse,
    read,
    split_command,
)
from advisor.config.edits import Edit
from advisor.config.formats import Format
from advisor.config.options import Option
from advisor.config.replacing import recover, write_atomic

__all__ = [
    "Absent",
    "Document",
    "Edit",
    "Format",
    "Option",
    "masked_diff",
    "of_command",
    "parse",
    "read",
    "recover",
    "split_command",
    "write_atomic",
]
