"""JSON, and JSON with comments as training scripts read it."""

from __future__ import annotations

import json

import pytest

from advisor.config import parse
from advisor.errors import EditRefusedError

PALETTE = b"""\
{
    "name": "x", // experiment, {
    "datasets": {
        "test": {
            // "batch_size": 64, testing batch size
            "args":{
                "batch_size": 1, // Keep at 1 - code assumes single batch
                "num_workers": 12, /* per process */
                // must divide
                // the epoch
                "shuffle": false
            }
        }
    },
    "lr": 5e-5
}
"""


def edited(raw: bytes, **values: object) -> bytes:
    return parse(raw, "json", "x.json").with_values(values)  # type: ignore[arg-type]


def inserted(raw: bytes, beside: str, key: str, value: object) -> bytes:
    return parse(raw, "json", "x.json").with_inserted(beside, key, value)  # type: ignore[arg-type]


def test_comments_are_read_and_make_the_format_jsonc() -> None:
    document = parse(PALETTE, "json", "x.json")
    assert document.format == "json"
    args = "datasets.test.args"
    assert document.scalars[f"{args}.batch_size"].value == 1
    assert document.scalars[f"{args}.batch_size"].comment == (
        "Keep at 1 - code assumes single batch"
    )
    assert document.scalars[f"{args}.num_workers"].comment == "per process"
    assert document.scalars[f"{args}.shuffle"].comment == "must divide\nthe epoch"
    assert document.scalars["lr"].comment is None
    assert parse(b'{"a": 1}', "json", "x").format == "json"


def test_no_value_is_written_that_a_comment_stripper_would_cut() -> None:
    after = edited(b'{"a": "x"}', a="tcp://host /* x")
    assert b"//" not in after
    assert b"/*" not in after
    assert json.loads(after) == {"a": "tcp://host /* x"}


def test_the_last_duplicate_counts_and_is_told() -> None:
    raw = b'{"t": {"a": 1, "b": 2},\n "t": {"a": 3}}'
    document = parse(raw, "json", "x")
    assert {p: s.value for p, s in document.scalars.items()} == {"t.a": 3}
    assert list(document.scalars) == ["t.a"]
    assert document.notes == ("t is written more than once; the last one, on line 2, counts",)
    assert document.with_values({"t.a": 4}) == raw.replace(b"3", b"4")


def test_what_is_there_already_is_not_added() -> None:
    with pytest.raises(EditRefusedError, match="has k already"):
        inserted(b'{"a": 1, "k": {"z": 1}}', "a", "k", 2)
    with pytest.raises(EditRefusedError):
        inserted(b'{"a": 1, "k": {}}', "a", "k", 2)
    with pytest.raises(EditRefusedError, match="no single value with a key"):
        inserted(b'{"a": [1]}', "a[0]", "k", 2)
