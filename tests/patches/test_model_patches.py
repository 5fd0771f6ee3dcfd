"""Patches around the model's call: they apply, do what was tried, or are refused."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from advisor.patches.model_patches import (
    autocast_edit,
    channels_last_edit,
    compile_edit,
    zero_grad_edit,
    zero_grad_line,
)
from advisor.patches.patches import loader_edit, statement_edit
from advisor.patches.python_source import patch_of, read_source
from tests.patches.applying import applied, written
from tests.probe import program

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Run

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
    patch = patch_of(file, tmp_path, autocast_edit(line, "cpu", "bfloat16", widen=False))
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
    assert patch_of(file, tmp_path, autocast_edit(line, "cpu", "bfloat16", widen=False)) is None


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        ("y = model(x)  # é\n", 2, "y = model(x).float()  # é"),
        ("loss = criterion(model(x), y)\n", 2, "loss = criterion(model(x).float(), y)"),
        (
            "def f(self, x):\n    return self.net(x).numpy()\n",
            3,
            "return self.net(x).float().numpy()",
        ),
        (
            "def clean(x): return x\ny = model(\n    clean(x),\n)\n",
            3,
            "y = model(\n        clean(x),\n    ).float()",
        ),
    ],
)
def test_what_the_model_gives_goes_on_in_float32(
    code: str, line: int, expected: str, tmp_path: Path
) -> None:
    """As when it was tried: numpy knows no bfloat16, and a loss is not to be rounded."""
    file = written(tmp_path, HEAD + code)
    patch = patch_of(file, tmp_path, autocast_edit(line, "cpu", "bfloat16", widen=True))
    after = applied(tmp_path, file, patch)
    assert expected in after
    assert after.count(".float()") == 1


@pytest.mark.parametrize("code", ["y = model(other(x))\n", "y = F.relu(x)\n"])
def test_which_call_is_the_models_must_be_certain(code: str, tmp_path: Path) -> None:
    file = written(tmp_path, HEAD + code)
    assert patch_of(file, tmp_path, autocast_edit(2, "cpu", "bfloat16", widen=True)) is None


def test_autocast_needs_torch_by_its_name(tmp_path: Path) -> None:
    file = written(tmp_path, "import torch as t\ny = model(x)\n")
    assert patch_of(file, tmp_path, autocast_edit(2, "cpu", "bfloat16", widen=False)) is None


def test_a_model_is_compiled_where_it_has_its_last_value(tmp_path: Path) -> None:
    code = "def main():\n    model = Net()\n    model = model.to(d)  # d\n    for x in xs:\n"
    call = "        y = model(x)\n"
    file = written(tmp_path, code + call)
    after = applied(tmp_path, file, patch_of(file, tmp_path, compile_edit(5)))
    assert after == code.replace("# d\n", "# d\n    model.compile()\n") + call


def test_the_model_is_compiled_and_not_its_loss(tmp_path: Path) -> None:
    """Though both are built in the file and called on one line."""
    code = "criterion = Loss()\nmodel = Net()\nloss = criterion(model(x), y)\n"
    file = written(tmp_path, code)
    after = applied(tmp_path, file, patch_of(file, tmp_path, compile_edit(3)))
    assert after == code.replace("Net()\n", "Net()\nmodel.compile()\n")


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
    assert patch_of(file, tmp_path, compile_edit(len(code.splitlines()))) is None


def test_gradients_kept_as_zeros_are_dropped_everywhere_in_the_file(tmp_path: Path) -> None:
    code = "o.zero_grad(set_to_none=False)\nmodel.zero_grad(False)\no.zero_grad()\n"
    file = written(tmp_path, code)
    source = read_source(file)
    assert source is not None
    assert zero_grad_line(source) == 1
    assert applied(tmp_path, file, patch_of(file, tmp_path, zero_grad_edit)) == code.replace(
        "False", "True"
    )
    file.write_text("o.zero_grad(set_to_none=keep)\no.zero_grad()\n")
    assert patch_of(file, tmp_path, zero_grad_edit) is None


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

    def seen(name: str, whatif: str | None = None) -> Run:
        scratch = tmp_path / name
        scratch.mkdir()
        plan = MeasurePlan(measure_s=0.3, min_steps=5, whatif=whatif)
        command = (sys.executable, "train.py")
        return program.run(scratch, *command, cwd=work, plan=plan, begin=program.forked).measured

    before = seen("before").effects
    assert (before.dtype, before.set_to_none) == ("float32", False)
    tried = seen("tried", "autocast=bfloat16,set_to_none")
    assert tried.whatif is not None
    assert tried.whatif.one_tensor is True
    line = int((before.model_site or "").rpartition(":")[2])
    autocast = patch_of(file, work, autocast_edit(line, "cpu", "bfloat16", widen=True))
    subprocess.run(["git", "apply", "-"], input=autocast, text=True, cwd=work, check=True)
    found = patch_of(file, work, zero_grad_edit)
    subprocess.run(["git", "apply", "-"], input=found, text=True, cwd=work, check=True)
    after = seen("after")
    for effects in (tried.effects, after.effects):
        assert (effects.dtype, effects.set_to_none) == ("bfloat16", True)


def test_neighbouring_patches_apply_one_by_one_and_all_together(tmp_path: Path) -> None:
    """Statements at one place, a line behind the model and a block around its call, side by side:
    each alone gives a whole program, and one patch gives all of them."""
    code = (
        "import torch\nmodel = Net()\ny = model(x)\n"
        "loader = torch.utils.data.DataLoader(data, num_workers=0)\n"
    )
    file = written(tmp_path, code)
    edits = [
        statement_edit(["torch.backends.cudnn.benchmark = True"]),
        statement_edit(['torch.set_float32_matmul_precision("high")']),
        compile_edit(3),
        channels_last_edit(3),
        autocast_edit(3, "cpu", "bfloat16", widen=False),
        loader_edit(4, {"num_workers": 2}),
    ]
    for edit in edits:
        ast.parse(applied(tmp_path, file, patch_of(file, tmp_path, edit)))
        file.write_text(code)
    for order in (edits, edits[::-1]):
        after = applied(tmp_path, file, patch_of(file, tmp_path, *order))
        for line in (
            "torch.backends.cudnn.benchmark = True\n",
            'torch.set_float32_matmul_precision("high")\n',
            "model.compile()\n",
            "model.to(memory_format=torch.channels_last)\n",
            f"{WITH}\n    y = model(x.to(memory_format=torch.channels_last))\n",
            "DataLoader(data, num_workers=2)\n",
        ):
            assert line in after
        file.write_text(code)


OWNED = """\
import torch
class Trainer:
    def __init__(self):
        self.model = Net().to(d)
        self.other = 1
    def step(self, x):
        y = self.model(x)
"""


def test_a_model_that_a_trainer_holds_is_patched_where_it_is_built(tmp_path: Path) -> None:
    """In the method that builds it; not where two methods give it a value."""
    file = written(tmp_path, OWNED)
    after = applied(tmp_path, file, patch_of(file, tmp_path, compile_edit(7)))
    assert after == OWNED.replace("to(d)\n", "to(d)\n        self.model.compile()\n")
    file.write_text(OWNED)
    after = applied(tmp_path, file, patch_of(file, tmp_path, channels_last_edit(7)))
    moved = ".to(memory_format=torch.channels_last)"
    assert f"        self.model{moved}\n" in after
    assert f"self.model(x{moved})" in after
    file.write_text(OWNED + "    def again(self):\n        self.model = Other()\n")
    assert patch_of(file, tmp_path, compile_edit(7)) is None
