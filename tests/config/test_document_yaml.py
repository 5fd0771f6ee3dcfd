"""YAML as PyYAML reads it, with every hazard that real configs were seen to hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from advisor.config import parse
from advisor.config.formats import SYNTAXES
from advisor.errors import ConfigSyntaxError, EditRefusedError


def edited(raw: str, path: str, value: object) -> str:
    document = parse(raw.encode(), "yaml", "x.yaml")
    return document.with_values({path: value}).decode()  # type: ignore[dict-item]


def inserted(raw: str, beside: str, key: str, value: object) -> str:
    document = parse(raw.encode(), "yaml", "x.yaml")
    return document.with_inserted(beside, key, value).decode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("0.5", 0.0001, "0.0001"),
        ("1e-4", 0.0002, "0.0002"),
        ("'1e-4'", 0.0002, "'0.0002'"),
        ("1.0e-4", 3e-5, "0.00003"),
        ("0.5", 1e-40, "1.0e-40"),
        ("1e8", 2e22, "2.0e+22"),
        ("12.0", 8, "8.0"),
        ("8", 16.0, "16"),
        ("0x1F", 32, "32"),
        ("1_000", 2000, "2000"),
        ("017", 8, "8"),
        ('"16"', 32, '"32"'),
        ("True", False, "False"),
        ("true", False, "false"),
        ("TRUE", False, "FALSE"),
        ("yes", False, "no"),
        ("Off", True, "On"),
        ("'True'", False, "'False'"),
        ("'no'", "fp16", "'fp16'"),
        ("fp16", "no", "'no'"),
        ("16", "16-mixed", "16-mixed"),
        ("bf16", "16", "'16'"),
        ("bf16", "1e-3", "'1e-3'"),
        ("bf16", "0o17", "'0o17'"),
        ("bf16", "a: b", "'a: b'"),
        ("bf16", "a #b", "'a #b'"),
        ("bf16", "it's", "'it''s'"),
        ("bf16", "null", "'null'"),
        ("bf16", "", "''"),
        ("bf16", "x\ny", '"x\\U0000000ay"'),
        ("~", 4, "4"),
        ("4", None, "null"),
        ("auto", 4, "4"),
        ("!!float 1e6", 2e6, "!!float 2000000.0"),
        ("!!int '8'", 16, "!!int 16"),
        ("&bs 256", 128, "&bs 128"),
        ("&x !!int 8", 16, "&x !!int 16"),
    ],
)
def test_a_value_keeps_its_spelling_family(old: str, value: object, new: str) -> None:
    raw = f"# c\na:\n  k:   {old}   # note\n  z: 1\n"
    after = edited(raw, "a.k", value)
    assert after == raw.replace(f"{old}   #", f"{new}   #")


@pytest.mark.parametrize(
    ("raw", "path", "after"),
    [
        ("a: 1\r\nb: 2\r\n", "a", "a: 9\r\nb: 2\r\n"),
        ("a: 1\r\nb: 2\nc: 3", "c", "a: 1\r\nb: 2\nc: 9"),
        ("\ufeffa: 1\n", "a", "\ufeffa: 9\n"),
        ("a: 1\rb: 2\r", "b", "a: 1\rb: 9\r"),
        ("a:\n", "a", "a: 9\n"),
        ("a:   # c\n", "a", "a: 9   # c\n"),
        ("a: &x\nb: *x\n", "a", "a: &x 9\nb: *x\n"),
        ("-\n- 2\n", "[0]", "- 9\n- 2\n"),
        ("{a: , b: 1}\n", "a", "{a:  9, b: 1}\n"),
        ("a:\n    1  # c\n", "a", "a:\n    9  # c\n"),
        ("a : 1\t# c\n", "a", "a : 9\t# c\n"),
        ("{'a': 1, \"b\": [1, 2,]}", "b[1]", "{'a': 1, \"b\": [1, 9,]}"),
        ("? a\n: 1\n", "a", "? a\n: 9\n"),
        ("%YAML 1.1\n---\na: 1\n...\n", "a", "%YAML 1.1\n---\na: 9\n...\n"),
        ("é: 'ü'\na: 1 # ☃\n", "a", "é: 'ü'\na: 9 # ☃\n"),
        ("# a: 4\na: 1\n# a: 8\n", "a", "# a: 4\na: 9\n# a: 8\n"),
        ("a: 1\nb: 2\na: 3\n", "a", "a: 1\nb: 2\na: 9\n"),
        ("t: |\n  a: 1\na: 1\n", "a", "t: |\n  a: 1\na: 9\n"),
        ("AdamW.lr: 1\n", '["AdamW.lr"]', "AdamW.lr: 9\n"),
        ("m:\n  'a b ': 1\n", 'm["a b "]', "m:\n  'a b ': 9\n"),
        ("---\na: 1\n---\na: 2\n", "[1].a", "---\na: 1\n---\na: 9\n"),
        ("- a: 1\n---\n- a: 2\n", "[0][0].a", "- a: 9\n---\n- a: 2\n"),
    ],
)
def test_only_the_value_changes(raw: str, path: str, after: str) -> None:
    assert edited(raw, path, 9) == after


def test_meanings_are_those_of_yaml_1_1() -> None:
    raw = "{a: 1e-4, b: 1.0e-4, c: no, d: 'no', e: 017, f: None, g: ~, h: 1:30:00, i: .inf}"
    document = parse(raw.encode(), "yaml", "x")
    assert {path: repr(s.value) for path, s in document.scalars.items()} == {
        path: repr(value) for path, value in yaml.safe_load(raw).items()
    }
    assert document.scalars["a"].value == "1e-4"
    assert document.scalars["c"].value is False
    assert document.scalars["h"].value == 5400
    assert not document.scalars["h"].editable
    assert "base-60" in (document.scalars["h"].why or "")


def test_an_alias_follows_its_anchor_and_is_not_edited_itself() -> None:
    raw = "base: &bs 256\nval: *bs\nall: &m {lr: 0.1}\nmore: *m\nown:\n  <<: *m\n  x: 1\n"
    document = parse(raw.encode(), "yaml", "x")
    assert document.aliases == {"val": "base", "more": "all", 'own["<<"]': "all"}
    assert document.scalars["val"].why == "it repeats base"
    with pytest.raises(EditRefusedError, match="it repeats base"):
        document.with_values({"val": 4})
    after = document.with_values({"base": 128, "all.lr": 0.2})
    assert after.decode() == raw.replace("256", "128").replace("0.1", "0.2")
    read = yaml.safe_load(after)
    assert (read["val"], read["more"], read["own"]) == (128, {"lr": 0.2}, {"lr": 0.2, "x": 1})


def test_custom_tags_are_kept_as_plain_values_and_not_edited() -> None:
    raw = "a: !ref <b>\nm: !new:torch.Adam\n  lr: 0.1\nt: !!python/tuple [1, 2]\n"
    document = parse(raw.encode(), "yaml", "x")
    assert [s.value for s in document.scalars.values()] == ["<b>", 0.1, 1, 2]
    assert document.scalars["a"].why == "its tag !ref gives it a meaning of its own"
    assert document.with_values({"m.lr": 0.2, "t[1]": 3}).decode() == raw.replace(
        "0.1", "0.2"
    ).replace("2]", "3]")


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
def test_what_is_no_literal_is_not_editable_and_says_why(raw: str, why: str) -> None:
    document = parse(raw.encode(), "yaml", "x")
    assert why in (document.scalars["a"].why or "")
    with pytest.raises(EditRefusedError, match="a cannot be edited: it"):
        document.with_values({"a": 4})


def test_the_last_duplicate_counts_and_is_told() -> None:
    raw = "batch: 64\nt:\n  a: 1\nbatch: 32\nt:\n  b: 2\n"
    document = parse(raw.encode(), "yaml", "x")
    assert list(document.scalars) == ["batch", "t.b"]
    assert document.notes[0] == "batch is written more than once; the last one, on line 4, counts"


def test_comments_above_and_beside_a_value_belong_to_it() -> None:
    raw = "# top\n\n# must divide\n# the epoch\nb: 4  # per GPU\nc: '#4'\nd: [1, 2]  # list\n"
    scalars = parse(raw.encode(), "yaml", "x").scalars
    assert scalars["b"].comment == "must divide\nthe epoch\nper GPU"
    assert scalars["c"].comment is None
    assert scalars["d[1]"].comment == "list"


@pytest.mark.parametrize(
    ("raw", "beside", "after"),
    [
        ("a: 1  # c\nb: 2\n", "a", "a: 1  # c\nk: 2\nb: 2\n"),
        ("a:\r\n    b: 1\r\n", "a.b", "a:\r\n    b: 1\r\n    k: 2\r\n"),
        ("a: 1", "a", "a: 1\nk: 2"),
        ("a: 1\r\nb: 1", "b", "a: 1\r\nb: 1\r\nk: 2"),
        ("- a: 1\n  b: 2\n", "[0].a", "- a: 1\n  k: 2\n  b: 2\n"),
        ("x:\n- - a: 1\n", "x[0][0].a", "x:\n- - a: 1\n    k: 2\n"),
        ("batch : 1\nlr    : 2\n", "batch", "batch : 1\nk : 2\nlr    : 2\n"),
        ("batch : 1\nlr    : 2\n", "lr", "batch : 1\nlr    : 2\nk     : 2\n"),
        ("batch:   1\n", "batch", "batch:   1\nk:       2\n"),
        ("{a: 1, b: 2}\n", "b", "{a: 1, b: 2, k: 2}\n"),
        ("{\n  'a': 1,\n  'b': 2,\n}\n", "b", "{\n  'a': 1,\n  'b': 2,\n  'k': 2,\n}\n"),
        ("{\n  a: 1, # c\n  b: 2 # d\n}\n", "b", "{\n  a: 1, # c\n  b: 2, # d\n  k: 2\n}\n"),
        ("a: &x 1\nb: *x\n", "b", "a: &x 1\nb: *x\nk: 2\n"),
        ("a:\n  1\nb: 2\n", "a", "a:\n  1\nk: 2\nb: 2\n"),
        ("a:\nb: 2\n", "a", "a:\nk: 2\nb: 2\n"),
        ("c: {<<: *d, a: 1}\n".replace("*d", "{z: 1}"), "c.a", "c: {<<: {z: 1}, a: 1, k: 2}\n"),
        ("\ufeffa: 1\n", "a", "\ufeffa: 1\nk: 2\n"),
    ],
)
def test_a_key_is_added_in_the_style_of_its_sibling(raw: str, beside: str, after: str) -> None:
    assert inserted(raw, beside, "k", 2) == after


def test_a_boolean_is_added_as_the_file_writes_them() -> None:
    assert inserted("a: 1\nb: True\n", "a", "k", value=False) == "a: 1\nk: False\nb: True\n"
    assert inserted("a: 1\n", "a", "k", value=True) == "a: 1\nk: true\n"


@pytest.mark.parametrize(
    ("raw", "beside"),
    [
        ("a: |\n  text\n\nb: 1\n", "a"),
        ("? a\n: 1\n", "a"),
        ("a: 'x\n  y'\nk: 1\n", "a"),
        ("- 1\n", "[0]"),
        ("a: 1\nk: {}\n", "a"),
    ],
)
def test_where_a_key_cannot_be_added_nothing_is(raw: str, beside: str) -> None:
    before = parse(raw.encode(), "yaml", "x")
    try:
        after = before.with_inserted(beside, "k", 2)
    except EditRefusedError:
        return
    assert yaml.safe_load(after) == yaml.safe_load(raw) | {"k": 2}


def test_an_insertion_that_changes_anything_else_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second lock, behind the layout of new keys."""
    raw = b"a: 1\nb: 2\n"
    for careless in ([(4, "\nk: 2"), (9, "3")], [(1, "x"), (4, "\nk: 2")], [(4, "\nk: 7")]):
        syntax = replace(SYNTAXES["yaml"], insert=lambda *_, made=careless: made)
        monkeypatch.setitem(SYNTAXES, "yaml", syntax)
        with pytest.raises(EditRefusedError):
            parse(raw, "yaml", "x").with_inserted("a", "k", 2)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("a:\n b: 1\n  c: 2\n", "line 3, column 4"),
        ("a: {{ x }}\n", "line 1, column 5: a list or a mapping stands where a key should be"),
        ("a:\n\tb: 1\n", "line 2, column 1"),
        ("a: *b\n", "refers to an anchor that is not there"),
        ("a: &a [*a]\n", "refers to the value it is part of"),
        ("a: &x 1\nb: &x 2\n", "the anchor &x is given twice"),
        ("a: !!int x\n", "'x' is no value"),
        ("a: \x07\n", "control characters are not allowed"),
    ],
)
def test_what_does_not_parse_is_refused_with_its_place(raw: str, problem: str) -> None:
    with pytest.raises(ConfigSyntaxError, match=r"x\.yaml, line \d+, column \d+: ") as caught:
        parse(raw.encode(), "yaml", "x.yaml")
    assert problem in str(caught.value)
