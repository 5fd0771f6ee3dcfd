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
    ],
)  # fmt: skip
def test_what_is_done_for_a_whole_batch_is_told(tmp_path, line, told) -> None:
    """What is done by items, by updates, in branches that are not taken, or to print is not."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(line=line))
    spec = importlib.util.spec_from_file_location("train", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    session = SimpleNamespace(once_a_batch=None, capture=None, modules=[])
    program.train(lambda: by_batches.find(session))
    assert session.once_a_batch == [told] * (told is not None)


def test_a_condition_over_objects_of_the_program_is_not_evaluated() -> None:
    """Comparing arrays within tuples would run their code, and raise."""
    arrays, numbers = (np.ones(2),), (1, 2)
    test = ast.parse("before == after", mode="eval").body
    assert by_batches.truth(test, {"before": arrays, "after": (np.ones(2),)}) is None
    assert by_batches.truth(test, {"before": numbers, "after": (1, 2)}) is True
