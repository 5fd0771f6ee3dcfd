"""Layers with a place for the batch say where it is among the inputs."""

from __future__ import annotations

import pytest

from advisor.probe.batch_axis import LayerObserver, find

torch = pytest.importorskip("torch")


class Bags(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Texts of all lengths, one behind the other, as `torch.nn.EmbeddingBag` takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(50, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, ids, offsets):  # type: ignore[no-untyped-def]
        return self.head(self.embedding(ids, offsets))


@pytest.mark.parametrize(
    ("first", "later", "items"),
    [
        ((torch.arange(9), torch.tensor([0, 2, 5])), (torch.arange(7), torch.tensor([0, 4])), 2),
        ((torch.ones(4, 6, dtype=torch.long), None), (torch.ones(5, 6, dtype=torch.long), None), 5),
    ],
    ids=["offsets", "rows"],
)
def test_bags_of_ids_are_the_samples(first: tuple, later: tuple, items: int) -> None:  # type: ignore[type-arg]
    """Not their ids."""
    module = Bags()
    observer = LayerObserver(torch, module, compiled=False)
    output = module(*first)
    observer.stop()
    axis = find(observer, (first, {}), output, None)
    assert axis is not None
    assert axis.unit == "sample"
    assert axis.count((later, {})) == items
