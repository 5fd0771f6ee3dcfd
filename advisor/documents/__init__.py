"""Configs and commands, read and edited byte-exactly: JSON, YAML, TOML, Python, argv."""

from advisor.documents.diffing import masked_diff
from advisor.documents.document import (
    Absent,
    Document,
    of_command,
    parse,
    read,
    split_command,
)
from advisor.documents.edits import Edit
from advisor.documents.formats import Format
from advisor.documents.options import Option
from advisor.documents.replacing import recover, write_atomic

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
