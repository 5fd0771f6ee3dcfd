"""Whether activations are computed twice is seen of torch's checkpointing, however it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.probe.program import in_a_file

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

PROGRAM = """\
import torch
from torch.utils.checkpoint import checkpoint
torch.set_num_threads(1)
body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for _ in range(40):
    x = torch.randn(2, 4, requires_grad=True)
    loss = head(CALL).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CALLS = {
    "body(x)": False,
    "checkpoint(body, x, use_reentrant=False)": True,
    "checkpoint(body, x, use_reentrant=True)": True,
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_computed_twice_is_seen(tmp_path: Path, call: str) -> None:
    """Imported by name before the probe looked, as libraries do."""
    done = in_a_file(tmp_path, PROGRAM.replace("CALL", call))
    assert done.measured.effects.recomputes is CALLS[call]
