"""docs/founding-systems.md names only files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/founding-systems.md").read_text(encoding="utf-8")


def test_every_config_that_is_named_exists() -> None:
    configs = re.findall(r"\bconfig/[\w.]+", PAGE)
    assert configs
    for config in configs:
        assert (ROOT / config).exists(), config
