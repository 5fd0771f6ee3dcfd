"""The formats as a table: how each is read, and what it writes in its own way."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor.config import argv, insertion, jsonc, paths, python, toml, yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.config.insertion import Insertion
    from advisor.config.leaves import Leaf, Parsed

Format = Literal["json", "jsonc", "yaml", "toml", "python", "argv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """One format."""

    parse: Callable[[str, str, int], Parsed]
    """From text, the name for messages, and the bytes of a BOM that stood before the text."""
    spell_text: Callable[[str, str], str]
    """From a string, and the spelling of the value it replaces."""
    spell_key: Callable[[str, str], str]
    """From a key, and the spelling of its sibling."""
    member: Callable[[str, str], str]
    """From the path of a mapping and a key in it, the key's path."""
    new_key: re.Pattern[str]
    """What may be added as a key."""
    insert: Callable[[str, Leaf, str, str, str], list[Insertion]]
    """From the text, the sibling, a key and a value as spelled, and the comment marker."""
    null: str | None = None
    true: str = "true"
    """How a boolean is written where none is there to be followed."""
    marker: str = "#"
    """What begins a comment."""


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_JSON = Syntax(
    parse=jsonc.parse,
    spell_text=jsonc.spell_text,
    spell_key=jsonc.spell_key,
    member=paths.member,
    new_key=_NAME,
    insert=insertion.after,
    null="null",
    marker="//",
)

SYNTAXES: dict[Format, Syntax] = {
    "json": _JSON,
    "jsonc": _JSON,
    "yaml": Syntax(
        parse=yaml.parse,
        spell_text=yaml.spell_text,
        spell_key=yaml.spell_key,
        member=paths.member,
        new_key=_NAME,
        insert=insertion.after,
        null="null",
    ),
    "toml": Syntax(
        parse=toml.parse,
        spell_text=toml.spell_text,
        spell_key=toml.spell_key,
        member=paths.member,
        new_key=_NAME,
        insert=insertion.after,
    ),
    "python": Syntax(
        parse=python.parse,
        spell_text=python.spell_text,
        spell_key=python.spell_key,
        member=paths.member,
        new_key=re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
        insert=insertion.after,
        null="None",
        true="True",
    ),
    "argv": Syntax(
        parse=argv.parse,
        spell_text=argv.spell_text,
        spell_key=argv.spell_key,
        member=argv.member,
        new_key=re.compile(r"--?[A-Za-z][\w./-]*|\+{0,2}[A-Za-z_][\w./@-]*"),
        insert=argv.insert,
    ),
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
