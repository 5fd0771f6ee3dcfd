"""Measurement of running processes by their event logs.

Each process appends events to its log. From them the next phase is told: steps are only counted
once they are known, and the process stops, or goes on to its parts, once the window is full.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.analysis.events import EventReader
from advisor.analysis.measurement import measure
from advisor.analysis.progress import Advice, advise, boundary, stop_point
from advisor.files import within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import MeasurePlan
    from advisor.runner.process_records import ProcessRecord

READ_BYTES = 64 << 20
"""Most bytes of a log that are read at once."""
LOG_BYTES = 1 << 30
"""A longer log is not read on."""
SPENT_SHARE = 0.05
"""Share of the time that reading and looking may take."""
SHORTEST_LOOK_S = 0.05


@dataclass(slots=True)
class _Process:
    """One process that makes steps."""

    reader: EventReader = field(default_factory=EventReader)
    offset: int = 0
    next_look: float = 0.0
    commands: int = 0
    full: bool = False
    """True if the full window was followed by a command."""
    cut_short: bool = False


class Measuring:
    """Event logs of a trial's processes, and their commands."""

    def __init__(self, folder: str | Path, plan: MeasurePlan) -> None:
        self._folder = Path(folder)
        self._plan = plan
        self._processes: dict[int, _Process] = {}

    def update(self, records: Sequence[ProcessRecord]) -> None:
        """Read each due process and command its next phase."""
        for record in records:
            if record.state != "stepping" or record.alone:
                continue
            process = self._processes.setdefault(record.pid, _Process())
            begun = time.time()
            if process.full or begun < process.next_look:
                continue
            self._read(record.pid, process)
            log, built = process.reader.log, record.optimizers_built > 0
            advice = advise(log, self._plan, begun - log.clock, optimizers_built=built)
            spent_s = time.time() - begun
            wait_s = max(advice.need_s, SHORTEST_LOOK_S, spent_s / SPENT_SHARE)
            process.next_look = time.time() + wait_s
            if advice.phase == "count":
                self._command(record.pid, phase="count", calls=advice.calls)
            elif advice.phase == "full":
                self._end(record, process, advice, records)

    def _end(
        self,
        record: ProcessRecord,
        process: _Process,
        advice: Advice,
        records: Sequence[ProcessRecord],
    ) -> None:
        """End the full window on all ranks."""
        if record.world_size > 1:
            if record.rank == 0:
                self._stop_ranks([each for each in records if each.world_size > 1], advice)
            return
        process.full, process.cut_short = True, advice.cut_short
        series = advice.series
        if series is None or not (self._plan.ceilings_workers or self._plan.trace):
            self._command(record.pid, phase="stop")
            return
        self._command(
            record.pid,
            phase="diagnose",
            boundary=boundary(process.reader.log, series),
            loader=series.loader,
            step_s=series.typical_s,
        )

    def _stop_ranks(self, ranks: Sequence[ProcessRecord], advice: Advice) -> None:
        """Stop all ranks together, so that none hangs."""
        found = [(each.pid, self._processes.setdefault(each.pid, _Process())) for each in ranks]
        for pid, process in found:
            self._read(pid, process)
            process.full, process.cut_short = True, advice.cut_short
        point = stop_point([process.reader.log for _, process in found], time.time())
        for pid, _ in found:
            if point is None:
                self._command(pid, phase="stop")
            else:
                self._command(pid, phase="stop", kind=point[0], count=point[1])

    def _command(self, pid: int, **command: Any) -> None:
        process = self._processes[pid]
        process.commands += 1
        content = json.dumps({"number": process.commands, **command}).encode()
        with contextlib.suppress(OSError):
            within.put(self._folder.parent, f"{self._folder.name}/command-{pid}.json", content)

    def _read(self, pid: int, process: _Process) -> None:
        """Take what the process's log grew by."""
        name = f"{self._folder.name}/events-{pid}.jsonl"
        with contextlib.suppress(OSError):
            while process.offset < LOG_BYTES:
                data = within.read_on(self._folder.parent, name, process.offset, READ_BYTES)
                if not data:
                    return
                process.offset += len(data)
                process.reader.feed(data)

    def finish(self, records: Sequence[ProcessRecord]) -> tuple[ProcessRecord, ...]:
        """Return the final records with their complete logs."""
        return tuple(map(self._finished, records))

    def _finished(self, record: ProcessRecord) -> ProcessRecord:
        process = self._processes.setdefault(record.pid, _Process())
        self._read(record.pid, process)
        log = process.reader.log
        found = measure(
            log,
            self._plan,
            ended=record.state == "exited",
            cut_short=process.cut_short,
            ran_out=record.ran_out,
        )
        if record.state not in ("stopped", "exited") and not record.alone:
            found = replace(found, measured=None)
        if log.unread:
            unread = f"{log.unread} events of its log"
            record = replace(record, unread="; ".join(filter(None, (record.unread, unread))))
        return replace(record, measurement=found)
