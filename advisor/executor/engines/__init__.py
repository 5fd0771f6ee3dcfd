"""Engines, which run trials: each owns its machine, lease, scratch folder and clock.

A new engine is one module with a class that is made of `EngineSettings`, and a line in `ENGINES`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from advisor.model import Failure, Machine, Neighbour, Run, Trial

ENGINES = {"local": "advisor.executor.engines.local:LocalEngine"}
"""Module and class of each engine; imported only when it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Choice of an engine, and what it needs to know."""

    kind: str = "local"
    """A key of ENGINES."""
    gpu_uuid: str | None = None
    """The card to hold; None: the host alone."""
    gpu_index: int | None = None
    lease_wait_s: float = 0.0
    """Longest wait for another gpu-advisor to leave the machine."""
    max_wait_s: float = 30.0
    """Longest wait for other programs to leave the machine, all trials together."""
    cancel: threading.Event | None = None
    """Set from outside, it ends the trial that runs and those to come."""
    on_progress: Callable[[str], None] | None = None
    on_busy: Callable[[str], None] | None = None
    """Receiver of sentences on programs that are at work here."""


def make_engine(settings: EngineSettings) -> Engine:
    """The engine that `settings` name."""
    module, _, name = ENGINES[settings.kind].partition(":")
    return cast("Engine", getattr(importlib.import_module(module), name)(settings))


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
