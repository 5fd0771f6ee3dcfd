"""Reading and spelling of one config format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.config import insertion, paths

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from advisor.config.insertion import Insertion
    from advisor.config.leaves import Leaf, Parsed


def _as_it_is(key: str, sibling: str) -> str:
    del sibling
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """Functions and spellings of one format."""

    parse: Callable[[str, str], Parsed]
    """Read a text, called by a name in messages. Raises ConfigSyntaxError."""
    spell_text: Callable[[str, str], str]
    """Spell a string like the old one."""
    spell_key: Callable[[str, str], str] = _as_it_is
    """Spell a key like its sibling."""
    new_key: re.Pattern[str] = paths.NAME
    """Keys that may be added."""
    member: Callable[[str, str], str] = paths.member
    """Path of a key in a mapping."""
    insert: Callable[[str, Leaf, str, str, str], list[Insertion]] = insertion.after
    """Place a spelled key and value behind a leaf, beside a comment marker."""
    null: str | None = None
    true: str = "true"
    """Spelling of a boolean in a document that has none."""
    comment: str = "#"
    """Marker that begins a comment."""
