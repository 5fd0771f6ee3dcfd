"""Where trials run. An engine is anything that can run a self-contained Trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from advisor.model import Failure, Machine, Run, Trial

__all__ = ["Engine"]


class Engine(Protocol):
    """Runs trials one after another on one machine."""

    def run(self, trial: Trial) -> Run | Failure:
        """Run one trial to its end, on a quiet machine where a bounded wait can have one.

        Nothing of it is left when this returns.
        """
        ...

    def machine(self) -> Machine:
        """The machine that `run` measures on."""
        ...
