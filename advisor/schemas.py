"""JSON Schemas of report.json, gate.json and gpu-advisor.toml.

`python -m advisor.schemas` writes the committed files anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from advisor import settings
from advisor.gate.schema import GateRecord
from advisor.report.schema import Report

ROOT = Path(__file__).resolve().parents[1]
DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def report_schema() -> str:
    """The JSON Schema of report.json, as committed in docs/report.schema.json."""
    return _text(Report.model_json_schema(mode="serialization"))


def gate_schema() -> str:
    """The JSON Schema of gate.json, as committed in docs/gate.schema.json."""
    return _text(GateRecord.model_json_schema(mode="serialization"))


def _text(schema: dict[str, Any]) -> str:
    return json.dumps({**DIALECT, **schema}, indent=2, sort_keys=True) + "\n"


SCHEMAS = {
    ROOT / "docs" / "report.schema.json": report_schema,
    ROOT / "docs" / "gate.schema.json": gate_schema,
    ROOT / "gpu-advisor.schema.json": settings.json_schema,
}
"""Committed files, and what generates each."""


def main() -> None:
    """Write the committed schemas anew."""
    for path, generate in SCHEMAS.items():
        path.write_text(generate(), encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
