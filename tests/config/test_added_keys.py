"""A config may gain what its program's parser declares: one line, and no other byte."""

import pytest

from advisor import config as documents
from advisor.config.leaves import Option
from advisor.config.originals import Versions, undo
from advisor.model import Change, JsonScalar

TEXTS = {
    "yaml": ("# run\na: 1   # of one\nn:\n    b: 2", "workers: 4", "    mode: b"),
    "json": ('{\n  "n": {\n    "b": 2\n  },\n  "a": 1\n}\n', '"workers": 4', '    "mode": "b"'),
    "toml": ("a = 1\n[n]\nb = 2 # two\n\n[z]\nq = 1\n", "workers = 4", 'mode = "b"'),
}
"""A text of each format, and the lines that it gains at the root and in a mapping."""


def declared(*named: tuple[str, JsonScalar]) -> tuple[Option, ...]:
    return tuple(
        Option(flag=path, default=default, form="apart", behind=0) for path, default in named
    )


def document(text: str, form: str) -> documents.Document:
    read = documents.parse(text.encode(), form, f"train.{form}")
    return documents.with_fields(read, declared(("workers", 0), ("n.mode", "a"), ("a", 7)))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("form", TEXTS)
def test_one_line_is_added_and_no_other_byte_changes(form, newline) -> None:
    text, root, inner = TEXTS[form]
    text = text.replace("\n", newline)
    before = document(text, form)
    for path, value, line in (("workers", 4, root), ("n.mode", "b", inner)):
        after = before.with_values({path: value}).decode()
        assert line in after
        assert after.count(newline) == text.count(newline) + 1
        read = documents.parse(after.encode(), form, "x").leaves
        assert read[path].value == value
        assert {p: leaf.value for p, leaf in read.items() if p != path} == {
            p: leaf.value for p, leaf in before.leaves.items() if leaf.given
        }


@pytest.mark.parametrize("form", TEXTS)
def test_a_setting_that_stands_there_is_not_added_again(form) -> None:
    assert document(TEXTS[form][0], form).scalars["a"].value == 1


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("{a: 1, n: {b: 2}}\n", "yaml"),
        ("x: &x\n  workers: 2\na: 1\n<<: *x\n", "yaml"),
        ("_BASE_: base.yaml\na: 1\n", "yaml"),
        ("defaults:\n  - data: small\na: 1\n", "yaml"),
        ('{"a": 1}', "json"),
        ("a = 1\n", "python"),
        ("workers:\n  train: 2\na: 1\n", "yaml"),
        ("workers: [1, 2]\na: 1\n", "yaml"),
    ],
    ids=["flow", "merged", "based", "hydra", "one line", "python", "mapping", "list"],
)
def test_nothing_is_added_where_its_place_or_its_value_is_not_known(text, form) -> None:
    """A missing key may stand in another file; in a line of several keys it has no line."""
    read = documents.parse(text.encode(), form, "x")
    after = documents.with_fields(read, declared(("workers", 0)))
    assert after.leaves.keys() == read.leaves.keys()


@pytest.mark.parametrize("form", TEXTS)
def test_an_added_line_is_taken_back_from_a_file_that_was_edited_since(tmp_path, form) -> None:
    text, _, _ = TEXTS[form]
    config = tmp_path / f"train.{form}"
    config.write_text(text)
    before = document(text, form)
    tuned = before.with_values({"workers": 4, "n.mode": "b"})
    changes = [
        Change(document=str(config), path=path, kind="x", knob_class="free", old=old, new=new)
        for path, old, new in (("workers", 0, 4), ("n.mode", "a", "b"))
    ]
    version = Versions(tmp_path / "state", config).keep(before, tuned, changes)
    assert undo(version, tuned, config) == text.encode()
    edited, original = (each.replace(b"1", b"9", 1) for each in (tuned, text.encode()))
    assert undo(version, edited, config) == original


def test_a_secret_that_the_parser_knows_leaves_no_mark_in_a_diff() -> None:
    read = documents.parse(b"a: 1\n", "yaml", "x")
    before = documents.with_fields(read, declared(("hub_token", None), ("workers", 0)))
    after = documents.parse(before.with_values({"workers": 4}), "yaml", "x")
    assert documents.masked_diff(before, after, "x").splitlines()[3:] == [" a: 1", "+workers: 4"]
