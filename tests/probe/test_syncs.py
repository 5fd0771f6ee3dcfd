"""Calls that give numbers to the host: how many a step, and of which lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.probe.program import PROGRAMS, in_a_file

if TYPE_CHECKING:
    from pathlib import Path

EVALUATES_FIRST = """
import torch
from ok_descent import Descent
model = torch.nn.Linear(4, 1)
optimizer = Descent(model.parameters())
data = torch.utils.data.DataLoader(torch.randn(240, 4), batch_size=4)
for _ in range(50):
    evaluated = model(torch.randn(4, 4)).mean().item()
for x in data:
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    first = loss.item()
    second = loss.item()
"""


def test_an_evaluation_before_the_first_step_is_none_of_the_loops(tmp_path: Path) -> None:
    """Its forwards were steps when the counting began, and its calls the loop's."""
    outcome = in_a_file(tmp_path, EVALUATES_FIRST, env={"PYTHONPATH": str(PROGRAMS)})
    found = [(point.site.rpartition(":")[2], point.per_step) for point in outcome.measured.syncs]
    assert found == [("14", 1.0), ("15", 1.0)]
