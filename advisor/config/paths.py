"""Leaf paths such as `a.b[0].c` and `a["odd.key"]`."""

from __future__ import annotations

import json
import re

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_/+\-]+")


def member(parent: str, key: str) -> str:
    """Path of `key` in the mapping at `parent`."""
    if _PLAIN_KEY.fullmatch(key):
        return f"{parent}.{key}" if parent else key
    return f"{parent}[{json.dumps(key, ensure_ascii=False)}]"


def item(parent: str, index: int) -> str:
    """Path of item `index` in a list."""
    return f"{parent}[{index}]"
