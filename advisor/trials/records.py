"""What the probe's record files say while the program runs: alive, stepping, stopped."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """One Python process of the trial."""

    pid: int
    state: str = "booted"
    """booted, torch, stepping, stopped (by us: the window is full), exited."""
    steps: int = 0
    last_step_time: float | None = None
    aside: bool = False
    """The probe met an error of its own and leaves the program alone: its steps are not told."""


class Records:
    """The records of one trial; a file is read again only when it has changed."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._seen: dict[Path, tuple[int, int, ProcessRecord]] = {}
        self._booted: set[int] = set()

    @property
    def booted(self) -> frozenset[int]:
        """Processes in which Python started with the probe."""
        return frozenset(self._booted)

    def read(self) -> tuple[ProcessRecord, ...]:
        """Every process known so far, in order of its pid."""
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.glob("*.json"):
                kind, _, number = path.stem.rpartition("-")
                if not number.isdecimal():
                    continue
                if kind == "boot":
                    self._booted.add(int(number))
                elif not kind:
                    self._update(path, int(number))
        records = {pid: ProcessRecord(pid=pid) for pid in self._booted}
        records |= {record.pid: record for _, _, record in self._seen.values()}
        return tuple(records[pid] for pid in sorted(records))

    def stacks_path(self, pid: int) -> Path:
        """Where the probe writes the threads' stacks of `pid` on SIGUSR1."""
        return self._folder / f"stacks-{pid}.txt"

    def _update(self, path: Path, pid: int) -> None:
        with contextlib.suppress(OSError, ValueError):  # being replaced this moment: next time
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            known = self._seen.get(path)
            if known is None or known[:2] != stamp:
                self._seen[path] = (*stamp, _record(pid, json.loads(path.read_bytes())))


def _record(pid: int, data: Mapping[str, Any]) -> ProcessRecord:
    return ProcessRecord(
        pid=pid,
        state=str(data.get("state", "booted")),
        steps=int(data.get("steps") or 0),
        last_step_time=data.get("last_step_time"),
        aside=bool(data.get("errors")),
    )
