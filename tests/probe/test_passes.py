"""What one pass over a loader goes through: what its sampler draws, not what the data set holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from advisor.probe.dataloader_hooks import items_of_a_pass
from tests.probe.program import PROGRAMS, in_a_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def shared(ranks: int) -> Any:
    return data.distributed.DistributedSampler(HELD, num_replicas=ranks, rank=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("held", "options", "items"),
    [
        (HELD, {"batch_size": 4}, 60),
        (HELD, {"batch_size": 4, "sampler": PART}, 54),
        (HELD, {"batch_size": None, "sampler": PART}, 54),
        (HELD, {"batch_sampler": data.BatchSampler(PART, 4, False)}, 54),
        (HELD, {"batch_size": 4, "sampler": data.RandomSampler(HELD, True, 200)}, 200),
        (HELD, {"batch_size": 4, "sampler": shared(2)}, 60),
        (HELD, {"batch_size": 4, "sampler": shared(7)}, 60),
        (HELD, {"batch_size": 4, "sampler": Endless()}, None),
        (HELD, {"batch_sampler": Ready()}, 60),
        (Stream(), {"batch_size": 4}, 40),
    ],
    ids=[
        "all", "a part", "unbatched", "batches of a part", "drawn again", "two ranks",
        "padded ranks", "endless", "own batches", "stream",
    ],
)  # fmt: skip
def test_a_pass_goes_through_what_the_sampler_draws(
    held: Any, options: dict[str, Any], items: int | None
) -> None:
    """Of all ranks where they share it out; where nothing says, all of the data set."""
    assert items_of_a_pass(torch, data.DataLoader(held, **options)) == items


TRAINS_ON_A_PART = """
import torch
from ok_descent import Descent
data = torch.utils.data
model = torch.nn.Linear(4, 1)
optimizer = Descent(model.parameters())
part = data.SubsetRandomSampler(range(216))
loader = data.DataLoader(torch.randn(240, 4), batch_size=4, sampler=part)
for x in loader:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def test_a_part_of_the_data_is_told_as_that(tmp_path: Path) -> None:
    outcome = in_a_file(tmp_path, TRAINS_ON_A_PART, env={"PYTHONPATH": str(PROGRAMS)})
    assert outcome.measured.effects.data_items == 216
