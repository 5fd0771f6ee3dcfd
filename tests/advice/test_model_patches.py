"""Patches around the model's call: they apply, do what was tried, or are refused."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from advisor.advice.model_patches import autocast_patch, compile_patch, zero_grad_patch
from advisor.model import MeasurePlan
from tests.advice.test_patches import applied, written
from tests.probe import program

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Effects

HEAD = "import torch\n"
WITH = 'with torch.autocast("cpu", dtype=torch.bfloat16):'


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        ("y = model(x)  # é\n", 2, f"{WITH}\n    y = model(x)  # é\n"),
        (
            "for x in xs:\n\tloss = f(\n\t\tmodel(x),\n\n\t\ty)\n\tloss.backward()\n",
            4,
            (
                f"for x in xs:\n\t{WITH}\n\t\tloss = f(\n\t\t\tmodel(x),\n\n\t\t\ty)\n"
                "\tloss.backward()\n"
            ),
        ),
        (
            "def f(x):\r\n    return model(x)",
            3,
            f"def f(x):\r\n    {WITH}\r\n        return model(x)",
        ),
    ],
)
def test_the_statement_with_the_call_comes_under_autocast(
    code: str, line: int, expected: str, tmp_path: Path
) -> None:
    """It alone, as it was written; what follows stays outside."""
    file = written(tmp_path, HEAD + code)
    patch = autocast_patch(file, line, "cpu", "bfloat16", tmp_path)
    assert applied(tmp_path, file, patch) == HEAD + expected


@pytest.mark.parametrize(
    "code",
    [
        "y = model(x); z = 1\n",
        "if x: y = model(x)\n",
        'y = model("""\n  text""")\n',
        "for y in model(x):\n    pass\n",
        'with torch.autocast("cpu"):\n    y = model(x)\n',
    ],
)
def test_where_autocast_cannot_stand_alone_there_is_no_patch(code: str, tmp_path: Path) -> None:
    """Shared lines, texts over several lines, headers, and where it is on already."""
    file = written(tmp_path, HEAD + code)
    line = next(n for n, text in enumerate((HEAD + code).splitlines(), 1) if "model(" in text)
    assert autocast_patch(file, line, "cpu", "bfloat16", tmp_path) is None


def test_autocast_needs_torch_by_its_name(tmp_path: Path) -> None:
    file = written(tmp_path, "import torch as t\ny = model(x)\n")
    assert autocast_patch(file, 2, "cpu", "bfloat16", tmp_path) is None


def test_a_model_is_compiled_where_it_has_its_last_value(tmp_path: Path) -> None:
    code = "def main():\n    model = Net()\n    model = model.to(d)  # d\n    for x in xs:\n"
    call = "        y = model(x)\n"
    file = written(tmp_path, code + call)
    after = applied(tmp_path, file, compile_patch(file, 5, tmp_path))
    assert after == code.replace("# d\n", "# d\n    model.compile()\n") + call


@pytest.mark.parametrize(
    "code",
    [
        "def f(model):\n    model(x)\n",
        "if a:\n    model = Net()\nmodel(x)\n",
        "model = Net()\nif a:\n    model = Other()\nmodel(x)\n",
        "self.model(x)\n",
        "model = Net(); z = 1\nmodel(x)\n",
        "model = nets[0]\nmodel(x)\n",
    ],
)
def test_a_model_of_uncertain_origin_is_not_compiled(code: str, tmp_path: Path) -> None:
    """Passed in, built in a branch, or a part of something."""
    file = written(tmp_path, code)
    assert compile_patch(file, len(code.splitlines()), tmp_path) is None


def test_gradients_kept_as_zeros_are_dropped_everywhere_in_the_file(tmp_path: Path) -> None:
    code = "o.zero_grad(set_to_none=False)\nmodel.zero_grad(False)\no.zero_grad()\n"
    file = written(tmp_path, code)
    found = zero_grad_patch(file, tmp_path)
    assert found is not None
    line, patch = found
    assert line == 1
    assert applied(tmp_path, file, patch) == code.replace("False", "True")
    file.write_text("o.zero_grad(set_to_none=keep)\no.zero_grad()\n")
    assert zero_grad_patch(file, tmp_path) is None


PROGRAM = """\
import torch
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(100_000, 8), torch.randint(4, (100_000,)))
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
"""


def test_what_was_tried_from_inside_the_patch_does_again(tmp_path: Path) -> None:
    """The same dtype at the same call, and the same of the gradients."""
    pytest.importorskip("torch")
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    file = work / "train.py"
    file.write_text(PROGRAM)

    def seen(name: str, whatif: str | None = None) -> Effects:
        scratch = tmp_path / name
        scratch.mkdir()
        plan = MeasurePlan(measure_s=0.3, min_steps=5, whatif=whatif)
        command = (sys.executable, "train.py")
        return program.run(
            scratch, *command, cwd=work, plan=plan, begin=program.forked
        ).measured.effects

    before = seen("before")
    assert (before.dtype, before.set_to_none) == ("float32", False)
    tried = seen("tried", "autocast=bfloat16,set_to_none")
    line = int((before.model_site or "").rpartition(":")[2])
    autocast = autocast_patch(file, line, "cpu", "bfloat16", work)
    subprocess.run(["git", "apply", "-"], input=autocast, text=True, cwd=work, check=True)
    found = zero_grad_patch(file, work)
    assert found is not None
    subprocess.run(["git", "apply", "-"], input=found[1], text=True, cwd=work, check=True)
    after = seen("after")
    for effects in (tried, after):
        assert (effects.dtype, effects.set_to_none) == ("bfloat16", True)
