"""Random documents whose writer knows where every value lies and what it means.

Nothing here asks the code under test. Each format has a writer and a loader such as users'
programs have: `json` behind a comment stripper, PyYAML, `tomllib`.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

import yaml

Steps = tuple[str | int, ...]

WORDS = ["batch_size", "lr", "num_workers", "a", "test", "odd.key", "x-y", "sub/key"]
ODD_WORDS = ["with space", "ключ", "quo'te", "1", "#no", ""]
INTS = [("4", 4), ("0", 0), ("-7", -7), ("100000000", 100000000)]
FLOATS = [("0.5", 0.5), ("1.0", 1.0), ("-0.25", -0.25), ("1.0e-4", 1e-4)]
JSON_SCALARS: list[tuple[str, Any]] = [
    *INTS,
    *FLOATS,
    ("1e8", 1e8),
    ("true", True),
    ("false", False),
    ("null", None),
    ('"fp16"', "fp16"),
    ('"16"', "16"),
    ('"a // b"', "a // b"),
    ('"a /* b"', "a /* b"),
    ('"\\u00e9\\"\\\\"', 'é"\\'),
    ('"😀, }"', "😀, }"),
    ('"tcp:\\/\\/x"', "tcp://x"),
    ('""', ""),
]
YAML_SCALARS: list[tuple[str, Any]] = [
    *INTS,
    *FLOATS,
    ("1e-4", "1e-4"),
    ("1_000", 1000),
    ("0x1F", 31),
    ("True", True),
    ("no", False),
    ("off", False),
    ("YES", True),
    ("~", None),
    ("null", None),
    ("fp16", "fp16"),
    ("a b c", "a b c"),
    ("éé", "éé"),
    ("ключ x", "ключ x"),
    ("'no'", "no"),
    ("'it''s # 1'", "it's # 1"),
    ('"16"', "16"),
    ('"a: \\"b\\" \\u00e9"', 'a: "b" é'),
    ("'1e-4'", "1e-4"),
    ("bf16-mixed", "bf16-mixed"),
    ('"😀"', "😀"),
]
TOML_SCALARS: list[tuple[str, Any]] = [
    *INTS,
    *FLOATS,
    ("1e8", 1e8),
    ("30_000", 30000),
    ("true", True),
    ("false", False),
    ('"fp16"', "fp16"),
    ("'C:\\x'", "C:\\x"),
    ('"16"', "16"),
    ('"é # ] } \\" \\u00e9"', 'é # ] } " é'),
    ('""', ""),
]


@dataclass
class Written:
    """A document and what its writer knows of it.

    A shape is a list (a mapping of as many keys), a tuple (a list) or None (a scalar).
    """

    rng: random.Random
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    leaves: list[tuple[Steps, int, int, Any]] = field(default_factory=list)
    """Steps from the root, start and end in characters, value; what can be edited."""
    repeats: dict[Steps, Steps] = field(default_factory=dict)
    """Aliases to scalars, and the scalars they repeat."""
    tagged: set[Steps] = field(default_factory=set)
    """Floats by tag, whatever is written there."""
    bom: bool = False

    def put(self, text: str) -> None:
        self.pieces.append(text)
        self.size += len(text)

    def leaf(self, steps: Steps, text: str, value: Any) -> None:
        self.leaves.append((steps, self.size, self.size + len(text), value))
        self.put(text)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, *choices: str) -> None:
        self.put(self.rng.choice(choices))

    def keys(self, node: Any) -> list[Any]:
        """Indices of a list, distinct keys of a mapping, mostly plain."""
        if isinstance(node, tuple):
            return list(range(len(node)))
        pool = WORDS + (ODD_WORDS if self.chance(0.2) else [])
        return self.rng.sample(pool, min(len(node), len(pool)))

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def raw(self) -> bytes:
        return (b"\xef\xbb\xbf" if self.bom else b"") + self.text.encode()


# --- JSON with comments -------------------------------------------------------------------


class JsonWriter(Written):
    """Compact or pretty, with or without comments and trailing commas."""

    def write(self, shape: Any) -> None:
        self.bom = self.chance(0.1)
        self.eol = self.rng.choice(["\n", "\n", "\r\n"])
        self.pretty = self.chance(0.7)
        self.step = self.rng.choice(["  ", "    ", "\t"])
        self.commented = self.chance(0.6)
        self.trailing = self.chance(0.3)
        self.value(shape or [None], (), 0)
        self.pick("", self.eol, self.eol + self.eol)

    def gap(self, depth: int) -> None:
        """Between members: a line break with comments, or blanks."""
        if not self.pretty:
            self.pick("", " ", "  ")
            return
        if self.commented and self.chance(0.3):
            self.pick(" // note, {", " /* a */", '\t// "lr": 3,')
        self.put(self.eol)
        if self.commented and self.chance(0.2):
            self.put(self.step * depth)
            self.pick('// "batch_size": 64,', f"/* x{self.eol} */", "// é")
            self.put(self.eol)
        self.put(self.step * depth)

    def value(self, node: Any, steps: Steps, depth: int) -> None:
        if node is None:
            self.leaf(steps, *self.rng.choice(JSON_SCALARS))
            return
        is_list = isinstance(node, tuple)
        self.put("[" if is_list else "{")
        names = self.keys(node)
        for number, name in enumerate(names):
            self.gap(depth + 1)
            if not is_list:
                self.put(json.dumps(name))
                self.pick(": ", ":", " : ")
            self.value(node[number], (*steps, name), depth + 1)
            if number < len(names) - 1 or self.trailing:
                self.pick(",", ",", " ,")
        if names:
            self.gap(depth)
        self.put("]" if is_list else "}")


def json_load(raw: bytes) -> Any:
    """Strips comments and trailing commas one character at a time, then `json.loads`."""
    text, kept, at, in_string = raw.decode("utf-8-sig"), "", 0, False
    while at < len(text):
        char = text[at]
        if in_string:
            width = 2 if char == "\\" else 1
            kept += text[at : at + width]
            in_string = char != '"'
            at += width
        elif text.startswith("//", at):
            at = min(i for i in (text.find("\n", at), text.find("\r", at), len(text)) if i >= 0)
        elif text.startswith("/*", at):
            at = text.index("*/", at) + 2
        else:
            if char in "}]" and kept.rstrip().endswith(","):
                kept = kept.rstrip()[:-1]
            kept += char
            in_string = char == '"'
            at += 1
    return json.loads(kept)


# --- YAML ---------------------------------------------------------------------------------


class YamlWriter(Written):
    """Block and flow, comments, anchors on scalars and aliases to them, tags, line ends."""

    def write(self, shape: Any) -> None:
        self.bom = self.chance(0.1)
        self.ends = self.rng.choice([["\n"], ["\n"], ["\r\n"], ["\n", "\r\n"]])
        self.step = self.rng.choice([2, 2, 4])
        self.commented = self.chance(0.6)
        self.anchored = self.chance(0.5)
        self.anchors: list[tuple[str, Steps]] = []
        self.last_end = 0
        if self.chance(0.1):
            self.put("%YAML 1.1\n---\n")
        self.block(shape or [None], (), 0, inline=False)
        if self.chance(0.2) and self.last_end == len(self.pieces) - 1:
            self.size -= len(self.pieces.pop())

    def end_line(self) -> None:
        if self.commented and self.chance(0.3):
            tab = " " if self.pieces[-1][-1:] in ("-", ":") else "\t"
            self.pick("  # note: 1", " # é", f"{tab}# batch: 3", "   ")
        self.last_end = len(self.pieces)
        self.pick(*self.ends)
        if self.commented and self.chance(0.2):
            self.pick("# batch_size: 64", "      # deep", "", "# ключ")
            self.pick(*self.ends)

    def spell(self, key: str) -> str:
        plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*", key)
        return key if plain and self.chance(0.8) else json.dumps(key, ensure_ascii=False)

    def scalar(self, steps: Steps, lead: str, *, flow: bool) -> None:
        """A leaf, maybe anchored or tagged, or an alias to an earlier one."""
        self.put(lead)
        if self.anchors and self.chance(0.2):
            name, self.repeats[steps] = self.rng.choice(self.anchors)
            self.put(f"*{name}" + (" " if flow else ""))
            return
        text, value = self.rng.choice(YAML_SCALARS)
        if self.anchored and self.chance(0.3):
            name = f"n{len(self.anchors)}"
            self.anchors.append((name, steps))
            self.put(f"&{name} ")
        if isinstance(value, float) and self.chance(0.2):
            self.put("!!float ")
            self.tagged.add(steps)
        self.leaf(steps, text, value)

    def flow(self, node: Any, steps: Steps) -> None:
        if node is None:
            self.scalar(steps, "", flow=True)
            return
        is_list = isinstance(node, tuple)
        names = self.keys(node)
        self.put("[" if is_list else "{")
        for number, name in enumerate(names):
            self.pick(*(("", " ") if number == 0 else (",", ", ")))
            if not is_list:
                self.put(f"{self.spell(name)}: ")
            self.flow(node[number], (*steps, name))
        if names:
            self.pick("", " ", ", ")
        self.put("]" if is_list else "}")

    def block(self, node: Any, steps: Steps, indent: int, *, inline: bool) -> None:
        """The lines of a container; `inline`: its first line is begun already."""
        is_list = isinstance(node, tuple)
        aligned = " " * 3 if self.chance(0.2) else ""
        for number, name in enumerate(self.keys(node)):
            if not (inline and number == 0):
                self.put(" " * indent)
            self.put("-" if is_list else f"{self.spell(name)}{aligned}:")
            self.member(node[number], (*steps, name), indent, in_list=is_list)

    def member(self, node: Any, steps: Steps, indent: int, *, in_list: bool) -> None:
        if node is None and not in_list and self.chance(0.05):
            self.leaves.append((steps, self.size, self.size, None))
            self.end_line()
        elif node is None:
            self.scalar(steps, self.rng.choice([" ", " ", "   "]), flow=False)
            self.end_line()
        elif not node or self.chance(0.25):
            self.put(" ")
            self.flow(node, steps)
            self.end_line()
        elif in_list and not isinstance(node, tuple) and self.chance(0.7):
            self.put(" ")
            self.block(node, steps, indent + 2, inline=True)
        else:
            self.end_line()
            deeper = isinstance(node, list) or in_list or self.chance(0.5)
            self.block(node, steps, indent + (self.step if deeper else 0), inline=False)


def yaml_load(raw: bytes) -> Any:
    """`yaml.safe_load` with libyaml."""
    return yaml.load(raw.decode("utf-8-sig"), Loader=yaml.CSafeLoader)


# --- TOML ---------------------------------------------------------------------------------


class TomlWriter(Written):
    """Tables, arrays of tables, dotted keys, inline tables, arrays over several lines."""

    def write(self, shape: Any) -> None:
        self.eol = self.rng.choice(["\n", "\n", "\r\n"])
        self.commented = self.chance(0.6)
        self.table(list(shape) if shape else [None], (), "")

    def end_line(self) -> None:
        if self.commented and self.chance(0.3):
            self.pick("  # note = 1", " # é", "\t# [x]")
        self.put(self.eol)
        if self.commented and self.chance(0.2):
            self.pick("# batch_size = 64", "", "  # ключ")
            self.put(self.eol)

    def spell(self, key: str) -> str:
        plain = re.fullmatch(r"[A-Za-z0-9_-]+", key)
        return key if plain and self.chance(0.8) else json.dumps(key, ensure_ascii=False)

    def value(self, node: Any, steps: Steps, *, one_line: bool) -> None:
        if node is None:
            self.leaf(steps, *self.rng.choice(TOML_SCALARS))
            return
        is_list = isinstance(node, tuple)
        names = self.keys(node)
        one_line = one_line or not is_list or self.chance(0.5)
        self.put("[" if is_list else "{")
        for number, name in enumerate(names):
            if not one_line:
                self.end_line()
            self.pick("", " ")
            if not is_list:
                self.put(self.spell(name))
                self.pick("=", " = ")
            self.value(node[number], (*steps, name), one_line=one_line)
            if number < len(names) - 1:
                self.put(",")
        if not one_line:
            self.end_line()
        self.put("]" if is_list else "}")

    def table(self, node: list[Any], steps: Steps, header: str) -> None:
        members = list(zip(self.keys(node), node, strict=False))
        tables = [(name, child) for name, child in members if isinstance(child, list) and child]
        for name, child in members:
            if (name, child) not in tables:
                self.put(self.spell(name))
                inner = ("in",) if isinstance(child, tuple) and self.chance(0.3) else ()
                self.put("".join(f".{self.spell(part)}" for part in inner))
                self.pick("=", " = ", "   = ")
                self.value(child, (*steps, name, *inner), one_line=False)
                self.end_line()
        for name, child in tables:
            below = f"{header}.{self.spell(name)}" if header else self.spell(name)
            repeated = self.chance(0.3)
            for index in range(2 if repeated else 1):
                self.put(f"[[{below}]]" if repeated else f"[ {below} ]")
                self.end_line()
                self.table(child, (*steps, name, index) if repeated else (*steps, name), below)


def toml_load(raw: bytes) -> Any:
    """`tomllib`."""
    return tomllib.loads(raw.decode())


FORMATS = {
    "json": (JsonWriter, json_load),
    "yaml": (YamlWriter, yaml_load),
    "toml": (TomlWriter, toml_load),
}


def write(form: str, shape: Any, seed: int) -> Written:
    """A random document of this format and shape."""
    writer = FORMATS[form][0](random.Random(seed))
    writer.write(shape)
    return writer
