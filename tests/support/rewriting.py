"""What the benchmarks of lost configs share: a rewrite, a child that may die in it, a look."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import advisor
from advisor import config as documents
from advisor.config import originals
from advisor.config.originals import Versions
from advisor.errors import AdvisorError
from advisor.model import Change
from advisor.state import state_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ORIGINAL = b'{\n  "batch_size": 1,\n  "workers": 4, "note": "' + b"n" * 3000 + b'"\n}\n'
PACKAGE = str(Path(advisor.__file__).parent)


def rewrite(config: Path, batch_size: int = 8) -> None:
    """What `optimize` does at its beginning and at its end."""
    originals.recover(config)
    kept = Versions(state_folder(config.parent), config)
    with kept.held():
        document = documents.read(config)
        new = document.with_values({"batch_size": batch_size})
        change = Change(
            document=str(config), path="batch_size", kind="batch_size", knob_class="free",
            old=document.scalars["batch_size"].value, new=batch_size,
        )  # fmt: skip
        version = kept.keep(document, new, [change])
        try:
            documents.write_atomic(config, new, document.raw)
        except AdvisorError:
            kept.forget(version)
            raise


class Failures(Counter[str]):
    """What went wrong, and how often."""

    def note(self, what: str) -> None:
        """Count one, and show the first few of a kind."""
        self[what] += 1
        if self[what] <= 3:
            sys.stderr.write(f"  {what}\n")


def child(work: Callable[[], object], stop_at: int | None = None) -> tuple[int, int]:
    """Pid of a child that does `work`, and the pipe on which it tells how many lines it ran.

    With `stop_at` it kills itself before that line.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            count += 1
            if count == stop_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    code = 1
    try:
        if stop_at is not None:
            sys.settrace(trace)
        work()
        sys.settrace(None)
        code = 0
    finally:
        os.write(writing, str(count).encode())
        os._exit(code)


def strays(config: Path) -> list[str]:
    """Files of ours that should be gone: beside the config, and halves in the state folder."""
    expected = {config.name, ".gpu-advisor"}
    beside = [path.name for path in config.parent.iterdir() if path.name not in expected]
    state = config.parent / ".gpu-advisor"
    halves = [str(path.relative_to(state)) for path in state.rglob(".*") if path.is_dir()]
    return beside + halves + [path.name for path in state.rglob("*draft*")]
