"""What a trial did, in a form that two trials are compared by."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

StateKind = Literal["value", "count", "start", "size", "order", "array", "generator"]
"""value: a plain one; count: a whole number that grew, start: only as a pass began; size: of a
container; order: its elements."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Short = Annotated[str, Field(max_length=400)]
State = dict[Short, StateKind]
"""Paths of state that changed: `dataset.transform.rng`."""
Digests = dict[Short, Short]
"""Digest of each random generator's state by its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Items of a pass by numbers that stand for them, in order."""

    count: int = 0
    """Items kept: of a long pass the first ones only."""
    first: tuple[int, ...] = ()
    """Numbers of the first items, one by one: 32 at most."""
    distinct: tuple[int, ...] = ()
    """Different ones among the first 2, 4, 8, ... items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassItems:
    """Items of one pass over a loader: as they were drawn, and as they arrived."""

    drawn: Items = field(default_factory=Items)
    """Indices that the main process drew; none of a stream."""
    came: Items = field(default_factory=Items)
    """Numbers of the rows that the loader gave."""
    whole: bool = False
    """The pass came to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """What one loader worker told of its first fetches."""

    worker: int = 0
    asked: tuple[Short, ...] = ()
    """Fields of torch's worker info that the program read there; `info`: it asked for one."""
    part: Short = ""
    """Stands for the part of the dataset that its init function left to it; empty: none seen."""
    before: Digests = field(default_factory=dict)
    """Random generators before its first fetch."""
    after: Digests = field(default_factory=dict)
    """Random generators after its first fetch."""
    changed: State = field(default_factory=dict)
    """State of its copy of the dataset that its first fetches changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderWork:
    """What a DataLoader gave, and what its dataset keeps."""

    iterable: bool = False
    endless: bool = False
    """No path of a stream's code ends it."""
    steps: int | None = None
    """Batches of a pass, as the program may ask by `len`."""
    draws: bool | None = None
    """The work on a batch drew random numbers."""
    passes: tuple[PassItems, ...] = ()
    """The first ones."""
    by_items: State = field(default_factory=dict)
    """Changed where an item was made in the main process."""
    by_program: State = field(default_factory=dict)
    """Changed between two passes, by the main process."""
    set_around: tuple[Short, ...] = ()
    """What code in the loops around a pass sets of the dataset, by name; seen or not."""
    generators: Digests = field(default_factory=dict)
    """Of the main process at the first pass's start."""
    workers: tuple[WorkerState, ...] = ()
    """In order of their start; those of later passes too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateWork:
    """What the first updates of the optimizer that steps most did."""

    rates: tuple[float | None, ...] = ()
    """Learning rate of each; None on a card."""
    schedule: tuple[int, ...] = ()
    """Steps of torch's schedulers before each."""
    averages: tuple[int, ...] = ()
    """Steps of torch's running averages of weights before each."""
    copies: dict[Short, Finite] = field(default_factory=dict)
    """Moves in an update of each copy of the weights that the program keeps by hand."""
    edits: dict[Short, Finite] = field(default_factory=dict)
    """Edits in an update that the program itself makes of its `gradients` and `weights`."""
    losses: tuple[Finite, ...] = ()
    """Sum of the losses of each of the first 16."""
    settings: dict[Short, float] = field(default_factory=dict)
    """Numbers of the first parameter group but the rate: momentum, betas, weight decay."""
    batch_statistics: bool | None = None
    """A network in training mode normalises by its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFacts:
    """What a trial did. None, or an empty tuple, is "not seen"."""

    loader: LoaderWork | None = None
    items_ms: tuple[float, float] | None = None
    """Median time of a few items in the main process, and of the same asked for again."""
    pass_items: tuple[float, ...] = ()
    """Items of each whole pass that the trial saw."""
    updates: UpdateWork | None = None
    update_samples: float | None = None
    """Samples between two updates, of all ranks that update together."""
    updates_seen: int | None = None


WorkCause = Literal[
    "items-repeat",
    "items-missing",
    "not-sharded",
    "shared-generator",
    "state-of-dataset",
    "cache-of-dataset",
    "set-by-program",
    "update-samples",
    "learning-rate",
    "optimizer-settings",
    "schedule",
    "batch-statistics",
    "running-average",
    "own-edits",
    "loss-of-update",
    "results",
    "counters",
]
"""Ways in which a trial's work differs from the original's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDifference:
    """One way in which a trial did other work than the original."""

    cause: WorkCause
    sentence: str
    """For users, with what was seen."""
    refused: bool
    """The work is worth less; else the user may want the change, and it is suggested."""
    of_workers: bool = False
    """Any other number of workers differs likewise."""
