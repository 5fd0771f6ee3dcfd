"""Release notes come from the changelog, and only for the version that is built."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHANGELOG = """# Changelog

## Unreleased

- later

## [0.2.0] - 2026-12-01

- a line
### Fixed
- another

## 0.1.0

- first
"""


def test_the_section_of_a_version_ends_at_the_next() -> None:
    section = runpy.run_path(str(ROOT / ".ci" / "release.py"))["section"]
    assert section(CHANGELOG, "0.2.0") == "- a line\n### Fixed\n- another"
    assert section(CHANGELOG, "0.1.0") == "- first"
    assert section(CHANGELOG, "0.2") is None
