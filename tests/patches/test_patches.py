"""Patches of the user's code: `git apply` takes them, and only the call's arguments move."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from advisor.patches.patches import loader_edit, statement_edit
from advisor.patches.python_source import patch_of
from tests.patches.applying import applied, written

if TYPE_CHECKING:
    from pathlib import Path

BENCHMARK = "torch.backends.cudnn.benchmark = True"


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
            "l = DataLoader(\n ds,\n a=4,  # )\n)\nx = 1\n",
            3,
            "l = DataLoader(\n ds,\n a=4,  # )\n num_workers=2,\n pin_memory=True,\n)\nx = 1\n",
        ),
        (
            "l = DataLoader(\r\n    ds,\r\n    batch_size=4  # c\r\n)\r\n",
            1,
            "l = DataLoader(\r\n    ds,\r\n    batch_size=4, @  # c\r\n)\r\n",
        ),
        (
            "é = 'ü'; l = f(utils.data.DataLoader(ds, 4, True, None, None, 12 , None, (0)), 3)\n",
            1,
            "é = 'ü'; l = f(utils.data.DataLoader(ds, 4, True, None, None, 2 , None, (True)), 3)\n",
        ),
        (
            "l = DataLoader(ds, **options)\n",
            1,
            'l = DataLoader(ds, **{**options, "num_workers": 2, "pin_memory": True})\n',
        ),
        (
            "if x:\n\tl = DataLoader(\n\t\tds,\n\t)\n",
            2,
            "if x:\n\tl = DataLoader(\n\t\tds,\n\t\tnum_workers=2,\n\t\tpin_memory=True,\n\t)\n",
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


def test_without_workers_what_needs_them_is_made_neutral(tmp_path: Path) -> None:
    """A DataLoader refuses prefetch_factor and timeout when it has no workers."""
    code = "l = DataLoader(ds, num_workers=8, prefetch_factor=4, timeout=30, shuffle=True)\n"
    file = written(tmp_path, code)
    after = applied(tmp_path, file, patch_of(file, tmp_path, loader_edit(1, {"num_workers": 0})))
    assert after == (
        "l = DataLoader(ds, num_workers=0, prefetch_factor=None, timeout=0, shuffle=True)\n"
    )


@pytest.mark.parametrize(
    "code",
    [
        "l = DataLoader(*given)\n",
        "l = DataLoader(ds, num_workers=args.workers)\n",
        "l = DataLoader(ds, **a, **b)\n",
        "l = DataLoader(x for x in y)\n",
        "l = [DataLoader(a), DataLoader(b)]\n",
        "l = make_loader(ds)\n",
        "l = DataLoader(ds\n",
        "# coding: latin-1\nl = DataLoader(ds)\n",
    ],
)
def test_where_the_place_is_not_certain_there_is_no_patch(code: str, tmp_path: Path) -> None:
    file = written(tmp_path, code)
    line = code.count("\n")
    assert patch_of(file, tmp_path, loader_edit(line, {"num_workers": 2})) is None


def test_a_missing_file_has_no_patch(tmp_path: Path) -> None:
    assert patch_of(tmp_path / "gone.py", tmp_path, loader_edit(1, {"num_workers": 2})) is None


def test_a_flag_stands_after_the_imports(tmp_path: Path) -> None:
    code = '"""Trains."""\nfrom __future__ import annotations\nimport os\nimport torch\n\nx = 1\n'
    file = written(tmp_path, code)
    after = applied(tmp_path, file, patch_of(file, tmp_path, statement_edit([BENCHMARK])))
    assert [ast.unparse(node) for node in ast.parse(after).body][4:] == [BENCHMARK, "x = 1"]
    assert "".join(part for part in after.split(f"\n{BENCHMARK}\n")) == code


@pytest.mark.parametrize(
    "code",
    [
        "import os\nx = 1\n",
        "import torch as t\nx = 1\n",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
        "import torch; x = 1\n",
        "import torch\n\ntorch.backends.cudnn.benchmark = False\n",
    ],
)
def test_a_flag_without_a_certain_place_has_no_patch(code: str, tmp_path: Path) -> None:
    """Also where the code sets the flag itself: it may have a reason."""
    assert patch_of(written(tmp_path, code), tmp_path, statement_edit([BENCHMARK])) is None


def test_a_call_that_the_code_makes_itself_has_no_patch(tmp_path: Path) -> None:
    """What it says later would win over a line after the imports."""
    threads = "torch.set_num_threads(4)"
    file = written(tmp_path, "import torch\n\ntorch.set_num_threads(1)\n")
    assert patch_of(file, tmp_path, statement_edit([threads])) is None
    file.write_text("import torch\n\ntorch.manual_seed(1)\n")
    assert f"+{threads}" in str(patch_of(file, tmp_path, statement_edit([threads])))


def test_without_a_repository_paths_are_those_of_the_working_directory(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("l = DataLoader(ds)\n")
    patch = patch_of(file, tmp_path, loader_edit(1, {"num_workers": 2}))
    assert patch is not None
    assert patch.startswith("diff --git a/train.py b/train.py\n")
