"""Profile of one whole step: floating-point operations and memory by kind.

The step goes on under a mode of torch's that sees every operation. Those that torch has a formula
for are added up, and every storage that comes or goes is counted.
"""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from typing import Any, Callable, Iterable

from .module_facts import parameters
from .overrides import compilations
from .session import Session

NAMES_KEPT = 8
KNOWN = ("aten", "prim", "prims", "profiler")
"""Namespaces of torch's own operations; those of its profiler compute nothing."""
OPAQUE = ("rnn", "lstm", "gru")
"""Torch's own that do much work and have no formula."""


class StepProfile:
    """Operations and live storages of one whole step."""

    def __init__(self, session: Session, optimizer: Any) -> None:
        self._session, self._optimizer = session, optimizer
        self._mode = _mode(self)
        self._formulas = formulas()
        self.operations = 0
        self.uncounted: set[str] = set()
        groups = optimizer.param_groups if optimizer is not None else ()
        self._device: Any = groups[0]["params"][0].device if groups else None
        """Device of the model: memory elsewhere is not counted."""
        self._live: dict[int, Any] = {}
        """Sizes and references of storages, by address, which may come back."""
        self._bytes = self._peak = 0

    def begin(self) -> None:
        """Watch every operation from now on."""
        for storages in self._kept().values():
            self._add(storages)
        self._mode.__enter__()

    def end(self) -> dict[str, Any]:
        """Stop watching; return entries of the record."""
        self._mode.__exit__(None, None, None)
        names = sorted(self.uncounted)[:NAMES_KEPT]
        found = {"flops": {"per_step": float(self.operations), "uncounted": names}}
        if self._device is not None:
            kept = {kind: sum(s.nbytes() for s in held) for kind, held in self._kept().items()}
            found["footprint"] = {**kept, "activations": max(0, self._peak - sum(kept.values()))}
        return found

    def counted(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one operation, and add up its work and results."""
        formula = self._formulas.get(func._overloadpacket)
        if formula is None and func.namespace != "prim":
            with self._mode:  # composed operations come whole in inference mode
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        result = func(*args, **kwargs)
        name = str(func._overloadpacket)
        try:
            if formula is not None:
                self.operations += formula(*args, **kwargs, out_val=result)
            elif func.namespace not in KNOWN or any(part in name for part in OPAQUE):
                self.uncounted.add(name)
        except Exception:
            self.uncounted.add(name)
        there = {s._cdata for s in self._storages((args, tuple(kwargs.values())))}
        self._add(s for s in self._storages(result) if s._cdata not in there)
        return result

    def _storages(self, value: Any) -> Iterable[Any]:
        """Yield storages of nested tensors on the model's device."""
        if isinstance(value, (list, tuple)):
            for each in value:
                yield from self._storages(each)
        elif hasattr(value, "untyped_storage"):
            try:
                if value.device == self._device:
                    yield value.untyped_storage()
            except (NotImplementedError, RuntimeError):
                return

    def _add(self, storages: Iterable[Any]) -> None:
        for storage in storages:
            key, size = storage._cdata, storage.nbytes()
            if key not in self._live and size:
                self._live[key] = size, weakref.ref(storage, functools.partial(self._gone, key))
                self._bytes += size
        self._peak = max(self._peak, self._bytes)

    def _gone(self, key: int, _: Any) -> None:
        self._bytes -= self._live.pop(key, (0, None))[0]

    def _kept(self) -> dict[str, list[Any]]:
        """Storages that stay from step to step, by kind."""
        if self._device is None:
            return {}
        groups, state = self._optimizer.param_groups, self._optimizer.state
        modules = [entry.module() for entry in self._session.modules]
        whole = [m for m in modules if hasattr(m, "buffers")]
        held = [p for group in groups for p in group["params"]]
        held += [p for m in whole for p in (*parameters(m), *m.buffers())]
        gradients = [p.grad for p in held if p.grad is not None]
        states = [tuple(each.values()) for each in state.values()]
        kinds = {"model": held, "gradients": gradients, "optimizer": states}
        found = {kind: self._storages(tensors) for kind, tensors in kinds.items()}
        return {kind: list({s._cdata: s for s in some}.values()) for kind, some in found.items()}


def why_not(session: Session) -> str | None:
    """Reason why no step can be profiled, or None."""
    modules: Any = sys.modules["torch.nn.modules.module"]
    if not hasattr(modules, "_global_forward_hooks_always_called") or not formulas():
        return "this version of torch cannot count them"
    if compilations():
        return "compiled code does not show its operations"
    scripted = sys.modules["torch"].jit.ScriptModule
    if any(isinstance(entry.module(), scripted) for entry in session.modules):
        return "scripted code does not show its operations"
    if session.graph_replayed:
        return "CUDA graphs do not show their operations"
    return None


def formulas() -> dict[Any, Callable[..., Any]]:
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
