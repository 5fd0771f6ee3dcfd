"""Where trials run: an engine owns its machine, its lease, its scratch folder and its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from advisor.model import Failure, Machine, Neighbour, Run, Trial

__all__ = ["Engine"]


class Engine(Protocol):
    """Runs trials one after another on one machine, which it holds while it is entered."""

    def __enter__(self) -> Self:
        """Take the lease and a scratch folder. Raises StateBusyError naming who holds the lease."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give both back: no process and no file of any trial is left."""
        ...

    def machine(self) -> Machine:
        """The machine that `run` measures on; the same every time."""
        ...

    def clock(self) -> float:
        """Seconds that pass here while trials run; only differences mean something."""
        ...

    def scratch(self, trial_id: str) -> Path:
        """A folder for one trial alone, not made yet; gone when the engine is left."""
        ...

    def wait_until_quiet(self, limit_s: float) -> tuple[Neighbour, ...]:
        """Wait at most `limit_s` for others to leave the machine; who is still at work, if any."""
        ...

    def run(self, trial: Trial) -> Run | Failure:
        """Run one trial to its end; no process of it is left when this returns."""
        ...

    def cancel(self) -> None:
        """End the trial that runs, and those to come: Failure `interrupted`. From any thread."""
        ...
