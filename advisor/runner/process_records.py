"""Records of the probe, one a process: format, parser and folder.

A trial's folder holds for each Python process of the user's program:

`<pid>.json`        the record, a `ProcessRecord` in JSON
`stacks-<pid>.txt`  stacks of all threads, one set for each SIGUSR1
`events-<pid>.jsonl`  its event log, which `measuring.py` reads
`command-<pid>.json`  our latest command to it

The program may write a record: reading any raises nothing.
Times are epoch seconds of `clock.now`, None is "not measured"; other keys are ignored.
"""

import contextlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, InstanceOf, TypeAdapter, ValidationError
from pydantic_core import from_json

from advisor.analysis.events import LARGEST, BoundedNumber, Moment, bounded
from advisor.analysis.measurement import Measurement
from advisor.files import reading
from advisor.model import (
    Card,
    Flops,
    Footprint,
    JsonScalar,
    LoaderCeiling,
    OverrideOutcome,
    UpdateWork,
)
from advisor.probe.recorder import VERSION
from advisor.runner.output import plain

NOTHING_MEASURED = Measurement()
SAME_MESSAGE_CHARS = 200
"""Beginning of a message by which an exception is known again. Judgement."""
UNREAD_CHARS = 300
"""Longest text on what of a record could not be read."""
ALONE_COLLECTIVES = 0.5
"""Collective calls a step below which a rank updates by itself: an exchange takes one at least."""

LARGEST_BYTES = 16 << 20
"""A longer record is not read."""
WholeNumber = Annotated[int, Field(ge=0, le=1 << 53)]
"""Number of steps and the like: a float holds it exactly."""
Ranks = Annotated[int, Field(ge=1, le=1 << 24)]
"""The largest machines have fewer than a million cards."""
ProcessState = Literal["booted", "torch", "stepping", "aside", "stopped", "exited"]
UNBOUNDED = {"losses", "arguments", "trace"}
"""Fields of the program's own values, which may be infinite or not a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramException:
    """Exception of the program: one that ended it, or one that came out of its work."""

    type: str
    message: str
    where: str
    """import, start or step if it ended the process; else loading, forward, backward or step."""
    tail: str = ""
    time: Moment = 0.0
    items: BoundedNumber = 0.0
    """Items of its batch."""

    @property
    def lines(self) -> list[str]:
        """Type and message as Python prints them, without terminal colours."""
        first = plain(f"{self.type}: {self.message}".encode(errors="replace"))
        return first.strip(": ").splitlines() or [self.type]

    @property
    def identity(self) -> tuple[str, str]:
        """What is equal for one exception that was recorded twice."""
        return self.type, self.message[:SAME_MESSAGE_CHARS]

    @property
    def ran_out(self) -> bool:
        """True for a lack of memory, of the device or the host."""
        return "OutOfMemory" in self.type or "out of memory" in self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """What the probe told of one process of the program."""

    pid: int
    ppid: int | None = None
    boot_time: Moment | None = None
    state: ProcessState = "booted"
    """booted, torch, stepping, aside (probe error), stopped (by us: full window), exited."""
    alone: bool = False
    """Its window is full; loader and compute run alone, without steps."""
    steps: WholeNumber = 0
    """Optimizer steps, else loader batches or root forwards, whichever are more."""
    optimizers_built: WholeNumber = 0
    whole_steps: WholeNumber = 0
    """Finished steps; an update may have many passes."""
    last_step_time: Moment | None = None
    rank: WholeNumber = 0
    world_size: Ranks = 1
    exception: ProgramException | None = None
    """Exception that ended the process."""
    swallowed: tuple[ProgramException, ...] = ()
    """Exceptions inside a fetch, forward or backward, caught ones too."""
    guard: str | None = None
    """User's file that it was kept from overwriting; its exit code was then 97."""
    writes: tuple[str, ...] = ()
    """New files that Python opened for writing outside scratch."""
    altered: tuple[str, ...] = ()
    """The user's files that were changed, where that was allowed."""
    errors: tuple[str, ...] = ()
    """Errors of the probe itself; it survives some: see `state`."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""

    # the fields below are known once the process stopped or exited
    losses: tuple[float, ...] = ()
    """Losses of the first and of the latest backward passes."""
    arguments: dict[str, JsonScalar] = field(default_factory=dict)
    """Values that the program parsed from its command line, by destination."""
    memory: dict[str, BoundedNumber] = field(default_factory=dict)
    """Peaks of the device's allocator: allocated_gib, reserved_gib, alloc_retries."""
    card: Card | None = None
    collectives: WholeNumber | None = None
    """Collective calls of the process group; None: unknown."""
    fused: bool | None = None
    recomputes: bool | None = None
    skipped_updates: WholeNumber = 0
    """Updates left out by a GradScaler: gradients were not finite."""
    overrides: tuple[OverrideOutcome, ...] = ()
    ceilings: tuple[LoaderCeiling, ...] = ()
    items_ms: tuple[BoundedNumber, BoundedNumber] | None = None
    """Times of a few items of the loader's data, and of the same asked for again."""
    items_alike: bool | None = None
    """The same items came as they were when they were asked for again."""
    flops: Flops | None = None
    footprint: Footprint | None = None
    trace: dict[str, object] | None = None
    """Operations of one step, unread."""
    work: UpdateWork | None = None
    limits: dict[Annotated[str, Field(max_length=400)], BoundedNumber] = field(
        default_factory=dict
    )
    """Calls of a network after which a loop without a loader ends, by its condition."""

    measurement: InstanceOf[Measurement] = NOTHING_MEASURED
    """Measurement from the event log, not part of the record."""
    unread: str | None = None
    """Set by the parser: unreadable parts of this record, and why."""

    @property
    def shrunk_from(self) -> float | None:
        """Batch that ran out of memory before the program chose a smaller one."""
        run = self.measurement.run
        if run is None or run.effects.batch is None:
            return None
        before = (
            error
            for error in self.swallowed
            if error.ran_out and error.time < run.window_start
        )
        largest = max((error.items for error in before), default=0.0)
        return largest if largest > run.effects.batch else None

    @property
    def together(self) -> bool:
        """True if ranks make updates together, as far as known."""
        fewest = ALONE_COLLECTIVES * self.steps
        alone = self.collectives is not None and self.collectives < fewest
        return self.world_size > 1 and not alone

    @property
    def caught(self) -> tuple[ProgramException, ...]:
        """Exceptions inside a step that the program survived."""
        end = self.exception and self.exception.identity
        return tuple(error for error in self.swallowed if error.identity != end)


_RECORD = TypeAdapter(ProcessRecord)


def parse(pid: int, data: bytes) -> ProcessRecord:
    """Parse the record of `pid`; `unread` lists omissions.

    A field that does not fit is left out by itself, so that one of them hides no other.
    """
    try:
        content = from_json(data)
    except ValueError as problem:
        return ProcessRecord(pid=pid, unread=str(problem))
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        return ProcessRecord(
            pid=pid, unread=f"format {version!r:.40}, where {VERSION} is read"
        )
    content |= {"pid": pid, "unread": None, "measurement": NOTHING_MEASURED}
    wrong = {
        name: f"holds a number beyond {LARGEST:g}"
        for name, value in content.items()
        if name not in UNBOUNDED and not bounded(value)
    }
    content = {name: value for name, value in content.items() if name not in wrong}
    try:
        record = _RECORD.validate_python(content)
    except ValidationError as problem:
        wrong |= {str(error["loc"][0]): error["msg"] for error in problem.errors()}
    else:
        if not wrong:
            return record
    kept = {name: value for name, value in content.items() if name not in wrong}
    reported = "; ".join(f"{name}: {reason}" for name, reason in wrong.items())
    return replace(_RECORD.validate_python(kept), unread=reported[:UNREAD_CHARS])


class Records:
    """Records of one trial, cached until changed."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._known: dict[Path, tuple[tuple[int, int], ProcessRecord]] = {}

    def read(self) -> tuple[ProcessRecord, ...]:
        """Read every known process, ordered by pid."""
        names = {path.stem: path for path in self._folder.glob("*.json")}
        records = {
            int(n): path for n, path in names.items() if re.fullmatch(r"[0-9]{1,10}", n)
        }
        return tuple(self._read(records[pid], pid) for pid in sorted(records))

    def stacks(self) -> dict[int, str]:
        """Stacks of each process that answered SIGUSR1."""
        stacks = {}
        for path in self._folder.glob("stacks-*.txt"):
            with contextlib.suppress(OSError, ValueError):
                number = int(path.stem.rpartition("-")[2])
                stacks[number] = self._content(path).decode(errors="replace")
        return stacks

    def _read(self, path: Path, pid: int) -> ProcessRecord:
        stamp, before = self._known.get(path, (None, None))
        try:
            status = path.lstat()
            current = (status.st_mtime_ns, status.st_ino)
            if before is not None and stamp == current:
                return before
            record = parse(pid, self._content(path))
        except OSError as problem:
            return before or ProcessRecord(pid=pid, unread=str(problem))
        self._known[path] = (current, record)
        return record

    def _content(self, path: Path) -> bytes:
        return reading.read(
            self._folder.parent, f"{self._folder.name}/{path.name}", LARGEST_BYTES
        )
