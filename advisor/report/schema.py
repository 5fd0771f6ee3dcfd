"""JSON Schemas of report.json and gpu-advisor.toml.

`python -m advisor.report.schema` writes the committed files anew.
"""

from __future__ import annotations

import json
from pathlib import Path

from advisor import settings
from advisor.report.model import Report

ROOT = Path(__file__).resolve().parents[2]


def report_schema() -> str:
    """The JSON Schema of report.json, as committed in docs/report.schema.json."""
    schema = Report.model_json_schema(by_alias=True, mode="serialization")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


SCHEMAS = {
    ROOT / "docs" / "report.schema.json": report_schema,
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
