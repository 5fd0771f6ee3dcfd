"""Policy of one trial's isolation for its supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["overlay", "landlock", "guard"]

LAYER_FOLDER = "GPU_ADVISOR_LAYER_FOLDER"
"""Variable: folder, on a disk, that takes what a trial writes, in place of memory."""
KINDS: tuple[Kind, ...] = ("overlay", "landlock", "guard")
"""The better before the worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """Policy for temporary, real and shared writes.

    Paths are absolute. The defaults confine nothing.
    """

    kind: Kind = "guard"
    passes: tuple[str, ...] = ()
    """Folders that the program writes to for real: the trial's own."""
    sealed: tuple[str, ...] = ()
    """Places in `passes` that an overlay shows read-only."""
    caches: tuple[tuple[str, str], ...] = ()
    """A cache of the user's, and the folder that keeps what trials add to it."""
    hidden: tuple[str, ...] = ()
    """Folders that cannot be read; sockets of others cannot be reached either."""
    shown: tuple[str, ...] = ()
    """Paths in `hidden` that are seen all the same."""
    network: bool = True
    """An overlay leaves the network open."""
    layers: str = ""
    """Folder of this trial alone in which the layers are put together."""
    upper_bytes: int = 0
    """Limit of the program's writes, in memory; 0: `layers` is on a disk, which is the limit."""
    private_memory: bool = True
    """Shared memory is the trial's own."""
    why_not_better: str = ""
    """Better kinds that the host does not offer, with the reason."""

    @property
    def throws_away(self) -> bool:
        """Return True if all writes are temporary."""
        return self.kind == "overlay"

    @property
    def by_names(self) -> bool:
        """Return True if only the probe guards writes."""
        return self.kind == "guard"

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for the reader of a result."""
        if not self.by_names:
            return ()
        return (f"not isolated: what the program writes is real ({self.why_not_better})",)
