"""YAML as PyYAML reads it, with every hazard that real configs were seen to hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from advisor.config import parse
from advisor.config.formats import SYNTAXES
from advisor.errors import EditRefusedError


def edited(raw: str, path: str, value: object) -> str:
    document = parse(raw.encode(), "yaml", "x.yaml")
    return document.with_values({path: value}).decode()  # type: ignore[dict-item]


def inserted(raw: str, beside: str, key: str, value: object) -> str:
    document = parse(raw.encode(), "yaml", "x.yaml")
    return document.with_inserted(beside, key, value).decode()  # type: ignore[arg-type]


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
