"""What a use case holds while its trials run: a scratch folder, and a way to end them early."""

from __future__ import annotations

import signal
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for all trials of this call, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="gpu-advisor-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def cancellable() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that a trial ends cleanly; a second one is final."""
    off = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        if off.is_set():
            raise KeyboardInterrupt
        off.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield off
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
