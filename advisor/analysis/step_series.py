"""Step series: end times and units of steps, and their cycles."""

import bisect
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from advisor.analysis.events import EventLog, ForwardCall, Span
from advisor.model import TRAINING_STEPS, UNFINISHED, Counted

LOADER, FORWARD, GENERATION = "loader batch", "root forward", "generation"
OPTIMIZER, UPDATE = TRAINING_STEPS

FORWARD_SOURCE = "batch dimension of the root forwards"
"""Way of counting units without a DataLoader."""
RECENT = 40
"""Latest steps, whose mean length is the typical one, and whose pace sets the ranks' common stop.

Judgement: fewer follow single steps, more keep the slow ones of the start."""


@dataclass(slots=True)
class StepSeries:
    """Steps of one kind with bounds and units.

    Step `k` lasts from `bounds[k]` to `bounds[k + 1]` and has `units[k]`, so there is one bound
    more than steps: the first bound begins the first step whose whole length is known. What was
    done before it has no beginning, and no time.
    """

    kind: str
    source: str = ""
    counted: Counted | None = None
    """What a unit is; None until it is known."""
    bounds: list[float] = field(default_factory=list)
    """Ends of steps, in seconds of the process's `time.perf_counter()`."""
    units: list[float] = field(default_factory=list)
    """Units of finished work by step; may be a fraction, of an item that takes many steps."""
    aside: list[Span] = field(default_factory=list)
    """Validation between steps, in order: no part of their time."""
    clock: list[float] = field(default_factory=list)
    """Time at each bound, by a clock that stands still in validation."""
    marks: list[int] = field(default_factory=list)
    """Steps that begin a cycle: an epoch, rollouts, or a sampler's next batch."""
    cycle_steps: float | None = None
    """Steps of a cycle; None if unknown."""
    gap_s: float | None = None
    """Length of a step that begins a cycle."""
    loader: int | None = None
    loaders: set[int] = field(default_factory=set)
    """All loaders that feed the steps."""
    root: int | None = None
    batch: float | None = None
    """Items of one loader batch, or of one forward without a loader."""
    batches_per_step: float = 1.0
    accumulation: float | None = None
    """Backward passes of one optimizer step."""
    forwards_per_unit: float | None = None
    generation_calls: list[int] = field(default_factory=list)
    """Calls of the network in each generation."""
    finished_batches: int = 0
    whole_units: float = 0.0
    iterative: bool = False
    """Many forwards make one unit; bounds lie between forwards."""
    undecided: bool = False
    """What comes next tells what the steps are: no window yet."""
    missing: str = ""
    """What the series has no rate for yet, in words."""
    skips: bool = False
    """Some loaded batches were unused."""

    def count_steps(self) -> None:
        """Count the steps themselves, where nothing tells how many samples one holds."""
        self.counted, self.batch = "step", None
        self.source = f"{self.kind}s, of which nothing tells how many samples they hold"
        self.units = [float(units > 0) for units in self.units]
        self.whole_units = float(self.finished_batches)

    @property
    def unit(self) -> str:
        """`sample`, or the name of what was counted where that is none."""
        if self.counted == "rollout":
            return "environment step"
        return self.counted if self.counted in UNFINISHED else "sample"

    @property
    def steps(self) -> int:
        return max(0, len(self.bounds) - 1)

    @property
    def cycle_starts(self) -> list[int]:
        """The marks, each cycle's once: one that began within two steps in a row has two."""
        marked = set(self.marks)
        return [mark for mark in self.marks if mark - 1 not in marked]

    @property
    def typical_s(self) -> float:
        """Mean length of the latest steps."""
        recent = self.clock[-RECENT:]
        return (recent[-1] - recent[0]) / (len(recent) - 1) if len(recent) > 1 else 0.2

    def begun(self, asked: float) -> "StepSeries":
        """The same with a first step from `asked`, of as many units as the step behind it.

        Steps of a training begin with the end of an update, so their first one has no time of its
        own. Where the first bound is no later than `asked`, nothing is missing. The first of a
        loader's batches begins as it is asked for, and is only made longer.
        """
        if not self.units or asked >= self.bounds[0]:
            return self
        if self.kind == LOADER:
            start = self.clock[0] - (self.bounds[0] - asked)
            bounds, clock = [asked, *self.bounds[1:]], [start, *self.clock[1:]]
            return replace(self, bounds=bounds, clock=clock)
        return replace(
            self,
            bounds=[asked, *self.bounds],
            clock=[self.clock[0] - (self.bounds[0] - asked), *self.clock],
            units=[self.units[0], *self.units],
            marks=[mark + 1 for mark in self.marks],
        )

    def set_clock(self, first_start_s: float | None = None, *, cycles: bool = True) -> None:
        """Set the clock, and the cycles its marks show.

        `first_start_s`: time of the loader's first start, which stands for later ones.
        `cycles`: passes over the data repeat.
        """
        starts = [span.start for span in self.aside]
        off_s = [0.0, *accumulate(span.end - span.start for span in self.aside)]
        self.clock = [
            bound - off_s[bisect.bisect_left(starts, bound)] for bound in self.bounds
        ]
        if not cycles:
            return
        if self.marks:
            gaps = [self.clock[mark + 1] - self.clock[mark] for mark in self.marks]
            self.gap_s = statistics.median(gaps)
            lengths = [b - a for a, b in pairwise(self.marks)] or [self.marks[0] + 1]
            self.cycle_steps = self.cycle_steps or float(statistics.median(lengths))
        elif first_start_s is not None:
            self.gap_s = first_start_s + self.typical_s


def most_common(values: Sequence[float]) -> float | None:
    return statistics.mode(values) if values else None


def calls_of_networks(log: EventLog) -> dict[int, list[ForwardCall]]:
    """Calls of each module with parameters, by their first calls."""
    networks: dict[int, list[ForwardCall]] = {}
    for call in log.calls:
        if log.module(call.module).parameters:
            networks.setdefault(call.module, []).append(call)
    return networks


def dominant_module(log: EventLog) -> int | None:
    """Module with parameters that took most time; any module where none has parameters.

    Losses and metrics are modules, too. One without parameters may be called most often, and
    tells nothing of the work.
    """
    spent: dict[int, float] = {}
    for call in log.calls:
        spent[call.module] = spent.get(call.module, 0.0) + call.end - call.start
    heavy = {number: s for number, s in spent.items() if log.module(number).parameters}
    pool = heavy or spent
    return max(pool, key=pool.__getitem__, default=None)
