"""Finding and reading gpu-advisor.toml, and its JSON Schema."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from advisor.errors import SettingsError
from advisor.settings.tables import (
    Defaults,
    EngineTable,
    GateLimits,
    QualityMeasure,
    Settings,
    Workload,
    dashed,
)

FILE_NAME = "gpu-advisor.toml"


def find(start: Path) -> Path | None:
    """Find gpu-advisor.toml or pyproject.toml in or above `start`."""
    real = Path(os.path.realpath(start))
    for folder in (real, *real.parents):
        own = folder / FILE_NAME
        if own.is_file():
            return own
        project = folder / "pyproject.toml"
        with contextlib.suppress(OSError):  # an unrelated project further up
            if project.is_file() and b"[tool.gpu-advisor" in project.read_bytes():
                return project
        if (folder / ".git").exists():
            return None
    return None


def load(path: Path | None) -> Settings:
    """Settings of `path`, defaults for None. Raises SettingsError."""
    if path is None:
        return Settings()
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        msg = f"{path} cannot be read: {problem.strerror}. Make it readable and call again."
        raise SettingsError(msg) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        msg = f"{path} is no valid TOML: {problem}. Fix that line and call again."
        raise SettingsError(msg) from problem
    for key in () if path.name == FILE_NAME else ("tool", "gpu-advisor"):
        table = table.get(key, {}) if isinstance(table, dict) else {}
    try:
        settings = Settings.model_validate(table)
    except ValidationError as problem:
        raise SettingsError(_explain(path, problem)) from problem
    return settings.model_copy(update={"root": path.parent.resolve()})


def json_schema() -> str:
    """The JSON Schema of gpu-advisor.toml, as committed in gpu-advisor.schema.json."""
    schema = Settings.model_json_schema(by_alias=True)
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _explain(path: Path, problem: ValidationError) -> str:
    errors: list[Any] = list(problem.errors())
    # A key that is missing is mostly one that was misspelled.
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = {
            dashed(name)
            for table in (Settings, Defaults, Workload, QualityMeasure, GateLimits, EngineTable)
            for name in table.model_fields
        } - {"root"}
        near = difflib.get_close_matches(str(first["loc"][-1]), sorted(known), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"{path}: unknown key {where!r}.{hint}"
    return f"{path}: {where} = {first['input']!r}: {first['msg']}."
