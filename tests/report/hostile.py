"""Reports in which every string that a user controls tries to be more than text."""

from __future__ import annotations

from typing import Any

from advisor.report.model import Report


def hostile(report: Report) -> Report:
    """`report` with something to run, open or break out in every string that a user controls."""
    bad = "x</details>\n\n# Heading | [a](javascript:b) ![c](http://d) <img src=e> `f` ``` \x1b[31m"
    fields = report.model_dump(by_alias=True)

    def spoil(part: Any, key: str = "") -> Any:
        if isinstance(part, dict):
            keys = {name: f"{name} {bad}" if key == "settings" else name for name in part}
            return {keys[name]: spoil(entry, name) for name, entry in part.items()}
        if isinstance(part, list):
            return [spoil(entry, key) for entry in part]
        fixed = {"verdict", "outcome", "class", "schema_version", "written_by", "kind", "purpose"}
        fixed |= {"stage", "objective"}
        if not isinstance(part, str) or not part or key in fixed:
            return part
        return f"{part} {bad}"

    return Report.model_validate(spoil(fields))
