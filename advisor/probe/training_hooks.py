"""Hooks of gradients, scalers and optimizers."""

from __future__ import annotations

import itertools
import sys
import time
import weakref
from typing import Any, Callable

from .hooking import compiling_of, is_muted, step_end
from .session import Session

LOSSES_KEPT = 256
"""Of the first, and of the latest."""
CHECKPOINTS = (
    "check_backward_validity",
    "_checkpoint_without_reentrant_generator",
    "_checkpoint_without_reentrant",
)
"""Functions that torch calls in each of the two kinds, by the names of its versions."""

clock = time.perf_counter


# --- gradients ----------------------------------------------------------------------------


def backwards(torch: Any, session: Session) -> None:
    """Hook backward passes and their losses."""
    step_ended = step_end(session)

    @session.patches.wrap(torch.autograd, "backward")
    def backward(original: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if session.muted:
            return original(tensors, *args, **kwargs)
        session.attempt(_keep_loss, session, tensors)
        was_open = session.entrance.shut()  # checkpointing calls modules again
        enter = clock()
        try:
            result = original(tensors, *args, **kwargs)
        except Exception as problem:
            session.record_exception(problem, "backward")
            raise
        finally:
            if was_open:
                session.entrance.reopen()
        end = clock()
        session.add(("backward", enter, end))
        if session.device is not None and session.capture is None:
            session.attempt(session.device.mark, end, True)
        if not session.optimizers:  # else their steps are the ends of steps
            session.at("backward")
            step_ended(end)
        return result


def asked_for(torch: Any, session: Session) -> None:
    """Hook `autograd.grad` and `torch.func` gradients."""
    compiling, step_ended = compiling_of(torch), step_end(session)

    @session.patches.wrap(torch.autograd, "grad")
    def grad(original: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or session.muted or is_muted(session):
            return original(outputs, inputs, *args, **kwargs)
        enter = clock()
        result = original(outputs, inputs, *args, **kwargs)
        end = clock()
        several = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
        updates = any(isinstance(each, torch.nn.Parameter) for each in several)
        if updates or len(several) > 1:  # of one input it is guidance of a sampler, or forces
            session.add(("gradient", enter, end))
            if not session.optimizers:
                session.at("gradient")
                step_ended(end)
        return result


def _keep_loss(session: Session, tensors: Any) -> None:
    """Copy the loss without waiting for its value.

    A copy, because a CUDA graph writes each loss to the same place. A captured loss is no value.
    """
    unscaled, session.unscaled = session.unscaled, None
    if session.capture is not None:
        return
    tensor = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if unscaled is None and getattr(tensor, "numel", lambda: 0)() == 1:
        unscaled = tensor.detach()
    if unscaled is not None:
        session.losses.append(unscaled.clone() if unscaled.device.type == "cuda" else unscaled)
        if len(session.losses) > 2 * LOSSES_KEPT:
            del session.losses[LOSSES_KEPT]


def recomputing(torch: Any, session: Session) -> None:
    """Notice the first call of torch's checkpointing."""
    module: Any = sys.modules.get(f"{torch.__name__}.utils.checkpoint")
    names = [name for name in CHECKPOINTS if callable(vars(module).get(name))]
    if len(names) < 2:
        return
    session.recomputes = False

    def noticing(name: str, original: Any) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            session.recomputes = True
            setattr(module, name, original)
            return original(*args, **kwargs)

        return called

    for name in names:
        session.patches.put(module, name, noticing(name, vars(module)[name]))


# --- optimizers ---------------------------------------------------------------------------


def scaler(torch: Any, session: Session) -> None:
    """Hook GradScaler: unscaled losses and skipped updates."""
    kind = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler

    @session.patches.wrap(kind, "scale")
    def scale(original: Any, self: Any, outputs: Any) -> Any:
        if isinstance(outputs, torch.Tensor):
            session.unscaled = outputs.detach()
        return original(self, outputs)

    @session.patches.wrap(kind, "step")
    def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        before = session.updates
        result = original(self, *args, **kwargs)
        if self.is_enabled() and session.updates == before:
            session.skipped_updates += 1
        return result


def optimizers(torch: Any, session: Session) -> None:
    """Hook optimizer construction and steps."""
    module: Any = sys.modules["torch.optim.optimizer"]
    step_ended = step_end(session)
    entered = 0.0
    held: dict[int, Any] = {}
    fresh = itertools.count(1)

    @session.patches.wrap(module.Optimizer, "__init__")
    def __init__(build: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        session.optimizers_built += 1

    def number_of(optimizer: Any) -> int:
        """Number by the first step; an id comes back once its owner is gone."""
        owner, number = held.get(id(optimizer), (None, 0))
        if owner is None or owner() is not optimizer:
            number = next(fresh)
            held[id(optimizer)] = weakref.ref(optimizer), number
            session.attempt(stepped, session, optimizer)
        return int(number)

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal entered
        entered = clock()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal entered
        end = clock()
        if session.muted or (session.muted is None and is_muted(session)):
            return
        session.updates += 1
        session.add(("step", entered or end, end, number_of(optimizer)))
        entered = 0.0
        session.at("step", optimizer)
        if end >= session.due or session.device is not None:
            step_ended(end)

    session.patches.on_undo(module.register_optimizer_step_pre_hook(before).remove)
    session.patches.on_undo(module.register_optimizer_step_post_hook(after).remove)


def stepped(session: Session, optimizer: Any) -> None:
    """Record an optimizer's kind at its first step."""
    groups = optimizer.param_groups
    if session.fused is None and groups and "fused" in groups[0]:
        session.fused = bool(groups[0]["fused"])
    session.optimizers.add(_kind(optimizer))


def _kind(optimizer: Any) -> str:
    """Torch class of the optimizer, else its own."""
    for each in type(optimizer).__mro__:
        if each.__module__.startswith("torch.optim") and each.__name__ != "Optimizer":
            return str(each.__name__)
    return type(optimizer).__name__


PARTS = (backwards, asked_for, scaler, optimizers, recomputing)


# --- the record ---------------------------------------------------------------------------


def loss_values(session: Session) -> list[float]:
    """Read the losses after the window."""
    values = []
    for loss in session.losses:
        try:
            values.append(float(loss))
        except Exception as problem:
            session.note(f"a loss could not be read: {type(problem).__name__}: {problem}")
    return values
