"""Batches of items of like length: what is tried is as good as sorting by hand, and the patch is
what was tried."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from advisor.patches.bucket_patch import bucket_edit, is_length
from advisor.patches.patches import OF_LIKE_LENGTH, loader_edit, statement_edit
from advisor.patches.python_source import patch_of
from tests.patches.applying import applied, written
from tests.probe import program

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Run

TOLD = "item[0].shape[0]"
IMPORTS = "import torch\nfrom torch.utils.data import DataLoader\n"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (f"{IMPORTS}l = DataLoader(ds, batch_size=4, shuffle=True)\n", 3),
        (f"{IMPORTS}l = DataLoader(\n    ds,\n    **options,\n)\n", 4),
        ("import torch\r\nl = torch.utils.data.DataLoader(ds, 4, True)\r\n", 2),
        ('"""Doc."""\nfrom torch.utils.data import DataLoader as Feed\nl = Feed(ds)\n', 3),
    ],
)
def test_only_the_name_of_the_call_changes_and_the_helper_is_added(
    code: str, line: int, tmp_path: Path
) -> None:
    """Every argument stays as it was written; imports come once."""
    file = written(tmp_path, code)
    new = applied(tmp_path, file, patch_of(file, tmp_path, bucket_edit(line, TOLD, 1)))
    newline = "\r\n" if "\r\n" in code else "\n"
    assert new.count("\n") == new.count(newline)
    *_, call = new.partition(f"{newline}l = ")
    *_, before = code.partition(f"{newline}l = ")
    assert call.partition("(")[0] == OF_LIKE_LENGTH
    assert call.partition("(")[2] == before.partition("(")[2]
    for name in ("torch", "random", "sys"):
        assert new.count(f"import {name}{newline}") == 1


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (f"{IMPORTS}l = DataLoader(ds, 4, True, None, None, 0)\n", TOLD),
        (f"{IMPORTS}l = DataLoader(*given)\n", TOLD),
        (f"{IMPORTS}l = build(ds)\n", TOLD),
        (f"{IMPORTS}l, lengths_of = DataLoader(ds), 1\n", TOLD),
        (f"{IMPORTS}l = DataLoader(ds)\n", "__import__('os').system('x')"),
    ],
)
def test_what_is_not_certain_gets_no_patch(code: str, told: str, tmp_path: Path) -> None:
    """A call that cannot be told, names that are taken, and words of the program that are no way
    to a length."""
    assert patch_of(written(tmp_path, code), tmp_path, bucket_edit(3, told, 1)) is None


def test_a_way_to_a_length_and_nothing_more() -> None:
    for told in ("item[0].shape[1]", "len(item['input_ids'])", "item.rows.shape[0]"):
        assert is_length(told)
    for told in ("len(item)[f()]", "other[0].shape[0]", "item[x]", "1 + 1", "len(item, 2)", "("):
        assert not is_length(told)


def test_it_goes_together_with_patches_of_the_same_call_and_the_same_place(tmp_path: Path) -> None:
    """In any order."""
    code = f"{IMPORTS}l = DataLoader(\n    ds,\n    batch_size=4,\n)\n"
    edits = [
        bucket_edit(3, TOLD, 1),
        loader_edit(3, {"num_workers": 2}),
        statement_edit(("torch.set_num_threads(1)",)),
    ]
    file = written(tmp_path, code)
    for those in (edits, edits[::-1]):
        new = ast.parse(applied(tmp_path, file, patch_of(file, tmp_path, *those)))
        told = [ast.unparse(node) for node in new.body]
        assert f"l = {OF_LIKE_LENGTH}(ds, batch_size=4, num_workers=2)" in told
        assert "torch.set_num_threads(1)" in told
        file.write_text(code)


# --- run ------------------------------------------------------------------------------------

PROGRAM = """\
import random
import json
import torch
from torch.nn.utils.rnn import pad_sequence
torch.set_num_threads(1)
torch.manual_seed(0)
LENGTHS = [int(n) for n in torch.randint(8, 200, (256,))]
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return len(LENGTHS)
    def __getitem__(self, index):
        tempo = 0.8 + 0.4 * RANDOM
        return torch.ones(max(1, round(LENGTHS[index] * tempo)), 2), index
def collate(items):
    rows, keys = zip(*items)
    lengths = torch.tensor([len(row) for row in rows])
    return pad_sequence(list(rows), batch_first=True), lengths, torch.tensor(keys)
class ByHand:
    def __len__(self):
        return 32
    def __iter__(self):
        keys = sorted(range(256), key=LENGTHS.__getitem__)
        batches = [keys[at : at + 8] for at in range(0, 256, 8)]
        random.shuffle(batches)
        return iter(batches)
LOADER
model = torch.nn.Linear(2, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
positions = used = 0
seen = []
for epoch in range(4):
    for rows, lengths, keys in loader:
        positions += rows.shape[0] * rows.shape[1]
        used += int(lengths.sum())
        seen.append(keys.tolist())
        loss = torch.nn.functional.cross_entropy(model(rows).mean(1), keys % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(json.dumps([1 - used / positions, seen]))
"""
AS_IT_IS = (
    "loader = torch.utils.data.DataLoader(Rows(), batch_size=8, shuffle=True, collate_fn=collate)"
)
BY_HAND = "loader = torch.utils.data.DataLoader(Rows(), batch_sampler=ByHand(), collate_fn=collate)"
DRAWS = {
    "torch": "float(torch.rand(()))",
    "random": "random.random()",
    "numpy": "float(__import__('numpy').random.rand())",
}
SHARE = 0.03
"""Of the positions: by hand and by the what-if may differ by so much, as two draws that no seed
holds differ by 0.01 now and then."""


def ran(
    folder: Path, name: str, code: str, whatif: str | None = None
) -> tuple[Run, float, list[list[int]]]:
    """What the probe saw; the share of padding and the batches by the program itself."""
    work = folder / name
    work.mkdir()
    (work / "train.py").write_text(code)
    plan = MeasurePlan(mode="whole", whatif=whatif)
    scratch = work / "scratch"
    scratch.mkdir()
    done = program.run(
        scratch, sys.executable, "train.py", cwd=work, plan=plan, begin=program.forked
    )
    assert done.exit_code == 0, done.stderr
    share, batches = json.loads(done.stdout)
    return done.measured, share, batches


@pytest.mark.parametrize("draw", DRAWS)
def test_items_stretched_at_random_are_sorted_as_well_as_by_hand(draw: str, tmp_path: Path) -> None:
    """By what their files are long, which the what-if never sees; then the patched program goes
    through the very batches that were tried."""
    pytest.importorskip("torch")
    code = PROGRAM.replace("RANDOM", DRAWS[draw])
    plain = code.replace("LOADER", AS_IT_IS)
    line = plain.splitlines().index(AS_IT_IS) + 1
    _, by_hand, _ = ran(tmp_path, "by-hand", code.replace("LOADER", BY_HAND))
    seen, tried, batches = ran(tmp_path, "tried", plain, f"loader.buckets=1@train.py:{line}")
    assert seen.whatif is not None
    assert seen.whatif.applied, seen.whatif.why
    assert (seen.whatif.told_by, seen.whatif.readings) == (TOLD, 1)
    assert 1 / (1 - tried) <= (1 + SHARE) / (1 - by_hand)
    work = tmp_path / "patched"
    work.mkdir()
    (work / "train.py").write_text(plain)
    patch = patch_of(work / "train.py", work, bucket_edit(line, TOLD, 1))
    assert patch is not None
    subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=work, check=True)
    _, patched, same = ran(tmp_path, "again", (work / "train.py").read_text())
    assert same == batches
    assert patched == pytest.approx(tried, abs=0.0 if draw == "torch" else SHARE)  # the seeded one
