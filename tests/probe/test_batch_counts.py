"""Numbers that the program computes with, and their growth in an update of several batches."""

import importlib.util
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from advisor.probe import batch_counts


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("beta = step / 1000", {"step"}),
        ("tau = 0.9 ** self.steps.item()", {"steps"}),
        ("total = 5 * len(loader)\nshare = step / total", set()),
        ("total = len(loader) // accumulation\nshare = step / total", {"step"}),
        ("print(step / 1000)", set()),
        ("y = F.log_softmax(step / 9)", {"step"}),
        ("shown = f'{step / 1000:.0%}'", set()),
        ("LambdaLR(optimizer, lambda step: step / 100)", set()),
        ("def warm(step):\n    return step / 100\nLambdaLR(optimizer, lr_lambda=warm)", set()),
        ("def anneal(step):\n    return step / 100", {"step"}),
        ("if step % 16 == 0:\n    loss = loss + 16 * extra(x)\nloss.backward()", {"step"}),
        ("if step % 16 == 0:\n    loss += extra(x)\nfabric.backward(loss)", {"step"}),
        ("loss.backward()\nif step % 16 == 0:\n    loss = loss.item()", set()),
        ("loss.backward()\nif step % 16 == 0:\n    seen = extra(x)", set()),
    ],
)
def test_names_that_code_computes_with(tmp_path, code, names) -> None:
    """What only tells a person, is a share of a length, or a scheduler's own count is none."""
    path = tmp_path / "train.py"
    path.write_text(code)
    assert batch_counts.computed(str(path)) == names


PROGRAM = """
import torch
from torch import nn


class Cooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self):
        self.calls += 1
        return 0.9 ** self.calls.item()


class Freeing:
    batches = 0

    def after_batch(self):
        self.batches = self.batches + 1
        return self.batches == 500


class Trainer:
    def __init__(self, batch, accumulation):
        self.callbacks, self.net = [Freeing()], nn.Sequential(Cooling())
        self.batch, self.accumulation, self.samples, self.right = batch, accumulation, 0, 0

    def train(self, backward, step):
        for update in range(8):
            for number in range(self.accumulation):
                self.net[0]()
                backward()
                self.right += self.batch
                self.callbacks[0].after_batch()
            self.samples += self.batch
            if self.samples > 5000 or self.right > 9000:
                break
            step()
"""


@pytest.mark.parametrize(("batch", "accumulation"), [(2, 4), (8, 1)])
def test_growth_in_an_update(tmp_path, monkeypatch, batch, accumulation) -> None:
    """Of a callback's count, of a buffer's, of samples counted at updates and at each batch."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("train", path)
    program = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "train", program)
    spec.loader.exec_module(program)
    trainer = program.Trainer(batch, accumulation)
    trainer.callbacks[0].batches = 0
    modules = [SimpleNamespace(module=lambda: trainer.net)]
    session = SimpleNamespace(
        updates=0, counts=[], capture=None, modules=modules, unseen=nullcontext
    )

    def step() -> None:
        session.updates += 1
        batch_counts.find(session)

    trainer.train(lambda: batch_counts.look(session), step)
    by_batches, at_updates = (
        {name.replace("trainer.", "self."): growth for name, growth in found.items()}
        for found in batch_counts.content(session)
    )
    assert by_batches == {
        "self.callbacks.0.batches": accumulation,
        "Sequential.0.calls": accumulation,
    }
    assert at_updates == {"self.samples": batch, "self.right": 8}
