"""JSON, YAML and TOML as their loaders read them, with the hazards of real configs."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.config import parse
from advisor.config.document import Format
from advisor.errors import ConfigSyntaxError, EditRefusedError

TABLES = """\
title = "t" # x

[training]
local_batch_size = 30_000  # per GPU
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


def test_every_value_of_toml_is_found_under_its_path() -> None:
    document = parse(TABLES.encode(), "toml", "x.toml")
    assert {path: s.value for path, s in document.scalars.items()} == {
        "title": "t",
        "training.local_batch_size": 30000,
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
    assert not document.scalars["training.more.text"].editable
    edited = document.with_values({"runs[1].n": 3, "training.mixed.a.b.c": "x"}).decode()
    assert edited == TABLES.replace("n = 2", "n = 3").replace("'d'", "'x'")


def test_values_of_yaml_are_those_of_yaml_1_1() -> None:
    raw = "{a: 1e-4, b: 1.0e-4, c: no, d: 'no', e: 017, f: None, g: ~, h: .inf}"
    scalars = parse(raw.encode(), "yaml", "x").scalars
    assert {path: repr(s.value) for path, s in scalars.items()} == {
        path: repr(value) for path, value in yaml.safe_load(raw).items()
    }
    assert scalars["a"].value == "1e-4"
    assert scalars["c"].value is False


def test_an_alias_follows_its_anchor_and_is_not_edited_itself() -> None:
    raw = "base: &bs 256\nval: *bs\nall: &m {lr: 0.1}\nmore: *m\nown:\n  <<: *m\n  x: 1\n"
    document = parse(raw.encode(), "yaml", "x")
    derived = [path for path, scalar in document.scalars.items() if scalar.derived]
    assert derived == ["val"]
    with pytest.raises(EditRefusedError, match="it repeats base"):
        document.with_values({"val": 4})
    after = document.with_values({"base": 128, "all.lr": 0.2})
    assert after.decode() == raw.replace("256", "128").replace("0.1", "0.2")
    read = yaml.safe_load(after)
    assert read["val"] == 128
    assert read["more"] == {"lr": 0.2}
    assert read["own"] == {"lr": 0.2, "x": 1}


def test_custom_tags_are_kept_as_plain_values_and_not_edited() -> None:
    raw = "a: !ref <b>\nm: !new:torch.Adam\n  lr: 0.1\nt: !!python/tuple [1, 2]\n"
    document = parse(raw.encode(), "yaml", "x")
    assert [s.value for s in document.scalars.values()] == ["<b>", 0.1, 1, 2]
    assert document.scalars["a"].why == "its tag !ref gives it a meaning of its own"
    edited = raw.replace("0.1", "0.2").replace("2]", "3]")
    assert document.with_values({"m.lr": 0.2, "t[1]": 3}).decode() == edited


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("a: ${b.c}\n", "it refers to another value: ${b.c}"),
        ("a: '${times:${b},2}'\n", "refers to another value"),
        ("a: |\n  4\n", "a block of text"),
        ("a: >-\n  4\n", "a block of text"),
        ("a: 'x\n  y'\n", "it spans several lines"),
        ("a: !ENV 4\n", "its tag !ENV"),
    ],
)
def test_what_is_no_literal_is_not_editable_and_says_why(raw, why) -> None:
    document = parse(raw.encode(), "yaml", "x")
    assert why in (document.scalars["a"].why or "")
    with pytest.raises(EditRefusedError, match="a cannot be edited: it"):
        document.with_values({"a": 4})


@pytest.mark.parametrize(
    ("form", "raw", "left"),
    [
        ("json", '{"t": {"a": 1, "b": 2},\n "t": {"a": 3}}', {"t.a": 3}),
        ("yaml", "b: 64\nt: {a: 1}\nb: 32\nt: {b: 2}\n", {"b": 32, "t.b": 2}),
        ("argv", "python\0t.py\0--b\0001\0--b\0002", {"--b": 2}),
    ],
)
def test_the_last_duplicate_counts(form, raw, left) -> None:
    document = parse(raw.encode(), form, "x")
    assert {path: s.value for path, s in document.scalars.items()} == left


PALETTE = """\
{
    "name": "x", // experiment, {
    "test": {
        // "batch_size": 64, testing batch size
        "args":{
            "batch_size": 1, // Keep at 1 - code assumes single batch
            "num_workers": 12, /* per process */
            // must divide
            // the epoch
            "shuffle": false
        }
    },
    "lr": 5e-5
}
"""
MARKED = "# top\n\n# must divide\n# the epoch\nb: 4  # per GPU\nc: '#4'\nd: [1, 2]  # list\n"
CALLS = "# of one GPU\na = 1  # samples\nm = dict(n=2)  # threads\n"
COMMENTS: dict[Format, tuple[str, dict[str, str | None]]] = {
    "json": (PALETTE, {
        "test.args.batch_size": "Keep at 1 - code assumes single batch",
        "test.args.num_workers": "per process",
        "test.args.shuffle": "must divide\nthe epoch",
        "lr": None,
    }),
    "yaml": (MARKED, {"b": "must divide\nthe epoch\nper GPU", "c": None, "d[1]": "list"}),
    "toml": (TABLES, {"training.local_batch_size": "per GPU"}),
    "python": (CALLS, {"a": "of one GPU\nsamples", "m.n": "threads"}),
}  # fmt: skip


@pytest.mark.parametrize("form", COMMENTS)
def test_comments_above_and_beside_a_value_belong_to_it(form) -> None:
    text, wanted = COMMENTS[form]
    scalars = parse(text.encode(), form, "x").scalars
    assert {path: scalars[path].comment for path in wanted} == wanted


@pytest.mark.parametrize(
    "careless", [[(3, 4, "2\nk: 2")], [(0, 1, "x")], [(8, 9, "3"), (3, 4, "7")]]
)
def test_an_edit_that_changes_anything_else_is_refused(careless) -> None:
    """The second lock, behind the places of values."""
    document = parse(b"a: 1\nb: 2\n", "yaml", "x")
    with pytest.raises(EditRefusedError):
        document._verified(dict(zip("ab", careless, strict=False)), {"a": 2, "b": 2})


def rows(name: str) -> list[Any]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_only_the_value_changes_and_keeps_its_spelling() -> None:
    for form, raw, path, value, after in rows("values.jsonl"):
        assert parse(raw.encode(), form, "x").with_values({path: value}).decode() == after


def test_a_broken_text_is_refused_with_its_place() -> None:
    for form, raw, problem in rows("broken.jsonl"):
        with pytest.raises(ConfigSyntaxError, match=r"x, line \d+, column \d+: ") as caught:
            parse(raw.encode(), form, "x")
        assert problem in str(caught.value), raw


JSON5 = """\
// a config, as json5.org has it
{
  unquoted: 'and you can quote me on that',
  $batch_size: +8, 'num-workers': 0x2, /* in hex */ lr: .001,
  trailing: [1, 2.,], "nested": {deep: true, none: null, far: -Infinity,},
  long: 'one \\
line', escaped: 'it\\'s \\x41\\u0042\\q',
}
"""


def test_json5_is_read_by_its_own_grammar() -> None:
    document = parse(JSON5.encode(), "json5", "x.json5")
    assert {path: s.value for path, s in document.scalars.items()} == {
        "unquoted": "and you can quote me on that",
        '["$batch_size"]': 8,
        "num-workers": 2,
        "lr": 0.001,
        "trailing[0]": 1,
        "trailing[1]": 2.0,
        "nested.deep": True,
        "nested.none": None,
        "nested.far": float("-inf"),
        "long": "one line",
        "escaped": "it's ABq",
    }


def test_an_edit_of_json5_leaves_the_rest_as_it_is() -> None:
    document = parse(JSON5.encode(), "json5", "x.json5")
    edits = {"num-workers": 4, "lr": 0.25, "unquoted": 'it\'s "so"', "nested.deep": False}
    edited = document.with_values(edits).decode()
    assert edited == (
        JSON5.replace("0x2", "4")
        .replace(".001", "0.25")
        .replace("'and you can quote me on that'", "'it\\'s \"so\"'")
        .replace("true", "false")
    )
    assert not document.scalars["long"].editable, "it spans several lines"


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("{a: 1 b: 2}", "a comma or } should stand here"),
        ("{a 1}", "a colon should stand behind a key"),
        ("{a: 08}", "a value should stand here"),
        ("{a: b}", "a value should stand here"),
        ("{1: 2}", "a key should stand here"),
        ("[1,,2]", "a value should stand here"),
        ("{a: 'x\ny'}", "a value should stand here"),
        ("{} {}", "more text behind the end"),
        ("[" * 300, "nested more than"),
        ("{", "a key should stand here"),
    ],
)
def test_what_is_no_json5_is_told_with_its_place(text, stated) -> None:
    with pytest.raises(ConfigSyntaxError, match=stated):
        parse(text.encode(), "json5", "x.json5")


def test_a_file_of_several_yaml_documents_is_told_as_that() -> None:
    """Which of them a program reads cannot be known."""
    with pytest.raises(ConfigSyntaxError, match="several YAML documents, the second from line 4"):
        parse(b"---\nbatch_size: 8\n---\nbatch_size: 4\n", "yaml", "x.yaml")
    assert parse(b"---\nbatch_size: 8\n", "yaml", "x.yaml").leaves["batch_size"].value == 8
