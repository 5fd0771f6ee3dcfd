"""The committed JSON Schemas are those of the code."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

import jsonschema
import pytest

from advisor import schemas

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", schemas.SCHEMAS, ids=lambda path: path.name)
def test_a_committed_schema_has_not_drifted(path: Path) -> None:
    """`python -m advisor.schemas` writes it anew."""
    text = path.read_text(encoding="utf-8")
    assert text == schemas.SCHEMAS[path]()
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


def settings_schema(root: Path) -> jsonschema.Draft202012Validator:
    text = (root / "gpu-advisor.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def test_an_editor_accepts_the_settings_of_this_repository(root: Path) -> None:
    settings = tomllib.loads((root / "gpu-advisor.toml").read_text(encoding="utf-8"))
    assert list(settings_schema(root).iter_errors(settings)) == []


def test_an_editor_accepts_what_the_program_does(root: Path) -> None:
    for good in ({"budget": "10m"}, {"budget": 600}, {"smallest-gain": "3%"}):
        assert settings_schema(root).is_valid({"defaults": good})
    for bad in ({"budget": True}, {"bugdet": "10m"}):
        assert not settings_schema(root).is_valid({"defaults": bad})
