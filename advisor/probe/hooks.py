"""What torch tells us: batches, root forwards, backwards, optimizer steps.

Every hook appends one tuple and, when something is due, ticks. Whatever goes wrong in one of ours
is kept in the record and never reaches the program.
"""

from __future__ import annotations

import functools
import sys
import time
import types
from threading import get_ident
from typing import Any, Callable

from . import applying, batches, control, gradients, graphs, inner, loaders, observe, roots
from .loaders import DONE, NUMBER
from .log import EXHAUSTED
from .session import Session

FLAG = "_gpu_advisor_hooked"
PRE, POST = -7001, -7002
"""Keys in torch's hook dicts; torch's own are counted from 0 up."""
KEEP_EVERY = 4
"""A batch to be replayed is kept this often, and only where ceilings are asked for."""

clock = time.perf_counter


def install(torch: Any, session: Session) -> None:
    """Hook torch, once, whoever asks. `session.patches.undo()` takes every hook back."""
    if getattr(torch, FLAG, False):
        return
    session.patches.put(torch, FLAG, True)
    session.torch = torch
    for part in PARTS:
        try:
            part(torch, session)
        except Exception as problem:
            session.fail(problem)


def is_muted(session: Session) -> bool:
    """DataLoader workers inherit the hooks by fork; they are no ranks."""
    if session.muted is None:
        worker = sys.modules.get("torch.utils.data._utils.worker")
        session.muted = getattr(worker, "_worker_info", None) is not None
    return session.muted


def _step_ended(session: Session) -> Callable[[float], None]:
    """What the hooks call where a step may have ended, as cheap as it can be."""

    def step_ended(now: float) -> None:
        if session.capture is not None:
            return
        if session.clock is not None:
            session.attempt(session.clock.mark, now)
        if now >= session.due:
            control.tick(session, now)

    return step_ended


# --- loaders ------------------------------------------------------------------------------


def _loaders(torch: Any, session: Session) -> None:
    loader = torch.utils.data.DataLoader
    build, begin = loader.__init__, loader._get_iterator

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        if not is_muted(session):
            session.attempt(loaders.built, session, self)

    def _get_iterator(self: Any) -> Any:
        begun = begin(self)
        if not is_muted(session):
            session.attempt(loaders.begins, session, begun, self)
        return begun

    _dress(__init__, build)
    _dress(_get_iterator, begin)
    session.patches.put(loader, "__init__", __init__)
    session.patches.put(loader, "_get_iterator", _get_iterator)


def _batches(torch: Any, session: Session) -> None:
    step_ended = _step_ended(session)
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    fetch = iterator.__next__
    pre_hooks = torch.nn.modules.module._global_forward_pre_hooks
    keeps = bool(session.plan.get("ceilings_workers"))

    def __next__(self: Any) -> Any:
        number = self.__dict__.get(NUMBER)
        if session.muted or number is None:
            return fetch(self)
        if session.replay is not None and session.replay.covers(number):
            return control.replayed(session)
        enter = clock()
        step_ended(enter)
        log, rota = session.log, session.rota
        if log.thread in (None, get_ident()):  # else the work goes on meanwhile
            pre_hooks.pop(PRE, None)  # transforms are modules too, and no roots
        try:
            batch = fetch(self)
        except BaseException as problem:
            if isinstance(problem, StopIteration):
                log.nexts.append((enter, clock(), number, EXHAUSTED, True))
                self.__dict__[DONE] = True
            rota.on = True
            if session.root_finder is not None:
                pre_hooks[PRE] = session.root_finder
            raise
        end = clock()
        try:
            watched = rota.turn(number, log)
            facts = log.loaders[number]
            facts["thread"] = get_ident()
            if watched:
                if session.root_finder is not None:
                    pre_hooks[PRE] = session.root_finder
                loaders.note_padding(facts, batch)
            items = facts["counter"].count(batch)
            log.nexts.append((enter, end, number, items, watched))
            if keeps and not len(log.nexts) % KEEP_EVERY:
                session.kept_batch = (number, batches.copied(batch), items)
        except Exception as problem:
            session.step_aside(problem)
        return batch

    _dress(__next__, fetch)
    session.patches.put(iterator, "__next__", __next__)


def _dress(ours: Any, original: Any) -> None:
    """For inspect.signature and help()."""
    ours.__doc__ = original.__doc__
    ours.__wrapped__ = original


# --- root modules -------------------------------------------------------------------------


def _roots(torch: Any, session: Session) -> None:
    """Calls of modules from outside any module.

    The hook that finds them is global, and costs at each inner module, so it takes itself out
    while a root runs; the hook that sees the root's end is on the root during the call only, so
    that outside of it the module can be pickled, copied and scripted as ever.
    """
    pre_hooks = torch.nn.modules.module._global_forward_pre_hooks
    step_ended = _step_ended(session)
    tracing, compiling = torch._C._get_tracing_state, _is_compiling(torch)
    entered = 0.0
    current: Any = None

    def before(module: Any, args: Any) -> None:
        nonlocal entered, current
        root = session.roots.get(id(module))
        if root is not None and root.light and root.module() is module:
            return
        muted = session.muted
        if (is_muted(session) if muted is None else muted) or compiling() or tracing():
            return
        pre_hooks.pop(PRE, None)
        try:
            current = roots.enter(session, module)
            if current is None:
                pre_hooks[PRE] = before
                return
            roots.listen(module, POST, after)
        except Exception as problem:
            session.step_aside(problem)
            return
        session.root_runs = True
        if current.inners or current.calls <= inner.SCOUTED:
            session.attempt(inner.begin, session, current, step_ended)
        entered = clock()

    def after(module: Any, args: Any, kwargs: Any = None, output: Any = None) -> None:
        end = clock()
        session.root_runs = False
        roots.unlisten(module, POST)
        if session.root_finder is None:  # the probe has stepped aside
            return
        if session.rota.on:
            pre_hooks[PRE] = before
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

    session.root_finder = pre_hooks[PRE] = before
    session.patches.on_undo(remove)


def _is_compiling(torch: Any) -> Callable[[], bool]:
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def shield_compiled(eval_frame: Any, session: Session) -> None:
    """Keep torch.compile from seeing the hook that finds roots: it would trace into it.

    What was compiled runs with the hook out; a compiled module is observed from around the call.
    """
    context, optimized = eval_frame._TorchDynamoContext, eval_frame.OptimizedModule
    compile_it, call_it = context.__call__, optimized.__call__

    def compiled(self: Any, fn: Any) -> Any:
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
            if outermost and module is not None and not _is_compiling(session.torch)():
                root = roots.enter(session, module)
                session.root_runs = True
        except Exception as problem:
            session.step_aside(problem)
        start = clock()
        output = call(*args, **kwargs)
        if root is not None:
            end = clock()
            session.attempt(roots.leave, session, root, args, kwargs, output, start, end)
            _step_ended(session)(end)
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


# --- training -----------------------------------------------------------------------------


def _backwards(torch: Any, session: Session) -> None:
    original = torch.autograd.backward
    pre_hooks = torch.nn.modules.module._global_forward_pre_hooks
    step_ended = _step_ended(session)
    gradient = gradients.Gradient()

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if session.muted:
            return original(tensors, *args, **kwargs)
        log = session.log
        many = log.dropped["backwards"] + len(log.backwards)
        if many < observe.LOSSES_KEPT or not many % observe.LOSSES_LATER:
            session.attempt(observe.keep_loss, session, tensors)
        alone = not log.opts  # else the optimizer tells when gradients are taken up
        fresh = alone and gradient.is_fresh()
        finder = pre_hooks.pop(PRE, None)  # checkpointing calls modules again: no new work
        enter = clock()
        try:
            result = original(tensors, *args, **kwargs)
        except Exception as problem:
            session.swallow(problem, "backward")
            raise
        finally:
            if finder is not None and session.root_finder is not None:
                pre_hooks[PRE] = finder
        end = clock()
        log.backwards.append((enter, end, fresh))
        if session.clock is not None and session.capture is None:
            session.attempt(session.clock.mark, end, True)
        if alone:
            session.attempt(gradient.note, log)
            step_ended(end)
        return result

    _dress(backward, original)
    session.patches.put(torch.autograd, "backward", backward)


def _gradients(torch: Any, session: Session) -> None:
    """Gradients that are asked for by name, by autograd.grad itself or by torch.func."""
    original, compiling = torch.autograd.grad, _is_compiling(torch)
    step_ended = _step_ended(session)

    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or session.muted or is_muted(session):
            return original(outputs, inputs, *args, **kwargs)
        enter = clock()
        result = original(outputs, inputs, *args, **kwargs)
        end = clock()
        if gradients.of_parameters(torch, inputs, session.heavy_roots > 0):
            session.log.grads.append((enter, end, True))
            if not session.log.opts:
                step_ended(end)
        else:
            session.asked_gradients = True
        return result

    _dress(grad, original)
    session.patches.put(torch.autograd, "grad", grad)


def _scaler(torch: Any, session: Session) -> None:
    """The loss as it was before a GradScaler multiplied it, and the updates that it left out."""
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None)
    scaler = scaler or torch.cuda.amp.GradScaler
    original = scaler.scale

    def scale(self: Any, outputs: Any) -> Any:
        if isinstance(outputs, torch.Tensor):
            session.unscaled = outputs.detach()
        return original(self, outputs)

    update = scaler.step

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = session.updates
        result = update(self, *args, **kwargs)
        if self.is_enabled() and session.updates == before:
            session.skipped_updates += 1
        return result

    _dress(scale, original)
    _dress(step, update)
    session.patches.put(scaler, "scale", scale)
    session.patches.put(scaler, "step", step)


def _optimizers(torch: Any, session: Session) -> None:
    optim = sys.modules["torch.optim.optimizer"]
    optimizer_class: Any = optim.Optimizer
    build, zero = optimizer_class.__init__, optimizer_class.zero_grad
    step_ended = _step_ended(session)
    entered = 0.0

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        session.optimizers_built += 1

    def zero_grad(self: Any, set_to_none: bool = True) -> Any:
        session.set_to_none = bool(set_to_none)
        return zero(self, set_to_none)

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal entered
        entered = clock()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        muted = session.muted
        if is_muted(session) if muted is None else muted:
            return
        end = clock()
        session.log.opts.append((entered, end, id(optimizer)))
        session.updates += 1
        if session.fused is None:
            session.fused = _is_fused(optimizer)
        step_ended(end)

    _dress(__init__, build)
    _dress(zero_grad, zero)
    session.patches.put(optimizer_class, "__init__", __init__)
    session.patches.put(optimizer_class, "zero_grad", zero_grad)
    session.patches.on_undo(optim.register_optimizer_step_pre_hook(before).remove)
    session.patches.on_undo(optim.register_optimizer_step_post_hook(after).remove)


def _is_fused(optimizer: Any) -> bool | None:
    """None where it has no fused update."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    return bool(group["fused"]) if "fused" in group else None


def _graphs(torch: Any, session: Session) -> None:
    graphs.install(torch, session, _step_ended(session))


PARTS = (
    _loaders, _batches, _roots, _backwards, _gradients, _scaler, _optimizers, _graphs,
    applying.install,
)  # fmt: skip
"""What is hooked, each by itself: where one part cannot be, the others are."""
