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
    assert path.read_text(encoding="utf-8") == schemas.SCHEMAS[path]()


@pytest.mark.parametrize("path", schemas.SCHEMAS, ids=lambda path: path.name)
def test_a_committed_schema_is_a_schema(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


def settings_schema(root: Path) -> jsonschema.Draft202012Validator:
    text = (root / "gpu-advisor.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def test_an_editor_accepts_the_settings_of_this_repository(root: Path) -> None:
    settings = tomllib.loads((root / "gpu-advisor.toml").read_text(encoding="utf-8"))
    assert list(settings_schema(root).iter_errors(settings)) == []


@pytest.mark.parametrize(
    ("table", "accepted"),
    [
        ({"budget": "10m"}, True),
        ({"budget": 600}, True),
        ({"smallest-gain": "3%"}, True),
        ({"budget": True}, False),
        ({"bugdet": "10m"}, False),
    ],
)
def test_an_editor_accepts_what_the_program_does(
    table: dict[str, object], accepted: bool, root: Path
) -> None:
    assert settings_schema(root).is_valid({"defaults": table}) is accepted
