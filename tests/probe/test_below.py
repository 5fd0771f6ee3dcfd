"""Walking the modules below one gives what torch's own walk gives, in its order."""

from __future__ import annotations

import pytest
import torch

from advisor.probe import module_tree


def tied() -> torch.nn.Module:
    """One layer at two places, one parameter in two layers, a place that holds nothing."""
    shared = torch.nn.Linear(4, 4)
    table, head = torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8, bias=False)
    head.weight = table.weight
    model = torch.nn.Sequential(table, shared, torch.nn.Sequential(shared, torch.nn.ReLU()), head)
    model.register_module("nothing", None)
    return model


class Circle(torch.nn.Module):
    """Its part knows it."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.Linear(2, 2)
        self.part.owner = self


def scripted() -> torch.nn.Module:
    return torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))


MODELS = {
    "tied": tied,
    "circle": Circle,
    "deep": lambda: torch.nn.Transformer(8, 2, 2, 2, 16, batch_first=True),
    "scripted": scripted,
    "listed": lambda: torch.nn.ParameterList([torch.zeros(2), torch.zeros(3)]),
}


@pytest.mark.parametrize("built", MODELS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_same_in_the_same_order(built: str) -> None:
    model = MODELS[built]()
    modules, parameters = module_tree.modules(model), module_tree.parameters(model)
    assert list(map(_named, modules)) == list(map(_named, model.modules()))
    own = list(model.parameters())
    assert [p.data_ptr() for p in parameters] == [p.data_ptr() for p in own]


def _named(module: torch.nn.Module) -> str:
    return getattr(module, "original_name", type(module).__name__)


def test_what_was_gathered_is_current_until_some_of_it_is_replaced() -> None:
    """Moved and cast parameters are the same ones; a layer that is put in another's place is not,
    and what has no shape yet is gathered again."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    parts = module_tree.Tree(model)
    assert parts.size == 58
    assert parts.largest is model[0].weight
    assert parts.leaves == [model[0], model[2]]
    assert parts.are_current()
    model.double()
    assert parts.are_current()
    model[2] = torch.nn.Linear(8, 3)
    assert not parts.are_current()
    lazy = module_tree.Tree(torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.Linear(4, 4)))
    assert not lazy.are_current()
