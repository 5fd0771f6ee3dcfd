"""What a program offers on its command line beside what was typed, as its source declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from advisor.model import JsonScalar

Form = Literal["apart", "joint", "bare", "pair"]
"""apart: `--workers 4`; joint: `--workers=4`, `data.workers=4`; bare: `--amp`, true by being
there; pair: `--amp` and `--no-amp`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of the program that may be added to its command."""

    flag: str
    """As one would type it: `--batch-size`, `data.batch_size`."""
    default: JsonScalar
    """The value where nobody types it; None also where the source does not tell."""
    form: Form
    behind: int
    """The word of the command behind which it is added."""
    source: str
    """Where it is declared: `train.py:12`."""
    others: tuple[str, ...] = ()
    """Further spellings: `-b`."""
    choices: tuple[JsonScalar, ...] = ()
    """The only values it takes; empty where any will do."""
    comment: str | None = None
    """Its help text."""
    why: str | None = None
    """Why it cannot be set."""

    def words(self, value: str, truth: bool | None) -> list[str]:
        """What is added for `value` as spelled; `truth` is what it means where it is a boolean."""
        if self.form == "apart":
            return [self.flag, value]
        if self.form == "joint":
            return [f"{self.flag}={value}"]
        if self.form == "pair" and truth is False:
            return [f"--no-{self.flag.removeprefix('--')}"]
        return [self.flag]
