"""Signs of training: optimizers, updates of the program's own, recomputed activations."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import WHOLE, forked, fresh, in_a_file, python, run

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
"""
ADAM = "optimizers = [torch.optim.AdamW(body.parameters())]"
OWN = "optimizers = [Own([*body.parameters(), *head.parameters()])]"
TWO = "optimizers = [torch.optim.Adam(body.parameters()), torch.optim.SGD(head.parameters())]"


@pytest.mark.parametrize(
    ("optimizers", "call", "recomputes"),
    [
        (ADAM, "body(x)", False),
        (OWN, "checkpoint(body, x, use_reentrant=False)", True),
        (TWO, "checkpoint(body, x, use_reentrant=True)", True),
    ],
    ids=["one", "a class of its own", "two at once"],
)
def test_checkpointing_is_seen_whatever_the_optimizers(
    optimizers, call, recomputes, tmp_path
) -> None:
    """Checkpointing is seen however it is called."""
    program = PROGRAM.replace("OPTIMIZERS", optimizers).replace("CALL", call)
    effects = in_a_file(tmp_path, program).measured.effects
    assert effects.recomputes is recomputes


@pytest.mark.parametrize(
    ("how", "sign"), [("data", "backward"), ("grad", "gradients"), ("functional", "gradients")]
)
def test_updates_of_the_programs_own(tmp_path, how, sign) -> None:
    """Gradients end a step; its samples are those of the forwards."""
    outcome = python(tmp_path, "own_updates.py", how)
    reading = outcome.measured
    assert reading.step_kind == "training step"
    assert reading.effects.trains == sign
    assert reading.effects.batch == 6
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.02)


def test_gradients_by_what_goes_in_are_no_training(tmp_path) -> None:
    """A sampler asks for them as guidance."""
    reading = python(tmp_path, "own_updates.py", "guided").measured
    assert reading.effects.trains is None
    assert reading.step_kind == "root forward"
    assert reading.effects.batch == 6


def test_gradients_asked_for_by_name_over_a_loader_are_profiled(tmp_path) -> None:
    """No backward pass ends a step: the program would run on for ever."""
    plan = MeasurePlan(measure_s=0.25, min_steps=10, ceilings_workers=(0,), ceilings_s=0.2)
    outcome = python(tmp_path, "own_updates.py", "grad", "--loader", plan=plan)
    (record,) = outcome.records
    assert outcome.measured.step_kind == "training step"
    assert outcome.measured.effects.batch_asked == 6
    assert outcome.measured.wait_share is not None
    assert record.state == "stopped"
    assert record.flops is not None


MODE = """\
import torch
names = []
class Seen(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        names.append(func.__name__)
        return func(*args, **(kwargs or {}))
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Seen():
    for rows, _ in torch.utils.data.DataLoader([(torch.zeros(4), 1)] * 80, batch_size=2):
        model(rows).mean().backward()
        optimizer.step()
        last, names = names, []
print(sorted(last))
"""


def test_a_mode_of_the_program_sees_nothing_of_ours(tmp_path) -> None:
    """In a step of a known loop, what reaches it is what the program asks of torch."""
    seen = in_a_file(tmp_path, MODE).stdout
    command = [sys.executable, str(tmp_path / "program.py")]
    assert seen == subprocess.run(command, capture_output=True, text=True, check=True).stdout


DRAWS = """\
import random, subprocess, sys
import numpy as np
import torch
from torch import multiprocessing
def drawn(_=None):
    return f"{random.random()}-{np.random.rand()}-{torch.rand(1).item()}"
if __name__ == "__main__":
    if "seeds" in sys.argv:
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
    print(drawn(), flush=True)
    if "pool" in sys.argv:
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            print(*pool.map(drawn, range(2), chunksize=1), flush=True)
        for _ in range(2):
            subprocess.run([sys.executable, __file__])
"""
ONE_SEED = MeasurePlan(mode="whole", one_seed=True)


def drawn(folder: Path, *args: str, **options: Any) -> list[str]:
    """What each process of DRAWS drew first."""
    folder.mkdir()
    path = folder / "draws.py"
    path.write_text(DRAWS)
    usual = {"plan": ONE_SEED, "begin": forked}
    return run(folder, sys.executable, str(path), *args, **{**usual, **options}).stdout.split()


def test_runs_at_one_seed_draw_alike(tmp_path) -> None:
    """Another rank draws otherwise, and the program's own seed stays its own."""
    own, again = drawn(tmp_path / "own"), drawn(tmp_path / "again")
    assert own == again
    assert drawn(tmp_path / "rank", env={"RANK": "1"}) != own
    seeded = drawn(tmp_path / "seeded", "seeds")
    assert seeded == drawn(tmp_path / "anew", "seeds", plan=WHOLE) != own


def test_processes_of_a_program_draw_otherwise_at_one_seed(tmp_path) -> None:
    """Each worker of a pool, or of its own, makes something else, as it does without us."""
    own = drawn(tmp_path / "own", "pool", begin=fresh)
    assert len(own) == 5
    for each in zip(*(one.split("-") for one in own), strict=True):
        assert len(set(each)) == 5


@pytest.mark.parametrize(("drawn", "alike"), [("torch.randn(4)", True), ("time.time() % 1", False)])
def test_weights_that_runs_begin_with_are_told(drawn, alike, tmp_path) -> None:
    """As they were before the first update, so that runs of other batches can be held together."""
    program = f"""\
import time
import torch
weight = torch.nn.Parameter(torch.zeros(4) + {drawn})
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(20):
    optimizer.zero_grad()
    (weight ** 2).sum().backward()
    optimizer.step()
"""
    told = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "program.py"
        path.write_text(program)
        command = (sys.executable, str(path))
        (record,) = run(tmp_path / name, *command, plan=ONE_SEED, begin=forked).records
        told.append(record.work.first_weights)
    assert "" not in told
    assert (told[0] == told[1]) is alike
