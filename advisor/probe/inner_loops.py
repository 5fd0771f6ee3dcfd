"""Inner loops: networks called repeatedly within one forward.

In a module's first calls, hooks on every module count the calls of each. The network whose calls
fill the root's forward then has hooks of its own during the root's later calls, and each of its
calls counts as a forward. A loop too quick to be followed without slowing it down is only counted.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from . import module_facts
from .hooking import listen, unlisten
from .module_facts import Module

if TYPE_CHECKING:
    from .session import Session

MANY = 4
"""From this many calls of one module within a root's forward on, it is a loop."""
SCOUTED = 3
"""Calls of a root in which loops are looked for."""
JUDGED = 8
"""Calls of a root after which it is judged what fills its forward."""
MOST = 0.5
"""A loop takes at least this share of the root's forward, first call's start to last one's end."""
QUICK_S = 0.0003
"""Calls that follow each other faster are not followed: the hooks would take more than 2 %."""

HOOKS = ("_global_forward_pre_hooks", "_global_forward_hooks")
OPTIONS = ("_global_forward_hooks_with_kwargs", "_global_forward_hooks_always_called")
"""Of global hooks, in later versions of torch."""
KEY = -7003
"""Key of these hooks in torch's dicts."""

clock = time.perf_counter


class Calls:
    """Calls of one module within a root's forward."""

    __slots__ = ("count", "first", "last", "module", "path", "spans")

    def __init__(self, module: Any, path: tuple[int, ...]) -> None:
        self.module = module
        self.path = path
        """Ids of the modules around its first call."""
        self.count = 0
        self.first = self.last = 0.0
        self.spans: list[tuple[float, float, bool]] = []
        """(enter, exit, graded), until it is followed."""


class Watch:
    """Calls within one running root module."""

    def __init__(self, session: Session, root: Module, ended: Callable[[float], None]) -> None:
        self.root = root
        self._session = session
        self._ended = ended
        """Called at each end of a followed call."""
        self._scouting = root.calls <= SCOUTED
        self._followed = {id(inner.module()): inner for inner in root.inners}
        self._calls: dict[int, Calls] = {}
        self._stack: list[tuple[int, float]] = []
        self._within: int | None = None
        """The followed module that runs: its own calls are not looked at."""
        self._depth = 0
        session.add(("enter", clock(), root.index))
        self.resume()

    def resume(self) -> None:
        """Put the hooks in."""
        if self._scouting:
            module = self._session.torch.nn.modules.module
            for name, hook in zip(HOOKS, (self._before, self._after)):
                getattr(module, name)[KEY] = hook
            for name in OPTIONS:
                getattr(module, name, {})[KEY] = True
            return
        for inner in self._followed.values():
            module = inner.module()
            if module is None or getattr(module, "_compiled_call_impl", None) is not None:
                continue  # module_hooks.shield_compiled sees modules compiled in place
            module._forward_pre_hooks[KEY] = self._before
            listen(module, KEY, self._after)

    def suspend(self) -> None:
        """Take the hooks out."""
        for name in (*HOOKS, *OPTIONS):
            getattr(self._session.torch.nn.modules.module, name, {}).pop(KEY, None)
        for inner in self._followed.values():
            module = inner.module()
            if module is not None:
                module._forward_pre_hooks.pop(KEY, None)
                unlisten(module, KEY)

    def _before(self, module: Any, args: Any) -> None:
        self._session.attempt(self.enter, module)

    def _after(self, module: Any, args: Any, *rest: Any) -> None:
        end = clock()
        kwargs, output = rest if len(rest) == 2 else (None, *rest)
        self._session.attempt(self.leave, module, args, kwargs, output, end)

    def enter(self, module: Any) -> None:
        """`module` is called inside the root."""
        key = id(module)
        if self._within is not None:
            self._depth += key == self._within
            return
        if key in self._followed:
            self._within = key
            module_facts.begin(self._session, self._followed[key], module)
        self._stack.append((key, clock()))

    def leave(self, module: Any, args: Any, kwargs: Any, output: Any, end: float) -> None:
        """Record the end of `module`, with output if any."""
        key = id(module)
        if self._within is not None:
            if key != self._within:
                return
            if self._depth:
                self._depth -= 1
                return
            self._within = None
        if not any(key == other for other, _ in self._stack):
            return  # the root itself
        while True:
            other, enter = self._stack.pop()
            if other == key:
                break
        calls = self._calls.get(key)
        if calls is None:
            if next(module.parameters(), None) is None:
                return
            calls = Calls(module, tuple(other for other, _ in self._stack))
            self._calls[key] = calls
            calls.first = enter
        calls.count += 1
        calls.last = end
        graded = self._session.torch.is_grad_enabled()
        if key in self._followed:
            self._add(self._followed[key], args, kwargs, output, [(enter, end, graded)])
            self._ended(end)
        elif self._scouting:
            calls.spans.append((enter, end, graded))
            if calls.count == MANY:
                self._follow(calls, args, kwargs, output)

    def _follow(self, calls: Calls, args: Any, kwargs: Any, output: Any) -> None:
        """Count calls of this module, not its children."""
        key = id(calls.module)
        for other in [other for other in self._followed if other in self._calls]:
            if key in self._calls[other].path:
                self.root.inners.remove(self._followed.pop(other))
        inner = self._followed[key] = module_facts.known(self._session, calls.module)
        self.root.inners.append(inner)
        inner.calls += 1
        self._add(inner, args, kwargs, output, calls.spans)
        calls.spans = []
        module_facts.describe(self._session, self.root)

    def _add(self, inner: Module, args: Any, kwargs: Any, output: Any, spans: Any) -> None:
        """Record calls of a followed module."""
        items = module_facts.items_of(self._session, inner, args, kwargs, output)
        for enter, end, graded in spans:
            self._session.add(("inner", enter, end, inner.index, items, graded))

    def close(self, start: float, end: float) -> None:
        """Close the root and judge its inner loop."""
        self.suspend()
        loops = [(k, c) for k, c in self._calls.items() if k in self._followed and c.count >= MANY]
        if self.root.calls > JUDGED or not loops:
            return
        key, calls = max(loops, key=lambda pair: pair[1].last - pair[1].first)
        span = calls.last - calls.first
        fills = span >= MOST * (end - start)
        quick = span < QUICK_S * calls.count
        self.root.inners = [self._followed[key]] if fills and not quick else []
        self.root.looped = float(calls.count) if fills and quick else None
        module_facts.describe(self._session, self.root)


def begin(session: Session, root: Module, ended: Callable[[float], None]) -> None:
    """Watch a root that was entered, unless it trains."""
    if not root.parameters or (root.calls > SCOUTED and not root.inners):
        return
    if session.trained and session.torch.is_grad_enabled():
        return  # forwards do not mark a training step
    session.watch = Watch(session, root, ended)


def end(session: Session, start: float, now: float) -> None:
    """Judge the root that was entered."""
    watch, session.watch = session.watch, None
    if watch is not None:
        watch.close(start, now)
