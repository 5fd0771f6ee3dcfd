"""Hooks of backward passes, scalers and optimizers."""

from __future__ import annotations

import itertools
import sys
import time
import weakref
from typing import Any, Callable

from . import training_signs
from .hooking import compiling_of, dress, is_muted, step_end
from .session import Session

LOSSES_KEPT = 256
LOSSES_LATER = 4
"""Beyond those kept at first, every so many."""

clock = time.perf_counter


def backwards(torch: Any, session: Session) -> None:
    """Hook backward passes and their losses."""
    original = torch.autograd.backward
    step_ended = step_end(session)
    gradient = training_signs.Gradient()
    many = 0

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal many
        if session.muted:
            return original(tensors, *args, **kwargs)
        many += 1
        if many <= LOSSES_KEPT or not many % LOSSES_LATER:
            session.attempt(_keep_loss, session, tensors)
        alone = not session.optimizers  # else optimizer steps mark the use of gradients
        fresh = alone and gradient.is_fresh()
        entrance = session.entrance
        was_open = entrance.open and entrance.shut()  # checkpointing calls modules again
        enter = clock()
        try:
            result = original(tensors, *args, **kwargs)
        except Exception as problem:
            session.record_exception(problem, "backward")
            raise
        finally:
            if was_open:
                entrance.reopen()
        end = clock()
        session.trained = True
        session.add(("backward", enter, end, fresh))
        if session.device is not None and session.capture is None:
            session.attempt(session.device.mark, end, True)
        if alone:
            session.attempt(gradient.note, session)
            _boundary(session, "backward")
            step_ended(end)
        return result

    dress(backward, original)
    session.patches.put(torch.autograd, "backward", backward)


def _boundary(session: Session, kind: str) -> None:
    if session.diagnosis is not None:
        session.diagnosis.at(kind)


def asked_for(torch: Any, session: Session) -> None:
    """Hook `autograd.grad` and `torch.func` gradients."""
    original, compiling = torch.autograd.grad, compiling_of(torch)
    step_ended = step_end(session)

    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or session.muted or is_muted(session):
            return original(outputs, inputs, *args, **kwargs)
        enter = clock()
        result = original(outputs, inputs, *args, **kwargs)
        end = clock()
        if training_signs.of_parameters(torch, inputs, session.heavy_modules > 0):
            session.trained = True
            session.add(("gradient", enter, end, True))
            if not session.optimizers:
                _boundary(session, "gradient")
                step_ended(end)
        else:
            session.asked_gradients = True
        return result

    dress(grad, original)
    session.patches.put(torch.autograd, "grad", grad)


def _keep_loss(session: Session, tensors: Any) -> None:
    """Copy the loss without waiting for its value.

    A copy, because a CUDA graph writes each loss to the same place; and none of what is captured,
    which is no value yet.
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
            del session.losses[LOSSES_KEPT::2]


def scaler(torch: Any, session: Session) -> None:
    """Hook GradScaler: unscaled losses and skipped updates."""
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

    dress(scale, original)
    dress(step, update)
    session.patches.put(scaler, "scale", scale)
    session.patches.put(scaler, "step", step)


def optimizers(torch: Any, session: Session) -> None:
    """Hook optimizer construction and gradient resets."""
    optimizer_class: Any = sys.modules["torch.optim.optimizer"].Optimizer
    build, zero = optimizer_class.__init__, optimizer_class.zero_grad

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        session.optimizers_built += 1

    def zero_grad(self: Any, set_to_none: bool = True) -> Any:
        session.set_to_none = set_to_none
        return zero(self, set_to_none)

    dress(__init__, build)
    dress(zero_grad, zero)
    session.patches.put(optimizer_class, "__init__", __init__)
    session.patches.put(optimizer_class, "zero_grad", zero_grad)


def steps(torch: Any, session: Session) -> None:
    """Hook the steps of optimizers."""
    optim = sys.modules["torch.optim.optimizer"]
    step_ended = step_end(session)
    entered = 0.0
    number_of = _numbers()

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal entered
        entered = clock()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal entered
        end = clock()
        if session.muted or (session.muted is None and is_muted(session)):
            return
        if not session.updates:
            session.fused = training_signs.is_fused(optimizer)
            session.trained = True
        session.updates += 1
        session.add(("step", entered or end, end, number_of(optimizer)))
        entered = 0.0
        if id(optimizer) not in session.optimizers:
            session.attempt(training_signs.stepped, session, optimizer)
        if session.diagnosis is not None:
            session.diagnosis.at("step", optimizer)
        if end >= session.due or session.device is not None:
            step_ended(end)

    session.patches.on_undo(optim.register_optimizer_step_pre_hook(before).remove)
    session.patches.on_undo(optim.register_optimizer_step_post_hook(after).remove)


def _numbers() -> Callable[[Any], int]:
    """Numbers of the optimizers by their first steps.

    An id comes back once its owner is gone.
    """
    held: dict[int, Any] = {}
    fresh = itertools.count(1)

    def number_of(optimizer: Any) -> int:
        owner, number = held.get(id(optimizer), (None, 0))
        if owner is None or owner() is not optimizer:
            number = next(fresh)
            held[id(optimizer)] = weakref.ref(optimizer), number
        return int(number)

    return number_of


def recomputing(torch: Any, session: Session) -> None:
    """Hook the first call of torch's checkpointing."""
    module: Any = sys.modules.get(f"{torch.__name__}.utils.checkpoint")
    names = [name for name in CHECKPOINTS if callable(vars(module).get(name))]
    if len(names) < 2:
        return
    session.recomputes = False
    for name in names:
        session.patches.put(module, name, _noticing(session, module, name))


CHECKPOINTS = (
    "check_backward_validity",
    "_checkpoint_without_reentrant_generator",
    "_checkpoint_without_reentrant",
)
"""Functions that torch calls in each of the two kinds, by the names of its versions."""


def _noticing(session: Session, module: Any, name: str) -> Callable[..., Any]:
    original = vars(module)[name]

    def called(*args: Any, **kwargs: Any) -> Any:
        session.recomputes = True
        setattr(module, name, original)
        return original(*args, **kwargs)

    return called
