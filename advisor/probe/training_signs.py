"""Signs of training, and of its optimizers."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from . import module_facts
from .session import Session

OPTIMIZERS_KEPT = 8


class Gradient:
    """Gradient of one parameter, compared between backward passes.

    While batches are accumulated it stays as the backward before left it. Dropped, zeroed or
    clipped it was taken up: the update has come, or is about to.
    """

    def __init__(self) -> None:
        self._held: Any = None
        self._left: tuple[int, int] | None = None

    def _parameter(self) -> Any:
        return self._held() if self._held is not None else None

    def is_fresh(self) -> bool:
        """Return True before an update's first backward."""
        parameter = self._parameter()
        return parameter is None or _state(parameter.grad) != self._left

    def note(self, session: Session) -> None:
        """Keep the gradient's state after a backward pass."""
        parameter = self._parameter()
        if parameter is None or parameter.grad is None:
            parameter = _with_gradient(session)
            self._held = None if parameter is None else weakref.ref(parameter)
        self._left = None if parameter is None else _state(parameter.grad)


def _state(gradient: Any) -> tuple[int, int] | None:
    """Identity of a tensor's current value."""
    return None if gradient is None else (id(gradient), gradient._version)


def _with_gradient(session: Session) -> Any:
    """Return a called parameter with a gradient."""
    for entry in session.modules:
        module = entry.module()
        if module is None or not entry.parameters or not hasattr(module, "parameters"):
            continue
        for parameter in module.parameters():
            if parameter.grad is not None:
                return parameter
    return None


def of_parameters(torch: Any, inputs: Any, modules: bool) -> bool:
    """Return True if gradients of `inputs` can update parameters.

    Those by one tensor that is no parameter, of a program with `modules`, guide a sampler or are
    forces.
    """
    several = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
    return (
        not modules
        or len(several) > 1
        or any(isinstance(each, torch.nn.Parameter) for each in several)
    )


def sign(session: Session) -> str | None:
    """Clearest sign of training, or None.

    optimizer: one of torch's stepped. backward, gradients: nobody is seen to step, the program
    does it by itself. moved: parameters changed, whoever changed them. asked: gradients were only
    asked for by what went in, which may be guidance.
    """
    session.recorder.flush()
    counts = session.recorder.counts
    for kind, name in (("step", "optimizer"), ("backward", "backward"), ("gradient", "gradients")):
        if counts[kind]:
            return name
    if any(entry.parameters and module_facts.moved(entry) for entry in session.modules):
        return "moved"
    return "asked" if session.asked_gradients else None


# --- optimizers ---------------------------------------------------------------------------


def stepped(session: Session, optimizer: Any) -> None:
    """Record an optimizer's kind and rates at its first step.

    One whose rates are still nought is looked at again. A rate that lies on a card is copied, and
    read once the window is over; inside a capture nothing may be queued.
    """
    if id(optimizer) in session.optimizers or len(session.optimizers) >= OPTIMIZERS_KEPT:
        return
    rates = [group.get("initial_lr", group.get("lr", 0.0)) for group in optimizer.param_groups]
    on_card = [rate for rate in rates if getattr(rate, "is_cuda", False)]
    if on_card and session.capture is not None:
        return
    kept = [rate.detach().clone() if hasattr(rate, "detach") else float(rate) for rate in rates]
    if on_card or any(number_in(rate) for rate in kept):
        session.optimizers[id(optimizer)] = (_kind(optimizer), kept)


def number_in(value: Any) -> float:
    """Read a tensor's number by the original `item`."""
    if not hasattr(value, "detach"):
        return float(value)
    base: Any = sys.modules["torch"]._C
    tensor = getattr(base, "TensorBase", None) or base._TensorBase
    return float(tensor.item(value))


def learning(session: Session) -> dict[str, Any]:
    """Optimizer names and initial learning rates."""
    seen = list(session.optimizers.values())
    return {
        "optimizers": sorted({name for name, _ in seen}),
        "learning_rates": sorted({number_in(rate) for _, rates in seen for rate in rates} - {0.0}),
    }


def _kind(optimizer: Any) -> str:
    """Torch class of the optimizer, else its own."""
    for each in type(optimizer).__mro__:
        if each.__module__.startswith("torch.optim") and each.__name__ != "Optimizer":
            return str(each.__name__)
    return type(optimizer).__name__


def is_fused(optimizer: Any) -> bool | None:
    """Return True for a fused optimizer update."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    return bool(group["fused"]) if "fused" in group else None
