"""GPU clocks held while pairs are measured, and given back whatever happens.

A lock outlives the process that asked for it, so a note is left on disk first: whoever comes next
on this host (the next gate, or `python -m advisor.gate.clocks` in a job's last step) gives back
what a killed gate could not.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from advisor.errors import StateBusyError
from advisor.machine.gpu import lock_clocks, reset_clocks
from advisor.machine.lock import gpu_lock, runtime_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUFFIX = ".clocks-locked"


@contextlib.contextmanager
def held(uuid: str | None, *, wanted: bool) -> Iterator[str]:
    """Hold the clocks of the GPU `uuid` if `wanted` and allowed; yields what became of it."""
    if uuid is None:
        yield "not locked: there is no GPU to lock"
        return
    if not wanted:
        yield "not locked: not asked for"
        return
    note = _note(uuid)
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    note.touch()
    refused = lock_clocks(uuid)
    try:
        yield "locked" if refused is None else f"not locked: {refused}"
    finally:
        if refused is None:
            reset_clocks(uuid)
        note.unlink(missing_ok=True)


def give_back() -> list[str]:
    """Reset the clocks of every GPU that a killed gate left locked; returns their UUIDs.

    A gate that lives holds its GPU's lock: its clocks are left alone.
    """
    done = []
    for note in runtime_dir().glob(f"*{SUFFIX}"):
        uuid = note.name.removesuffix(SUFFIX)
        with contextlib.suppress(StateBusyError), gpu_lock(uuid):
            reset_clocks(uuid)
            note.unlink(missing_ok=True)
            done.append(uuid)
    return done


def _note(uuid: str) -> Path:
    return runtime_dir() / f"{uuid}{SUFFIX}"


if __name__ == "__main__":
    for given_back in give_back():
        sys.stderr.write(f"clocks of {given_back} given back\n")
