"""What gradients tell of a program that updates its parameters by itself."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from . import roots
from .log import Log

if TYPE_CHECKING:
    from .session import Session


class Gradient:
    """The gradient of one parameter, looked at between backward passes.

    While batches are accumulated it stays as the backward before left it. Dropped, zeroed or
    clipped it was taken up: the update has come, or is about to.
    """

    def __init__(self) -> None:
        self._held: Any = None
        self._left: tuple[int, int] | None = None

    def _parameter(self) -> Any:
        return self._held() if self._held is not None else None

    def is_fresh(self) -> bool:
        """Whether the backward that is about to begin is the first one of an update."""
        parameter = self._parameter()
        return parameter is None or _state(parameter.grad) != self._left

    def note(self, log: Log) -> None:
        """A backward pass is done."""
        parameter = self._parameter()
        if parameter is None or parameter.grad is None:
            parameter = _with_gradient(log)
            self._held = None if parameter is None else weakref.ref(parameter)
        self._left = None if parameter is None else _state(parameter.grad)


def _state(gradient: Any) -> tuple[int, int] | None:
    """Another tensor, or the same one written to, is another state."""
    return None if gradient is None else (id(gradient), gradient._version)


def _with_gradient(log: Log) -> Any:
    """A parameter of the roots that has a gradient; None where there is none."""
    for root in log.roots:
        module = root.module()
        if module is None or not root.parameters or not hasattr(module, "parameters"):
            continue
        for parameter in module.parameters():
            if parameter.grad is not None:
                return parameter
    return None


def of_parameters(torch: Any, inputs: Any, modules: bool) -> bool:
    """Whether gradients by `inputs` can update something. Those by one tensor that is no
    parameter, of a program with `modules`, guide a sampler or are forces."""
    several = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
    return (
        not modules
        or len(several) > 1
        or any(isinstance(each, torch.nn.Parameter) for each in several)
    )


def told(session: Session) -> str | None:
    """What speaks for a training, the clearest sign first; None where nothing does.

    optimizer: one of torch's stepped. backward, gradients: nobody is seen to step, the program
    does it by itself. moved: parameters changed, whoever changed them. asked: gradients were only
    asked for by what went in, which may be guidance.
    """
    log = session.log
    for kind, name in (("opts", "optimizer"), ("backwards", "backward"), ("grads", "gradients")):
        if log.count(kind):
            return name
    if any(root.parameters and roots.moved(root) for root in log.roots):
        return "moved"
    return "asked" if session.asked_gradients else None
