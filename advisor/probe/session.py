"""The process-wide state of the probe. It holds; `control` acts."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Callable

from .clock import DeviceClock
from .entrance import Entrance
from .learning import Learning
from .log import Log, Root, Rota
from .patches import Patches
from .resting import Rest

if TYPE_CHECKING:
    from .steps import Ledger
    from .window import Window

KEPT = 5
"""Errors and exceptions of one kind that are kept."""
NOTES_KEPT = 32


class Session:
    """One process of the user's program."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.plan: dict[str, Any] = spec.get("plan") or {}
        self.records = str(spec["records"])
        self.boot_time = time.time()
        self.torch: Any = None
        self.stacks: Any = None
        self.patches = Patches()
        self.whatif: Any = None
        """The plan's what-if, once torch is there."""
        self.leave: Callable[[int], object] = os._exit
        """os._exit as it was before it was wrapped."""
        self.on_root: list[Callable[[Any], object]] = []
        """What-ifs that act on each root module with parameters when it is first called."""
        self.entrance = Entrance({})
        """Where calls of root modules are noticed."""
        self.settled: Any = None
        """The classes that tell of them by themselves."""
        self.rest = Rest()
        self.reset()

    def reset(self) -> None:
        """Start afresh: at boot, and in a forked child."""
        self.pid = os.getpid()
        self.state = "torch" if self.torch is not None else "booted"
        self.muted: bool | None = None
        """True in a DataLoader worker; None until it is known."""
        self.epoch = time.time() - time.perf_counter()
        """perf_counter + epoch = seconds since 1970."""

        self.log = Log()
        self.rest.start_over(self.log)
        self.roots: dict[int, Root] = {}
        """By id of the module; an id may come back after its module is gone."""
        self.watch: Any = None
        """Of the root that runs, where what it calls is followed."""
        self.root_runs = False
        """Inside a root's forward."""
        self.capture: Any = None
        """While a CUDA graph is captured: nothing of ours may be queued, nobody may wait."""
        self.heavy_roots = 0
        """Those that hold parameters."""
        self.compilations = 0
        """Times that the program had something compiled."""
        self.rota = Rota()
        self.clock: DeviceClock | None = None
        """Once the program uses CUDA."""
        self.replay: Any = None
        """Set while a cached batch stands in for the loader."""
        self.due = 0.0
        self.fetching = False
        """Inside a loader's `next`."""
        self.syncs: Any = None
        """Where numbers are given to the host, once steps are seen."""
        self.losses: list[Any] = []
        self.unscaled: Any = None
        """The loss before a GradScaler multiplied it."""
        self.optimizers_built = 0
        self.skipped_updates = 0
        self.learning = Learning()
        self.fused: bool | None = None
        """Of the first optimizer that stepped."""
        self.recomputes: bool | None = None
        """Activations were computed twice to save memory; None where that cannot be seen."""
        self.asked_gradients = False
        """Gradients were asked for that update nothing by themselves."""
        self.set_to_none: bool | None = None
        """What zero_grad was last asked for."""
        self.kept_batch: tuple[int, Any, float] | None = None
        """(loader, batch, items) to be replayed, where ceilings are asked for."""
        self.arguments: dict[str, Any] = {}
        self.defaulted: list[str] = []
        self.writes: list[str] = []
        self.unreached: list[str] = []
        """Command lines of Pythons that were started where the probe cannot follow."""
        self.guard: str | None = None
        self.exception: dict[str, Any] | None = None
        self.swallowed: list[dict[str, Any]] = []
        self.ran_out: tuple[float, float] | None = None
        """When memory ran out last, and the items of the batch that it was for."""
        self.notes: list[str] = []
        self.errors: list[str] = []

        self.next_beat = 0.0
        self.next_check = float("inf")
        self.first_event: float | None = None
        self.target: tuple[str, int] | None = None
        """The announced end of a job of several ranks: kind of step, and its count."""
        self.cut_short = False
        """The longest time of the plan was over before the window was full."""
        self.stopping = False
        self.ceilings: dict[str, Any] | None = None
        self.tally: Any = None
        """Set while the operations of a step are counted, after the window."""
        self.flops: dict[str, Any] | None = None
        """What came of that."""
        self.footprint: Any = None
        """Set while the memory of a step is looked at, after the window."""
        self.footprint_bytes: dict[str, int] | None = None
        """What came of that, by kind."""
        self.replayed = False
        """A CUDA graph was: what it captured follows no switch any more."""
        self.frozen: dict[str, Any] | None = None
        """The record's content as of the end of the window, while something else is measured."""
        self.ledger: Ledger | None = None
        """Of the last full reading."""
        self.window: Window | None = None
        """Of that."""

    @property
    def due(self) -> float:
        """When a tick has something to do; infinite once the probe stepped aside."""
        return self._due

    @due.setter
    def due(self, moment: float) -> None:
        self._due = moment
        everything = self.clock is not None or self.replay is not None
        self.rest.calm_until = 0.0 if everything else moment

    def may_rest(self) -> bool:
        """Nobody wants to see more of a step than how long it takes."""
        return (
            self.state == "stepping"
            and self.frozen is None
            and self.clock is None
            and self.target is None
            and not self.recomputes
            and (self.rest.last.batches > 0 or not self.entrance.met)
            and all(facts["padding"] is None for facts in self.log.loaders)
        )

    def step_aside(self, problem: BaseException) -> None:
        """An error of ours that the measurement does not survive: take every hook back."""
        self.fail(problem)
        self.leave_alone()

    def leave_alone(self) -> None:
        """Take every hook back; the last of what is undone writes the record."""
        self.due, self.state = float("inf"), "aside"
        self.patches.undo()

    def attempt(self, call: Callable[..., object], *args: Any) -> None:
        """Run one of ours where the program must go on whatever happens."""
        try:
            call(*args)
        except Exception as problem:
            self.fail(problem)
            if len(self.errors) >= KEPT:
                self.leave_alone()

    def fail(self, problem: BaseException) -> None:
        """An error of ours in a part that the others do not need."""
        import traceback

        if len(self.errors) < KEPT:
            trace = traceback.format_exception(type(problem), problem, problem.__traceback__)
            self.errors.append("".join(trace)[-2000:])

    def note(self, line: str) -> None:
        """Something that a reader of the record should know, once."""
        if line not in self.notes and len(self.notes) < NOTES_KEPT:
            self.notes.append(line[:300])

    def swallow(self, problem: BaseException, where: str, items: float | None = None) -> None:
        """An exception that passed through torch, for a batch of so many items if that is known;
        whether the program lives on is seen later.

        One of a replayed batch is ours: the program never goes through a batch twice. One under a
        switch that is tried in turn says nothing of the program as it is.
        """
        if self.replay is not None:
            return
        if "OutOfMemory" in type(problem).__name__ or "out of memory" in str(problem):
            items = self.log.last_items() if items is None else items
            self.ran_out = (time.perf_counter(), items)
        if len(self.swallowed) < KEPT:
            self.swallowed.append(
                {"type": type(problem).__name__, "message": str(problem)[:500], "where": where}
            )

    def note_exception(self, kind: Any, problem: Any, trace: Any) -> None:
        """An exception that ends the program: what, and how far the program was."""
        import traceback

        frames = traceback.extract_tb(trace)
        importing = isinstance(problem, (ImportError, SyntaxError)) or any(
            frame.filename.startswith("<frozen importlib") for frame in frames
        )
        log = self.log
        stepping = bool(log.steps() or self.swallowed)
        self.exception = {
            "type": getattr(kind, "__name__", str(kind)),
            "message": str(problem)[:2000],
            "where": "step" if stepping else "import" if importing else "start",
            "tail": "".join(traceback.format_exception(kind, problem, trace))[-3000:],
        }

    @property
    def rank(self) -> int:
        """Rank in the job; 0 outside one."""
        return _distributed("RANK", "get_rank", 0)

    @property
    def world_size(self) -> int:
        """Ranks of the job; 1 outside one."""
        return _distributed("WORLD_SIZE", "get_world_size", 1)


def _distributed(name: str, getter: str, default: int) -> int:
    dist = sys.modules.get("torch.distributed")
    try:
        if dist is not None and dist.is_available() and dist.is_initialized():
            return int(getattr(dist, getter)())
        return int(os.environ.get(name, default))
    except Exception:
        return default


def load_spec(path: str) -> dict[str, Any]:
    """spec.json as the launcher wrote it."""
    with open(path, encoding="utf-8") as file:
        spec: dict[str, Any] = json.load(file)
    return spec
