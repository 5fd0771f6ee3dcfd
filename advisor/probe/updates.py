"""Gradients and what takes them up: backward passes, scalers, optimizers."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
import weakref
from typing import Any, Callable

from . import gradients, observe
from .hooking import compiling_of, dress, is_muted, step_end
from .session import Session

clock = time.perf_counter


def backwards(torch: Any, session: Session) -> None:
    """Backward passes, and the losses that they begin at."""
    original = torch.autograd.backward
    step_ended = step_end(session)
    gradient = gradients.Gradient()
    many = 0

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal many
        if session.muted:
            return original(tensors, *args, **kwargs)
        log = session.log
        many += 1
        if many <= observe.LOSSES_KEPT or not many % observe.LOSSES_LATER:
            session.attempt(observe.keep_loss, session, tensors)
        alone = not log.opts  # else the optimizer tells when gradients are taken up
        fresh = alone and gradient.is_fresh()
        entrance = session.entrance
        was_open = entrance.open and entrance.shut()  # checkpointing calls modules again
        enter = clock()
        try:
            if session.tally is None:
                result = original(tensors, *args, **kwargs)
            else:
                with session.tally:
                    result = original(tensors, *args, **kwargs)
        except Exception as problem:
            session.swallow(problem, "backward")
            raise
        finally:
            if was_open:
                entrance.reopen()
        end = clock()
        log.backwards.append((enter, end, fresh))
        if session.clock is not None and session.capture is None:
            session.attempt(session.clock.mark, end, True)
        if alone:
            session.attempt(gradient.note, log)
            step_ended(end)
        return result

    def out() -> None:
        if torch.autograd.backward is backward:
            torch.autograd.backward = original

    def back() -> None:
        if torch.autograd.backward is original:
            torch.autograd.backward = backward

    dress(backward, original)
    session.patches.put(torch.autograd, "backward", backward)
    session.rest.part(out, back)


def asked_for(torch: Any, session: Session) -> None:
    """Gradients that are asked for by name, by autograd.grad itself or by torch.func."""
    original, compiling = torch.autograd.grad, compiling_of(torch)
    step_ended = step_end(session)

    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or session.muted or is_muted(session):
            return original(outputs, inputs, *args, **kwargs)
        enter = clock()
        with session.tally or contextlib.nullcontext():
            result = original(outputs, inputs, *args, **kwargs)
        end = clock()
        if gradients.of_parameters(torch, inputs, session.heavy_roots > 0):
            session.log.grads.append((enter, end, True))
            if not session.log.opts:
                step_ended(end)
        else:
            session.asked_gradients = True
        return result

    dress(grad, original)
    session.patches.put(torch.autograd, "grad", grad)


def scaler(torch: Any, session: Session) -> None:
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
        before = session.log.count("opts")
        result = update(self, *args, **kwargs)
        if self.is_enabled() and session.log.count("opts") == before:
            session.skipped_updates += 1
        return result

    dress(scale, original)
    dress(step, update)
    session.patches.put(scaler, "scale", scale)
    session.patches.put(scaler, "step", step)


def optimizers(torch: Any, session: Session) -> None:
    """That some were built, and how they forget gradients."""
    optimizer_class: Any = sys.modules["torch.optim.optimizer"].Optimizer
    build, zero = optimizer_class.__init__, optimizer_class.zero_grad

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        session.optimizers_built += 1
        session.attempt(session.rest.wake, session.log)

    def zero_grad(self: Any, set_to_none: bool = True) -> Any:
        session.set_to_none = set_to_none
        return zero(self, set_to_none)

    def zero_grad_out() -> None:
        if vars(optimizer_class)["zero_grad"] is zero_grad:
            optimizer_class.zero_grad = zero

    dress(__init__, build)
    dress(zero_grad, zero)
    session.patches.put(optimizer_class, "__init__", __init__)
    session.patches.put(optimizer_class, "zero_grad", zero_grad)
    session.rest.part(zero_grad_out)  # it stays out: what it is asked for is known by then


def steps(torch: Any, session: Session) -> None:
    """The steps of optimizers."""
    optim = sys.modules["torch.optim.optimizer"]
    step_ended, rest = step_end(session), session.rest
    entered, resting, number = 0.0, 0, 0
    batches = calls = due = 0
    """Of each update of a rest; and the batches there will have been by the end of this one."""
    number_of = _numbers()
    handle: Any = None
    note: Any = None
    nexts: Any = None

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal entered
        entered = clock()

    def before_in() -> None:
        nonlocal handle
        handle = optim.register_optimizer_step_pre_hook(before)

    def before_out() -> None:
        nonlocal entered
        entered = 0.0
        handle.remove()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal due
        end = clock()
        if rest.left > 1:
            if len(nexts) != due or rest.called != calls or id(optimizer) != resting:
                rest.differ()
            elif end < rest.calm_until:
                due += batches
                rest.called = 0
                rest.left -= 1
                note((end, end, number))
                return
        in_full(optimizer, end)

    def in_full(optimizer: Any, end: float) -> None:
        nonlocal batches, calls, due, nexts, note, number, resting
        muted = session.muted
        if is_muted(session) if muted is None else muted:
            return
        log, key = session.log, number_of(optimizer)
        if not log.opts:
            session.fused = _is_fused(optimizer)
        log.opts.append((entered or end, end, key))
        _learn(session, optimizer)
        if end >= session.due or session.clock is not None:
            step_ended(end)
        session.attempt(rest.updated, log, key, session.may_rest)
        if not (rest.left or rest.last.batches or session.rota.always):
            _without_batches(session)
        resting, number, note, nexts = id(optimizer), key, log.opts.append, log.nexts
        batches, calls, rest.called = rest.last.batches, len(rest.calls), 0
        due = len(nexts) + batches

    before_in()
    session.patches.on_undo(before_out)
    session.patches.on_undo(optim.register_optimizer_step_post_hook(after).remove)
    session.rest.part(before_out, before_in)


def _learn(session: Session, optimizer: Any) -> None:
    """From a step of it."""
    if id(optimizer) not in session.learning.seen:
        session.attempt(session.learning.stepped, optimizer)
    if session.footprint is not None:
        session.attempt(session.footprint.stepped, optimizer)


def _numbers() -> Callable[[Any], int]:
    """Of optimizers, in the order of their first steps; an id comes back once its owner is gone."""
    held: dict[int, Any] = {}
    fresh = itertools.count(1)

    def number_of(optimizer: Any) -> int:
        owner, number = held.get(id(optimizer), (None, 0))
        if owner is None or owner() is not optimizer:
            number = next(fresh)
            held[id(optimizer)] = weakref.ref(optimizer), number
        return int(number)

    return number_of


def _without_batches(session: Session) -> None:
    """After an update that had none: its calls tell the items, whatever came of a loader before."""
    if not session.rota.on:
        session.rota.on = True
        session.entrance.reopen()
    session.entrance.updated()


def _is_fused(optimizer: Any) -> bool | None:
    """None where it has no fused update."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    return bool(group["fused"]) if "fused" in group else None
