"""Forwards of root modules, and of what was compiled: who calls, when, with how much."""

from __future__ import annotations

import functools
import time
import types
from typing import Any, Callable

from . import inner, roots
from .hooking import POST, PRE, compiling_of, is_muted, step_end
from .session import Session

clock = time.perf_counter


def watch(torch: Any, session: Session) -> None:
    """Calls of modules from outside any module.

    The hook that finds them is global, and costs at each inner module, so it takes itself out
    while a root runs; the hook that sees the root's end is on the root during the call only, so
    that outside of it the module can be pickled, copied and scripted as ever.
    """
    pre_hooks = torch.nn.modules.module._global_forward_pre_hooks
    step_ended = step_end(session)
    tracing, compiling = torch._C._get_tracing_state, compiling_of(torch)
    entered = 0.0
    current: Any = None

    def before(module: Any, args: Any) -> None:
        nonlocal entered, current
        if is_muted(session) or compiling() or tracing():
            return
        pre_hooks.pop(PRE, None)
        try:
            current = roots.enter(session, module)
            if current is None:
                pre_hooks[PRE] = session.root_finder
                return
            roots.listen(module, POST, after)
        except Exception as problem:
            session.step_aside(problem)
            return
        session.root_runs = True
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
        if session.root_finder is None:  # the probe has stepped aside
            return
        if session.rota.on:
            pre_hooks[PRE] = session.root_finder
        if session.watch is not None:
            session.attempt(inner.end, session, entered, end)
        session.attempt(roots.leave, session, current, args, kwargs, output, entered, end)
        step_ended(end)

    def remove() -> None:
        session.root_finder = None
        pre_hooks.pop(PRE, None)
        if session.watch is not None:
            session.watch.suspend()
            session.watch = None

    session.root_finder = pre_hooks[PRE] = _settled(torch, session, before)
    session.patches.on_undo(remove)


def _settled(
    torch: Any, session: Session, unsettled: Callable[[Any, Any], None]
) -> Callable[[Any, Any], None]:
    """The hook before each call: of a root of which no more is to be learnt than its time and its
    items, or not even that, it does no more; the others are `unsettled`."""
    pre_hooks = torch.nn.modules.module._global_forward_pre_hooks
    step_ended, with_gradients = step_end(session), torch.is_grad_enabled
    tracing, compiling = torch._C._get_tracing_state, compiling_of(torch)
    entered = 0.0
    current: Any = None

    def before(module: Any, args: Any) -> None:
        nonlocal entered, current
        root = session.roots.get(id(module))
        if root is None or root.module() is not module:
            unsettled(module, args)
        elif root.place is None or session.tally is not None or compiling() or tracing():
            if not root.light:
                unsettled(module, args)
        else:
            pre_hooks.pop(PRE, None)
            roots.listen(module, POST, after)
            session.root_runs = True
            current = root
            entered = clock()

    def after(module: Any, args: Any, kwargs: Any, output: Any = None) -> None:
        end = clock()
        session.root_runs = False
        roots.unlisten(module, POST)
        finder, root = session.root_finder, current
        if finder is None:
            return
        if session.rota.on:
            pre_hooks[PRE] = finder
        if output is None or root.place is None:  # it raised
            session.attempt(roots.leave, session, root, args, kwargs, output, entered, end)
        else:
            items = root.counted(args, kwargs)
            session.log.forwards.append((entered, end, root.number, items, with_gradients()))
        if end >= session.due or session.clock is not None:
            step_ended(end)

    return before


def shield_compiled(eval_frame: Any, session: Session) -> None:
    """Keep torch.compile from seeing the hook that finds roots: it would trace into it.

    What was compiled runs with the hook out; a compiled module is observed from around the call.
    """
    context, optimized = eval_frame._TorchDynamoContext, eval_frame.OptimizedModule
    compile_it, call_it = context.__call__, optimized.__call__

    def compiled(self: Any, fn: Any) -> Any:
        session.compilations += 1
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
    pre_hooks = session.torch.nn.modules.module._global_forward_pre_hooks
    outermost = pre_hooks.pop(PRE, None) is not None
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
        if outermost and session.rota.on and session.root_finder is not None:
            pre_hooks[PRE] = session.root_finder


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
