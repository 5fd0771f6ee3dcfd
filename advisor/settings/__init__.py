"""gpu-advisor.toml, `[tool.gpu-advisor]` in pyproject.toml, and their JSON Schema.

file.py    finding and reading the file, its tables, and what is wrong with it, in a sentence
"""

from advisor.settings.file import (
    FILE_NAME,
    Defaults,
    EngineTable,
    QualityMeasure,
    Settings,
    Workload,
    find,
    json_schema,
    load,
    needs_shell,
    parse_duration_s,
    parse_share,
    parsed_regex,
)

__all__ = [
    "FILE_NAME",
    "Defaults",
    "EngineTable",
    "QualityMeasure",
    "Settings",
    "Workload",
    "find",
    "json_schema",
    "load",
    "needs_shell",
    "parse_duration_s",
    "parse_share",
    "parsed_regex",
]
