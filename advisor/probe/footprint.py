"""What one training step holds in memory at its fullest moment, by the tensors' own sizes.

Looked at after the window was measured, on the program's own next steps: from the end of one
optimizer step to the end of the next a mode of torch's sees every operation, and each storage that
comes or goes is added or taken off. Nothing of theirs changes.
"""

from __future__ import annotations

import importlib
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any, Iterable

from .ledger import OPTIMIZER
from .switches import compilations

if TYPE_CHECKING:
    from .session import Session

LONGEST_S = 10.0
"""Two steps that take longer are not waited for."""
WHOLE = 2
KINDS = ("model", "gradients", "optimizer", "activations", "workspace")
"""Parameters and buffers; their gradients; what the optimizer keeps; what forwards made; what
backwards and updates made."""

clock = time.perf_counter


class Footprint:
    """Live storages from one optimizer step's end to the next one's."""

    def __init__(self, session: Session, mode: Any) -> None:
        self._session, self._mode = session, mode
        self._device: Any = None
        """Where the model is: what lies elsewhere is not counted."""
        self._main: int | None = None
        self._updates = 0
        self._waits_since = clock()
        self._live: dict[int, tuple[int, str, int]] = {}
        """Number, kind and bytes by address of the storage; an address may come back."""
        self._made = 0
        self._held: dict[int, Any] = {}
        self._bytes = 0
        self._peak = -1
        self._at_peak: dict[int, tuple[int, str, int]] = {}
        self.done = False

    # --- storages -------------------------------------------------------------------------

    def made(self, result: Any, args: Any, kind: str) -> None:
        """Every storage that an operation made; one that came in is a view of what was there."""
        there = {s._cdata for s in map(self._storage, _tensors_in(args)) if s is not None}
        for tensor in _tensors_in(result):
            storage = self._storage(tensor)
            if storage is not None and storage._cdata not in there:
                self._add(storage, kind)

    def _storage(self, tensor: Any) -> Any:
        """Of a tensor that lies where the model does; None of others, and where it has none."""
        try:
            return tensor.untyped_storage() if tensor.device == self._device else None
        except (NotImplementedError, RuntimeError):
            return None

    def _add(self, storage: Any, kind: str) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._live or not size:
            return
        self._made += 1
        self._live[key] = (self._made, kind, size)
        self._held[key] = weakref.ref(storage, lambda _: self._gone(key))
        self._bytes += size
        if self._bytes > self._peak:
            self._peak = self._bytes
            self._at_peak = dict(self._live)

    def _gone(self, key: int) -> None:
        self._held.pop(key, None)
        *_, size = self._live.pop(key, (0, "", 0))
        self._bytes -= size

    # --- steps ----------------------------------------------------------------------------

    def stepped(self, optimizer: Any) -> None:
        """An optimizer made its step."""
        if self.done:
            return
        if self._main is None:
            self._main = id(optimizer)
        if id(optimizer) != self._main:
            return
        self._updates += 1
        if self._updates == 1:
            self._begin(optimizer)
        else:
            self._end(optimizer)

    def _begin(self, optimizer: Any) -> None:
        self._device = optimizer.param_groups[0]["params"][0].device
        for kind, tensors in self._kept(optimizer).items():
            for storage in filter(None, map(self._storage, tensors)):
                self._add(storage, kind)
        self._mode.__enter__()

    def _end(self, optimizer: Any) -> None:
        self._mode.__exit__(None, None, None)
        self.done = True
        kept = {}
        for kind, tensors in self._kept(optimizer).items():
            for storage in filter(None, map(self._storage, tensors)):
                number, *_ = self._live.get(storage._cdata, (0,))
                kept[number] = kind
        found = dict.fromkeys(KINDS, 0)
        for number, kind, size in self._at_peak.values():
            found[kept.get(number, kind)] += size
        self._session.footprint_bytes = found

    def _kept(self, optimizer: Any) -> dict[str, list[Any]]:
        """What stays from step to step, by kind."""
        modules = [root.module() for root in self._session.log.roots]
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        held = [p for m in modules if hasattr(m, "parameters") for p in _of_module(m)]
        parameters = {id(p): p for p in (*trained, *held)}
        gradients = [p.grad for p in parameters.values() if p.grad is not None]
        states = [t for state in optimizer.state.values() for t in _tensors(state.values())]
        return {"model": list(parameters.values()), "gradients": gradients, "optimizer": states}

    def given_up(self) -> bool:
        """Whether no step ended for so long that none is waited for."""
        if clock() - self._waits_since < LONGEST_S:
            return False
        if self._updates == 1:
            self._mode.__exit__(None, None, None)
        return True


def _tensors_in(value: Any) -> Iterable[Any]:
    """All of them, as operations take and give them: alone, or in lists of any length."""
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


def begin(session: Session, measured: dict[str, Any] | None) -> bool:
    """Start to look, where a single process trains by an optimizer of torch's; returns whether."""
    ledger = session.ledger
    if not measured or ledger is None or ledger.kind != OPTIMIZER or compilations():
        return False
    if WHOLE * measured["step_ms"] / 1000.0 > LONGEST_S:
        return False
    try:
        session.footprint = Footprint(session, None)
        session.footprint._mode = _mode(session.footprint)
    except Exception as problem:
        session.fail(problem)
        session.footprint = None
    return session.footprint is not None


def ended(session: Session) -> bool:
    """Whether the look is over; then what was seen is in the session."""
    if not session.footprint.done and not session.footprint.given_up():
        return False
    session.footprint = None
    return True


def _mode(footprint: Footprint) -> Any:
    """A mode that shows each operation's tensors. Made here, as torch is the program's to
    import."""
    mode: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    torch: Any = sys.modules["torch"]

    class Looking(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            backward = torch._C._current_graph_task_id() != -1
            forward = torch.is_grad_enabled() and not backward
            kind = "activations" if forward else "workspace"
            footprint.made(result, (args, tuple((kwargs or {}).values())), kind)
            return result

    return Looking()
