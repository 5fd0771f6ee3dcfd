"""Which optimizers step and with which rates they began, whatever a schedule makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.probe.program import in_a_file

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

PROGRAM = """\
import torch
torch.set_num_threads(1)
class Own(torch.optim.SGD):
    pass
body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
BUILD
for _ in range(40):
    loss = head(body(torch.randn(2, 4))).square().mean()
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    if schedule:
        schedule.step()
"""
GROUPS = "[{'params': body.parameters(), 'lr': 0.02}, {'params': head.parameters()}]"
BUILT = {
    "groups under a schedule from nought": (
        (
            f"optimizers = [torch.optim.AdamW({GROUPS}, lr=0.01)]\n"
            "schedule = torch.optim.lr_scheduler.LambdaLR(optimizers[0], lambda n: min(1, n / 10))"
        ),
        ("AdamW",),
        (0.01, 0.02),
    ),
    "a class of the program's own": (
        "optimizers = [Own([*body.parameters(), *head.parameters()], lr=0.5)]\nschedule = None",
        ("SGD",),
        (0.5,),
    ),
    "two at once": (
        (
            "optimizers = [torch.optim.Adam(body.parameters(), lr=0.1),"
            " torch.optim.SGD(head.parameters(), lr=0.2)]\nschedule = None"
        ),
        ("Adam", "SGD"),
        (0.1, 0.2),
    ),
}


@pytest.mark.parametrize("built", BUILT)
def test_the_optimizers_and_the_rates_that_they_began_with(built: str, tmp_path: Path) -> None:
    code, optimizers, rates = BUILT[built]
    done = in_a_file(tmp_path, PROGRAM.replace("BUILD", code))
    assert done.measured.effects.optimizers == optimizers
    assert done.measured.effects.learning_rates == rates
