"""Gradients of several batches an update: as by hand, refused where that is not certain, and the
patch is what was tried."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from advisor.patches.accumulation_patch import accumulation_edit
from advisor.patches.python_source import patch_of
from tests.patches.applying import applied, written
from tests.probe import program

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.runner.reading import Reading

KINDS = ("SGD", "Adam")


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ndef main():\n    o = torch.optim.SGD(p, lr=1)  # x\n    o.step()\n",
        "import torch\r\nimport types\r\nself.o = Adam(\r\n    p,\r\n)\r\n",
    ],
)
def test_a_helper_and_one_line_behind_the_optimizer(code: str, tmp_path: Path) -> None:
    """Nothing else is touched, and no import comes twice."""
    file = written(tmp_path, code)
    new = applied(tmp_path, file, patch_of(file, tmp_path, accumulation_edit(KINDS, 4)))
    newline = "\r\n" if "\r\n" in code else "\n"
    assert new.count("\n") == new.count(newline)
    assert new.count("import types") == 1
    assert "accumulate(self.o, 4)" in new or "    accumulate(o, 4)" in new
    assert all(line in new.splitlines() for line in code.splitlines())


@pytest.mark.parametrize(
    "code",
    [
        "import torch\nif a:\n    o = torch.optim.SGD(p)\n",
        "import torch\no = torch.optim.SGD(p)\nq = torch.optim.Adam(p)\n",
        "import torch\no = torch.optim.SGD(p)\nscaler = torch.amp.GradScaler()\n",
        "import torch\no = build(p)\n",
        "import torch\no = torch.optim.SGD(p)\naccumulate = 3\n",
    ],
)
def test_what_is_not_certain_gets_no_patch(code: str, tmp_path: Path) -> None:
    """Two of them, one in a branch, scaled gradients, or a name that is taken."""
    file = written(tmp_path, code)
    assert patch_of(file, tmp_path, accumulation_edit(KINDS, 4)) is None


PROGRAM = """\
import json
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=2)
for number, rows in enumerate(loader):
    loss = model(rows).square().mean()
    FORGET
    (loss / DIVIDE).backward()
    if (number + 1) % EVERY == 0:
        optimizer.step()
print(json.dumps([value for part in model.parameters() for value in part.flatten().tolist()]))
"""


def ran(folder: Path, name: str, code: str, whatif: str | None = None) -> tuple[Reading, list]:  # type: ignore[type-arg]
    """What the probe saw, and the weights that came of it."""
    work = folder / name
    work.mkdir()
    (work / "train.py").write_text(code)
    scratch = work / "scratch"
    scratch.mkdir()
    plan = MeasurePlan(mode="whole", whatif=whatif)
    done = program.run(
        scratch, sys.executable, "train.py", cwd=work, plan=plan, begin=program.forked
    )
    assert done.exit_code == 0, done.stderr
    return done.measured, json.loads(done.stdout)


def test_what_was_tried_is_what_people_write_and_what_the_patch_gives(tmp_path: Path) -> None:
    """The same weights to rounding, and four backward passes for each update."""
    pytest.importorskip("torch")
    plain = PROGRAM.replace("FORGET", "optimizer.zero_grad()")
    plain = plain.replace("DIVIDE", "1").replace("EVERY", "1")
    hand = PROGRAM.replace("FORGET", "number % 4 or optimizer.zero_grad()")
    _, by_hand = ran(tmp_path, "hand", hand.replace("DIVIDE", "4").replace("EVERY", "4"))
    before, other = ran(tmp_path, "plain", plain)
    seen, tried = ran(tmp_path, "tried", plain, "accumulate=4")
    assert seen.whatif is not None
    assert seen.whatif.applied, seen.whatif.why
    assert "changes how the model is trained" in (seen.whatif.caution or "")
    assert (before.effects.accumulation, seen.effects.accumulation) == (1.0, 4.0)
    assert before.effects.update_share is not None
    assert 0 < before.effects.update_share < 1
    assert tried == pytest.approx(by_hand, rel=1e-5)
    assert other != pytest.approx(by_hand, rel=1e-2)
    work = tmp_path / "patched"
    work.mkdir()
    (work / "train.py").write_text(plain)
    patch = patch_of(work / "train.py", work, accumulation_edit(("Adam",), 4))
    assert patch is not None
    subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=work, check=True)
    again, patched = ran(tmp_path, "again", (work / "train.py").read_text())
    assert patched == tried
    assert again.effects.accumulation == 4.0


@pytest.mark.parametrize(
    ("forget", "step", "why"),
    [
        ("model.zero_grad()", "optimizer.step()", "forgets its gradients itself"),
        (
            "optimizer.zero_grad()",
            "scaler.step(optimizer); scaler.update()",
            "gradients are scaled",
        ),
    ],
)
def test_where_it_would_be_another_sum_it_does_not_apply(
    forget: str, step: str, why: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    code = PROGRAM.replace("FORGET", forget).replace("DIVIDE", "1").replace("EVERY", "1")
    code = code.replace("loader =", "scaler = torch.amp.GradScaler('cpu')\nloader =")
    if "scaler" in step:
        code = code.replace("(loss / 1)", "scaler.scale(loss)")
    seen, _ = ran(tmp_path, "x", code.replace("optimizer.step()", step), "accumulate=4")
    assert seen.whatif is not None
    assert not seen.whatif.applied
    assert why in (seen.whatif.why or "")
