"""Signs of training: optimizers and rates, updates of the program's own, recomputed activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import in_a_file, python

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

PROGRAM = """\
import torch
from torch.utils.checkpoint import checkpoint
torch.set_num_threads(1)
class Own(torch.optim.SGD):
    pass
body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
OPTIMIZERS
for _ in range(40):
    x = torch.randn(2, 4, requires_grad=True)
    loss = head(CALL).square().mean()
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    if schedule:
        schedule.step()
"""
GROUPS = "[{'params': body.parameters(), 'lr': 0.02}, {'params': head.parameters()}]"
WARM_UP = (
    f"optimizers = [torch.optim.AdamW({GROUPS}, lr=0.01)]\n"
    "schedule = torch.optim.lr_scheduler.LambdaLR(optimizers[0], lambda n: min(1, n / 10))"
)
OWN = "optimizers = [Own([*body.parameters(), *head.parameters()], lr=0.5)]\nschedule = None"
TWO = (
    "optimizers = [torch.optim.Adam(body.parameters(), lr=0.1),"
    " torch.optim.SGD(head.parameters(), lr=0.2)]\nschedule = None"
)


@pytest.mark.parametrize(
    ("optimizers", "call", "kinds", "rates", "recomputes"),
    [
        (WARM_UP, "body(x)", ("AdamW",), (0.01, 0.02), False),
        (OWN, "checkpoint(body, x, use_reentrant=False)", ("SGD",), (0.5,), True),
        (TWO, "checkpoint(body, x, use_reentrant=True)", ("Adam", "SGD"), (0.1, 0.2), True),
    ],
    ids=["groups under a schedule from nought", "a class of its own", "two at once"],
)
def test_optimizers_their_first_rates_and_checkpoints(
    optimizers: str,
    call: str,
    kinds: tuple[str, ...],
    rates: tuple[float, ...],
    recomputes: bool,
    tmp_path: Path,
) -> None:
    """Rates are those before any schedule; checkpointing is seen however it is called."""
    program = PROGRAM.replace("OPTIMIZERS", optimizers).replace("CALL", call)
    effects = in_a_file(tmp_path, program).measured.effects
    assert (effects.optimizers, effects.learning_rates) == (kinds, rates)
    assert effects.recomputes is recomputes


@pytest.mark.parametrize(
    ("how", "sign", "accumulation"),
    [
        ("data", "backward", 1),
        ("class", "backward", 4),
        ("assigned", "backward", 1),
        ("grad", "gradients", 1),
        ("functional", "gradients", 1),
    ],
)
def test_updates_of_the_programs_own(
    tmp_path: Path, how: str, sign: str, accumulation: int
) -> None:
    """A step ends where gradients are taken up; its samples are those of the forwards."""
    outcome = python(tmp_path, "own_updates.py", how)
    reading = outcome.measured
    assert reading.step_kind == "training step"
    assert reading.effects.trains == sign
    assert reading.effects.batch == 6
    assert reading.effects.accumulation == accumulation
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.02)


def test_without_a_module_steps_are_counted(tmp_path: Path) -> None:
    """A step of plain tensors has an unknown number of samples."""
    outcome = python(tmp_path, "own_updates.py", "tensors")
    reading = outcome.measured
    assert (reading.effects.trains, reading.effects.batch) == ("gradients", None)
    assert reading.unit == "step"
    assert reading.units_per_s == pytest.approx(outcome.true_rate() / 6, rel=0.02)


@pytest.mark.parametrize(
    ("how", "sign"), [("evolution", "moved"), ("guided", "asked"), ("forward", None)]
)
def test_signs_of_a_training_without_a_gradient_step(
    tmp_path: Path, how: str, sign: str | None
) -> None:
    """Parameters that move are training; gradients by what goes in may be; forwards are none."""
    reading = python(tmp_path, "own_updates.py", how).measured
    assert reading.effects.trains == sign
    assert (reading.step_kind, reading.effects.batch) == ("root forward", 6)


def test_gradients_asked_for_by_name_over_a_loader_are_profiled(tmp_path: Path) -> None:
    """No backward pass ends a step: the program would run on for ever."""
    plan = MeasurePlan(measure_s=0.25, min_steps=10, ceilings_workers=(0,), ceilings_s=0.2)
    outcome = python(tmp_path, "own_updates.py", "grad", "--loader", "0", plan=plan)
    (record,) = outcome.records
    assert (outcome.measured.step_kind, outcome.measured.effects.batch_asked) == (
        "training step",
        6,
    )
    assert outcome.measured.wait_share is not None
    assert record.state == "stopped"
    assert record.flops is not None
