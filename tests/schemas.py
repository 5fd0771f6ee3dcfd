"""JSON Schemas of report.json, gate.json, a referee's ruling and gpu-advisor.toml.

`python -m tests.schemas` writes the committed files anew.
"""

import json
from pathlib import Path

from pydantic import BaseModel

from advisor.gate.schema import GateRecord, RefereeRecord
from advisor.report.schema import Report
from advisor.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}

SCHEMAS: dict[Path, type[BaseModel]] = {
    ROOT / "docs" / "report.schema.json": Report,
    ROOT / "docs" / "gate.schema.json": GateRecord,
    ROOT / "docs" / "referee.schema.json": RefereeRecord,
    ROOT / "gpu-advisor.schema.json": Settings,
}
"""Committed files, and the model of each."""


def schema_of(model: type[BaseModel]) -> str:
    """JSON Schema of a model; settings are read, the others written."""
    schema = model.model_json_schema(mode="validation" if model is Settings else "serialization")
    return json.dumps({**DIALECT, **schema}, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    for path, model in SCHEMAS.items():
        path.write_text(schema_of(model), encoding="utf-8")
        print(path.relative_to(ROOT))
