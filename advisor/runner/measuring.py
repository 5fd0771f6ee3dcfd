"""Measurement of running processes by their event logs.

Known steps are only counted. With a full window the process stops, or goes on to its parts.

Ranks that update together must stop at the same step: one that leaves alone lets the others
wait in a collective until their limit, and their windows are lost with them. So one rank decides,
and all are told the event and the count at which to stop, which lies a little ahead of them.
"""

import contextlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor import clock
from advisor.analysis.events import EventReader
from advisor.analysis.measurement import measure
from advisor.analysis.progress import (
    NextPhase,
    advise,
    has_unread_data,
    step_ends,
    stop_point,
)
from advisor.files import reading
from advisor.model import BEFORE_TRAINING, MeasurePlan
from advisor.runner.process_records import ProcessRecord

# By judgement: what is done beside the program must be little of what it does itself.
READ_BYTES = 64 << 20
"""Bytes of a log that are read at once."""
LOG_BYTES = 1 << 30
"""A longer log is not read on."""
SPENT_SHARE = 0.05
"""Share of time for reading and looking.

Judgement: more takes CPU time from the program that is measured, less sees a full window late."""
SHORTEST_LOOK_S = 0.05
"""Shortest time, in seconds, between looks at the log of one process.

Judgement: shorter wakes beside the measured program for little news, longer ends windows late."""
RANK_0_S = 5.0
"""Longest wait, in seconds, for rank 0, whose window should fill with the others'.

Judgement: shorter may let two ranks say where the job stops, longer waits in vain where rank 0 has
no record."""
STOP_FILE = "probe/stop.json"
"""Below scratch: where all ranks stop. Rank 0 decides, maybe on another node."""
OTHER_NODES_S = 1.0
"""Seconds that the word takes to other nodes' ranks, at most.

Judgement: shorter lets a rank pass the common stop before it knows of it, and the others wait for
it. Longer only adds steps to each run."""
STOP_BYTES = 4096
"""Largest stop file that is read, in bytes: a kind and a count take less than 100.

Judgement: a program may write there too, and a larger file would be its own."""


@dataclass(slots=True)
class _Process:
    reader: EventReader = field(default_factory=EventReader)
    offset: int = 0
    next_look: float = 0.0
    commands: int = 0
    full: bool = False
    full_since: float = 0.0
    cut_short: bool = False


class Measuring:
    """Event logs of a trial's processes, and their commands."""

    def __init__(
        self,
        folder: str | Path,
        plan: MeasurePlan,
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._folder = Path(folder)
        self._at_end = at_end
        """Called while the process of a full window still lives."""
        self._plan = plan
        self._processes: defaultdict[int, _Process] = defaultdict(_Process)

    def update(self, records: Sequence[ProcessRecord]) -> None:
        """Read each due process and command its next phase."""
        for record in records:
            if record.state == "stepping" and not record.alone:
                self._look(record, records)
        ranks = [record for record in records if record.world_size > 1]
        if ranks and all(record.rank > 0 for record in ranks):
            self._heed_other_node([record.pid for record in ranks])

    def finish(self, records: Sequence[ProcessRecord]) -> tuple[ProcessRecord, ...]:
        """The records with their measurements, of logs that grow no more."""
        return tuple(map(self._finished, records))

    def _look(self, record: ProcessRecord, records: Sequence[ProcessRecord]) -> None:
        """Read what a process has logged, and tell it the phase that comes next.

        A process alone is told at once. Of several ranks one decides for all, and they stop at
        the same count of steps.
        """
        process = self._processes[record.pid]
        begun, at_work_s = clock.now(), time.thread_time()
        if process.full or begun < process.next_look:
            return
        log, built = self._read(record.pid).log, record.optimizers_built > 0
        advice = advise(log, self._plan, begun - log.clock, optimizers_built=built)
        # of this thread alone: a host that gives it no CPU must not delay the next look
        spent_s = (time.thread_time() - at_work_s) / SPENT_SHARE
        process.next_look = clock.now() + max(advice.look_in_s, SHORTEST_LOOK_S, spent_s)
        if advice.phase == "full":
            self._at_end()
        if advice.phase == "count":
            self._command(record.pid, phase="count", calls=advice.calls)
        elif advice.phase == "full" and record.world_size == 1:
            process.full, process.cut_short = True, advice.cut_short
            self._command(record.pid, **self._after_the_window(process, advice))
        elif advice.phase == "full" and self._decides(process, record, records):
            ranks = [record.pid for record in records if record.world_size > 1]
            far = len(ranks) < record.world_size
            where: dict[str, Any] = {}
            if advice.series is not None:
                now, more_s = clock.now() - log.clock, OTHER_NODES_S if far else 0.0
                where["kind"], where["count"] = stop_point(log, advice.series, now, more_s)
            self._stop(ranks, where, cut_short=advice.cut_short)
            if far:
                self._put("stop.json", where)

    def _decides(
        self, process: _Process, record: ProcessRecord, records: Sequence[ProcessRecord]
    ) -> bool:
        """True for rank 0, or the lowest if it has no record."""
        now = time.monotonic()
        process.full_since = process.full_since or now
        lowest = min(record.rank for record in records if record.world_size > 1)
        late = now - process.full_since > RANK_0_S
        return record.rank == 0 or (record.rank == lowest and late)

    def _after_the_window(self, process: _Process, advice: NextPhase) -> dict[str, Any]:
        series = advice.series
        if series is None or not (self._plan.ceilings_workers or self._plan.trace):
            return {"phase": "stop"}
        return {
            "phase": "diagnose",
            "boundary": step_ends(process.reader.log, series)[0],
            "loader": series.loader,
            "root": series.root,
            "step_s": series.typical_s,
        }

    def _stop(self, pids: list[int], where: dict[str, Any], *, cut_short: bool) -> None:
        """Stop all ranks together, so none hangs."""
        for pid in pids:
            process = self._processes[pid]
            process.full, process.cut_short = True, cut_short
            self._command(pid, phase="stop", **where)

    def _heed_other_node(self, pids: list[int]) -> None:
        """Stop ranks where rank 0 said, once it did."""
        left = [pid for pid in pids if not self._processes[pid].full]
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, OverflowError):
            said = reading.from_json(
                reading.read(self._folder.parent, STOP_FILE, STOP_BYTES)
            )
            where = {"kind": str(said["kind"]), "count": int(said["count"])} if said else {}
            self._stop(left, where, cut_short=False)

    def _command(self, pid: int, **command: Any) -> None:
        process = self._processes[pid]
        process.commands += 1
        self._put(f"command-{pid}.json", {"number": process.commands, **command})

    def _put(self, name: str, content: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            text = json.dumps(content).encode()
            reading.put(self._folder.parent, f"{self._folder.name}/{name}", text)

    def _read(self, pid: int) -> EventReader:
        process = self._processes[pid]
        name = f"{self._folder.name}/events-{pid}.jsonl"
        with contextlib.suppress(OSError):
            while process.offset < LOG_BYTES:
                data = reading.read_on(
                    self._folder.parent, name, process.offset, READ_BYTES
                )
                if not data:
                    break
                process.offset += len(data)
                process.reader.feed(data)
        return process.reader

    def _finished(self, record: ProcessRecord) -> ProcessRecord:
        """Record with the measurement of its whole log.

        A process that neither stopped for us nor came to its own end has none: it was lost.
        """
        log = self._read(record.pid).log
        cut_short = self._processes[record.pid].cut_short
        log.ended = record.state == "exited"
        measurement = measure(log, self._plan, cut_short=cut_short)
        idle = record.optimizers_built and log.validations is None and has_unread_data(log)
        idle = idle and self._plan.trains is not False
        if measurement.run and not measurement.run.trains and idle:
            notes = (*measurement.run.notes, BEFORE_TRAINING)
            measurement = replace(measurement, run=replace(measurement.run, notes=notes))
        if record.state not in ("stopped", "exited") and not record.alone:
            measurement = replace(measurement, run=None)
        if log.unread:
            unread = f"{log.unread} events of its log"
            record = replace(
                record, unread="; ".join(filter(None, (record.unread, unread)))
            )
        return replace(record, measurement=measurement)
