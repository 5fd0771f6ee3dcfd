"""What is done once a batch is read in the code of the loop around a backward pass."""

import ast
import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest

from advisor.probe import by_batches

PROGRAM = """
import itertools, random
import numpy as np
import torch


class Average:
    def __init__(self):
        self.value = 1.0

    def __call__(self, loss):
        self.value = 0.9 * self.value + 0.1 * loss
        return loss / self.value


class Meter:
    def __init__(self):
        self.value = 1.0

    def update(self, loss):
        self.value = 0.9 * self.value + 0.1 * loss
        print("smooth", self.value)


class Cooling:
    heat = 2.0

    def forward(self, x):
        self.heat *= 0.99
        return x / self.heat


class Centre:
    places, width = 6, 2

    def __init__(self):
        self.value, self.seen = torch.zeros(2), torch.zeros(2)

    def pull(self, x):
        away = x - self.value.numpy()
        self.value.lerp_(torch.ones(2), 0.1)
        self.seen.add_(1)
        return away

    def hide(self, x):
        torch.randperm(self.places)
        return x

    def shake(self, x):
        return x + torch.rand(self.width).numpy()

    def fill(self, size):
        return torch.randn(size).numpy()


def mixed(x, share=0.0):
    if share <= 0:
        return x
    return x * np.random.beta(share, share)


def ramp(most):
    for at in range(most):
        yield at / most


def batches(data):
    while True:
        yield data[:2]


def train(backward, alpha=0.0, accumulation=4):
    net, average, meter, ramps = Cooling(), {{"loss": Average()}}, Meter(), ramp(10)
    source, rng, level, tasks = batches(np.ones(8)), np.random.default_rng(0), 0.0, [1, 2, 3]
    centre, beta_of, kept = Centre(), torch.distributions.Beta(0.4, 0.4), torch.zeros(2)
    smooth = beta = 1.0
    turns = itertools.cycle(tasks)
    for number in range(4):
        x = np.ones(2)
        {line}
        loss = float(np.sum(x))
        loss = loss / accumulation
        backward()
        if (number + 1) % accumulation == 0:
            beta = beta * 0.999
            random.random()
        print(beta + 1)
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x = x * random.random()", "random.random()"),
        ("x = mixed(x, 0.4)", "np.random.beta(share, share)"),
        ("x = mixed(x, share=alpha)", None),
        ("x = x * (rng.random() if alpha > 0 else 1.0)", None),
        ("x = x * rng.uniform(0.5, 1.0)", "rng.uniform(0.5, 1.0)"),
        ("x = x * rng.random(len(x))", None),
        ("x = [each * random.random() for each in x]", None),
        ("if random.random() < 0.01: print(x)", None),
        ("x = x * next(ramps)", "next(ramps)"),
        ("x = x * next(turns)", "next(turns)"),
        ("x = next(source)", None),
        ("x = x / average['loss'](1.0)", "self.value = 0.9 * self.value + 0.1 * loss"),
        ("meter.update(1.0)", None),
        ("x = net.forward(x)", "self.heat *= 0.99"),
        ("smooth = 0.9 * smooth + 0.1 * number; print(f'{smooth:.3f}')", None),
        ("smooth = 0.9 * smooth + number; x = x * smooth", "smooth = 0.9 * smooth + number"),
        ("level = min(1.0, level + 0.01); x = x * level", "level = min(1.0, level + 0.01)"),
        ("level += number; x = x * level", None),
        ("number = 0.5 * number; x = x * number", None),
        ("x = centre.pull(x)", "self.value.lerp_(torch.ones(2), 0.1)"),
        ("x = x - kept.numpy(); kept.mul_(0.9).add_(1)", "kept.mul_(0.9).add_(1)"),
        ("share = torch.ones(2); share.mul_(0.9); x = x * share.numpy()", None),
        ("x = centre.hide(x)", "torch.randperm(self.places)"),
        ("x = centre.shake(x)", None),
        ("x = centre.fill(centre.places)", "torch.randn(size)"),
        ("x = centre.fill(len(x))", None),
        ("rows = 2 * len(x); x = x + torch.rand(rows).numpy()[:2]", None),
        ("x = x * beta_of.sample().item()", "beta_of.sample()"),
        ("x = x * beta_of.sample((len(x),)).numpy()", None),
        (
            "x = x * torch.distributions.Beta(0.4, 0.4).sample().item()",
            "torch.distributions.Beta(0.4, 0.4).sample()",
        ),
        ("x = x * torch.empty(1).uniform_().item()", "torch.empty(1).uniform_()"),
        ("x = x * torch.empty(len(x)).uniform_().numpy()", None),
    ],
)  # fmt: skip
def test_what_is_done_for_a_whole_batch_is_told(tmp_path, line, told) -> None:
    """What is done by items, by updates, in branches that are not taken, or to print is not."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(line=line))
    spec = importlib.util.spec_from_file_location("train", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    fed = {"latest": (2.0, [])}
    session = SimpleNamespace(once_a_batch=None, capture=None, modules=[], fed=fed)
    program.train(lambda: by_batches.find(session))
    assert session.once_a_batch == [told] * (told is not None)


LOADED = """
import random
import torch
from torch.utils.data import DataLoader, Sampler


class Sized(Sampler):
    def __init__(self, sizes):
        self.sizes = sizes

    def __len__(self):
        return 4

    def __iter__(self):
        batch = []
        {each}
        for index in range(8):
            batch.append(index)
            if len(batch) == 2:
                {yields}
                batch = []


class Mixing:
    def __init__(self, least):
        self.least = least

    def __call__(self, rows):
        share = {drawn}
        return torch.stack(rows) * share


def of_parts(data):
    for low in range(0, len(data), 2):
        {made}
        yield torch.stack(data[low : low + 2])


data = [torch.ones(2)] * 8
loader = DataLoader(data, batch_sampler=Sized([1, 2]), collate_fn=Mixing(0.5))


def train(backward):
    for x in {batches}:
        backward()
"""


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ({"yields": "size = random.choice(self.sizes); yield batch"}, "random.choice(self.sizes)"),
        ({"each": "random.random()"}, None),
        ({"yields": "first = next(iter([1, 2])); yield batch"}, None),
        ({"yields": "yield random.choices(range(8), k=2)"}, None),
        ({"yields": "yield torch.randperm(8)[:2].tolist()"}, None),
        ({"drawn": "random.uniform(self.least, 1)"}, "random.uniform(self.least, 1)"),
        ({"drawn": "torch.rand(len(rows), 1)"}, None),
        ({"made": "random.random()", "batches": "of_parts(data)"}, "random.random()"),
        ({"made": "random.random()"}, None),
    ],
)
def test_what_makes_a_batch_is_read_as_well(tmp_path, pieces, told) -> None:
    """Collation, the branch that yields a batch of indices, and a generator of batches."""
    usual = {"each": "pass", "yields": "yield batch", "drawn": "1.0", "made": "pass"}
    path = tmp_path / "train.py"
    path.write_text(LOADED.format(**{**usual, "batches": "loader", **pieces}))
    spec = importlib.util.spec_from_file_location("train", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    iterator = iter(program.loader)
    fed = {"latest": (2.0, []), "iterator": lambda: iterator}
    session = SimpleNamespace(once_a_batch=None, capture=None, modules=[], fed=fed)
    program.train(lambda: by_batches.find(session))
    assert session.once_a_batch == [told] * (told is not None)


def test_a_condition_over_objects_of_the_program_is_not_evaluated() -> None:
    """Comparing arrays within tuples would run their code, and raise."""
    arrays, numbers = (np.ones(2),), (1, 2)
    test = ast.parse("before == after", mode="eval").body
    assert by_batches.truth(test, {"before": arrays, "after": (np.ones(2),)}) is None
    assert by_batches.truth(test, {"before": numbers, "after": (1, 2)}) is True
