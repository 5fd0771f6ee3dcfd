"""Fields and keys that a program sets at one place and reads at one: `config.batch_size`.

Most programs hold a loader's arguments in an object or a dictionary, filled in some other
function or file. Which object an expression names cannot be told without running it. So names are
counted, over all files of the program: one that is set once, to the literal that was seen in
force, and read once, is one setting. What is read twice has a second use that was never tried with
another value. A parameter, an option or a text of that name may set it too: then it is no patch's.

A config beside the program may hold the name as well, and win over the code where it is read later.
Or it is a file that the program writes. Which of the two it is no count tells, so it is told.
"""

import ast
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from advisor import files
from advisor.config.document import SUFFIXES
from advisor.model import JsonScalar

CONFIGS = SUFFIXES.keys() - {".py"}
LARGEST_CONFIG = 1 << 20
"""Bytes of a config at most. Judgement: larger files are data, and reading them all takes long."""
OUR_REPORT, LEAD = b'"written_by": "gpu-advisor"', 400
"""What a report of an earlier call has in its first bytes: its values are no settings."""
Setter = ast.Assign | ast.AnnAssign | ast.keyword
"""What sets one field: a statement, or a keyword of a call such as `Config(batch_size=4)`."""


class Place(NamedTuple):
    """Where an expression stands in the tree: an attribute of a node, or an item of a list."""

    holder: ast.AST | list[ast.expr]
    key: str | int

    @property
    def written(self) -> ast.expr:
        if isinstance(self.holder, list):
            return self.holder[int(self.key)]
        expression: ast.expr = getattr(self.holder, str(self.key))
        return expression

    def put(self, value: JsonScalar) -> None:
        if isinstance(self.holder, list):
            self.holder[int(self.key)] = ast.Constant(value)
        else:
            setattr(self.holder, str(self.key), ast.Constant(value))


def field_of(expression: ast.expr) -> str | None:
    """Name of the field or key that an expression reads: `a.b.size` and `a["size"]` read `size`."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    if isinstance(expression, ast.Subscript):
        return _text(expression.slice)
    return None


def sole_home(name: str, value: JsonScalar, folder: Path) -> Path | None:
    """The file below `folder` that sets field `name` to the literal `value`, if nothing else may.

    None unless all of the files together set it once and read it once.
    """
    word = re.compile(rf"\b{re.escape(name)}\b|\b{re.escape(name.replace('_', '-'))}\b")
    homes: list[Path] = []
    reads = 0
    for path in files.sources(folder):
        with contextlib.suppress(
            OSError, ValueError, SyntaxError
        ):  # gone, or never imported
            text = path.read_bytes().decode()
            if not word.search(text):
                continue
            uses = uses_of(ast.parse(text), name)
            if uses.doubtful or not all(_is(place.written, value) for place in uses.places):
                return None
            homes += [path] * len(uses.places)
            reads += uses.reads
    return homes[0] if len(homes) == 1 and reads == 1 else None


def configs_with(name: str, folder: Path) -> list[Path]:
    """Configs below `folder` that name the key, but reports of earlier calls."""
    return [path for path in files.sources(folder, CONFIGS) if _has_key(path, name)]


def _has_key(path: Path, name: str) -> bool:
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            return False
        text = path.read_bytes()
    except OSError:
        return False
    ours = OUR_REPORT in text[:LEAD]
    return (
        not ours
        and re.search(rf"\b{re.escape(name)}\b[\"']?\s*[:=]".encode(), text) is not None
    )


class Uses(NamedTuple):
    """What a file does with a field's name."""

    places: list[Place]
    """Literals that set it."""
    reads: int
    doubtful: bool
    """True if it may be set in another way: by a parameter, an option, an expression."""


def uses_of(tree: ast.Module, name: str) -> Uses:
    """Each place of a file that sets field `name`, and how often the file reads it."""
    places, reads, doubts = [], 0, 0
    settable = set[int]()  # nodes that a place of `places` accounts for
    for setter in _setters(tree, name):
        places.append(Place(setter, "value"))
        doubts += not isinstance(setter.value, ast.Constant)
        settable.update(map(id, _targets(setter)))
    as_variable = any(
        isinstance(node, ast.Name) and id(node) in settable for node in ast.walk(tree)
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for at, key in enumerate(node.keys):
                if key is not None and _text(key) == name:
                    places.append(Place(node.values, at))
                    doubts += not isinstance(node.values[at], ast.Constant)
                    settable.add(id(key))
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and field_of(node) == name:
            if isinstance(node, ast.Subscript):
                settable.add(id(node.slice))
            read = isinstance(node.ctx, ast.Load)
            reads += read
            doubts += not read and id(node) not in settable
        elif isinstance(node, ast.Name) and node.id == name and as_variable:
            read = isinstance(node.ctx, ast.Load)
            reads += read
            doubts += not read and id(node) not in settable
        elif isinstance(node, (ast.arg, ast.alias, ast.FunctionDef, ast.AsyncFunctionDef)):
            names = (getattr(node, key, None) for key in ("arg", "asname", "name"))
            doubts += name in names
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            doubts += name in node.names
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    doubts += sum(
        _is_option(node.value, name) and id(node) not in settable for node in texts
    )
    return Uses(places, reads, bool(doubts))


def _setters(tree: ast.Module, name: str) -> Iterator[Setter]:
    """Statements and keywords that set field `name` of something, by themselves.

    A name bound in a function is no field. Nor is a keyword of a loader, which is given its own.
    """
    bodies = [
        node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef))
    ]
    outer = {id(statement) for node in bodies for statement in node.body}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = _targets(node)
            if len(targets) != 1 or node.value is None:
                continue
            (target,) = targets
            plain = isinstance(target, ast.Name) and target.id == name and id(node) in outer
            if plain or (not isinstance(target, ast.Name) and field_of(target) == name):
                yield node
        elif isinstance(node, ast.Call) and not _is_loader(node):
            yield from (keyword for keyword in node.keywords if keyword.arg == name)


def _targets(setter: Setter) -> list[ast.expr]:
    if isinstance(setter, ast.Assign):
        return setter.targets
    return [setter.target] if isinstance(setter, ast.AnnAssign) else []


def _is_loader(call: ast.Call) -> bool:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else call.func
    return str(called.id if isinstance(called, ast.Name) else called).endswith("DataLoader")


def _text(node: ast.expr) -> str | None:
    return (
        node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else None
    )


def _is_option(text: object, name: str) -> bool:
    """True if a text is the name itself, or its option on a command line."""
    return isinstance(text, str) and text.lstrip("-").replace("-", "_") == name


def _is(written: ast.expr, value: JsonScalar) -> bool:
    """True if an expression is the literal `value`, a bool no number."""
    if not isinstance(written, ast.Constant):
        return False
    return written.value == value and type(written.value) is type(value)
