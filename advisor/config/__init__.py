"""Configs and commands, read and edited byte-exactly: JSON, YAML, TOML, Python, argv.

document.py    one config; other values in it, verified by reading the result again
formats.py     the protocol that each format's module follows
jsonc.py yaml.py toml.py python.py argv.py   the formats
leaves.py      scalars that a format finds, with their places and comments
paths.py       path of a leaf: `a.b[0].c`
spelling.py    spelling of a new value
insertion.py   place and layout of a new key
constants.py   value of a Python expression, without running it
assigned.py    leaves that count where statements follow each other
options.py     option that a command's program offers beside the typed ones
files.py       bytes from the disk
replacing.py   atomic swap of a config's bytes, and recovery after a kill
diffing.py     diff of two versions, secrets masked

Libraries that were considered in place of the modules by hand. JSON with comments: json-five,
jsoncgx and tree-sitter lose or refuse comments, or give no place of a new key. YAML: ruamel.yaml
changes 75 of 100 real files without any edit; PyYAML's own marks give the places here. TOML:
tomlkit gives no places. Python: LibCST needs a parser of its own for places that `ast` gives.
"""

from advisor.config.diffing import masked_diff
from advisor.config.document import (
    Absent,
    Document,
    of_command,
    parse,
    read,
    split_command,
)
from advisor.config.formats import Format
from advisor.config.options import Option
from advisor.config.replacing import recover, write_atomic

__all__ = [
    "Absent",
    "Document",
    "Format",
    "Option",
    "masked_diff",
    "of_command",
    "parse",
    "read",
    "recover",
    "split_command",
    "write_atomic",
]
