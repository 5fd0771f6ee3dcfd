"""State of the probe in one process."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from typing import Any, Callable, NoReturn

from .clocks import clock, monotonic, wall_time
from .recorder import Recorder, nothing

KEPT = 5
"""Errors and exceptions kept of one kind."""
NOTES_KEPT = 32
"""Notes for the user that are kept.

Judgement: fewer may cut one that explains a figure, more let a fault of each step fill the record.
"""
ROWS = 16384
"""Rows of calls that are told: a rollout of 128 steps of 64 environments, and its training.

Judgement: fewer end before the training that shows a rollout for one, more fill a log with each
row."""
MISSING = object()
SEEN = "_gpu_advisor_seen"
"""Attribute of recorded exceptions: what was recorded."""


class Unseen:
    """Context in which what we compute is no work of the program: see `Session.unseen`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hidden = session.torch._C.DisableTorchFunction()

    def __enter__(self) -> None:
        self._session.looking += 1
        self._hidden.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._hidden.__exit__(*raised)
        self._session.looking -= 1


class Patches:
    """Changes to other modules, taken back in the reverse order.

    A program, or a library beside us, may put its own function over ours. What is taken back
    then would take theirs away, too, so a change is undone only where it still stands.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` and remember what it replaced."""
        original = vars(owner).get(name, MISSING)
        setattr(owner, name, value)

        def take_back() -> None:
            if vars(owner).get(name) is value:
                restore(owner, name, original)

        self._undo.append(take_back)

    def wrap(self, owner: Any, name: str) -> Callable[[Any], None]:
        """Decorate what stands in for `owner.name`, and gets the original first."""

        def decorate(ours: Any) -> None:
            original = getattr(owner, name)

            @functools.wraps(original)  # torch's modes know functions by name
            def hook(*args: Any, **kwargs: Any) -> Any:
                return ours(original, *args, **kwargs)

            self.put(owner, name, hook)

        return decorate

    def on_undo(self, action: Callable[[], object]) -> None:
        self._undo.append(action)

    def undo(self) -> None:
        while self._undo:
            try:
                self._undo.pop()()
            except Exception:
                continue


def restore(owner: Any, name: str, original: Any) -> None:
    """Give an attribute its `original` back; MISSING: it was the class's, or there was none."""
    if original is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, original)


class Session:
    """One process of the user's program: what its hooks share.

    What a forked child inherits is set once, in `__init__`; what is this process's own, in
    `reset`. A child begins anew there, since its steps are other steps.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.plan: dict[str, Any] = spec.get("plan") or {}
        self.records = str(spec["records"])
        self.epoch: float = spec.get("epoch") or wall_time() - monotonic()
        """Added to the monotonic clock it gives the time of the records: no wall clock, as that
        steps."""
        self.boot_time = self.now()
        self.torch: Any = None
        self.unseen: Callable[[], Any] = contextlib.nullcontext
        """Context of operations that are ours: neither the program's torch function modes nor the
        trace of a step see them."""
        self.looking = 0
        """Such contexts that are open."""
        self.stacks: Any = None
        self.patches = Patches()
        self.device_patches = Patches()
        """Hooks of copies and waits, out while steps are only counted."""
        self.watch_device: Callable[[], object] = nothing
        """Puts them in, once the program uses CUDA."""
        self.overrides: list[Any] = []
        self.stand_in: Any = None
        """Card that the CPU stands in for, of a prediction."""
        self.tick: Callable[[float], object] = nothing
        """Periodic work, once torch is hooked."""
        self.leave: Callable[[int], NoReturn] = os._exit
        """os._exit before it was wrapped."""
        self.on_module: list[Callable[[Any], object]] = []
        """Overrides on each module with parameters, at its first call."""
        self.entrance: Any = None
        """Notices calls of modules from outside any module."""
        self.passes_begun = 0
        """Passes over loaders so far, which forked workers inherit."""
        self.reset()

    def reset(self) -> None:
        """Start afresh: at boot, and in a forked child."""
        self.pid = os.getpid()
        self.state = "torch" if self.torch is not None else "booted"
        self.muted: bool | None = None
        """True in a DataLoader worker; None until known."""
        self.recorder = Recorder(self.records, self.pid, self.epoch)
        self.counting = False
        """Only what counts steps is recorded."""
        self.passes = True
        """Backward passes are recorded: always where no optimizer steps."""
        self.spent_s = 0.0
        """Time the program lost in our hooks."""
        if self.entrance is not None:
            self.entrance.reset()  # the process that forked may count
        self.loaders: list[dict[str, Any]] = []
        self.fed: dict[str, Any] | None = None
        """Loader of the latest batch."""
        self.modules: list[Any] = []
        self.modules_by_id: dict[int, Any] = {}
        """An id may come back after its module is gone."""
        self.parameters_by_id: dict[int, Any] = {}
        """Weak references to the parameters of called modules."""
        self.generating = False
        """Inside a library's `generate`."""
        self.own_work: list[tuple[float, Callable[[], Any]]] | None = []
        """Own threads and pools: begin, and what gives them. None once steps have begun."""
        self.capture: Any = None
        """Events of a CUDA graph capture, which forbids queuing and waiting."""
        self.graph_replayed = False
        self.heavy_modules = 0
        """Called modules with parameters."""
        self.thread: int | None = None
        """Thread of the first forward: where the work is done."""
        self.device: Any = None
        """Marks of the card's work, once the program uses CUDA."""
        self.reading = False
        """The probe itself reads numbers from the card."""
        self.losses: list[Any] = []
        self.unscaled: Any = None
        """The loss before a GradScaler multiplied it."""
        self.updates = 0
        """Steps of optimizers so far."""
        self.in_closure = False
        """The optimizer's present step got a closure, which makes its gradients."""
        self.optimizers_built = 0
        self.first_weights: list[Any] | None = None
        """Some numbers of the weights before the first update; None until then."""
        self.rates: dict[int, list[tuple[Any, ...]]] = {}
        """Learning rate, and steps and losses so far, of the first updates by optimizer."""
        self.schedule_steps = 0
        self.average_steps = 0
        """Steps of torch's running averages of weights."""
        self.counts: list[Any] = []
        """Numbers of the program that may count its batches (`batch_counts.Count`)."""
        self.once_a_batch: list[str] | None = None
        """What the program draws, takes or moves once a batch; None: not looked at yet."""
        self.limits: dict[Any, Any] = {}
        """Numbers of calls after which loops without a loader end (`batch_limits`)."""
        self.copies: list[Any] = []
        """Copies of the weights that the program keeps, as far as found."""
        self.looks = 0
        """Backward passes at which they were looked at."""
        self.edited: list[Any] = []
        """Weights of which the program's own edits were counted."""
        self.outputs: list[Any] = []
        """Of the network's latest calls, until their loss is known (`mixed_losses`)."""
        self.mixing: list[tuple[Any, Any]] | None = None
        """Derivatives of a row's gradient by other rows, and by itself; None: not looked yet."""
        self.gradient_parts: dict[int, list[int]] = {}
        """By optimizer: weights with a gradient at each of its first steps."""
        self.watched: list[Any] = []
        """Weights whose edits are still watched (`own_edits`)."""
        self.rows_left = ROWS
        """Rows of calls that may still be told, where no loader feeds them."""
        self.losses_seen = 0
        """Losses that gradients were asked of."""
        self.optimizer_settings: dict[str, float] = {}
        self.batch_statistics: bool | None = None
        """A network normalises by the batch it trains on."""
        self.questions: set[str] = set()
        """What the program asked of its worker's info."""
        self.worker_watch: Any = None
        """In a worker: what its fetches changed."""
        self.worker_facts: dict[str, Any] = {}
        """What this worker tells the main process."""
        self.facts: dict[str, Any] = {"skipped_updates": 0, "arguments": {}}
        """Facts of the whole process, by name in the record."""
        self.writes: list[str] = []
        self.altered: list[str] = []
        self.guard: str | None = None
        """User's file that the guard kept unchanged."""
        self.exception: dict[str, Any] | None = None
        self.swallowed: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.errors: list[str] = []

        self.ticking = threading.Lock()
        self.due = 0.0
        """When a tick has work; infinite once the probe stepped aside."""
        self.next_beat = 0.0
        self.command = 0
        """Number of the last command carried out."""
        self.target: tuple[str, int] | None = None
        """Kind of event and count at which all ranks stop."""
        self.stopping = False
        self.diagnosis: Any = None
        """Set once the window is over and the parts are looked at."""
        self.fetching = False
        """Inside a loader's `__next__` meanwhile."""

    def now(self) -> float:
        """Epoch seconds of the records."""
        return self.epoch + monotonic()

    def is_muted(self) -> bool:
        """Return True in a forked DataLoader worker."""
        if self.muted is None:
            worker = sys.modules.get("torch.utils.data._utils.worker")
            self.muted = getattr(worker, "_worker_info", None) is not None
        return self.muted

    def works(self) -> bool:
        """Return True once the program itself has begun: a batch came, or a module was called.

        What it tries before, such as how much memory there is, is no work.
        """
        begun = self.thread is not None or any(
            loader["iterated"] for loader in self.loaders
        )
        return begun and not self.is_muted()

    def step_ended(self, now: float, source: Any) -> None:
        """Do what is due at a possible end of a step; `source` is what ended."""
        if self.capture is not None:
            return
        if self.device is not None:
            self.attempt(self.device.mark, now, source)
        if now >= self.due:
            self.tick(now)

    def switch(self, *, counting: bool, calls: bool = True) -> None:
        """Record only what counts steps (and calls if `calls`), or all again."""
        if counting == self.counting:
            return
        self.counting = counting
        self.entrance.want(calls)
        self.passes = not counting or calls or not self.updates
        if not counting:
            self.watch_device()
        elif self.device is not None:
            self.device_patches.undo()
        self.recorder.add(("hooks", clock(), counting, calls))

    def step_aside(self, problem: BaseException) -> None:
        """Remove every hook after a fatal probe error, and write the record."""
        self.fail(problem)
        self.due, self.state = float("inf"), "aside"
        self.patches.undo()

    def attempt(self, call: Callable[..., object], *args: Any) -> None:
        """Run a probe function and contain its errors; after KEPT of them no hook stays."""
        try:
            call(*args)
        except Exception as problem:
            self.fail(problem)
            if len(self.errors) >= KEPT:
                self.step_aside(problem)

    def fail(self, problem: BaseException) -> None:
        """Record an error of one part of the probe; the program and the other parts go on."""
        if len(self.errors) < KEPT:
            self.errors.append(text_of(problem)[-2000:])

    def note(self, line: str) -> None:
        if line not in self.notes and len(self.notes) < NOTES_KEPT:
            self.notes.append(line[:300])

    def record_exception(
        self, problem: BaseException, where: str, items: float | None = None
    ) -> None:
        """Record an exception that came out of the work, since the program may swallow it.

        A program that catches an out-of-memory error and goes on with the next batch has lost
        work and looks faster. `where` is the part of a step; `items` those of the batch that
        was lost, the latest where they are not told.
        """
        if self.diagnosis is not None:  # it raises its own
            return
        if SEEN in vars(problem):  # recorded as it was made; who caught it knows the place
            vars(problem)[SEEN]["where"] = where
            return
        self.recorder.flush()
        seen = self.recorder.last_items if items is None else items
        facts = {"where": where, "time": self.now(), "items": seen}
        name, message = type(problem).__name__, str(problem)[:500]
        record = {"type": name, "message": message, **facts}
        vars(problem)[SEEN] = record  # some classes refuse new attributes
        if len(self.swallowed) < KEPT:
            self.swallowed.append(record)

    def note_exception(self, problem: BaseException) -> None:
        """Record the exception that ends the program."""
        tail = text_of(problem)
        importing = isinstance(problem, (ImportError, SyntaxError))
        importing = importing or 'File "<frozen importlib' in tail
        self.recorder.flush()
        passes = [error for error in self.swallowed if error["where"] != "loading"]
        stepping = bool(self.recorder.known_steps() or passes)
        self.exception = {
            "type": type(problem).__name__,
            "message": str(problem)[:2000],
            "where": "step" if stepping else "import" if importing else "start",
            "tail": tail[-3000:],
        }


def text_of(problem: BaseException) -> str:
    """The traceback of an exception."""
    import traceback

    return "".join(
        traceback.format_exception(type(problem), problem, problem.__traceback__)
    )
