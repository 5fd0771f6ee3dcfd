"""Configs and commands, edited byte by byte.

Libraries considered in place of modules by hand, by cases that stayed byte-exact:
JSON: json-five 21 of 29, jsoncgx 18, tree-sitter-json 23 (it refuses NaN and 1E+8), the scanner 29.
YAML: ruamel.yaml 10 of 32, yaml-edit 29, PyYAML's own marks, which are used here, 32.
TOML: tomlkit keeps bytes, but tells no place of a value, which the diff and `revert` need.
Python: LibCST would be a second parser for the places that `ast` tells.
"""

from advisor.config.document import (
    Document as Document,
    masked_diff as masked_diff,
    of_command as of_command,
    parse as parse,
    read as read,
)
from advisor.config.leaves import Option as Option
from advisor.config.swap import write_atomic as write_atomic
