"""docs/founding-systems.md: a table a guide, no promise without a word on it, nothing named that is
not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/founding-systems.md").read_text(encoding="utf-8")
GUIDES = re.findall(r"^## (\d\. .*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
each_guide = pytest.mark.parametrize(("name", "body"), GUIDES, ids=[name for name, _ in GUIDES])


def rows(body: str) -> list[list[str]]:
    """Cells of every line of the tables, heads and rules left out."""
    lines = [line for line in body.splitlines() if line.startswith("|")]
    assert lines[0] == "| the guide's promise | what was measured | where |"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_each_of_the_five_guides_has_its_table() -> None:
    assert [name[0] for name, _ in GUIDES] == ["1", "2", "3", "4", "5"]


@each_guide
def test_no_promise_stands_without_a_word_on_it(name: str, body: str) -> None:
    """Measured, or not measured, and then why or by what it will be."""
    del name
    for row in rows(body):
        assert len(row) == 3, row
        assert row[0], row
        assert row[1], row


@each_guide
def test_what_each_guide_got_wrong_is_said(name: str, body: str) -> None:
    del name
    assert len(re.findall(r"^What the guide got wrong: \S.*\.$", body, re.MULTILINE)) == 1


def test_every_file_and_heading_that_is_named_is_there() -> None:
    files = re.findall(r"`((?:advisor|benchmarks|tests|config|docs)/[\w./-]+)`", PAGE)
    assert len(files) > 10
    for file in files:
        assert (ROOT / file).exists(), file
    workloads = (ROOT / "docs/workloads.md").read_text(encoding="utf-8")
    heads = {head.lower() for head in re.findall(r"^## (.*)$", workloads, re.MULTILINE)}
    for anchor in re.findall(r"workloads\.md#([\w-]+)", PAGE):
        assert anchor in {head.replace(" ", "-") for head in heads}, anchor
