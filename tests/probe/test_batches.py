"""How many items a batch holds is found in any container, and nothing in it can hide the rest."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import pytest

from advisor.probe.batches import Counter, copied
from advisor.probe.padding import Padding

torch = pytest.importorskip("torch")


class Layer:
    """A cache's layer: its `keys` are a tensor, not a method."""

    def __init__(self) -> None:
        self.keys = torch.zeros(4, 2, 1, 8)
        self.values = torch.zeros(4, 2, 1, 8)


class Hostile:
    @property
    def __dict__(self) -> dict:  # type: ignore[override]
        msg = "not for you"
        raise RuntimeError(msg)


@pytest.mark.parametrize(
    "beside",
    [types.SimpleNamespace(layers=[Layer()]), Hostile(), None, "text", {"deep": [{"er": None}]}],
)
def test_what_stands_beside_the_batch_does_not_matter(beside: object) -> None:
    given = ((), {"cache": beside, "input_ids": torch.zeros(4, 9), "labels": torch.zeros(4)})
    assert Counter().count(given) == 4


MASK = torch.tensor([[1, 1, 0, 0], [1] * 4])


@pytest.mark.parametrize(
    ("batch", "positions", "padded"),
    [
        ({"ids": torch.ones(2, 4), "attention_mask": MASK}, 8, 2),
        ({"ids": torch.ones(2, 4), "lengths": torch.tensor([1, 4])}, 8, 3),
        ({"ids": torch.ones(2, 4), "mask": MASK.float()}, None, None),
        ({"ids": torch.ones(2, 4)}, None, None),
        ([torch.ones(2, 4)], None, None),
    ],
    ids=["mask", "lengths", "fractions", "no evidence", "no mapping"],
)
def test_padding(batch: object, positions: int | None, padded: int | None) -> None:
    """By a mask or lengths of whole numbers, each by its name."""
    found = Padding()
    assert found.note(batch) is (positions is not None)
    counts = {"rows": 2, "positions": positions, "padded": padded, "tokens": True}
    assert found.summary() == (None if positions is None else counts)


IMAGE, ROWS = torch.zeros(3, 8, 8), torch.ones


@pytest.mark.parametrize(
    ("asked", "first", "second", "items"),
    [
        (
            4,
            ((IMAGE,) * 4, ({"boxes": ROWS(4)},) * 4),
            ((IMAGE,) * 2, ({"boxes": ROWS(5)},) * 2),
            2,
        ),
        (4, [{"image": ROWS(4)}] * 4, [{"image": ROWS(4)}] * 3, 3),
        (2, [ROWS(2), ROWS(2)], [ROWS(1), ROWS(1)], 1),
        (5, {"inputs": [IMAGE] * 5, "at": [ROWS(5)]}, {"inputs": [IMAGE] * 2, "at": [ROWS(9)]}, 2),
    ],
    ids=["lists of a detector", "list of dicts", "a pair", "dict of lists"],
)
def test_what_equals_the_batch_by_chance_is_not_counted(
    asked: int, first: object, second: object, items: int
) -> None:
    """Boxes of one image, channels, the two of (x, y): whatever lies deeper than the batch does."""
    counter = Counter(float(asked))
    assert counter.count(first) == asked
    assert counter.count(second) == items


@dataclasses.dataclass
class Sample:
    pixels: Any
    name: str = ""


class Bag:
    """An object that is no container."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


IMAGES = torch.zeros(6, 3, 8, 8)


@pytest.mark.parametrize(
    "batch",
    [
        IMAGES,
        [IMAGES, torch.zeros(6)],
        (torch.zeros(()), {"x": {"deep": IMAGES}}),
        {"ids": IMAGES, "meta": ["a"] * 6},
        Sample(pixels=IMAGES),
        Bag(inner=Bag(x=IMAGES)),
        [[torch.zeros(3, 8, 8)] * 6, [{"box": torch.zeros(2, 4)}] * 6],
        ["a.png"] * 6,
    ],
    ids=["tensor", "list", "nested", "dict", "dataclass", "object", "detection", "names"],
)
def test_items_of_a_batch(batch: Any) -> None:
    """Whatever it is wrapped in, with the loader's own batch size known."""
    counter = Counter(expected=6)
    assert counter.count(batch) == 6
    assert counter.count(batch) == 6


def test_the_last_batch_may_be_smaller() -> None:
    """The way to the count is kept, the count is not."""
    counter = Counter(expected=6)
    assert [counter.count({"x": torch.zeros(n, 3)}) for n in (6, 6, 2)] == [6, 6, 2]


def test_items_without_an_expected_number() -> None:
    """Without one the most common leading dimension counts; a batch of another kind is searched."""
    counter = Counter()
    assert counter.count((torch.zeros(5, 2), torch.zeros(5), torch.zeros(1))) == 5
    assert counter.count({"other": torch.zeros(7, 2)}) == 7


def test_a_replayed_batch_survives_what_the_program_does_to_it() -> None:
    """Containers are new, tensors the same."""
    batch = {"x": IMAGES, "rest": [IMAGES, Sample(pixels=IMAGES)]}
    again = copied(batch)
    again.pop("x")
    again["rest"].clear()
    assert list(batch) == ["x", "rest"]
    assert len(batch["rest"]) == 2
    assert copied(batch)["rest"][1].pixels is IMAGES
