"""Roots that are settled: their class tells of their calls, and nothing else of them changes."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import torch
from advisor.probe.entrance import SPARED
from advisor.probe.resting import SPELL, filled

from tests.probe.program import compiling, in_a_file

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.probe.session import Session

STEPS = 300
"""After 256 calls a root may be settled."""


class Net(torch.nn.Module):
    """Notes for each call whether torch had to look for hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)
        self.hooked: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = torch.nn.modules.module._global_forward_pre_hooks or self._forward_hooks
        self.hooked.append(bool(own))
        return self.layer(x)


class Other(Net):
    """Of another class."""


def train(steps: int, *models: Net) -> None:
    """A loop without a loader."""
    held = [p for model in models for p in model.parameters()]
    optimizer = torch.optim.SGD(held, lr=0.01)
    loss = torch.nn.CrossEntropyLoss()
    for _ in range(steps):
        optimizer.zero_grad()
        x, y = torch.zeros(4, 8), torch.zeros(4, dtype=torch.long)
        sum(loss(model(x), y) for model in models).backward()
        optimizer.step()


def test_torch_looks_for_hooks_in_few_of_its_calls(session: Session) -> None:
    """Each is counted all the same."""
    model = Net()
    train(STEPS, model)
    model.hooked.clear()
    train(10 * SPARED, model)
    assert sum(model.hooked) <= 10
    assert len(filled(session.log).forwards) == STEPS + 10 * SPARED


def test_copies_and_pickles_are_those_of_the_program(session: Session) -> None:
    """A copy is another root, seen from its first call; a pickle knows nothing of the probe."""
    model = Net()
    train(STEPS, model)
    twin = copy.deepcopy(model)
    session.rest.wake(session.log)
    seen = session.log.count("forwards")
    twin(torch.zeros(2, 8))
    assert session.log.count("forwards") == seen + 1
    assert b"advisor" not in pickle.dumps(model)
    assert vars(model).keys() == vars(Net()).keys()


def test_a_module_that_comes_late_is_found(session: Session) -> None:
    model, late = Net(), Other()
    train(STEPS, model)
    train(SPELL + 2, model, late)
    train(10, model, late)
    assert [session.log.roots[e[2]].name for e in session.log.forwards[-20:]].count("Other") == 10


def test_what_a_layer_of_the_same_class_is_called_with_is_no_call_from_outside(
    session: Session,
) -> None:
    """The root is a Sequential, and holds one."""
    inner = torch.nn.Sequential(torch.nn.Linear(8, 3))
    model = torch.nn.Sequential(inner, torch.nn.ReLU())
    for _ in range(STEPS):
        model(torch.zeros(4, 8)).sum().backward()
    assert session.log.count("forwards") == STEPS


def test_the_class_is_given_back(session: Session) -> None:
    train(STEPS, Net())
    assert "__call__" in vars(Net)
    session.patches.undo()
    assert "__call__" not in vars(Net)


COMPILED_LATE = """\
import torch
from torch._dynamo.utils import counters

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(8, 3)), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train(model, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

train(model, 600)
assert "__call__" in vars(torch.nn.Sequential)
train(torch.compile(model, backend="eager"), 20)
print("breaks", len(counters["graph_break"]), "__call__" in vars(torch.nn.Sequential))
"""


def test_what_is_compiled_after_it_was_settled_is_not_traced_into_us(tmp_path: Path) -> None:
    outcome = in_a_file(tmp_path, COMPILED_LATE, begin=compiling)
    assert outcome.stdout.strip() == "breaks 0 False", outcome.stderr
    assert outcome.measured.whole_units == 620 * 4


def test_a_graph_that_is_traced_has_a_networks_parts_as_ever(session: Session) -> None:
    """torch.fx puts a call of its own in the place of torch's meanwhile, and a rest goes on."""
    layer, steps = torch.nn.Linear(8, 3), 2 * STEPS

    def traced(part: torch.nn.Module) -> list[tuple[str, object]]:
        graph = torch.fx.symbolic_trace(torch.nn.Sequential(part, torch.nn.ReLU())).graph
        return [(node.op, node.target) for node in graph.nodes]

    before = traced(torch.nn.Linear(8, 3))
    train(steps, layer)  # type: ignore[arg-type]
    assert "__call__" in vars(torch.nn.Linear)
    assert session.rest.left
    calls = session.log.count("forwards")
    assert traced(layer) == before
    assert ("call_module", "0") in before
    assert session.rest.left
    assert session.log.count("forwards") == calls
    assert not session.errors


def test_who_puts_a_call_of_his_own_in_the_place_of_torchs_hears_of_all(session: Session) -> None:
    """And what is called is counted on."""
    model = Net()
    train(2 * STEPS, model)
    plain, heard = torch.nn.Module.__call__, []

    def own(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        heard.append(type(self).__name__)
        return plain(self, *args, **kwargs)

    torch.nn.Module.__call__ = own  # type: ignore[method-assign]
    try:
        train(10, model)
    finally:
        torch.nn.Module.__call__ = plain  # type: ignore[method-assign]
    assert heard == 10 * ["Net", "Linear", "CrossEntropyLoss"]
    whole = filled(session.log)
    assert len(whole.opts) == 2 * STEPS + 10
    names = [session.log.roots[entry[2]].name for entry in whole.forwards]
    assert names[-10:].count("Net") >= 9
