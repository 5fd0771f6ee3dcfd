"""Overrides: settings applied from outside the program.

    loader.num_workers=4,loader.prefetch_factor=4@train.py:88
                        arguments of the DataLoaders built at that line; of all without `@`
    loader.buckets=1    batches of items of like length
    autocast=bfloat16   around the forward of each module called from outside
    channels_last       weights and inputs of each such module
    compile             the forward of each such module; compile=NAME with that backend
    threads=4           of the CPU in one operation
    tf32  cudnn_benchmark  non_blocking  set_to_none  fused

Several are joined by commas. The record's entry `whatif` says whether all of them applied and, if
not, why; the effect is seen by the same observation as in every other run.
"""

from __future__ import annotations

from typing import Any

from .patches import Patches
from .session import Session

LOADER = "loader."


class Overrides:
    """Requested settings, and whether each was applied."""

    def __init__(self, session: Session, asked: str) -> None:
        self._session = session
        self.asked = asked
        self.patches = Patches()
        """Changes made for it, to be undone later."""
        words, _, site = asked.partition("@")
        self.site: str | None = site or None
        self.settings = {
            name.strip(): value
            for name, _, value in (word.partition("=") for word in words.split(","))
        }
        self.applied = dict.fromkeys(self.settings, 0)
        """By setting: how often it was put in place."""
        self.why: str | None = None
        self.cost_s = 0.0
        self.caution: str | None = None
        self.told_by: str | None = None
        self.readings: int | None = None
        self.one_tensor: bool | None = None

    def refuse(self, why: str) -> None:
        """Record a failed override with its first reason."""
        self.why = self.why or why
        note = f"what-if {self.asked}: {why}"
        if note not in self._session.notes:
            self._session.notes.append(note)

    def warm_until(self, time_s: float) -> None:
        """Delay the window until a one-time cost has passed."""
        self._session.add(("warm", time_s))

    def summary(self) -> dict[str, Any]:
        """The record's entry."""
        missing = [name for name, times in self.applied.items() if not times]
        return {
            "name": self.asked,
            "applied": not missing,
            "why": (self.why or self._never(missing[0])) if missing else None,
            "cost_s": self.cost_s or None,
            "caution": self.caution,
            "told_by": self.told_by,
            "readings": self.readings,
            "one_tensor": self.one_tensor,
        }

    def _never(self, name: str) -> str:
        if name.startswith(LOADER):
            return "no DataLoader was built" + (f" at {self.site}" if self.site else "")
        return NEVER.get(name, "no module with parameters was called")


NEVER = {
    "non_blocking": "no tensor was copied from host to device by `to` or `cuda`",
    "set_to_none": "zero_grad was never asked to keep zeros",
    "fused": "no optimizer with a fused update was built for parameters on a GPU",
}
