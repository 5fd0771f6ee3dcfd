"""Python configs: what is written out is a setting, edited to the byte; the rest says why not."""

import textwrap
from typing import Any

import pytest

from advisor.config import Document, parse
from advisor.errors import EditRefusedError


def document(text: str) -> Document:
    return parse(textwrap.dedent(text).encode(), "python", "config.py")


READ: dict[str, tuple[str, dict[str, Any]]] = {
    "assignments": ("a = 1\nb: float = 1e-3\nc = -2\nd = 'x'\ne = None\nf = True\ng = 0x10\n",
                    {"a": 1, "b": 1e-3, "c": -2, "d": "x", "e": None, "f": True, "g": 16}),
    "keyword arguments": ("loader = dict(batch_size=32, sampler=dict(shuffle=True))\n",
                          {"loader.batch_size": 32, "loader.sampler.shuffle": True}),
    "dict literals": ("m = {'lr': 0.1, 'a b': {'x': 1}}\n", {"m.lr": 0.1, 'm["a b"].x': 1}),
    "lists": ("s = [1, (2, 3)]\np = [dict(type='A', n=1), dict(type='B')]\n",
              {"s[0]": 1, "s[1][0]": 2, "s[1][1]": 3,
               "p[0].type": "A", "p[0].n": 1, "p[1].type": "B"}),
    "calls of calls": ("dataloader.train = L(build)(dataset=L(get)(names='c'), workers=4)\n",
                       {"dataloader.train.dataset.names": "c", "dataloader.train.workers": 4}),
    "parts of a config": ("cfg = C()\ncfg.train.steps = 9\ncfg['lr'] = 2\n",
                          {"cfg.train.steps": 9, "cfg.lr": 2}),
    "classes": ("class A:\n    n: int = 2\n    class B:\n        m = 3\n", {"A.n": 2, "A.B.m": 3}),
    "functions": ("def get_config():\n    c = C()\n    c.batch = 8\n    return c\n",
                  {"get_config.c.batch": 8}),
    "a returned dict": ("def config():\n    return dict(batch=8)\n", {"config.batch": 8}),
    "the last assignment": ("a = 1\na = 2\nm = dict(x=1)\nm['x'] = 5\n", {"a": 2, "m.x": 5}),
    "a wrapped mapping": ("m = EasyDict(dict(a=1))\nm.b = 2\n", {"m.a": 1, "m.b": 2}),
    "with": ("with read_base():\n    n = 4\n", {"n": 4}),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_what_is_written_out_is_read(case) -> None:
    text, wanted = READ[case]
    found = document(text)
    assert {path: scalar.value for path, scalar in found.scalars.items()} == wanted
    assert all(scalar.editable for scalar in found.scalars.values())


LEFT = {
    "an update": ("m = dict(n=4)\nm.update(n=8)\n", "m.n", 4, "changed again on line 2"),
    "arithmetic": ("n = 5 * 8\n", "n", None, "computed: 5 * 8"),
    "a call": ("n = os.cpu_count()\n", "n", None, "computed: os.cpu_count()"),
    "joined text": ("n = 'a' 'b'\n", "n", "ab", "no plain text"),
    "an escape": ("n = 'a\\n'\n", "n", "a\n", "no plain text"),
    "a block of text": ("n = '''a\nb'''\n", "n", "a\nb", "no plain text"),
    "a condition": (
        "n = 1\nif debug:\n    n = 2\n",
        "n",
        1,
        "under a condition or in a loop, line 2",
    ),
    "a loop": ("for i in x:\n    n = 2\n", "n", 2, "in a loop, line 1"),
    "a call anew": ("m = dict(n=4)\nm = EasyDict(m)\n", "m.n", 4, "changed again on line 2"),
    "changed again": ("n = 4\nn *= 2\n", "n", 4, "changed again on line 2"),
    "several names": ("n = m = 4\n", "n", 4, "several names"),
    "another value": ("batch = 4\nm = dict(n=batch)\n", "m.n", None, "computed: batch"),
    "another file's value": ("n = '{{_base_.n}}'\n", "n", "{{_base_.n}}", "another value"),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_only_running_would_tell_is_left_with_its_reason(case) -> None:
    text, path, value, why = LEFT[case]
    scalar = document(text).scalars[path]
    assert scalar.value == value
    assert not scalar.editable
    assert why in (scalar.why or "")
    with pytest.raises(EditRefusedError, match=r"config\.py"):
        document(text).with_values({path: 7})


def test_nothing_is_run(tmp_path) -> None:
    witness = tmp_path / "witness"
    found = document(f"open({str(witness)!r}, 'w')\nbatch_size = 4\n")
    assert found.with_values({"batch_size": 8}).endswith(b"batch_size = 8\n")
    assert not witness.exists()
