"""What the hooks saw, in order of time, as flat tuples; times are `time.perf_counter()`."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from . import batches, below
from .layers import LayerObserver
from .layout import Layout

LIMIT = 40_000
"""Entries kept of one kind; beyond it everything before the middle one of them is dropped."""
KINDS = (
    "nexts", "forwards", "inners", "backwards", "grads", "opts", "copies", "waits", "saves"
)  # fmt: skip
"""The lists of a Log."""

EXHAUSTED = -1.0
"""Items of a `next` that ended in StopIteration."""


SETTING_UP = 2
"""Batches or forwards of a program that may still be compiling."""

WATCHED_AT_FIRST = 32
WATCHED_LATER = 16
FEW_FORWARDS = 3
USED_AT_FIRST = 30
"""Fewer forwards than this in as many batches as are watched at first: some are skipped."""


class Root:
    """A module that is called from outside any module."""

    __slots__ = (
        "by_output",
        "calls",
        "compilations",
        "compiled",
        "counter",
        "dims",
        "entered",
        "firsts",
        "forgotten",
        "inners",
        "layout",
        "light",
        "looped",
        "module",
        "name",
        "number",
        "outputs",
        "parameters",
        "parts",
        "place",
        "same_shape",
        "scalars",
        "seen",
        "shapes",
        "site",
        "teller",
        "tokens",
        "values",
        "watched",
    )

    def __init__(self, module: Any, number: int, parameters: int) -> None:
        self.module = weakref.ref(module)
        self.number = number
        self.name = type(module).__name__
        self.parameters = parameters
        self.calls = 0
        self.light = False
        """A loss function or the like beside a real root: nothing is to be learnt from it."""
        self.entered = False
        """It was called from outside any module."""
        self.counter = batches.Counter(least_depth=2)  # (args, kwargs) are no batch themselves
        self.by_output: bool | None = None
        """Only the output tells the number of items; None before the first call."""
        self.inners: list[Root] = []
        """Networks that it calls many times within one forward, see `inner`."""
        self.looped: float | None = None
        """Calls of such a network in one forward, where they are too quick to be followed."""
        self.shapes: tuple[str, ...] = ()
        self.dims: list[list[int]] = []
        """Whole shapes of the tensors that went into its first call."""
        self.site: str | None = None
        """`file.py:line` of its first call."""
        self.outputs: list[Any] = []
        self.firsts: list[tuple[list[Any], list[Any]]] = []
        """Of the first calls: numbers that went in, and what came out."""
        self.parts = below.Parts(None)
        """What is looked at below it."""
        self.compiled, self.compilations = False, -1
        """Whether any of it was, after so many times that the program compiled something."""
        self.seen: dict[str, Any] = {}
        self.same_shape = False
        """The output has the shape of the input: what a denoiser does, and a classifier not."""
        self.scalars: list[dict[str, Any]] = []
        """Numbers among the arguments of each call, where no loader tells items apart."""
        self.forgotten = 0
        """Of its calls from outside, those that the log no longer holds."""
        self.watched: list[tuple[Any, dict[str, int]]] = []
        """Leaves that carry a hook during this call, and parameters by output dtype."""
        self.teller: LayerObserver | None = None
        """What its layers say during its first call, and then what came of that."""
        self.layout: Layout | None = None
        self.tokens = (0.0, 0.0)
        """Tokens and items of the calls so far, where tokens were seen."""
        self.values: list[list[Any]] = []
        """A few numbers of its parameters: early on, and later."""
        self.place: tuple[bool, Any, int] | None = None
        """Once nothing else is left to be learnt: (whether among args, else kwargs, which of them,
        dimension that counts the items)."""

    def parts_of(self, module: Any) -> below.Parts:
        """What is looked at below it now; `module`: the one that it stands for."""
        if not self.parts.are_current():
            self.parts = below.Parts(module)
        return self.parts

    @property
    def unit(self) -> str:
        """What one of its items is: sample, or token where the samples cannot be told."""
        return self.layout.unit if self.layout is not None else "sample"

    def counted(self, args: Any, kwargs: Any) -> float:
        """Items of one more call like the others, of which the `place` is known."""
        try:
            in_args, key, axis = self.place  # type: ignore[misc]
            value = args[key] if in_args else kwargs[key]
            items: float = value.shape[axis]
        except Exception:  # it is called in another way now: learn it anew
            self.place = None
            return self.items((args, kwargs or {}))
        layout = self.layout
        if layout is not None and layout.tokens is not None:
            tokens, before = self.tokens
            self.tokens = tokens + value.numel(), before + items
        return items

    def items(self, inputs: Any) -> float:
        """Items that go through one call with `inputs`, (args, kwargs)."""
        if self.layout is None:
            return self.counter.count(inputs)
        found = self.layout.count(inputs)
        if found is None:
            return self.counter.count(inputs)
        if self.layout.tokens is not None:
            tokens, items = self.tokens
            self.tokens = tokens + (self.layout.count_tokens(inputs) or 0.0), items + found
        return found


class Rota:
    """Which batches have their root forwards watched.

    All at first; then, where a batch needs few forwards, one in sixteen: they only serve to tell
    where the time goes, and watching one costs about ten microseconds.
    """

    def __init__(self) -> None:
        self.on = True
        self.always = False
        """Every batch, for a while."""
        self._seen: dict[int, int] = {}
        """Batches so far, by loader; negative for an iterative sampler's."""
        self._began: dict[int, int] = {}
        """Root forwards when a loader's first batch came."""

    def turn(self, loader: int, log: Log, samples: bool) -> bool:
        """Whether the batch that just came from `loader` is watched; of mere `samples` all are."""
        seen = self._seen[loader] = self._seen.get(loader, 0) + 1
        if seen <= WATCHED_AT_FIRST:
            self.on = True
            if seen == 1:
                self._began[loader] = log.count("forwards") + log.count("inners")
            elif seen == WATCHED_AT_FIRST:
                forwards = log.count("forwards") + log.count("inners") - self._began[loader]
                many = forwards >= FEW_FORWARDS * WATCHED_AT_FIRST
                if many or 0 < forwards < USED_AT_FIRST:
                    self._seen[loader] = -(10**9)  # its forwards are its steps, or it skips some
        else:
            self.on = self.always or samples or not seen % WATCHED_LATER
        return self.on


class Log:
    """Flat lists that only grow; a hook appends one tuple and goes on."""

    def __init__(self) -> None:
        self.nexts: list[tuple[float, float, int, float, bool]] = []
        """(enter, exit, loader, items, watched); a loader is an index into `loaders`. Root
        forwards are only seen while the latest batch is a watched one."""
        self.forwards: list[tuple[float, float, int, float, bool]] = []
        """(enter, exit, root, batch, graded) of calls at depth 0; a root is an index into
        `roots`; graded: gradients were enabled."""
        self.inners: list[tuple[float, float, int, float, bool]] = []
        """The same of networks called many times within a root's forward."""
        self.running: tuple[float, int] | None = None
        """(enter, root) of the root that runs, where its inner calls are followed."""
        self.backwards: list[tuple[float, float, bool]] = []
        """(enter, exit, fresh); fresh: gradients had been taken up, or there were none yet."""
        self.grads: list[tuple[float, float, bool]] = []
        """The same of gradients that were asked for by `autograd.grad` and torch.func."""
        self.opts: list[tuple[float, float, int]] = []
        """(enter, exit, optimizer)"""
        self.copies: list[tuple[float, float]] = []
        """(enter, exit) of what copies to a device, where the program uses one."""
        self.waits: list[tuple[float, float]] = []
        """(enter, exit) of what waits for a device."""
        self.saves: list[tuple[float, float]] = []
        """(enter, exit) of torch.save and the like."""
        self.loaders: list[dict[str, Any]] = []
        self.roots: list[Root] = []
        self.warm_until = 0.0
        """Until then a one-time cost was being paid; the window begins later."""
        self.thread: int | None = None
        """Of the first root forward: where the work is done."""
        self.dropped = dict.fromkeys(KINDS, 0)
        """Entries no longer held, by kind."""
        self._first: float | None = None

    @property
    def passes(self) -> list[tuple[float, float, bool]]:
        """What took gradients for an update: backward passes, else those asked for by name."""
        return self.backwards or self.grads

    def count(self, kind: str) -> int:
        """Entries of `kind` so far, those no longer held included."""
        return self.dropped[kind] + len(getattr(self, kind))

    def is_read_aside(self, loader: int) -> bool:
        """Whether another thread than the one that works takes its batches."""
        return self.thread not in (None, self.loaders[loader].get("thread", self.thread))

    def trim(self) -> None:
        """Keep the lists bounded in programs that run for hours: all end at one moment, so that
        what remains still fits together."""
        longest: list[Any] = max((getattr(self, kind) for kind in KINDS), key=len)
        if len(longest) <= LIMIT:
            return
        self._first = self.first_time()
        cut = longest[len(longest) // 2][0]
        for kind in KINDS:
            entries = getattr(self, kind)
            many = sum(1 for _ in itertools.takewhile(lambda entry: entry[0] < cut, entries))
            for entry in entries[:many] if kind == "forwards" else ():
                self.roots[entry[2]].forgotten += 1
            self.dropped[kind] += many
            del entries[:many]

    def at_work(self) -> bool:
        """Steps come and go; before that, a long silence is start-up (workers, compilation)."""
        most = max(self.count(kind) for kind in ("forwards", "inners", "nexts", "backwards"))
        return bool(self.opts) or most > SETTING_UP

    def last_items(self) -> float:
        """Items of the latest batch, or forward; 0 before any."""
        entries = self.nexts or self.forwards
        return max(entries[-1][3], 0.0) if entries else 0.0

    def steps(self) -> int:
        """Steps so far, of what tells best: optimizers, else batches, forwards or gradients."""
        kinds = ("nexts", "forwards", "inners", "backwards", "grads")
        return self.count("opts") or max(self.count(kind) for kind in kinds)

    def whole_steps(self, built: bool) -> int:
        """Steps that came to their end: a call within a root's forward is none, and of a program
        that has `built` an optimizer nothing before its update."""
        if built or self.opts:
            return self.count("opts")
        return max(self.count(kind) for kind in ("nexts", "forwards", "backwards", "grads"))

    def first_time(self) -> float | None:
        """End of the first batch's loading, or else the first entry's begin."""
        if self._first is not None:
            return self._first
        if self.nexts:
            return self.nexts[0][1]
        calls = self.forwards or self.inners or self.passes
        return calls[0][0] if calls else None

    def last_time(self) -> float | None:
        """End of the latest entry, or None before the first."""
        ends = [
            entries[-1][1]
            for entries in (self.nexts, self.forwards, self.inners, self.passes, self.opts)
            if entries
        ]
        return max(ends) if ends else None
