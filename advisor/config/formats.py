"""Config formats by name and suffix."""

from __future__ import annotations

from typing import Literal

from advisor.config import argv, jsonc, python, toml, yaml
from advisor.config.syntax import Syntax

Format = Literal["json", "yaml", "toml", "python", "argv"]

SYNTAXES: dict[Format, Syntax] = {
    "json": jsonc.SYNTAX,
    "yaml": yaml.SYNTAX,
    "toml": toml.SYNTAX,
    "python": python.SYNTAX,
    "argv": argv.SYNTAX,
}

SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".jsonc": "json",
    ".json5": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".py": "python",
}
