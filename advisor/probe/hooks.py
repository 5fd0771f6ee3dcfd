"""What torch tells us: batches, root forwards, backwards, optimizer steps.

Every hook appends one tuple and, when something is due, ticks. Whatever goes wrong in one of ours
is kept in the record and never reaches the program.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from . import batches, control, loaders, observe, roots, whatif
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
    for part in (_loaders, _batches, _roots, _backwards, _scaler, _optimizers, whatif.install):
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
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    fetch = iterator.__next__
    pre_hooks = torch.nn.modules.module._global_forward_pre_hooks
    keeps = bool(session.plan.get("ceilings_workers"))

    def __next__(self: Any) -> Any:
        number = self.__dict__.get(loaders.NUMBER)
        if session.muted or number is None:
            return fetch(self)
        if session.replay is not None and session.replay.covers(number):
            return control.replayed(session)
        enter = clock()
        if enter >= session.due:
            control.tick(session, enter)
        pre_hooks.pop(PRE, None)  # transforms are modules too, and no roots
        try:
            batch = fetch(self)
        except BaseException as problem:
            if isinstance(problem, StopIteration):
                session.log.nexts.append((enter, clock(), number, EXHAUSTED, True))
            watch(True)
            raise
        session.attempt(note, number, enter, clock(), batch)
        return batch

    def note(number: int, enter: float, end: float, batch: Any) -> None:
        log = session.log
        watched = session.rota.turn(number, log)
        watch(watched)
        items = log.loaders[number]["counter"].count(batch)
        log.nexts.append((enter, end, number, items, watched))
        if keeps and not len(log.nexts) % KEEP_EVERY:
            session.kept_batch = (number, batches.copied(batch), items)

    def watch(on: bool) -> None:
        session.rota.on = on
        if on and session.root_finder is not None:
            pre_hooks[PRE] = session.root_finder

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
    entered = 0.0
    current: Any = None

    def before(module: Any, args: Any) -> None:
        nonlocal entered, current
        if session.muted or is_muted(session):
            return
        pre_hooks.pop(PRE, None)
        try:
            current = roots.enter(session, module)
        except Exception as problem:
            session.step_aside(problem)
            return
        module._forward_hooks[POST] = after
        module._forward_hooks_with_kwargs[POST] = True
        module._forward_hooks_always_called[POST] = True
        entered = clock()

    def after(module: Any, args: Any, kwargs: Any = None, output: Any = None) -> None:
        end = clock()
        module._forward_hooks.pop(POST, None)
        module._forward_hooks_with_kwargs.pop(POST, None)
        module._forward_hooks_always_called.pop(POST, None)
        if session.root_finder is None:  # the probe has stepped aside
            return
        if session.rota.on:
            pre_hooks[PRE] = before
        session.attempt(roots.leave, session, current, args, kwargs, output, entered, end)
        if end >= session.due:
            control.tick(session, end)

    def remove() -> None:
        session.root_finder = None
        pre_hooks.pop(PRE, None)

    session.root_finder = pre_hooks[PRE] = before
    session.patches.on_undo(remove)


# --- training -----------------------------------------------------------------------------


def _backwards(torch: Any, session: Session) -> None:
    original = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if session.muted:
            return original(tensors, *args, **kwargs)
        session.attempt(observe.keep_loss, session, tensors)
        enter = clock()
        try:
            return original(tensors, *args, **kwargs)
        except Exception as problem:
            session.swallow(problem, "backward")
            raise
        finally:
            session.log.backwards.append((enter, clock()))

    _dress(backward, original)
    session.patches.put(torch.autograd, "backward", backward)


def _scaler(torch: Any, session: Session) -> None:
    """The loss as it was before a GradScaler multiplied it."""
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None)
    scaler = scaler or torch.cuda.amp.GradScaler
    original = scaler.scale

    def scale(self: Any, outputs: Any) -> Any:
        if isinstance(outputs, torch.Tensor):
            session.unscaled = outputs.detach()
        return original(self, outputs)

    _dress(scale, original)
    session.patches.put(scaler, "scale", scale)


def _optimizers(torch: Any, session: Session) -> None:
    optim = sys.modules["torch.optim.optimizer"]
    optimizer_class: Any = optim.Optimizer
    build, zero = optimizer_class.__init__, optimizer_class.zero_grad
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
        if session.muted or is_muted(session):
            return
        end = clock()
        session.log.opts.append((entered, end, id(optimizer)))
        if end >= session.due:
            control.tick(session, end)

    _dress(__init__, build)
    _dress(zero_grad, zero)
    session.patches.put(optimizer_class, "__init__", __init__)
    session.patches.put(optimizer_class, "zero_grad", zero_grad)
    session.patches.on_undo(optim.register_optimizer_step_pre_hook(before).remove)
    session.patches.on_undo(optim.register_optimizer_step_post_hook(after).remove)
