"""Edits of every format, row by row: values.jsonl and broken.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.config import parse
from advisor.errors import ConfigSyntaxError


def rows(name: str) -> list[Any]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_only_the_value_changes_and_keeps_its_spelling() -> None:
    for form, raw, path, value, after in rows("values.jsonl"):
        assert parse(raw.encode(), form, "x").with_values({path: value}).decode() == after


@pytest.mark.parametrize(("form", "raw", "problem"), rows("broken.jsonl"))
def test_a_broken_text_is_refused_with_its_place(form: Any, raw: str, problem: str) -> None:
    with pytest.raises(ConfigSyntaxError, match=r"x, line \d+, column \d+: ") as caught:
        parse(raw.encode(), form, "x")
    assert problem in str(caught.value)
