"""Config formats, one module each, with common names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from advisor.config import argv, jsonc, python, toml, yaml

if TYPE_CHECKING:
    import re

    from advisor.config.insertion import Insertion
    from advisor.config.leaves import Leaf, Parsed

Format = Literal["json", "jsonc", "yaml", "toml", "python", "argv"]


class Syntax(Protocol):
    """Reading and spelling of one format."""

    NEW_KEY: re.Pattern[str]
    """Keys that may be added."""
    NULL: str | None
    TRUE: str
    """Spelling of a boolean in a document that has none."""
    COMMENT: str
    """Marker that begins a comment."""

    def parse(self, text: str, name: str) -> Parsed:
        """Read `text`, called `name` in messages. Raises ConfigSyntaxError."""

    def member(self, parent: str, key: str) -> str:
        """Path of `key` in the mapping at `parent`."""

    def spell_text(self, value: str, old: str) -> str:
        """Spell a string like `old`."""

    def spell_key(self, key: str, sibling: str) -> str:
        """Spell a key like `sibling`."""

    def insert(self, text: str, leaf: Leaf, key: str, value: str, marker: str) -> list[Insertion]:
        """Place a spelled key and value behind `leaf`."""


SYNTAXES: dict[Format, Syntax] = {
    "json": jsonc,
    "jsonc": jsonc,
    "yaml": yaml,
    "toml": toml,
    "python": python,
    "argv": argv,
}

SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".jsonc": "jsonc",
    ".json5": "jsonc",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".py": "python",
}
