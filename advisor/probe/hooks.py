"""What torch tells us: batches, root forwards, backwards, optimizer steps.

Every hook appends one tuple and ticks the session; whatever goes wrong in one of ours is kept in
the record and never reaches the program.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from . import batches, control, observe
from .log import EXHAUSTED
from .session import Session

FLAG = "_gpu_advisor_hooked"
PRE, POST = -7001, -7002
"""Keys in torch's hook dicts; torch's own are counted from 0 up."""

KEEP_EVERY = 4
"""A batch to be replayed is kept this often, and only where ceilings are asked for."""

clock = time.perf_counter


def install(torch: Any, session: Session) -> None:
    """Hook torch, once, whoever asks."""
    if getattr(torch, FLAG, False):
        return
    setattr(torch, FLAG, True)
    session.torch = torch
    for part in (_loaders, _roots, _backwards, _optimizers):
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
    data = torch.utils.data
    base = data.dataloader._BaseDataLoaderIter
    build, begin, fetch = data.DataLoader.__init__, base.__init__, base.__next__
    pre_hooks = torch.nn.modules.module._global_forward_pre_hooks
    keeps = bool(session.plan.get("ceilings_workers"))

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        if not is_muted(session):
            observe.guarded(session, observe.loader_built, session, self)

    def begins(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, loader, *args, **kwargs)
        if not is_muted(session):
            observe.guarded(session, observe.loader_begins, session, self, loader)

    def __next__(self: Any) -> Any:
        if session.muted:
            return fetch(self)
        number = self.__dict__.get("_gpu_advisor_loader", 0)
        if session.replay is not None and session.replay.covers(number):
            return control.replayed(session)
        enter = clock()
        if enter >= session.due:
            control.tick(session, enter)
        root_hook = pre_hooks.pop(PRE, None)  # transforms are modules too, and no roots
        log = session.log
        try:
            batch = fetch(self)
        except StopIteration:
            log.nexts.append((enter, clock(), number, EXHAUSTED))
            raise
        finally:
            if root_hook is not None:
                pre_hooks[PRE] = root_hook
        end = clock()
        try:
            facts = log.loaders[number]
            items = facts["counter"].count(batch)
            log.nexts.append((enter, end, number, items))
            if keeps and not len(log.nexts) % KEEP_EVERY:
                session.kept_batch = (number, batches.copied(batch), items)
        except Exception as problem:
            session.step_aside(problem)
        return batch

    __init__.__doc__, __next__.__doc__ = build.__doc__, fetch.__doc__
    __init__.__wrapped__ = build  # type: ignore[attr-defined]  # inspect.signature sees the original
    data.DataLoader.__init__ = __init__
    base.__init__ = begins
    base.__next__ = __next__


# --- root modules -------------------------------------------------------------------------


def _roots(torch: Any, session: Session) -> None:
    """Calls of modules from outside any module.

    The hook that finds them is global, and costs at each inner module, so it takes itself out
    while a root runs; the hook that sees the root's end is on the root during the call only, so
    that outside of it the module can be pickled, copied and scripted as ever.
    """
    module = torch.nn.modules.module
    pre_hooks = module._global_forward_pre_hooks
    entered: list[float] = [0.0]

    def before(root: Any, args: Any) -> None:
        if session.muted or is_muted(session):
            return
        pre_hooks.pop(PRE, None)
        root._forward_hooks[POST] = after
        root._forward_hooks_with_kwargs[POST] = True
        always = getattr(root, "_forward_hooks_always_called", None)
        if always is not None:
            always[POST] = True
        try:
            observe.root_enters(session, root)
        except Exception as problem:
            session.step_aside(problem)
        entered[0] = clock()

    def after(root: Any, args: Any, kwargs: Any = None, output: Any = None) -> None:
        end = clock()
        root._forward_hooks.pop(POST, None)
        root._forward_hooks_with_kwargs.pop(POST, None)
        always = getattr(root, "_forward_hooks_always_called", None)
        if always is not None:
            always.pop(POST, None)
        pre_hooks[PRE] = before
        try:
            observe.root_leaves(session, root, args, kwargs, output, entered[0], end)
            if end >= session.due:
                control.tick(session, end)
        except Exception as problem:
            session.step_aside(problem)

    pre_hooks[PRE] = before


# --- training -----------------------------------------------------------------------------


def _backwards(torch: Any, session: Session) -> None:
    original = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if session.muted:
            return original(tensors, *args, **kwargs)
        try:
            observe.loss(session, tensors)
        except Exception as problem:
            session.step_aside(problem)
        enter = clock()
        try:
            return original(tensors, *args, **kwargs)
        except Exception as problem:
            session.swallow(problem, "backward")
            raise
        finally:
            session.log.backwards.append((enter, clock()))

    backward.__doc__ = original.__doc__
    backward.__wrapped__ = original  # type: ignore[attr-defined]
    torch.autograd.backward = backward
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None)
    if scaler is not None and "scale" in scaler.__dict__:
        _scaler(torch, session, scaler)


def _scaler(torch: Any, session: Session, scaler: Any) -> None:
    original = scaler.scale

    def scale(self: Any, outputs: Any) -> Any:
        if isinstance(outputs, torch.Tensor):
            session.unscaled = outputs.detach()
        return original(self, outputs)

    scale.__doc__ = original.__doc__
    scaler.scale = scale


def _optimizers(torch: Any, session: Session) -> None:
    optim = sys.modules["torch.optim.optimizer"]
    build = optim.Optimizer.__init__
    entered: list[float] = [0.0]

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        session.optimizers_built += 1

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        entered[0] = clock()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if session.muted or is_muted(session):
            return
        end = clock()
        session.log.opts.append((entered[0], end, id(optimizer)))
        if end >= session.due:
            control.tick(session, end)

    optim.Optimizer.__init__ = __init__
    optim.register_optimizer_step_pre_hook(before)
    optim.register_optimizer_step_post_hook(after)
