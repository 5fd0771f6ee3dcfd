"""Items of one pass over a DataLoader."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from advisor.probe.dataloader_hooks import items_of_a_pass

data = torch.utils.data
HELD = torch.zeros(60, 4)
PART = data.SubsetRandomSampler(range(54))


class Endless(data.Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        while True:
            yield 0


class Ready(data.Sampler[list[int]]):
    """Batches of its own making, out of no sampler."""

    def __iter__(self) -> Iterator[list[int]]:
        yield [0, 1]

    def __len__(self) -> int:
        return 1


class Stream(data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(HELD)

    def __len__(self) -> int:
        return 40


SHARED = data.distributed.DistributedSampler(HELD, num_replicas=7, rank=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("held", "options", "items"),
    [
        (HELD, {"batch_size": 4}, 60),
        (HELD, {"batch_size": 4, "sampler": PART}, 54),
        (HELD, {"batch_size": None, "sampler": PART}, 54),
        (HELD, {"batch_sampler": data.BatchSampler(PART, 4, False)}, 54),
        (HELD, {"batch_size": 4, "sampler": data.RandomSampler(HELD, True, 200)}, 200),
        (HELD, {"batch_size": 4, "sampler": SHARED}, 60),
        (HELD, {"batch_size": 4, "sampler": Endless()}, None),
        (HELD, {"batch_sampler": Ready()}, 60),
        (Stream(), {"batch_size": 4}, 40),
    ],
    ids=[
        "all", "a part", "unbatched", "batches of a part", "drawn again", "padded ranks", "endless",
        "own batches", "stream",
    ],
)  # fmt: skip
def test_a_pass_goes_through_the_samplers_items(held, options, items) -> None:
    """Of all ranks where they share it out; without a length, all of the data set."""
    assert items_of_a_pass(torch, data.DataLoader(held, **options)) == items
