"""Forwards of root modules, and of what was compiled: who calls, when, with how much."""

from __future__ import annotations

import functools
import time
import types
from typing import Any

from . import inner, roots
from .entrance import Entrance
from .hooking import POST, compiling_of, is_muted, step_end, tracing_of
from .session import Session
from .settled import KnobVerdict

clock = time.perf_counter


def watch(torch: Any, session: Session) -> None:
    """Calls of modules from outside any module.

    The hook that finds them is global, and costs at each inner module, so it takes itself out
    while a root runs; the hook that sees the root's end is on the root during the call only, so
    that outside of it the module can be pickled, copied and scripted as ever.
    """
    step_ended = step_end(session)
    tracing, compiling = tracing_of(torch), compiling_of(torch)
    entered = 0.0
    current: Any = None

    def before(module: Any, args: Any) -> None:
        nonlocal entered, current
        if roots.is_light(session, module):
            return
        if is_muted(session) or compiling() or tracing():
            return
        entrance.shut()
        try:
            current = roots.enter(session, module)
            if current is None:
                entrance.reopen()
                return
            roots.listen(module, POST, after)
        except Exception as problem:
            session.step_aside(problem)
            return
        session.root_runs = entrance.met = True
        session.attempt(inner.begin, session, current, step_ended)
        if session.tally is not None:
            session.tally.__enter__()
        entered = clock()

    def after(module: Any, args: Any, kwargs: Any = None, output: Any = None) -> None:
        end = clock()
        if session.tally is not None:
            session.tally.__exit__()
        session.root_runs = False
        roots.unlisten(module, POST)
        if entrance.is_gone:
            return
        if session.rota.on:
            entrance.reopen()
        if session.watch is not None:
            session.attempt(inner.end, session, entered, end)
        session.attempt(roots.leave, session, current, args, kwargs, output, entered, end)
        if current.place is not None:
            session.attempt(session.settled.take, module)
        step_ended(end)

    hooks = torch.nn.modules.module._global_forward_pre_hooks
    entrance = session.entrance = Entrance(hooks, before)
    session.settled = KnobVerdict(torch, session)
    session.patches.on_undo(functools.partial(_remove, session))


def _remove(session: Session) -> None:
    session.entrance.remove()
    if session.watch is not None:
        session.watch.suspend()
        session.watch = None


def shield_compiled(eval_frame: Any, session: Session) -> None:
    """Keep torch.compile from seeing the hook that finds roots: it would trace into it.

    What was compiled runs with the hook out; a compiled module is observed from around the call.
    """
    context, optimized = eval_frame._TorchDynamoContext, eval_frame.OptimizedModule
    compile_it, call_it = context.__call__, optimized.__call__

    def compiled(self: Any, fn: Any) -> Any:
        session.compilations += 1
        session.settled.release()
        made = compile_it(self, fn)
        if not isinstance(made, types.FunctionType) or type(self).__name__ == "DisableContext":
            return made  # what is not to be compiled must not be entered through us
        owner = getattr(fn, "__self__", None)
        in_place = getattr(fn, "__name__", "") == "_call_impl"
        root = fn if owner is None else owner

        @functools.wraps(made)
        def shielded(*args: Any, **kwargs: Any) -> Any:
            return _around(session, root, made, args, kwargs, owner if in_place else None)

        if hasattr(made, "_torchdynamo_wrapper_id"):
            shielded._torchdynamo_wrapper_id = id(shielded)  # type: ignore[attr-defined]
        return shielded

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _around(session, self, functools.partial(call_it, self), args, kwargs, self)

    session.patches.put(context, "__call__", compiled)
    if "__call__" in vars(optimized):  # before, it is called as any module, hooks and all
        session.patches.put(optimized, "__call__", __call__)


def _around(session: Session, module: Any, call: Any, args: Any, kwargs: Any, inside: Any) -> Any:
    """Call with the hooks out; as root `module` if none is running; `inside`: what one that is
    running is told of."""
    watch = session.watch
    if watch is not None:
        return _inside(session, watch, inside, call, args, kwargs)
    entrance = session.entrance
    outermost = entrance.shut()
    try:
        root = None
        try:
            if outermost and module is not None and not compiling_of(session.torch)():
                root = roots.enter(session, module)
                session.root_runs = True
        except Exception as problem:
            session.step_aside(problem)
        start = clock()
        output = call(*args, **kwargs)
        if root is not None:
            end = clock()
            session.attempt(roots.leave, session, root, args, kwargs, output, start, end)
            step_end(session)(end)
        return output
    finally:
        session.root_runs = session.root_runs and not outermost
        if outermost and session.rota.on:
            entrance.reopen()


def _inside(session: Session, watch: Any, module: Any, call: Any, args: Any, kwargs: Any) -> Any:
    """Something compiled is called inside a root whose calls are followed."""
    watch.suspend()
    if module is not None:
        session.attempt(watch.enter, module)
    output = None
    try:
        output = call(*args, **kwargs)
        return output
    finally:
        if session.watch is not None:
            if module is not None:
                session.attempt(watch.leave, module, args, kwargs, output, clock())
            watch.resume()
