"""Configs read and edited byte-exactly: JSON, JSON with comments, YAML."""

from advisor.documents.document import Document, Edit, Format, parse, read
from advisor.documents.files import write_atomic

__all__ = ["Document", "Edit", "Format", "parse", "read", "write_atomic"]
