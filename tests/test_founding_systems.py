"""docs/founding-systems.md has a table for each guide and names only files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/founding-systems.md").read_text(encoding="utf-8")


def test_each_of_the_five_guides_has_a_table_and_a_command() -> None:
    guides = re.findall(r"^## (\d)\. .*?\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert [number for number, _ in guides] == ["1", "2", "3", "4", "5"]
    for _, body in guides:
        assert "| promise of the guide | measured |" in body
        assert re.search(r"^`gpu-advisor optimize ", body, re.MULTILINE)
        assert re.search(r"^Wrong in the guide: .*\.$", body, re.MULTILINE)


def test_every_config_that_is_named_exists() -> None:
    configs = re.findall(r"\bconfig/[\w.]+", PAGE)
    assert configs
    for config in configs:
        assert (ROOT / config).exists(), config
