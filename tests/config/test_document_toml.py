"""TOML, with the spans of a scanner and the meaning of `tomllib`."""

from __future__ import annotations

import tomllib

import pytest

from advisor.config import parse
from advisor.errors import EditRefusedError

TRAIN = b"""\
title = "t" # x

[training]
local_batch_size = 30_000  # per GPU
lr = 8e-4
"odd key".x = 1
dates = [1979-05-27, 07:32:00]
when = 1979-05-27 07:32:00
mixed.a.b = { c = 'd', e = [
  1, # one
  2,
] }

[[runs]]
n = 1
[runs.sub]
deep = true

[[runs]]
n = 2

[training.more]
text = \"\"\"
n = 1
[x]\"\"\"
"""


def test_every_value_is_found_under_its_path() -> None:
    document = parse(TRAIN, "toml", "x.toml")
    assert {path: s.value for path, s in document.scalars.items()} == {
        "title": "t",
        "training.local_batch_size": 30000,
        "training.lr": 8e-4,
        'training["odd key"].x': 1,
        "training.dates[0]": "1979-05-27",
        "training.dates[1]": "07:32:00",
        "training.when": "1979-05-27 07:32:00",
        "training.mixed.a.b.c": "d",
        "training.mixed.a.b.e[0]": 1,
        "training.mixed.a.b.e[1]": 2,
        "runs[0].n": 1,
        "runs[0].sub.deep": True,
        "runs[1].n": 2,
        "training.more.text": "n = 1\n[x]",
    }
    assert document.scalars["training.local_batch_size"].comment == "per GPU"
    assert not document.scalars["training.more.text"].editable


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("training.local_batch_size", 16, b"30_000", b"16"),
        ("training.lr", 1e-5, b"8e-4", b"0.00001"),
        ("training.lr", 1, b"8e-4", b"1.0"),
        ('training["odd key"].x', 5, b".x = 1", b".x = 5"),
        ("training.mixed.a.b.c", "f", b"'d'", b"'f'"),
        ("training.mixed.a.b.c", "f'", b"'d'", b'"f\'"'),
        ("training.mixed.a.b.e[1]", 7, b"  2,", b"  7,"),
        ("runs[1].n", 9, b"n = 2", b"n = 9"),
        ("runs[0].sub.deep", False, b"true", b"false"),
        ("title", 'é"\x7f', b'"t"', b'title"'[5:] + 'é\\"\\U0000007f"'.encode()),
    ],
)
def test_only_the_value_changes(path: str, value: object, old: bytes, new: bytes) -> None:
    after = parse(TRAIN, "toml", "x").with_values({path: value})  # type: ignore[dict-item]
    assert after == TRAIN.replace(old, new, 1)
    tomllib.loads(after.decode())


def test_an_empty_value_cannot_be_written() -> None:
    with pytest.raises(EditRefusedError, match="no spelling of an empty value"):
        parse(b"a = 1", "toml", "x").with_values({"a": None})
