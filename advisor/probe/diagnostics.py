"""Diagnostics after the window: operations, memory and parts.

The window is kept, whatever goes wrong here. One of the program's own next steps goes on under a
mode of torch's that sees every operation: those that torch has a formula for are added up, and
every storage that comes or goes is counted. Then the loop runs on with one cached batch in place of
its loader (compute alone), and the loader is rebuilt at several worker counts and drained.
"""

from __future__ import annotations

import importlib
import sys
import time
import weakref
from typing import Any, Callable, Iterable, NamedTuple

from . import batches
from .override_impls import compilations
from .session import Session

LONGEST_S = 10.0
"""Two steps that take longer are not waited for."""
WHOLE = 2
"""Steps that begin before one is seen from its begin to its end."""
NAMES_KEPT = 8
KNOWN = ("aten", "prim", "prims", "profiler")
"""Namespaces of torch's own operations; those of its profiler compute nothing."""
OPAQUE = ("rnn", "lstm", "gru")
"""Torch's own that do much work and have no formula."""
KINDS = ("model", "gradients", "optimizer", "activations", "workspace")
"""Parameters and buffers; their gradients; what the optimizer keeps; what forwards made; what
backwards and updates made."""
REPLAY_DISCARDED = 2
REPLAY_LEAST = 3
PATIENCE = 8.0
"""A loader is given this many times the measured seconds, start-up included."""

clock = time.perf_counter


class Diagnosis:
    """Diagnostic phases: profiled step, batch replay, loader alone."""

    def __init__(
        self, session: Session, command: dict[str, Any], stop: Callable[[Session], object]
    ) -> None:
        self._session, self._stop = session, stop
        self._boundary = str(command.get("boundary"))
        """Kind of event that ends a step."""
        loader = command.get("loader")
        self._loader = loader if isinstance(loader, int) and loader < len(session.loaders) else None
        self._step_s = float(command.get("step_s") or 0.0)
        self._replays = bool(command.get("replay"))
        self._limit_s = float(session.plan.get("ceilings_s") or 1.5)
        self._profile: StepProfile | None = None
        self._optimizer: int | None = None
        """Id of the one whose step ends a profiled step."""
        self._flops: dict[str, Any] | None = None
        self._footprint: dict[str, int] | None = None
        self._alone: dict[str, Any] = {"compute_units_per_s": None, "loader": [], "notes": []}
        self._batch: Any = None
        self._count = 0
        self._start = 0.0
        self._phase = "profile"

    def begin(self) -> None:
        """Start the first possible phase."""
        why = _not_countable(self._session, self._step_s)
        if why is not None:
            self._flops = {"why": why}
            self._go_on()

    def unfinished(self) -> str:
        """Note that the program came to its end meanwhile."""
        if self._phase == "profile":
            return "the program ended while a step of it was looked at"
        return "the program did not live through a replayed batch"

    def found(self) -> dict[str, Any]:
        """Entries of the record."""
        alone = self._alone
        if self._loader is None:
            alone = {**alone, "notes": ["no DataLoader to replay"]}
        return {"flops": self._flops, "footprint": self._footprint, "ceilings": alone}

    # --- one step under a mode -------------------------------------------------------------

    def at(self, kind: str, optimizer: Any = None) -> None:
        """A step may end here."""
        if self._phase != "profile" or kind != self._boundary:
            return
        if self._optimizer not in (None, id(optimizer)):
            return
        self._session.attempt(self._at_boundary, optimizer)
        if self._phase != "profile":
            self._go_on()

    def _at_boundary(self, optimizer: Any) -> None:
        if self._profile is None:
            self._optimizer = None if optimizer is None else id(optimizer)
            self._profile = StepProfile(self._session, optimizer)
            self._profile.begin()
            return
        self._phase = "alone"
        self._profile.end()
        self._flops, self._footprint = self._profile.flops, self._profile.footprint

    def _go_on(self) -> None:
        """Replay a batch, or end the diagnostics."""
        self._phase = "alone"
        if self._loader is None:
            self._stop(self._session)
        elif not self._replays:
            self._finish()

    # --- compute alone ---------------------------------------------------------------------

    def fetch(self, iterator: Any, fetch: Callable[[Any], Any], index: int) -> Any:
        """Return the loader's batch, or the cached one."""
        if self._phase == "profile" and index == self._loader:
            self.at("batch")
        if self._phase == "profile" or index != self._loader:
            return fetch(iterator)
        if self._batch is None:
            self._batch = fetch(iterator)
            counter = self._session.loaders[index]["counter"]
            self._items = counter.count(self._batch)
            return batches.copied(self._batch)
        self._count += 1
        if self._count == REPLAY_DISCARDED:
            self._synchronize()
            self._start = clock()
        done = self._count - REPLAY_DISCARDED
        if done >= REPLAY_LEAST and clock() - self._start >= self._limit_s:
            self._synchronize()
            rate = done * self._items / (clock() - self._start)
            self._alone["compute_units_per_s"] = rate
            self._finish()
        return batches.copied(self._batch)

    def _synchronize(self) -> None:
        cuda = self._session.torch.cuda
        if cuda.is_initialized():
            cuda.synchronize()

    # --- loader alone ----------------------------------------------------------------------

    def _finish(self) -> None:
        """Drain the loader, and stop."""
        session = self._session
        session.muted = True
        session.attempt(self._drain)
        self._stop(session)

    def _drain(self) -> None:
        """Iterate the loader alone at each worker count."""
        facts, notes = self._session.loaders[self._loader or 0], self._alone["notes"]
        loader = facts["loader"]() if facts.get("loader") else None
        if loader is None:
            notes.append("the DataLoader is gone")
            return
        _release(facts)
        for workers in self._session.plan.get("ceilings_workers") or ():
            try:
                again = _rebuilt(self._session.torch, loader, int(workers))
                rate, count = _drained(again, facts, int(workers), self._limit_s)
            except Exception as problem:
                notes.append(f"{_alone(int(workers))}: {type(problem).__name__}: {problem}"[:300])
                continue
            if rate is None:
                notes.append(too_few(int(workers), count))
            else:
                entry = {"workers": int(workers), "units_per_s": rate, "batches": count}
                self._alone["loader"].append(entry)


def too_few(workers: int, count: int) -> str:
    """Note that the batches were too few for a rate."""
    batches = "1 batch" if count == 1 else f"{count} batches"
    return f"{_alone(workers)}: {f'only {batches}' if count else 'no batch'} came"


def _alone(workers: int) -> str:
    return f"loader alone with {workers} worker{'s' * (workers != 1)}"


def _release(facts: dict[str, Any]) -> None:
    """The program's own workers must not load along."""
    held = facts.get("iterator")
    iterator = held() if held is not None else None
    shut_down = getattr(iterator, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()


def _rebuilt(torch: Any, loader: Any, workers: int) -> Any:
    data = torch.utils.data
    options: dict[str, Any] = {
        "num_workers": workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
    }
    if workers:
        options["prefetch_factor"] = loader.prefetch_factor or 2
        options["timeout"] = loader.timeout
        options["multiprocessing_context"] = loader.multiprocessing_context
    own = loader.batch_sampler
    if isinstance(loader.dataset, data.IterableDataset):
        options.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
    elif own is None:
        options.update(batch_size=None, sampler=loader.sampler)
    elif type(own) is data.BatchSampler:
        options.update(batch_size=own.batch_size, sampler=own.sampler, drop_last=own.drop_last)
    else:
        options["batch_sampler"] = own
    return data.DataLoader(loader.dataset, **options)


def _drained(
    loader: Any, facts: dict[str, Any], workers: int, seconds: float
) -> tuple[float | None, int]:
    """Units per second and batches counted after warm-up."""
    counter = batches.Counter(facts["counter"].expected)
    began, start, end = clock(), None, 0.0
    items, count = 0.0, 0
    for seen, batch in enumerate(loader, 1):
        now = clock()
        if start is not None:
            items += counter.count(batch)
            count += 1
            end = now
            if now - start >= seconds:
                break
        elif seen >= max(1, workers):
            start = now
        if now - began > PATIENCE * max(seconds, 1.0):
            break
    if start is None or count < 2 or end <= start:
        return None, count
    return items / (end - start), count


# --- one step -----------------------------------------------------------------------------


class _Storage(NamedTuple):
    """Storage of the step: time, origin and bytes."""

    number: int
    kind: str
    size: int


class StepProfile:
    """Operations and live storages of one whole step."""

    def __init__(self, session: Session, optimizer: Any) -> None:
        self._session, self._optimizer = session, optimizer
        self._mode = _mode(self)
        self._formulas = _formulas()
        self.flops: dict[str, Any] | None = None
        self.footprint: dict[str, int] | None = None
        self.operations = 0
        self.uncounted: set[str] = set()
        self._device: Any = None
        """Device of the model: what lies elsewhere is not counted."""
        self._live: dict[int, _Storage] = {}
        """By address, which may come back."""
        self._held: dict[int, Any] = {}
        self._made = 0
        self._freed: list[tuple[int, _Storage]] = []
        """Storages that went, each with the number of those made by then."""
        self._bytes = self._peak = 0
        self._peak_made = 0
        """Storages made by the peak."""

    def begin(self) -> None:
        """Watch every operation from now on."""
        if self._optimizer is not None:
            self._device = self._optimizer.param_groups[0]["params"][0].device
            for kind, tensors in self._kept().items():
                for storage in filter(None, map(self._storage, tensors)):
                    self._add(storage, kind)
        self._mode.__enter__()

    def end(self) -> None:
        """Stop watching, and sum up."""
        self._mode.__exit__(None, None, None)
        names = sorted(self.uncounted)[:NAMES_KEPT]
        self.flops = {"per_step": float(self.operations), "uncounted": names}
        if self._device is not None:
            self.footprint = self._at_peak()

    def _at_peak(self) -> dict[str, int]:
        """Bytes of each kind at the fullest moment.

        Kinds of storages that stay from step to step are known at the end only.
        """
        kept = {}
        for kind, tensors in self._kept().items():
            for storage in filter(None, map(self._storage, tensors)):
                entry = self._live.get(storage._cdata)
                if entry is not None:
                    kept[entry.number] = kind
        found = dict.fromkeys(KINDS, 0)
        gone = [entry for made, entry in self._freed if made >= self._peak_made]
        for entry in (*self._live.values(), *gone):
            if entry.number <= self._peak_made:
                found[kept.get(entry.number, entry.kind)] += entry.size
        return found

    def counted(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one operation, and add up what it takes."""
        formula = self._formulas.get(func._overloadpacket)
        if formula is None and func.namespace != "prim":
            with self._mode:  # in inference mode what is made of others comes whole
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        result = func(*args, **kwargs)
        try:
            if formula is not None:
                self.operations += formula(*args, **kwargs, out_val=result)
            elif func.namespace not in KNOWN or any(part in str(func) for part in OPAQUE):
                self.uncounted.add(str(func._overloadpacket))
        except Exception:
            self.uncounted.add(str(func._overloadpacket))
        if self._device is not None:
            self.made(result, (args, tuple(kwargs.values())))
        return result

    # --- storages --------------------------------------------------------------------------

    def made(self, result: Any, args: Any) -> None:
        """Count every storage that an operation made."""
        torch = self._session.torch
        backward = torch._C._current_graph_task_id() != -1
        kind = "activations" if torch.is_grad_enabled() and not backward else "workspace"
        there = {s._cdata for s in map(self._storage, _tensors_in(args)) if s is not None}
        for tensor in _tensors_in(result):
            storage = self._storage(tensor)
            if storage is not None and storage._cdata not in there:
                self._add(storage, kind)

    def _storage(self, tensor: Any) -> Any:
        """Storage of a tensor on the model's device."""
        try:
            return tensor.untyped_storage() if tensor.device == self._device else None
        except (NotImplementedError, RuntimeError):
            return None

    def _add(self, storage: Any, kind: str) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._live or not size:
            return
        self._made += 1
        self._live[key] = _Storage(self._made, kind, size)
        self._held[key] = weakref.ref(storage, lambda _: self._gone(key))
        self._bytes += size
        if self._bytes > self._peak:
            self._peak, self._peak_made = self._bytes, self._made

    def _gone(self, key: int) -> None:
        self._held.pop(key, None)
        entry = self._live.pop(key, None)
        if entry is not None:
            self._freed.append((self._made, entry))
            self._bytes -= entry.size

    def _kept(self) -> dict[str, list[Any]]:
        """Tensors that stay from step to step, by kind."""
        optimizer = self._optimizer
        modules = [entry.module() for entry in self._session.modules]
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        held = [p for m in modules if hasattr(m, "parameters") for p in _of_module(m)]
        parameters = {id(p): p for p in (*trained, *held)}
        gradients = [p.grad for p in parameters.values() if p.grad is not None]
        states = [t for state in optimizer.state.values() for t in _tensors(state.values())]
        return {"model": list(parameters.values()), "gradients": gradients, "optimizer": states}


def _tensors_in(value: Any) -> Iterable[Any]:
    """Yield all tensors in an operation's values."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors_in(each)


def _of_module(module: Any) -> Iterable[Any]:
    yield from module.parameters()
    yield from module.buffers()


def _tensors(values: Iterable[Any]) -> Iterable[Any]:
    return (value for value in values if hasattr(value, "untyped_storage"))


def _not_countable(session: Session, step_s: float) -> str | None:
    """Reason why no step can be profiled, or None."""
    modules: Any = sys.modules["torch.nn.modules.module"]
    if not hasattr(modules, "_global_forward_hooks_always_called") or not _formulas():
        return "this version of torch cannot count them"
    if compilations():
        return "compiled code does not show its operations"
    scripted = sys.modules["torch"].jit.ScriptModule
    if any(isinstance(entry.module(), scripted) for entry in session.modules):
        return "scripted code does not show its operations"
    if session.graph_replayed:
        return "CUDA graphs do not show their operations"
    if WHOLE * step_s > LONGEST_S:
        return f"{WHOLE} steps take longer than {LONGEST_S:g} s"
    return None


def _formulas() -> dict[Any, Callable[..., Any]]:
    """Torch's FLOP formulas by operation, if available."""
    try:
        counter = importlib.import_module("torch.utils.flop_counter")
    except ImportError:
        return {}
    return getattr(counter, "flop_registry", {})


def _mode(profile: StepProfile) -> Any:
    """Make the dispatch mode that observes operations."""
    mode: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Watching(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return profile.counted(func, args, kwargs or {})

    return Watching()
