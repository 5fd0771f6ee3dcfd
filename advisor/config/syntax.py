"""Reading and spelling of one config format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from advisor.config.leaves import Parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """Functions and spellings of one format."""

    parse: Callable[[str, str], Parsed]
    """Read a text, called by a name in messages. Raises ConfigSyntaxError."""
    spell_text: Callable[[str, str], str]
    """Spell a string like the old one."""
    null: str | None = None
    true: str = "true"
    """Spelling of a boolean in place of another type."""
    comment: str = "#"
    """Marker that begins a comment."""
