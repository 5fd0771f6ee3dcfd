"""DataLoaders: items of a pass, padding, and arguments that came from a mapping."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from advisor.model import MeasurePlan
from advisor.probe.dataloader_hooks import items_of_a_pass
from tests.probe import program

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
def test_a_pass_goes_through_the_samplers_items(
    held: Any, options: dict[str, Any], items: int | None
) -> None:
    """Of all ranks where they share it out; without a length, all of the data set."""
    assert items_of_a_pass(torch, data.DataLoader(held, **options)) == items


PROGRAM = """\
import torch
from torch.nn.utils.rnn import pad_sequence
torch.set_num_threads(1)
torch.manual_seed(0)
ROWS = [torch.randn(int(n), 4) for n in torch.randint(1, 60, (256,))]
def collate(rows):
    lengths = torch.tensor([len(row) for row in rows])
    return {"rows": pad_sequence(list(rows), batch_first=True), "lengths": lengths}
loader = torch.utils.data.DataLoader(ROWS, batch_size=8, shuffle=True, collate_fn=collate)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    positions = used = 0
    for batch in loader:
        rows, lengths = batch["rows"], batch["lengths"]
        positions += rows.shape[0] * rows.shape[1]
        used += int(lengths.sum())
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    print(positions / used)
"""


def test_padding_is_that_of_every_batch_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = program.run(
        scratch,
        sys.executable,
        "train.py",
        cwd=tmp_path,
        plan=MeasurePlan(mode="whole"),
        begin=program.forked,
    )
    effects = done.measured.effects
    many = list(map(float, done.stdout.split()))  # positions for each that is used, by epoch
    assert effects.padding_share == pytest.approx(1 - len(many) / sum(many), abs=1e-9)
    assert effects.data_items == 256
