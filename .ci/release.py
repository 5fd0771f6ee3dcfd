"""Check a release tag and print its section of the changelog.

python3 .ci/release.py v0.2.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def section(changelog: str, version: str) -> str | None:
    """Lines below the heading of `version`; None without one."""
    headings = rf"^## \[?{re.escape(version)}\]?(?: [^\n]*)?\n(.*?)(?=^## |\Z)"
    found = re.search(headings, changelog, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else None


def main() -> None:
    """Print the notes; exit with a sentence if the tag does not fit."""
    version = sys.argv[1].removeprefix("v")
    package = (ROOT / "advisor" / "__init__.py").read_text()
    if f'__version__ = "{version}"' not in package:
        sys.exit(f"The tag says {version}, advisor/__init__.py says: {package.strip()!r}")
    notes = section((ROOT / "CHANGELOG.md").read_text(), version)
    if not notes:
        sys.exit(
            f"CHANGELOG.md has no section {version}; rename Unreleased and add its date"
        )
    print(notes)


if __name__ == "__main__":
    main()
