"""JSON, and JSON with comments as training scripts read it."""

from __future__ import annotations

import json

import pytest

from advisor.config import parse
from advisor.errors import ConfigSyntaxError, EditRefusedError

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


@pytest.mark.parametrize(
    ("raw", "value", "after"),
    [
        (b'{"a": 0.5}', 0.0001, b'{"a": 0.0001}'),
        (b'{"a": 0.5}', 1e-5, b'{"a": 0.00001}'),
        (b'{"a": 12.0}', 8, b'{"a": 8.0}'),
        (b'{"a": 12}', 8.0, b'{"a": 8}'),
        (b'{"a": "0"}', 4, b'{"a": "4"}'),
        (b'{"a": "auto"}', 4, b'{"a": 4}'),
        (b'{"a": true}', False, b'{"a": false}'),
        (b'{"a": null}', 3, b'{"a": 3}'),
        (b'{"a": 3}', None, b'{"a": null}'),
        (b'{"a": "fp16"}', "bf16-mixed", b'{"a": "bf16-mixed"}'),
        (b'{"a": "x"}', 'q"\\', b'{"a": "q\\"\\\\"}'),
        (b'{"a": NaN}', 1.5, b'{"a": 1.5}'),
        (b'\xef\xbb\xbf{"a": 1}\r\n', 2, b'\xef\xbb\xbf{"a": 2}\r\n'),
        ('{"é": "😀", "a": 1}'.encode(), 2, '{"é": "😀", "a": 2}'.encode()),
        (b'{"\\u0061": 1}', 2, b'{"\\u0061": 2}'),
        (b'{"a": 1,}', 2, b'{"a": 2,}'),
        (b'{"a": 1, "a": 2}', 3, b'{"a": 1, "a": 3}'),
        (b'{"a"/* x */: /* "a": 4 */ 1/**/}', 2, b'{"a"/* x */: /* "a": 4 */ 2/**/}'),
    ],
)
def test_a_value_keeps_its_spelling_family(raw: bytes, value: object, after: bytes) -> None:
    assert edited(raw, a=value) == after


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


@pytest.mark.parametrize(
    ("raw", "beside", "after"),
    [
        (b'{\n\t"a": 1,\n\t"b": 2\n}', "a", b'{\n\t"a": 1,\n\t"k": 2,\n\t"b": 2\n}'),
        (b'{\n\t"a": 1,\n\t"b": 2\n}', "b", b'{\n\t"a": 1,\n\t"b": 2,\n\t"k": 2\n}'),
        (b'{\r\n  "a": 1 // c\r\n}', "a", b'{\r\n  "a": 1, // c\r\n  "k": 2\r\n}'),
        (b'{\n  "a": 1, // c\n}', "a", b'{\n  "a": 1, // c\n  "k": 2,\n}'),
        (b'{"a": 1, "b": 2}', "a", b'{"a": 1, "k": 2, "b": 2}'),
        (b'{"a":1,"b":2}', "b", b'{"a":1,"b":2,"k":2}'),
        (b'{ "a" : 1 }', "a", b'{ "a" : 1, "k" : 2 }'),
        (b'{\n  "a": 1\n, "b": 2}', "a", b'{\n  "a": 1,\n  "k": 2\n, "b": 2}'),
        (b'{\n  "a": 1, "b": 2\n}', "a", b'{\n  "a": 1, "k": 2, "b": 2\n}'),
        (b'{\n  "a": 1 /* c\n */, "b": 2\n}', "a", b'{\n  "a": 1, "k": 2 /* c\n */, "b": 2\n}'),
    ],
)
def test_a_key_is_added_in_the_style_of_its_sibling(raw: bytes, beside: str, after: bytes) -> None:
    assert inserted(raw, beside, "k", 2) == after


def test_a_naive_comment_stripper_reads_every_edit() -> None:
    path = "datasets.test.args"
    for content in (
        parse(PALETTE, "json", "x").with_values({f"{path}.num_workers": 4, "lr": 1e-4}),
        inserted(PALETTE, f"{path}.batch_size", "prefetch_factor", 2),
        inserted(PALETTE, "lr", "prefix", "s3://bucket"),
    ):
        text = content.decode().replace("/* per process */", "")
        json.loads("".join(line.split("//")[0] + "\n" for line in text.splitlines()))


def test_what_is_there_already_is_not_added() -> None:
    with pytest.raises(EditRefusedError, match="has k already"):
        inserted(b'{"a": 1, "k": {"z": 1}}', "a", "k", 2)
    with pytest.raises(EditRefusedError):
        inserted(b'{"a": 1, "k": {}}', "a", "k", 2)
    with pytest.raises(EditRefusedError, match="no single value with a key"):
        inserted(b'{"a": [1]}', "a[0]", "k", 2)


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (b'{\n  "a" : SIZE,\n}', "line 2, column 9"),
        (b'{"a": 1', "line 1, column 8"),
        (b'{"a": [,]}', "line 1, column 8"),
        (b'{"a": 1,,}', "line 1, column 9"),
        (b'{"a": 1 /* open', "line 1, column 9"),
        (b"{\"a\": 'x'}", "line 1, column 7"),
        (b"", "line 1, column 1"),
    ],
)
def test_what_does_not_parse_is_refused_with_its_place(raw: bytes, where: str) -> None:
    with pytest.raises(ConfigSyntaxError, match=where):
        parse(raw, "json", "x.json")
