"""Profile of one whole step: floating-point operations and memory by kind.

The step goes on under torch's own counter, which has a formula for matrix products, convolutions
and attention. Memory is known of a card only, whose allocator keeps the peak.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .module_facts import parameters
from .overrides import compilations
from .session import Session


class StepProfile:
    """Operations and peak memory of one whole step."""

    def __init__(self, session: Session, optimizer: Any) -> None:
        self._session, self._optimizer = session, optimizer
        self._cuda = session.torch.cuda if session.device is not None else None
        self._counter = _counter().FlopCounterMode(display=False)

    def begin(self) -> None:
        """Count every operation from now on."""
        if self._cuda is not None:
            self._cuda.reset_peak_memory_stats()
        self._counter.__enter__()

    def end(self) -> dict[str, Any]:
        """Stop counting; return entries of the record."""
        self._counter.__exit__(None, None, None)
        found = {"flops": {"per_step": float(self._counter.get_total_flops())}}
        if self._cuda is not None and self._optimizer is not None:
            kept = self._kept()
            others = self._cuda.max_memory_allocated() - sum(kept.values())
            found["footprint"] = {**kept, "activations": max(0, others)}
        return found

    def _kept(self) -> dict[str, int]:
        """Bytes on the card that stay from step to step, by kind."""
        held = [p for group in self._optimizer.param_groups for p in group["params"]]
        for module in (entry.module() for entry in self._session.modules):
            if hasattr(module, "buffers"):
                held += [*parameters(module), *module.buffers()]
        states = [value for each in self._optimizer.state.values() for value in each.values()]
        kinds = {"model": held, "gradients": [p.grad for p in held], "optimizer": states}
        return {kind: _bytes(tensors) for kind, tensors in kinds.items()}


def _bytes(tensors: list[Any]) -> int:
    unique = {id(each): each for each in tensors if getattr(each, "is_cuda", False)}
    return sum(each.numel() * each.element_size() for each in unique.values())


def why_not(session: Session) -> str | None:
    """Reason why no step can be profiled, or None."""
    torch: Any = sys.modules["torch"]
    if _counter() is None:
        return "this version of torch cannot count them"
    if compilations():
        return "compiled code does not show its operations"
    if any(isinstance(entry.module(), torch.jit.ScriptModule) for entry in session.modules):
        return "scripted code does not show its operations"
    if session.graph_replayed:
        return "CUDA graphs do not show their operations"
    return None


def _counter() -> Any:
    try:
        return importlib.import_module("torch.utils.flop_counter")
    except ImportError:
        return None
