"""Programs with rows of various lengths: their padding, and loader arguments from a mapping."""

from __future__ import annotations

import collections
import sys
from typing import TYPE_CHECKING, Any

import pytest

from advisor.model import MeasurePlan
from advisor.probe.padding import Padding
from tests.probe import program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from advisor.model import Run

torch = pytest.importorskip("torch")

PROGRAM = """\
import sys, torch
from torch.nn.utils.rnn import pad_sequence
torch.set_num_threads(1)
torch.manual_seed(0)
ROWS = [torch.randn(int(n), 4) for n in torch.randint(1, 60, (256,))]
class Rows(torch.utils.data.Dataset):
    def __len__(self): return len(ROWS)
    def __getitem__(self, index): return ROWS[index] * torch.rand(()), index % 3
def collate(items):
    rows, labels = zip(*items)
    lengths = torch.tensor([len(row) for row in rows])
    padded = pad_sequence(list(rows), batch_first=True)
    return {"rows": padded, "lengths": lengths, "labels": torch.tensor(labels)}
settings = {"batch_size": 8, "num_workers": 0}
LOADER
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    positions = used = 0
    for batch in loader:
        rows, lengths, labels = batch["rows"], batch["lengths"], batch["labels"]
        positions += rows.shape[0] * rows.shape[1]
        used += int(lengths.sum())
        loss = torch.nn.functional.cross_entropy(model(rows).mean(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(1 - used / positions)
"""
WRITTEN = {
    "a mapping": "loader = torch.utils.data.DataLoader("
    "Rows(), shuffle=True, collate_fn=collate, **settings)",
    "by name": "loader = torch.utils.data.DataLoader("
    "Rows(), shuffle=True, collate_fn=collate, batch_size=8, num_workers=0)",
}


def measured(folder: Path, loader: str) -> tuple[Run, list[float]]:
    """What the probe saw, and the share of padding of each epoch by the program itself."""
    (folder / "train.py").write_text(PROGRAM.replace("LOADER", loader))
    scratch = folder / "scratch"
    scratch.mkdir()
    plan = MeasurePlan(mode="whole")
    done = program.run(
        scratch, sys.executable, "train.py", cwd=folder, plan=plan, begin=program.forked
    )
    assert done.exit_code == 0, done.stderr
    return done.measured, list(map(float, done.stdout.split()))


@pytest.mark.parametrize("style", WRITTEN)
def test_padding_is_counted_to_the_last_position(style: str, tmp_path: Path) -> None:
    """Over every batch of the run; and only what came by a mapping is told as passed on."""
    seen, by_hand = measured(tmp_path, WRITTEN[style])
    many = [1 / (1 - share) for share in by_hand]  # positions for each that is used, by epoch
    assert seen.effects.padding_share == pytest.approx(1 - len(many) / sum(many), abs=1e-9)
    passed = dict(seen.effects.loader_passed)
    assert passed.items() >= {"batch_size": 8, "num_workers": 0, "shuffle": True}.items() or (
        style == "by name" and passed == {}
    )
    assert (passed == {}) is (style == "by name")


class Mapping(collections.UserDict[str, object]):
    """Answers for what it lacks as mappings do, and not as attributes should."""

    def __getattr__(self, name: str) -> object:
        return self.data[name]


class Refuses(dict[str, object]):
    """Cannot be looked into at all."""

    def keys(self) -> Any:
        raise RuntimeError

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


@pytest.mark.parametrize(("kind", "share"), [(dict, 0.5), (Mapping, 0.5), (Refuses, None)])
def test_batches_of_the_programs_own_kinds_are_looked_into_or_left_alone(
    kind: Callable[..., object], share: float | None
) -> None:
    """Whatever they do where an attribute is missing, nothing is raised."""
    tokens = torch.ones(4, 6, dtype=torch.long)
    mask = torch.arange(6).lt(3).expand(4, 6).long()
    padding = Padding()
    assert padding.note(kind(input_ids=tokens, attention_mask=mask)) is (share is not None)
    told = padding.summary()
    assert (told and told["padded"] / told["positions"]) == share
