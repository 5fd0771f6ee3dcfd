"""Option that a program declares beside the typed ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.model import JsonScalar

Form = Literal["apart", "joint", "bare", "pair"]
"""apart: `--workers 4`; joint: `--workers=4`, `data.workers=4`; bare: `--amp`, true by being
there; pair: `--amp` and `--no-amp`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Option that may be added to the command."""

    flag: str
    """As one would type it: `--batch-size`, `data.batch_size`."""
    default: JsonScalar
    """Value where it is not typed; None if unknown."""
    form: Form
    behind: int
    """The word of the command behind which it is added."""
    source: str
    """Place of its declaration: `train.py:12`."""
    others: tuple[str, ...] = ()
    """Further spellings: `-b`."""
    choices: tuple[JsonScalar, ...] = ()
    """The only values it takes; empty where any will do."""
    comment: str | None = None
    """Its help text."""
    why: str | None = None
    """Reason why it cannot be set."""

    def words(self, value: str, truth: bool | None) -> list[str]:
        """Words that add the option with a spelled `value`."""
        if self.form == "apart":
            return [self.flag, value]
        if self.form == "joint":
            return [f"{self.flag}={value}"]
        if self.form == "pair" and truth is False:
            return [f"--no-{self.flag.removeprefix('--')}"]
        return [self.flag]
