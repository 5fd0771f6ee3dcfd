"""The floating-point operations of one step, counted after the window was measured.

The program's own next steps go on as they are: no step is run for this, and no number of theirs
changes. Around their forwards and backwards a mode of torch's sees every operation and adds up
those that torch has a formula for: matrix products, convolutions, attention.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from . import steps
from .resting import filled
from .switches import compilations

if TYPE_CHECKING:
    from .session import Session

LONGEST_S = 10.0
"""Two steps that take longer are not waited for."""
WHOLE = 2
"""Steps that begin before one is seen from its begin to its end."""
NAMES_KEPT = 8
KNOWN = ("aten", "prim", "prims")
"""Namespaces of torch's own operations."""
OPAQUE = ("rnn", "lstm", "gru")
"""Torch's own that do much work and have no formula."""

clock = time.perf_counter


class Tally:
    """Counts within the calls that it is put around; the mode is in force in nothing else."""

    def __init__(self, session: Session, mode: Any) -> None:
        self._session, self._mode = session, mode
        self._own = threading.get_ident()
        self._depth = 0
        self._calls: list[tuple[float, float]] = []
        """(enter, operations) of each outermost call."""
        self.begun = clock()

    def __enter__(self) -> None:
        if threading.get_ident() != self._own:
            return
        self._depth += 1
        if self._depth == 1:
            self._enter, self._before = clock(), self._mode.count
            self._session.attempt(self._mode.__enter__)

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() != self._own or not self._depth:
            return
        self._depth -= 1
        if not self._depth:
            self._session.attempt(self._mode.__exit__, None, None, None)
            self._calls.append((self._enter, self._mode.count - self._before))

    def told(self, bounds: list[float]) -> dict[str, Any] | None:
        """The record's entry once a step lies within `bounds` from its begin to its end; or once
        none is waited for any longer."""
        if self._depth:
            return None
        for start, end in zip(bounds, bounds[1:]):
            if start >= self.begun:
                count = sum(count for enter, count in self._calls if start <= enter < end)
                return _entry(count, sorted(self._mode.uncounted))
        if clock() - self.begun > LONGEST_S:
            return {"why": f"no step began and ended within {LONGEST_S:g} s"}
        return None


def _entry(count: float, uncounted: list[str]) -> dict[str, Any]:
    if not count:
        return {"why": "nothing was seen in a step that torch has a formula for"}
    return {"per_step": count, "uncounted": uncounted[:NAMES_KEPT]}


def begin(session: Session, measured: dict[str, Any] | None) -> bool:
    """Start to count, where a card is in use; returns whether that was begun."""
    if session.clock is None or not measured:
        return False
    try:
        why = _not_countable(session, measured)
        tally = Tally(session, _mode(_formulas())) if why is None else None
    except Exception as problem:
        session.fail(problem)
        why, tally = f"{type(problem).__name__}: {problem}"[:300], None
    session.flops = None if why is None else {"why": why}
    session.tally, session.rota.always = tally, tally is not None
    session.entrance.look()
    return tally is not None


def ended(session: Session) -> bool:
    """Whether the count is over; then it is in the session."""
    ledger = steps.read(filled(session.log), session.plan)
    session.flops = session.tally.told([] if ledger is None else ledger.bounds)
    if session.flops is None:
        return False
    session.tally, session.rota.always = None, False
    return True


def _not_countable(session: Session, measured: dict[str, Any]) -> str | None:
    """Why nothing can be counted here, None where it can."""
    modules: Any = sys.modules["torch.nn.modules.module"]
    if not hasattr(modules, "_global_forward_hooks_always_called") or not _formulas():
        return "this version of torch cannot count them"
    if compilations():
        return "compiled code does not show its operations"
    scripted = sys.modules["torch"].jit.ScriptModule
    if any(isinstance(root.module(), scripted) for root in session.log.roots):
        return "scripted code does not show its operations"
    if WHOLE * measured["step_ms"] / 1000.0 > LONGEST_S:
        return f"{WHOLE} steps take longer than {LONGEST_S:g} s"
    return None


def _formulas() -> dict[Any, Callable[..., Any]]:
    """Torch's own, by operation; none where its version has no such module."""
    try:
        counter = importlib.import_module("torch.utils.flop_counter")
    except ImportError:
        return {}
    return getattr(counter, "flop_registry", {})


def _mode(formulas: dict[Any, Callable[..., Any]]) -> Any:
    """A mode whose `count` grows by what each operation takes. Made here, as torch is the
    program's to import."""
    mode: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Counting(mode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.count = 0
            self.uncounted: set[str] = set()

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            formula = formulas.get(func._overloadpacket)
            if formula is None and func.namespace != "prim":
                with self:  # in inference mode what is made of others comes whole
                    made = func.decompose(*args, **kwargs)
                if made is not NotImplemented:
                    return made
            result = func(*args, **kwargs)
            try:
                if formula is not None:
                    self.count += formula(*args, **kwargs, out_val=result)
                elif func.namespace not in KNOWN or any(part in str(func) for part in OPAQUE):
                    self.uncounted.add(str(func._overloadpacket))
            except Exception:
                self.uncounted.add(str(func._overloadpacket))
            return result

    return Counting()
