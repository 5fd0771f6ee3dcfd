"""Engines of trials: machine, lease, scratch folder and clock.

local.py       trials on this machine
joint.py       trials on a node, or one job on several; `make_engine`
connection.py  speaks to a node's `agent.py` in `messages.py`, over srun, ssh or any pipe
ray_pipe.py    such a pipe for Ray, run by the Python of `ray`
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from advisor.model import Failure, Run, Trial

if TYPE_CHECKING:
    from advisor.executor.engines.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Choice of an engine, with its settings."""

    connection: Connection | None = None
    """Node that runs the trials; None: this machine."""
    gpu_uuid: str | None = None
    """The card to hold; None: the host alone."""
    equal_gpus: tuple[str, ...] = ()
    """Further cards to hold, if free; local trials may use them."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """Set from outside, it ends the running trial and those to come."""
    on_progress: Callable[[str], None] = lambda _: None


class Engine(Protocol):
    """Runner of trials on one machine, held while entered."""

    equal_gpus: tuple[str, ...]
    """Further cards held: trials may run at once, one on each."""

    def __enter__(self) -> Self:
        """Take the lease and a scratch folder. Raises StateBusyError with its holder."""

    def __exit__(self, *exc: object) -> None:
        """Release both, with every process and file of trials."""

    def clock(self) -> float:
        """Seconds that pass while trials run; only differences count."""

    def scratch(self, trial_id: str) -> Path:
        """Scratch folder of one trial, not made yet, gone with the engine."""

    def run(self, trial: Trial) -> Run | Failure:
        """Run one trial to the end of its processes. Raises NodeLostError."""
