"""What one trial is told of its isolation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["overlay", "landlock", "guard"]

KINDS: tuple[Kind, ...] = ("overlay", "landlock", "guard")
"""The better before the worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """Which writes are thrown away, pass, or are kept for the later trials of a call.

    Paths are absolute. The defaults confine nothing.
    """

    kind: Kind = "guard"
    passes: tuple[str, ...] = ()
    """Folders that the program writes to for real: the trial's own."""
    caches: tuple[tuple[str, str], ...] = ()
    """A cache of the user's, and the folder that keeps what trials would have added to it."""
    layers: str = ""
    """Folder of this trial alone in which the layers are put together."""
    upper_bytes: int = 0
    """Most that the program may write, in memory; 0: `layers` is on a disk, which is the limit."""
    private_memory: bool = True
    """Whether /dev/shm is the trial's own."""
    why_not_better: str = ""
    """Which better kinds the host does not offer, and why."""

    @property
    def throws_away(self) -> bool:
        """Whatever the program writes is gone afterwards: nothing needs to be kept from it."""
        return self.kind == "overlay"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of it first."""
        if not self.by_names:
            return ()
        return (f"not isolated: what the program writes is real ({self.why_not_better})",)

    @property
    def by_names(self) -> bool:
        """The kernel refuses nothing: the probe must listen to what the program opens."""
        return self.kind == "guard"
