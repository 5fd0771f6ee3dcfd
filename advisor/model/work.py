"""What a trial did, in a form that two trials are compared by (`tuner/same_work/`)."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

StateKind = Literal[
    "value",
    "count",
    "start",
    "size",
    "kept",
    "order",
    "array",
    "weights",
    "setting",
    "generator",
]
"""What changed between two looks at a dataset's state.

value: a number, truth value or text. count: a whole number that grew by as much in each fetch.
start: a whole number that grew in the first fetch of a pass alone. size: filled places of a
container or an `lru_cache`. kept: such of a stream, which grow by as many in each fetch. order:
plain elements of a list. array: numbers of an array or
tensor. weights: parameters of a network. setting: a plain attribute of a library's object.
generator: the state of a random generator.
"""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Short = Annotated[str, Field(max_length=400)]
ChangedState = dict[Short, StateKind]
"""Paths of state that changed: `dataset.transform.rng`."""
Digests = dict[Short, Short]
"""Digest of each random generator's state by its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Items of a pass in order, each known by a number: its index, or a hash of its content."""

    count: int = 0
    """Items kept: of a long pass the first ones only."""
    first: tuple[int, ...] = ()
    """Numbers of the first items, one by one: 32 at most."""
    distinct: tuple[int, ...] = ()
    """How many differ among the first 2, 4, 8, ... items."""
    spread: tuple[Finite, ...] = ()
    """Deviation of the indices among each 2, 4, 8, ... in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassItems:
    """Items of one pass over a loader: as they were drawn, and as they arrived."""

    drawn: Items = field(default_factory=Items)
    """Items in the order drawn, by the index that the main process drew; empty for a stream."""
    came: Items = field(default_factory=Items)
    """Items in the order of arrival, by content, as `probe/batches.py` numbers the rows."""
    whole: bool = False
    """The pass came to its end."""
    updates: int | None = None
    """Steps of optimizers inside a whole pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """What one loader worker told of its first fetches."""

    worker: int = 0
    asked: tuple[Short, ...] = ()
    """Fields of torch's worker info that the program read in it; `info`: it was asked for;
    `seeds`: how many workers there are was asked for to seed a generator by it, and for no more."""
    part: Short = ""
    """Digest of the part of the dataset that its init function left it; empty: none seen."""
    seeded: tuple[Short, ...] = ()
    """The process's own random generators that its init function set."""
    set: Digests = field(default_factory=dict)
    """What its init function set of the dataset, but for what may be a seed."""
    before: Digests = field(default_factory=dict)
    """Random generators before its first fetch."""
    after: Digests = field(default_factory=dict)
    """Random generators after its first fetch."""
    changed: ChangedState = field(default_factory=dict)
    """State of its copy of the dataset that its first fetches changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderWork:
    """What a DataLoader gave, and what its dataset keeps."""

    iterable: bool = False
    endless: bool = False
    """No path of a stream's code ends it."""
    steps: int | None = None
    """Batches of a pass, as the program may ask by `len`."""
    limits: dict[Short, Finite] = field(default_factory=dict)
    """By condition of the code: batches after which a loop ends, whatever is left of the data."""
    each_worker: Short = ""
    """By what code a stream ends that would go on for ever, in each worker for itself."""
    draws: bool | None = None
    """Between two fetches the main process drew random numbers; None: not looked at."""
    passes: tuple[PassItems, ...] = ()
    """The first passes, three at most."""
    by_items: ChangedState = field(default_factory=dict)
    """State that changed while an item was made in the main process."""
    by_loop: ChangedState = field(default_factory=dict)
    """State that the main process changed between two batches of a pass."""
    set_inside: tuple[Short, ...] = ()
    """Names of the dataset that code in the loop over its batches sets, run or not."""
    by_program: ChangedState = field(default_factory=dict)
    """State that the main process changed between two passes."""
    set_around: tuple[Short, ...] = ()
    """Names of the dataset that code in the loops around a pass sets, run or not."""
    generators: Digests = field(default_factory=dict)
    """Random generators of the main process as the first pass began."""
    first_fetch: Digests = field(default_factory=dict)
    """The process's own random generators after the main process made its first batch."""
    workers: tuple[WorkerState, ...] = ()
    """In order of their start; those of later passes too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateWork:
    """What the first updates of the optimizer that steps most did."""

    rates: tuple[float | None, ...] = ()
    """Learning rate of each update; None where it is a tensor on a card, which is not read."""
    other_rates: dict[Short, tuple[float | None, ...]] = field(default_factory=dict)
    """Such rates of further parameter groups, and of optimizers that step less, by their names."""
    schedule: tuple[int, ...] = ()
    """Steps of torch's schedulers so far, at each update."""
    averages: tuple[int, ...] = ()
    """Moves of torch's running averages of weights so far, at each update."""
    copies: dict[Short, Finite] = field(default_factory=dict)
    """By name of each copy of the weights that the program keeps by hand: moves in an update."""
    copies_moved: dict[Short, tuple[Finite, ...]] = field(default_factory=dict)
    """How far some of its numbers moved in each of the first updates, in all."""
    beside: dict[Short, Finite] = field(default_factory=dict)
    """By name of each tensor that a network keeps beside its weights: moves in an update."""
    parts: Finite | None = None
    """Weights with a gradient, in most updates."""
    gradient: Finite | None = None
    """Length of a weight's gradient as the optimizer takes it: the median of the first updates."""
    gradients: tuple[tuple[Finite, ...], ...] = ()
    """Some numbers of the gradients that the optimizer took, by update from the second one on."""
    mixes: bool | None = None
    """The gradient of one item's output follows other items of its batch."""
    counts: dict[Short, Finite] = field(default_factory=dict)
    """By name of each number that the program computes with, and that grows by one with each batch:
    its growth in an update."""
    counts_at_updates: dict[Short, Finite] = field(default_factory=dict)
    """The same of those that grow by as much with each update, as where samples are added up."""
    once_a_batch: tuple[Short, ...] = ()
    """Expressions of the code that draw a number for a whole batch, take a next value for it, or
    move a number by itself."""
    edits: dict[Short, Finite] = field(default_factory=dict)
    """Edits in an update that the program makes outside of the optimizer, of `gradients` and of
    `weights`."""
    first_weights: Short = ""
    """Stands for some of the weights before the first update; empty: not seen."""
    losses: tuple[Finite, ...] = ()
    """Sum of the losses of each of the first 16 updates."""
    settings: dict[Short, float] = field(default_factory=dict)
    """Numbers of the first parameter group but the rate: momentum, betas, weight decay."""
    batch_statistics: bool | None = None
    """A network in training mode normalises by its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFacts:
    """What a trial did. None, or an empty tuple, is "not seen"."""

    loader: LoaderWork | None = None
    items_ms: tuple[float, float] | None = None
    """Median milliseconds to make an item in the main process: first, and when asked for again.

    A much quicker second time is a cache."""
    items_alike: bool | None = None
    """The items of `items_ms` came equal both times: no generator's state decides what they are."""
    limits: dict[Short, Finite] = field(default_factory=dict)
    """By condition of the code: calls of the network after which a loop without a loader ends."""
    pass_items: tuple[float, ...] = ()
    """Items of each whole pass that the trial saw."""
    updates: UpdateWork | None = None
    update_samples: float | None = None
    """Samples between two updates, of all ranks that update together."""
    updates_seen: int | None = None
    update_rows: Finite | None = None
    """Rows that went through the network with gradients between two updates, of this process."""
    generations: tuple[Finite, ...] = ()
    """Calls of the network in each of the first generations without a loader: a token each."""
    untrained: Finite | None = None
    """Share of the loader's batches that no backward pass followed; None where few were seen."""


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
    """True if the work is worth less. Else the user may want it, and it is a suggestion."""
    of_workers: bool = False
    """It comes with workers: no other number than the original's is tried after it."""
