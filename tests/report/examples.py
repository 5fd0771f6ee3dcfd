"""Reports for tests: the recorded ones, with some fields changed."""

from functools import partial as bound
from typing import Any

import pytest

from advisor.report.schema import Report
from tests.report import golden

improved = bound(golden.report, "improved")
unchanged = bound(golden.report, "unchanged")
partial = bound(golden.report, "interrupted", unfinished=False)
on_gpu = bound(golden.report, "gpu")

every_report = pytest.mark.parametrize("name", golden.NAMES)


def hostile(report: Report) -> Report:
    """`report` with markup in every string that a user controls."""
    bad = "x</details>\n\n# Heading | [a](javascript:b) ![c](http://d) <img src=e> `f` ``` \x1b[31m"
    fixed = {
        "verdict",
        "outcome",
        "knob_class",
        "schema_version",
        "written_by",
        "kind",
        "purpose",
        "cause",
    }
    fixed |= {"stage", "objective"}

    def spoil(part: Any, key: str = "") -> Any:
        if isinstance(part, dict):
            return {name: spoil(entry, name) for name, entry in part.items()}
        if isinstance(part, list):
            return [spoil(entry, key) for entry in part]
        if not isinstance(part, str) or not part or key in fixed:
            return part
        return f"{part} {bad}"

    return Report.model_validate(spoil(report.model_dump(mode="json")))
