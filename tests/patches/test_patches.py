"""Patches of the user's code: `git apply` takes them, and only what was meant moves."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from advisor.patches.model_patches import autocast_edit, compile_edit
from advisor.patches.patches import loader_edit, statement_edit
from advisor.patches.python_source import patch_of
from tests.patches.applying import applied, written

if TYPE_CHECKING:
    from pathlib import Path

BENCHMARK = "torch.backends.cudnn.benchmark = True"
HEAD = "import torch\n"
WITH = 'with torch.autocast("cpu", dtype=torch.bfloat16):'

# --- arguments of a loader --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        ("l = DataLoader(ds, batch_size=4)\n", 1, "l = DataLoader(ds, batch_size=4, @)\n"),
        (
            "l = DataLoader(ds, num_workers=0)  # é",
            1,
            "l = DataLoader(ds, num_workers=2, pin_memory=True)  # é",
        ),
        (
            "l = DataLoader(\r\n    ds,\r\n    a=4,  # )\r\n)\r\nx = 1\r\n",
            3,
            "l = DataLoader(\r\n    ds,\r\n    a=4, @,  # )\r\n)\r\nx = 1\r\n",
        ),
        (
            "é = 'ü'; l = f(utils.data.DataLoader(ds, 4, True), 3)\n",
            1,
            "é = 'ü'; l = f(utils.data.DataLoader(ds, 4, True, @), 3)\n",
        ),
        (
            "l = DataLoader(ds, **options)\n",
            1,
            'l = DataLoader(ds, **{**options, "num_workers": 2, "pin_memory": True})\n',
        ),
        ("\ufeffl = DataLoader(ds,)\n", 1, "\ufeffl = DataLoader(ds, @,)\n"),
        (
            "from torch.utils.data import DataLoader as Feed\nl = Feed(ds)\n",
            2,
            "from torch.utils.data import DataLoader as Feed\nl = Feed(ds, @)\n",
        ),
    ],
)
def test_only_the_arguments_of_the_call_are_edited(
    code: str, line: int, expected: str, tmp_path: Path
) -> None:
    """Comments, line ends, indentation, byte order mark and everything around it stay."""
    file = written(tmp_path, code)
    patch = patch_of(file, tmp_path, loader_edit(line, {"num_workers": 2, "pin_memory": True}))
    assert file.read_bytes().decode() == code
    assert patch is not None
    assert patch.startswith("diff --git a/src/train.py b/src/train.py\n")
    expected = expected.replace("@", "num_workers=2, pin_memory=True")
    assert applied(tmp_path, file, patch) == expected


@pytest.mark.parametrize(
    ("code", "workers"),
    [
        ("l = DataLoader(*given)\n", 2),
        ("l = DataLoader(ds, num_workers=args.workers)\n", 2),
        ("l = DataLoader(ds, **a, **b)\n", 2),
        ("l = DataLoader(x for x in y)\n", 2),
        ("l = DataLoader(ds, 4, True, None, None, 12)\n", 2),
        ("l = [DataLoader(a), DataLoader(b)]\n", 2),
        ("l = make_loader(ds)\n", 2),
        ("l = DataLoader(ds\n", 2),
        ("# coding: latin-1\nl = DataLoader(ds)\n", 2),
        ("l = DataLoader(ds, num_workers=8, timeout=30)\n", 0),
        ("l = DataLoader(ds, **options)\n", 0),
    ],
)
def test_where_the_place_is_not_certain_there_is_no_patch(
    code: str, workers: int, tmp_path: Path
) -> None:
    """Without workers a DataLoader refuses some of the other arguments."""
    file = written(tmp_path, code)
    line = code.count("\n")
    assert patch_of(file, tmp_path, loader_edit(line, {"num_workers": workers})) is None


# --- flags ------------------------------------------------------------------------------------


def test_a_flag_stands_after_the_imports(tmp_path: Path) -> None:
    code = '"""Trains."""\nfrom __future__ import annotations\nimport os\nimport torch\n\nx = 1\n'
    file = written(tmp_path, code)
    after = applied(tmp_path, file, patch_of(file, tmp_path, statement_edit(BENCHMARK)))
    assert [ast.unparse(node) for node in ast.parse(after).body][4:] == [BENCHMARK, "x = 1"]
    assert "".join(part for part in after.split(f"\n{BENCHMARK}\n")) == code


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        ("import os\nx = 1\n", BENCHMARK),
        ("import torch as t\nx = 1\n", BENCHMARK),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\n", BENCHMARK),
        ("import torch; x = 1\n", BENCHMARK),
        ("import torch\n\ntorch.backends.cudnn.benchmark = False\n", BENCHMARK),
        ("import torch\n\ntorch.set_num_threads(1)\n", "torch.set_num_threads(4)"),
    ],
)
def test_a_flag_without_a_certain_place_has_no_patch(
    code: str, statement: str, tmp_path: Path
) -> None:
    """Also where the code sets the flag itself: that would win over a line after the imports."""
    assert patch_of(written(tmp_path, code), tmp_path, statement_edit(statement)) is None


# --- autocast ---------------------------------------------------------------------------------


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
    ("code", "widen"),
    [
        ("y = model(x); z = 1\n", False),
        ("if x: y = model(x)\n", False),
        ('y = model("""\n  text""")\n', False),
        ("for y in model(x):\n    pass\n", False),
        ('with torch.autocast("cpu"):\n    y = model(x)\n', False),
        ("import torch as t\ny = model(x)\n", None),
        ("y = model(other(x))\n", True),
        ("y = F.model(x)\n", True),
    ],
)
def test_where_autocast_cannot_stand_alone_there_is_no_patch(
    code: str, widen: bool | None, tmp_path: Path
) -> None:
    """Shared lines, texts over several lines, headers, another name of torch, another call."""
    code = code if widen is None else HEAD + code
    file = written(tmp_path, code)
    line = next(n for n, text in enumerate(code.splitlines(), 1) if "model(" in text)
    edit = autocast_edit(line, "cpu", "bfloat16", widen=bool(widen))
    assert patch_of(file, tmp_path, edit) is None


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        ("y = model(x)  # é\n", 2, "y = model(x).float()  # é"),
        ("loss = criterion(model(x), y)\n", 2, "loss = criterion(model(x).float(), y)"),
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


# --- compilation ------------------------------------------------------------------------------

OWNED = """\
class Trainer:
    def __init__(self):
        self.model = Net().to(d)
        self.other = 1
    def step(self, x):
        y = self.model(x)
"""


@pytest.mark.parametrize(
    ("code", "line", "old", "new"),
    [
        (
            "def main():\n    model = Net()\n    model = model.to(d)  # d\n    y = model(x)\n",
            4,
            "# d\n",
            "# d\n    model.compile()\n",
        ),
        (
            "criterion = Loss()\nmodel = Net()\nloss = criterion(model(x), y)\n",
            3,
            "Net()\n",
            "Net()\nmodel.compile()\n",
        ),
        (OWNED, 6, "to(d)\n", "to(d)\n        self.model.compile()\n"),
    ],
)
def test_a_model_is_compiled_where_it_has_its_last_value(
    code: str, line: int, old: str, new: str, tmp_path: Path
) -> None:
    """It, and not its loss; in the method that builds it where a trainer holds it."""
    file = written(tmp_path, code)
    after = applied(tmp_path, file, patch_of(file, tmp_path, compile_edit(line)))
    assert after == code.replace(old, new)


@pytest.mark.parametrize(
    "code",
    [
        "def f(model):\n    model(x)\n",
        "if a:\n    model = Net()\nmodel(x)\n",
        "model = Net()\nif a:\n    model = Other()\nmodel(x)\n",
        "self.model(x)\n",
        "model = Net(); z = 1\nmodel(x)\n",
        "model = nets[0]\nmodel(x)\n",
        OWNED.replace("        y", "        self.model = Other()\n        y"),
    ],
)
def test_a_model_of_uncertain_origin_is_not_compiled(code: str, tmp_path: Path) -> None:
    """Passed in, built in a branch, built twice, or a part of something."""
    file = written(tmp_path, code)
    assert patch_of(file, tmp_path, compile_edit(len(code.splitlines()))) is None
