"""Patches of the user's code: `git apply` takes them, and only what was meant moves."""

import subprocess
from functools import partial
from pathlib import Path

import pytest

from advisor.patches import fields
from advisor.patches.patches import (
    all_edits,
    autocast_edit,
    loader_edit,
    patch_of,
    statement_edit,
)

FLAG = "torch.backends.cudnn.benchmark = True"
WITH = 'with torch.autocast("cpu", dtype=torch.bfloat16):'
LOADERS = [
    ("l = DataLoader(ds, batch_size=4)\n", "l = DataLoader(ds, batch_size=4, @)\n"),
    (
        "l = DataLoader(ds, num_workers=0)  # é",
        "l = DataLoader(ds, num_workers=2, pin_memory=True)  # é",
    ),
    (
        "x = 1\r\nl = DataLoader(\r\n    ds,\r\n    a=4,  # )\r\n)",
        "x = 1\r\nl = DataLoader(\r\n    ds,\r\n    a=4, @,  # )\r\n)",
    ),
    (
        "é = 'ü'; l = f(utils.data.DataLoader(ds, 4, True), 3)\n",
        "é = 'ü'; l = f(utils.data.DataLoader(ds, 4, True, @), 3)\n",
    ),
    (
        "l = DataLoader(ds, **options)\n",
        'l = DataLoader(ds, **{**options, "num_workers": 2, "pin_memory": True})\n',
    ),
    (
        "from torch.utils.data import DataLoader as Feed\nl = Feed(ds)\n",
        "from torch.utils.data import DataLoader as Feed\nl = Feed(ds, @)\n",
    ),
    (
        "W = 0\nl = DataLoader(ds, num_workers=W)\nprint(W)\n",
        "W = 0\nl = DataLoader(ds, @)\nprint(W)\n",
    ),
    (
        "V = W = 0\nl = DataLoader(ds, num_workers=W)\n",
        "V = W = 0\nl = DataLoader(ds, @)\n",
    ),
    (
        "W = 0\nl = DataLoader(ds, num_workers=W)\nglobals()['W']\n",
        "W = 0\nl = DataLoader(ds, @)\nglobals()['W']\n",
    ),
    (
        "o = {'a': 0}\nl = DataLoader(ds, **o); o\n",
        'o = {\'a\': 0}\nl = DataLoader(ds, **{**o, "num_workers": 2, "pin_memory": True}); o\n',
    ),
    (
        "o = {**p}\nl = DataLoader(ds, **o)\n",
        'o = {**p}\nl = DataLoader(ds, **{**o, "num_workers": 2, "pin_memory": True})\n',
    ),
]
CONSTANTS = [
    (
        "W = 0  # é\nl = DataLoader(ds, num_workers=W)\n",
        "W = 2  # é\nl = DataLoader(ds, num_workers=W, pin_memory=True)\n",
    ),
    (
        "W: int = 0\ndef f():\n    return DataLoader(ds, num_workers=W, pin_memory=False)\n",
        "W: int = 2\ndef f():\n    return DataLoader(ds, num_workers=W, pin_memory=True)\n",
    ),
    (
        "def f():\n    w = 0\n    return DataLoader(ds, num_workers=w)\n",
        "def f():\n    w = 2\n    return DataLoader(ds, num_workers=w, pin_memory=True)\n",
    ),
    (
        "W = 0\nl = DataLoader(ds, pin_memory=W, num_workers=W)\n",
        "W = True\nl = DataLoader(ds, pin_memory=W, num_workers=2)\n",
    ),
    (
        "o = {'batch_size': 4, 'num_workers': 0}\nl = DataLoader(ds, **o)\n",
        "o = {'batch_size': 4, 'num_workers': 2}\nl = DataLoader(ds, **o, pin_memory=True)\n",
    ),
    (
        "W = 0\no = {'num_workers': W}\nl = DataLoader(ds, **o, drop_last=True)\n",
        "W = 2\no = {'num_workers': W}\nl = DataLoader(ds, **o, drop_last=True, pin_memory=True)\n",
    ),
]
"""Values that stand in a constant, or in a dictionary, of which one loader is the only use."""
FLAGS = [
    (
        '"""Trains."""\nfrom __future__ import annotations\nimport torch\n\nx = 1\n',
        f'"""Trains."""\nfrom __future__ import annotations\nimport torch\n\n{FLAG}\n\nx = 1\n',
    ),
]
UNDER_AUTOCAST = [
    ("import torch\ny = model(x)  # é\n", f"import torch\n{WITH}\n    y = model(x)  # é\n"),
    (
        "import torch\nfor x in xs:\n\tloss = f(\n\n\t\ty,\n\t\tmodel(x))\n",
        f"import torch\nfor x in xs:\n\t{WITH}\n\t\tloss = f(\n\n\t\t\ty,\n\t\t\tmodel(x))\n",
    ),
    (
        "import torch\ndef f(x):\r\n    return model(x)",
        f"import torch\ndef f(x):\r\n    {WITH}\r\n        return model(x)",
    ),
]
WIDENED = [
    (
        "import torch\nloss = criterion(model(x), y)\n",
        f"import torch\n{WITH}\n    loss = criterion(model(x).float(), y)\n",
    ),
]
THREADS = "torch.set_num_threads(4)"
STACKED = [
    (
        "import torch\ny = model(x)\n",
        f"import torch\n\n{FLAG}\n\n{THREADS}\n{WITH}\n    y = model(x)\n",
    ),
]


def stack(line: int) -> partial:
    """Two statements, the later one of the text first, and the call that they are about."""
    statements = [partial(statement_edit, each) for each in (THREADS, FLAG)]
    return partial(all_edits, [*statements, EDITS["autocast"](line)])


EDITS = {
    "workers": lambda line: partial(loader_edit, line, {"num_workers": 2, "pin_memory": True}),
    "no workers": lambda line: partial(loader_edit, line, {"num_workers": 0}),
    "flag": lambda _: partial(statement_edit, FLAG),
    "threads": lambda _: partial(statement_edit, THREADS),
    "autocast": lambda line: partial(autocast_edit, line, "cpu", "bfloat16", widen=False),
    "widened": lambda line: partial(autocast_edit, line, "cpu", "bfloat16", widen=True),
    "stack": stack,
}
"""Each edit, of the call that begins on a line."""
EDITED = [
    *(("workers", before, after) for before, after in LOADERS),
    *(("workers", before, after) for before, after in CONSTANTS),
    *(("flag", before, after) for before, after in FLAGS),
    *(("autocast", before, after) for before, after in UNDER_AUTOCAST),
    *(("widened", before, after) for before, after in WIDENED),
    *(("stack", before, after) for before, after in STACKED),
]
UNCERTAIN = [
    ("workers", "l = DataLoader(*given)\n"),
    ("workers", "l = DataLoader(ds, num_workers=args.workers)\n"),
    ("workers", "W = 0\nW += f()\nl = DataLoader(ds, num_workers=W)\n"),
    ("workers", "W = 0\ndef f(W):\n    return DataLoader(ds, num_workers=W)\n"),
    ("workers", "W = f()\nl = DataLoader(ds, num_workers=W)\n"),
    ("workers", "from c import W\nl = DataLoader(ds, num_workers=W)\n"),
    ("workers", "W = 0\ndef f():\n    global W\nl = DataLoader(ds, num_workers=W)\n"),
    ("workers", "W = 0\nfrom c import *\nl = DataLoader(ds, num_workers=W)\n"),
    ("workers", "W = 0\nmatch x:\n    case W: pass\nl = DataLoader(ds, num_workers=W)\n"),
    ("workers", "l = DataLoader(ds, **a, **b)\n"),
    ("workers", "l = DataLoader(x for x in y)\n"),
    ("workers", "l = DataLoader(ds, 4, True, None, None, 12)\n"),
    ("workers", "l = [DataLoader(a), DataLoader(b)]\n"),
    ("workers", "l = make_loader(ds)\n"),
    ("workers", "l = DataLoader(ds\n"),
    ("workers", "\ufeffl = DataLoader(ds)\n"),
    ("no workers", "l = DataLoader(ds, num_workers=8, timeout=30)\n"),
    ("no workers", "l = DataLoader(ds, **options)\n"),
    ("no workers", "o = {'num_workers': 8, 'timeout': 30}\nl = DataLoader(ds, **o)\n"),
    ("flag", "import os\nx = 1\n"),
    ("flag", "import torch as t\nx = 1\n"),
    ("flag", "try:\n    import torch\nexcept ImportError:\n    torch = None\n"),
    ("flag", "import torch; x = 1\n"),
    ("flag", "import torch\n\ntorch.backends.cudnn.benchmark = False\n"),
    ("threads", "import torch\n\ntorch.set_num_threads(1)\n"),
    ("autocast", "import torch\ny = model(x); z = 1\n"),
    ("autocast", "import torch\nif x: y = model(x)\n"),
    ("autocast", 'import torch\ny = model("""\n  text""")\n'),
    ("autocast", "import torch\nfor y in model(x):\n    pass\n"),
    ("autocast", 'import torch\nwith torch.autocast("cpu"):\n    y = model(x)\n'),
    ("autocast", "import torch as t\ny = model(x)\n"),
    ("widened", "import torch\ny = model(other(x))\n"),
    ("widened", "import torch\ny = F.model(x)\n"),
    ("stack", f"import torch\n{THREADS}\ny = model(x)\n"),
]


def patched(folder: Path, edit: str, code: str) -> str | None:
    """The patch of `code` as `src/train.py`, at the last line that calls a loader or a model."""
    file = folder / "src" / "train.py"
    file.parent.mkdir()
    file.write_bytes(code.encode())
    calls = ("Loader(", "Feed(", "loader(", "model(", "criterion(")
    lines = [n for n, text in enumerate(code.split("\n"), 1) if any(c in text for c in calls)]
    patch = patch_of(file, folder, EDITS[edit](lines[-1] if lines else 1))
    assert file.read_bytes().decode() == code
    return patch


@pytest.mark.parametrize(("edit", "before", "after"), EDITED)
def test_only_what_was_meant_is_edited(edit, before, after, tmp_path) -> None:
    """Comments, line ends, indentation and everything around it stay."""
    patch = patched(tmp_path, edit, before)
    assert patch.startswith("diff --git a/src/train.py b/src/train.py\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=tmp_path, check=True)
    found = (tmp_path / "src" / "train.py").read_bytes().decode()
    assert found == after.replace("@", "num_workers=2, pin_memory=True")


def test_an_argument_of_none_is_only_written_where_one_is_given(tmp_path) -> None:
    """None is what a DataLoader takes for one that is not given: without workers it must be so."""
    values = {"num_workers": 0, "prefetch_factor": None}
    for number, (given, expected) in enumerate(
        {
            "DataLoader(ds, num_workers=4)": "DataLoader(ds, num_workers=0)",
            "DataLoader(ds)": "DataLoader(ds, num_workers=0)",
        }.items()
    ):
        file = tmp_path / f"{number}.py"
        file.write_text(f"l = {given}\n")
        patch = patch_of(file, tmp_path, partial(loader_edit, 1, values))
        assert f"+l = {expected}" in patch.split("\n")


@pytest.mark.parametrize(("edit", "code"), UNCERTAIN)
def test_where_the_place_is_not_certain_there_is_no_patch(edit, code, tmp_path) -> None:
    """Unknown arguments, shared lines, names of unknown origin, and what the code sets itself."""
    assert patched(tmp_path, edit, code) is None


ELSEWHERE = {
    "by its name": ("data.py", "from train import W\n", False),
    "in a module": ("data.py", "import train as t\nprint(t.W)\n", False),
    "with all others": ("pack/data.py", "from .train import *\n", False),
    "one of that name in another file": ("data.py", "W = 3\nprint(W)\n", True),
    "the module alone": ("data.py", "from train import l\n", True),
    "an environment's": (".venv/data.py", "from train import W\n", True),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_constant_that_another_file_reads_keeps_its_value(case, tmp_path) -> None:
    """The trial changed one loader: what else reads the constant was never tried with another."""
    name, text, changes = ELSEWHERE[case]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    patch = patched(tmp_path, "workers", "W = 0\nl = DataLoader(ds, num_workers=W)\n")
    assert ("+W = 2" in patch.split("\n")) is changes
    assert ("num_workers=2" in patch) is not changes


SET = {
    "a field": "config.size = 4\n",
    "a field of a class": "class Config:\n    size: int = 4\n",
    "a name of a module": "size = 4\n",
    "a keyword": "config = Config(size=4)\n",
    "a key": 'config = {"size": 4}\n',
    "a key that is set": 'config["size"] = 4\n',
}
READ = (
    "loader = DataLoader(data, batch_size=config.size)\n",
    'loader = DataLoader(data, batch_size=config["size"])\n',
)
OTHERWISE = {
    "another value": "config.size = 8\n",
    "the same value": "config.size = 4\n",
    "one that is computed": "config.size = f()\n",
    "one that is added to": "config.size += 1\n",
    "a second reader": "steps = len(data) // config.size\n",
    "a parameter": "def f(size=4):\n    self.size = size\n",
    "an option": 'parser.add_argument("--size", type=int, default=4)\n',
    "a text": 'setattr(config, "size", f())\n',
    "a property": "class Other:\n    def size(self):\n        return 4\n",
    "an import": "from other import size\n",
    "an unpacking": "config.size, b = f()\n",
}


@pytest.mark.parametrize("read", READ, ids=["attribute", "item"])
@pytest.mark.parametrize("case", SET)
def test_a_field_set_once_and_read_once_has_one_home(case, read, tmp_path) -> None:
    """However it is set: by a statement, a class, a keyword or a dictionary, in another file."""
    (tmp_path / "train.py").write_text(read + "x = DataLoader(data, size=100)\n")
    (tmp_path / "settings.py").write_text(SET[case])
    assert fields.sole_home("size", 4, tmp_path) == tmp_path / "settings.py"
    assert fields.sole_home("size", 8, tmp_path) is None
    assert fields.sole_home("size", True, tmp_path) is None


CONFIGS = {
    "over.json": '{"size": 4}',
    "conf/over.yaml": "loader:\n  size: 4\n",
    "over.toml": "size = 4\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_holds_the_field_too_is_told(name, tmp_path) -> None:
    """`config.__dict__.update(json.load(file))` wins over the code: the patch had no effect."""
    report = '{"schema_version": 1, "written_by": "gpu-advisor", "size": 4}'
    (tmp_path / "report.json").write_text(report)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(CONFIGS[name])
    assert fields.configs_with("size", tmp_path) == [tmp_path / name]
    assert fields.configs_with("siz", tmp_path) == []


@pytest.mark.parametrize("case", OTHERWISE)
def test_a_field_that_may_be_set_or_read_otherwise_has_none(case, tmp_path) -> None:
    """In any file of the program: what was tried is one loader, and its value was seen."""
    (tmp_path / "train.py").write_text(READ[0])
    (tmp_path / "settings.py").write_text(SET["a field"])
    assert fields.sole_home("size", 4, tmp_path) is not None
    (tmp_path / "other.py").write_text(OTHERWISE[case])
    assert fields.sole_home("size", 4, tmp_path) is None
