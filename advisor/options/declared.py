"""One option as a program's source declares it, before it has a place in a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.config.options import Form
    from advisor.model import JsonScalar

SEVERAL = "it takes several values"
BOOL_OF_TEXT = "its type is bool, which takes every text for true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What `Option` says, without the place."""

    flag: str
    default: JsonScalar
    form: Form
    source: str
    command: str | None = None
    """The subcommand it belongs to; None for the program itself."""
    last: bool = False
    """It counts only behind what stands on the command line already."""
    others: tuple[str, ...] = ()
    choices: tuple[JsonScalar, ...] = ()
    comment: str | None = None
    why: str | None = None
