"""What the probe's record files say while the program runs: how far each process got."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.trials.reading import ProgramException

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """One Python process of the trial, as far as it got."""

    pid: int
    state: str = "booted"
    """booted, torch, stepping, stopped (by us: the window is full), exited."""
    alone: bool = False
    """Its window is full; loader and compute are being measured alone, which makes no steps."""
    steps: int = 0
    last_step_time: float | None = None
    exception: ProgramException | None = None
    """What ended it."""
    caught: tuple[ProgramException, ...] = ()
    """What was raised inside a step and did not end it."""
    guard: str | None = None
    """The user's file that it was kept from overwriting."""
    writes: tuple[str, ...] = ()
    """Files opened for writing outside the trial's scratch."""
    losses: tuple[float, ...] = ()
    unmeasured: str | None = None
    """Why there is no rate although steps were seen."""
    errors: tuple[str, ...] = ()
    """The probe's own: it then leaves the program alone, and tells of no more steps."""


class Records:
    """The records of one trial; a file is read again only when it has changed."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._seen: dict[Path, tuple[int, int, ProcessRecord]] = {}
        self._booted: set[int] = set()

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

    def stacks(self) -> dict[int, str]:
        """What each process that answers SIGUSR1 has written so far, forked workers too."""
        found = {}
        for path in self._folder.glob("stacks-*.txt"):
            with contextlib.suppress(OSError, ValueError):
                number = int(path.stem.rpartition("-")[2])
                found[number] = path.read_text(encoding="utf-8", errors="replace")
        return found

    def _update(self, path: Path, pid: int) -> None:
        with contextlib.suppress(OSError, ValueError):  # being replaced this moment: next time
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            known = self._seen.get(path)
            if known is None or known[:2] != stamp:
                self._seen[path] = (*stamp, _record(pid, json.loads(path.read_bytes())))


def _record(pid: int, data: Mapping[str, Any]) -> ProcessRecord:
    fatal = data.get("exception")
    end = _exception(fatal, fatal=True) if fatal else None
    caught = (_exception(each, fatal=False) for each in data.get("swallowed") or ())
    return ProcessRecord(
        pid=pid,
        state=str(data.get("state", "booted")),
        alone=bool(data.get("alone")),
        steps=int(data.get("steps") or 0),
        last_step_time=data.get("last_step_time"),
        exception=end,
        caught=tuple(
            e for e in caught if end is None or (e.type, e.message) != (end.type, end.message)
        ),
        guard=data.get("guard"),
        writes=tuple(map(str, data.get("writes") or ())),
        losses=tuple(float(loss) for loss in data.get("losses") or ()),
        unmeasured=data.get("unmeasured"),
        errors=tuple(map(str, data.get("errors") or ())),
    )


def _exception(data: Mapping[str, Any], *, fatal: bool) -> ProgramException:
    return ProgramException(
        type=str(data.get("type", "")),
        message=str(data.get("message", "")),
        where=str(data.get("where", "start")),
        fatal=fatal,
        tail=str(data.get("tail") or ""),
    )
