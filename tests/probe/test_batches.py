"""Items of a batch in any container, padding, and the batch axis of a module's inputs."""

import collections
import dataclasses
import types
from typing import Any

import pytest
import torch

from advisor.probe.batches import ItemCount, LayerObserver, note_padding


class Layer:
    """A cache's layer: its `keys` are a tensor, not a method."""

    def __init__(self) -> None:
        self.keys = torch.zeros(4, 2, 1, 8)


class Hostile:
    @property
    def __dict__(self) -> dict:  # type: ignore[override]
        msg = "not for you"
        raise RuntimeError(msg)


@pytest.mark.parametrize(
    "beside", [types.SimpleNamespace(layers=[Layer()]), Hostile(), None, {"deep": [{"er": None}]}]
)
def test_values_beside_the_batch_do_not_matter(beside) -> None:
    given = ((), {"cache": beside, "input_ids": torch.zeros(4, 9), "labels": torch.zeros(4)})
    assert ItemCount().count(given) == 4


IMAGE, ROWS = torch.zeros(3, 8, 8), torch.ones


@pytest.mark.parametrize(
    ("asked", "first", "second", "items"),
    [
        (4, ((IMAGE,) * 4, ({"a": ROWS(4)},) * 4), ((IMAGE,) * 2, ({"a": ROWS(5)},) * 2), 2),
        (4, [{"image": ROWS(4)}] * 4, [{"image": ROWS(4)}] * 3, 3),
        (2, [ROWS(2), ROWS(2)], [ROWS(1), ROWS(1)], 1),
        (5, {"inputs": [IMAGE] * 5, "at": [ROWS(5)]}, {"inputs": [IMAGE] * 2, "at": [ROWS(9)]}, 2),
    ],
    ids=["lists of a detector", "list of dicts", "a pair", "dict of lists"],
)  # fmt: skip
def test_a_size_that_equals_the_batch_by_chance_is_not_counted(asked, first, second, items) -> None:
    """Boxes of one image, channels, the two of (x, y): whatever lies deeper than the batch does."""
    counter = ItemCount(float(asked))
    assert counter.count(first) == asked
    assert counter.count(second) == items


@dataclasses.dataclass
class Sample:
    pixels: Any


IMAGES = torch.zeros(6, 3, 8, 8)


@pytest.mark.parametrize(
    "batch",
    [
        IMAGES,
        (torch.zeros(()), {"x": {"deep": IMAGES}}),
        {"ids": IMAGES, "meta": ["a"] * 6},
        types.SimpleNamespace(inner=Sample(pixels=IMAGES)),
        [[torch.zeros(3, 8, 8)] * 6, [{"box": torch.zeros(2, 4)}] * 6],
        ["a.png"] * 6,
    ],
    ids=["tensor", "nested", "dict", "objects", "detection", "names"],
)
def test_items_of_a_batch(batch) -> None:
    """In any container, with the loader's own batch size known."""
    counter = ItemCount(expected=6)
    assert [counter.count(batch), counter.count(batch)] == [6, 6]


def test_the_path_to_the_count_is_kept_and_the_count_is_not() -> None:
    """The last batch is smaller; without an expected number the most common size counts."""
    counter = ItemCount(expected=6)
    assert [counter.count({"x": torch.zeros(n, 3)}) for n in (6, 6, 2)] == [6, 6, 2]
    counter = ItemCount()
    assert counter.count((torch.zeros(5, 2), torch.zeros(5), torch.zeros(1))) == 5
    assert counter.count({"other": torch.zeros(7, 2)}) == 7


class Mapping(collections.UserDict[str, object]):
    """Answers for what it lacks as mappings do, and not as attributes should."""

    def __getattr__(self, name: str) -> object:
        return self.data[name]


class Refuses(dict[str, object]):
    def keys(self) -> Any:
        raise RuntimeError


MASK = torch.tensor([[1, 1, *[0] * 6], [1] * 8])


@pytest.mark.parametrize(
    ("batch", "padded"),
    [
        ({"ids": torch.ones(2, 8), "attention_mask": MASK}, 6),
        (Mapping(ids=torch.ones(2, 8), attention_mask=MASK), 6),
        ([torch.ones(2, 8), torch.tensor([5, 8]), torch.tensor([0, 1])], 3),
        ({"ids": torch.ones(2, 8), "mask": MASK.float()}, None),
        (Refuses(attention_mask=MASK), None),
        ([torch.ones(2, 8)], None),
        ([torch.ones(2, 8), torch.tensor([1, 4])], None),
    ],
    ids=["mask", "mapping of its own", "lengths", "fractions", "refuses", "no mapping", "labels"],
)
def test_a_mask_or_lengths_tell_the_padding(batch, padded) -> None:
    """By a mask of whole numbers, or by lengths of which the longest is the width."""
    found = {"rows": 0, "positions": 0, "padded": 0}
    assert note_padding(found, batch) is (padded is not None)
    counts = {"rows": 2, "positions": 16, "padded": padded}
    assert found == (dict.fromkeys(counts, 0) if padded is None else counts)


def test_the_batch_asked_for_may_lie_behind_the_time() -> None:
    """Recurrent networks and transformers take the time first, by torch's default."""
    counter = ItemCount(expected=6)
    found = [counter.count((torch.zeros(30, n, 4), torch.zeros(30, n))) for n in (6, 6, 2)]
    assert found == [6, 6, 2]


@pytest.mark.parametrize(
    ("asked", "size", "shape", "items"),
    [
        (None, 5, (32, 5, 16), 5),
        (8, 32, (32, 7, 16), 32),
        (5, 3, (5, 3, 16), 3),
        (8, 2, (8, 2, 16), 8),
        (8, 16, (8, 16, 16), 8),
        (8, 11, (8, 3, 16), 8),
    ],
    ids=["nothing asked", "crops", "they disagree", "in parts", "two views", "nowhere"],
)
def test_a_loader_counts_what_the_layers_take_for_the_batch(asked, size, shape, items) -> None:
    """Where the batch asked for is another, the layers are believed."""
    counter, batch = ItemCount(asked), (torch.zeros(shape), torch.zeros(()))
    first = counter.count(batch)
    counter.believe(size, first, [(((True, 0),), shape)])
    assert counter.count(batch) == items


class TimeFirst(torch.nn.Module):
    """Attention over [time, batch], whose heads times batch are as many as the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        self.attention = torch.nn.MultiheadAttention(16, 4)

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids)
        return self.attention(x, x, x)[0]


def ids(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.long)


@pytest.mark.parametrize(
    ("module", "first", "later", "items"),
    [
        (TimeFirst(), (ids(8, 2),), (ids(8, 3),), 3),
        (torch.nn.GRU(4, 4, 2), (torch.zeros(7, 5, 4),), (torch.zeros(7, 3, 4),), 3),
        (torch.nn.Conv2d(3, 4, 3), (IMAGE,), (IMAGE,), 1),
        (torch.nn.EmbeddingBag(9, 4), (ids(9), torch.arange(2)), (ids(9), torch.arange(3)), 3),
    ],
    ids=["time first", "recurrent", "alone", "bags of ids"],
)
def test_layers_show_the_batch_axis(module, first, later, items) -> None:
    observer = LayerObserver(torch, module)
    module(*first)
    observer.stop()
    counter = ItemCount(least_depth=2)
    observer.settle(counter, (first, {}))
    assert counter.count((later, {})) == items
