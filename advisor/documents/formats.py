"""The formats as a table: how each is read, and what it writes in its own way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor.documents import argv, insertion, jsonc, toml, yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.documents.insertion import Insertion
    from advisor.documents.leaves import Leaf, Parsed

Format = Literal["json", "jsonc", "yaml", "toml", "argv"]


@dataclass(frozen=True, slots=True)
class Syntax:
    """One format."""

    parse: Callable[[str, str, int], Parsed]
    """From text, the name for messages, and the bytes of a BOM that stood before the text."""
    spell_text: Callable[[str, str], str]
    """From a string, and the spelling of the value it replaces."""
    spell_key: Callable[[str, str], str]
    """From a key, and the spelling of its sibling."""
    insert: Callable[[str, Leaf, str, str, str], list[Insertion]]
    """From the text, the sibling, a key and a value as spelled, and the comment marker."""
    null: str | None = None
    marker: str = "#"
    """What begins a comment."""


_JSON = Syntax(jsonc.parse, jsonc.spell_text, jsonc.spell_key, insertion.after, "null", "//")

SYNTAXES: dict[Format, Syntax] = {
    "json": _JSON,
    "jsonc": _JSON,
    "yaml": Syntax(yaml.parse, yaml.spell_text, yaml.spell_key, insertion.after, "null"),
    "toml": Syntax(toml.parse, toml.spell_text, toml.spell_key, insertion.after),
    "argv": Syntax(argv.parse, argv.spell_text, argv.spell_key, argv.insert),
}

SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".jsonc": "jsonc",
    ".json5": "jsonc",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
}
