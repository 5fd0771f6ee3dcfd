"""How many items a batch holds is found in any container, and nothing in it can hide the rest."""

from __future__ import annotations

import types

import pytest

from advisor.probe.batches import Counter

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
