"""Hooks of gradients, scalers and optimizers."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import Any

from . import (
    batch_counts,
    by_batches,
    copied_weights,
    exchanges,
    first_weights,
    mixed_losses,
    own_edits,
    work_facts,
)
from .clocks import clock
from .module_hooks import compiling_of
from .session import Session

NUMBER = "_gpu_advisor_optimizer"
"""Attribute of an optimizer, from its first step; torch never copies or pickles it."""
LOSSES_KEPT = 256
"""Losses that are kept, of the first and of the latest each.

Judgement: fewer tell a drift of the quality less well, more hold memory of the card and lengthen
the record."""
CHECKPOINTS = (
    "check_backward_validity",
    "_checkpoint_without_reentrant_generator",
    "_checkpoint_without_reentrant",
)
"""Functions torch calls in each kind, as its versions name them."""


def backwards(torch: Any, session: Session) -> None:
    """Hook `autograd.backward`, which `Tensor.backward` calls, too."""

    @session.patches.wrap(torch.autograd, "backward")
    def backward(
        original: Any, tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if session.muted:
            return original(tensors, grad_tensors, *args, **kwargs)
        begun = clock()
        session.attempt(_keep_loss, session, tensors, grad_tensors)
        if session.outputs:
            session.attempt(mixed_losses.look, session, tensors)
        # a call in a step is a microsecond or two of its time, so none is made for nothing
        if session.copies and session.updates <= copied_weights.MOST_UPDATES:
            session.attempt(copied_weights.look, session)
        if session.counts and session.updates <= batch_counts.MOST_UPDATES:
            session.attempt(batch_counts.look, session)
        if session.once_a_batch is None:
            session.attempt(by_batches.find, session)
        session.entrance.used_by(session.thread, threading.get_ident())
        outermost = session.entrance.occupy()  # checkpointing calls modules again
        exchange = None
        if session.device is not None and not session.counting:
            exchange = exchanges.BackwardExchange(session)
            session.attempt(exchange.open, tensors)
        enter = clock()
        session.spent_s += enter - begun
        try:
            result = original(tensors, grad_tensors, *args, **kwargs)
        except Exception as problem:
            session.record_exception(problem, "backward")
            raise
        finally:
            if outermost:
                session.entrance.vacate()
        if not session.passes:
            return result
        end = clock()
        session.recorder.add(("backward", enter, end))
        if exchange is not None:
            session.attempt(exchange.close, end)
        if session.device is not None:
            session.attempt(session.device.mark, end, "backward")
        _may_end_step(session, "backward", end)
        session.spent_s += clock() - end
        return result


def asked_for(torch: Any, session: Session) -> None:
    """Hook gradients that are asked for by name, by `autograd.grad` or `torch.func`.

    A training may get its gradients this way and add them to its weights itself. So may others
    for whom it is no training: guidance of a sampler, or forces of a simulation, ask for the
    gradient of one input that is no parameter.
    """
    compiling = compiling_of(torch)

    @session.patches.wrap(torch.autograd, "grad")
    def grad(original: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or session.is_muted():
            return original(outputs, inputs, *args, **kwargs)
        enter = clock()
        result = original(outputs, inputs, *args, **kwargs)
        end = clock()
        several = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
        updates = any(isinstance(value, torch.nn.Parameter) for value in several)
        if updates or len(several) > 1:
            session.entrance.used_by(session.thread, threading.get_ident())
            session.recorder.add(("gradient", enter, end))
            _may_end_step(session, "gradient", end)
        return result


def _may_end_step(session: Session, kind: str, end: float) -> None:
    """End a step at its gradients, unless optimizers step."""
    if not session.updates:
        if session.diagnosis is not None:
            session.diagnosis.at(kind)
        session.step_ended(end, kind)


def _keep_loss(session: Session, tensors: Any, gradients: Any) -> None:
    """Keep the loss without waiting for its value."""
    unscaled, session.unscaled = session.unscaled, None
    if session.capture is not None:  # it has no value yet
        return
    tensor = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    single = isinstance(tensor, session.torch.Tensor) and (
        gradients is None or tensor.numel() == 1
    )
    if unscaled is None and single:
        with session.unseen():
            unscaled = tensor.data  # as detach(), but no dispatch mode sees it
    if unscaled is not None:  # a CUDA graph writes each loss to the same place
        session.losses.append(unscaled.clone() if session.graph_replayed else unscaled)
        session.losses_seen += 1
        if len(session.losses) > 2 * LOSSES_KEPT:
            del session.losses[LOSSES_KEPT]


def recomputing(torch: Any, session: Session) -> None:
    """Notice the first call of torch's checkpointing."""
    module: Any = sys.modules.get(f"{torch.__name__}.utils.checkpoint")
    names = [name for name in CHECKPOINTS if callable(vars(module).get(name))]
    if len(names) < 2:
        return
    session.facts["recomputes"] = False

    for name in names:

        @session.patches.wrap(module, name)
        def noticing(original: Any, *args: Any, **kwargs: Any) -> Any:
            session.facts["recomputes"] = True
            return original(*args, **kwargs)


def scaler(torch: Any, session: Session) -> None:
    """Hook GradScaler: unscaled losses and skipped updates."""
    kind = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler

    @session.patches.wrap(kind, "scale")
    def scale(original: Any, self: Any, outputs: Any) -> Any:
        if isinstance(outputs, torch.Tensor):
            session.unscaled = outputs.data
        return original(self, outputs)

    @session.patches.wrap(kind, "step")
    def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        before = session.updates
        result = original(self, *args, **kwargs)
        if self.is_enabled() and session.updates == before:
            session.facts["skipped_updates"] += 1
        return result


def optimizers(torch: Any, session: Session) -> None:
    """Hook the steps of torch's optimizers, and of all that are derived from them.

    By torch's own hooks of every optimizer, as each class has a `step` of its own.
    """
    module: Any = sys.modules["torch.optim.optimizer"]
    entered = 0.0
    fresh = itertools.count(1)

    @session.patches.wrap(module.Optimizer, "__init__")
    def __init__(build: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        session.optimizers_built += 1

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal entered
        session.in_closure = any(map(callable, (*args, *kwargs.values())))
        if not session.updates and session.first_weights is None and not session.muted:
            session.attempt(first_weights.look, session, optimizer)
        if session.watched and not session.muted:
            own_edits.stepping(session, optimizer)
        entered = clock()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal entered
        end = clock()
        if session.muted:
            return
        session.updates += 1
        session.entrance.used_by(session.thread, threading.get_ident())
        attributes = vars(optimizer)
        if NUMBER not in attributes:
            attributes[NUMBER] = next(fresh)
            session.attempt(stepped, session, optimizer)
        number = attributes[NUMBER]
        session.attempt(work_facts.updated, session, optimizer, number)
        if session.updates in copied_weights.LOOKS:
            session.attempt(copied_weights.find, session, optimizer)
        if session.updates == 1:
            session.attempt(batch_counts.find, session)
        if session.watched or session.updates == 1:
            own_edits.stepped(session, optimizer)
        session.recorder.add(("step", entered or end, end, number))
        entered = 0.0
        if session.diagnosis is not None:
            session.diagnosis.at("step", optimizer)
        session.step_ended(end, ("step", number))
        session.spent_s += clock() - end

    session.patches.on_undo(module.register_optimizer_step_pre_hook(before).remove)
    session.patches.on_undo(module.register_optimizer_step_post_hook(after).remove)


def stepped(session: Session, optimizer: Any) -> None:
    """Record at its first step whether an optimizer is fused, and its settings."""
    groups = optimizer.param_groups
    if not session.optimizer_settings:
        session.optimizer_settings = work_facts.settings_of(optimizer)
    session.batch_statistics = session.batch_statistics or work_facts.batch_statistics(
        session
    )
    if groups and "fused" in groups[0]:
        session.facts.setdefault("fused", bool(groups[0]["fused"]))


def loss_values(session: Session) -> list[float]:
    values = []
    for loss in session.losses:
        try:
            values.append(float(loss))
        except Exception as problem:
            session.note(f"a loss could not be read: {type(problem).__name__}: {problem}")
    return values
