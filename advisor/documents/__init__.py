"""Configs and commands, read and edited byte-exactly: JSON, JSONC, YAML, TOML, argv."""

from advisor.documents.document import Document, Edit, of_command, parse, read, split_command
from advisor.documents.files import write_atomic
from advisor.documents.formats import Format

__all__ = [
    "Document",
    "Edit",
    "Format",
    "of_command",
    "parse",
    "read",
    "split_command",
    "write_atomic",
]
