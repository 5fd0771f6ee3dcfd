"""Gradients of several batches for each update, where a program takes one for each batch.

`advisor.patches.accumulation_patch` gives this function to the program's own code: it stands alone.
"""

from __future__ import annotations

import types
from typing import Any


def accumulate(optimizer: Any, times: int) -> None:
    """Each `times`-th step of `optimizer` updates, by the mean of the gradients since the last."""
    own = type(optimizer)
    calls = 0

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % times:
            return None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad /= times
        return own.step(self, *args, **kwargs)

    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        if calls % times == 0:
            own.zero_grad(self, *args, **kwargs)

    optimizer.step = types.MethodType(step, optimizer)
    optimizer.zero_grad = types.MethodType(zero_grad, optimizer)
