"""Traces of one step in this process, by the recorder's own mode."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from advisor.prediction.trace import Trace, parse
from advisor.probe.op_trace import OpTrace


def without_data(model: torch.nn.Module) -> FakeTensorMode:
    """Take the data out of a model; its step runs under the mode that comes back."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    for module in model.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            data = fake.from_tensor(value.detach())
            module.register_parameter(name, torch.nn.Parameter(data, value.requires_grad))
        for name, value in list(module.named_buffers(recurse=False)):
            module.register_buffer(name, fake.from_tensor(value))
    return fake


def traced(
    step: Callable[[], object], batch: float, optimizer: Any = None, *, warm: bool = True
) -> Trace:
    """Trace of `step`; `warm`: after one that makes the optimizer's state."""
    if warm:
        step()
    session: Any = SimpleNamespace(torch=torch, fetching=False, stand_in=None)
    trace = OpTrace(session, optimizer)
    trace.begin()
    step()
    return parse(json.loads(json.dumps(trace.end()))["trace"], batch)
