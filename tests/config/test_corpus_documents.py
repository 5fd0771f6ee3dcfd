"""Real configs: nothing changes unasked, one knob is one span, refusals are one clear sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from advisor.config import Document, paths, read
from advisor.errors import ConfigSyntaxError, EditRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from advisor.model import JsonScalar, Scalar

pytestmark = pytest.mark.corpus


@pytest.fixture(scope="module")
def entries(corpus: Path) -> list[dict[str, Any]]:
    """The corpus index, one entry a file."""
    lines = (corpus / "index.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def documents(corpus: Path, entries: list[dict[str, Any]]) -> dict[str, Document]:
    """Every file that can be read, by name."""
    found = {}
    for entry in entries:
        try:
            found[entry["file"]] = read(corpus / "files" / entry["file"])
        except ConfigSyntaxError:
            assert "unparseable" in entry["flags"], entry["file"]
    return found


def labelled(
    entries: list[dict[str, Any]], documents: dict[str, Document]
) -> Iterator[tuple[str, Document, Scalar]]:
    """Labelled knobs and look-alikes that hold a single value."""
    for entry in entries:
        document = documents.get(entry["file"])
        for label in (*entry["knobs"], *entry["traps"]) if document else ():
            if document and not isinstance(label["value"], (list, dict)):
                yield entry["file"], document, document.scalars[label["path"]]


def other(value: JsonScalar) -> JsonScalar:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 2 + 3
    return "other" if value is None else f"{value}-other"


class Tolerant(yaml.CSafeLoader):
    """PyYAML that keeps unknown tags as the plain values they stand on."""


def plain(loader: yaml.CSafeLoader, _suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


Tolerant.add_multi_constructor("", plain)


def load(raw: bytes, form: str) -> Any:
    """What the programs of the corpus read, by loaders that are not ours."""
    text = raw.decode("utf-8-sig")
    if form == "yaml":
        return yaml.load(text, Loader=Tolerant)
    if form == "json":
        return json.loads(text)
    return json.loads("\n".join(line.split("//")[0] for line in text.splitlines()))


def changed_paths(one: Any, two: Any, path: str = "") -> set[str]:
    """Where two trees differ."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        below = [(paths.member(path, str(key)), one[key], two[key]) for key in one]
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        pairs = enumerate(zip(one, two, strict=True))
        below = [(paths.item(path, number), a, b) for number, (a, b) in pairs]
    else:
        return set() if repr(one) == repr(two) else {path}
    return {found for where, a, b in below for found in changed_paths(a, b, where)}


def with_aliases(document: Document, path: str) -> set[str]:
    """The path and every place that repeats it."""
    found = {path}
    for alias, target in document.aliases.items():
        if path == target or path.startswith((f"{target}.", f"{target}[")):
            found.add((alias + path[len(target) :]).replace(".<<", "").replace('["<<"]', ""))
    return found


def test_every_file_is_read_as_its_format_or_refused_with_line_and_column(
    corpus: Path, entries: list[dict[str, Any]], documents: dict[str, Document]
) -> None:
    for entry in entries:
        if entry["file"] in documents:
            assert documents[entry["file"]].format == entry["format"]
        else:
            with pytest.raises(ConfigSyntaxError, match=r"line \d+, column \d+"):
                read(corpus / "files" / entry["file"])


def test_no_change_gives_the_same_bytes(corpus: Path, documents: dict[str, Document]) -> None:
    for name, document in documents.items():
        raw = (corpus / "files" / name).read_bytes()
        assert document.raw == raw
        assert document.with_values({}) == raw
        same = {path: s.value for path, s in document.scalars.items() if s.editable}
        assert document.with_values(same) == raw


def test_labelled_values_are_read_as_labelled(
    entries: list[dict[str, Any]], documents: dict[str, Document]
) -> None:
    seen = 0
    for entry in entries:
        for label in (*entry["knobs"], *entry["traps"]):
            if isinstance(label["value"], (list, dict)) or entry["file"] not in documents:
                continue
            scalar = documents[entry["file"]].scalars[label["path"]]
            assert (scalar.path, scalar.value) == (label["path"], label["value"])
            seen += 1
    assert seen > 0


def test_one_knob_is_one_span_and_one_changed_path(
    entries: list[dict[str, Any]], documents: dict[str, Document]
) -> None:
    edited = 0
    for name, document, scalar in labelled(entries, documents):
        new = other(scalar.value)
        if not scalar.editable:
            with pytest.raises(EditRefusedError, match=r"cannot be edited: \w+"):
                document.with_values({scalar.path: new})
            continue
        content = document.with_values({scalar.path: new})
        start, end = scalar.span.start, scalar.span.end
        tail = len(document.raw) - end
        assert content[:start] == document.raw[:start]
        assert content[len(content) - tail :] == document.raw[end:]
        changed = changed_paths(load(document.raw, document.format), load(content, document.format))
        assert changed == with_aliases(document, scalar.path), name
        edited += 1
    assert edited > 0
