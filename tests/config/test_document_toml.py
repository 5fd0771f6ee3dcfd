"""TOML, with the spans of a scanner and the meaning of `tomllib`."""

from __future__ import annotations

from advisor.config import parse

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
