"""Patches for Python code: arguments of a loader, and global statements.

Where the place cannot be found with certainty there is no patch.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from advisor.knobs.registry import LOADER_ARGUMENTS, loader_arguments
from advisor.patches.python_source import (
    Edit,
    Source,
    Splice,
    behind,
    imports_torch,
    last_name,
    leading_imports,
    read_source,
)

POSITIONS = ("dataset", "batch_size", "shuffle")
"""Parameters of DataLoader that people give without their name."""
NEEDS_WORKERS = {*loader_arguments("workers"), "multiprocessing_context", "timeout"}
"""Arguments that a DataLoader refuses without workers."""
ARGUMENTS = {each.kind: each.trainer_argument for each in LOADER_ARGUMENTS if each.trainer_argument}
"""Names of loader arguments among the TrainingArguments of transformers."""
TRAINER_METHODS = {"train", "evaluate", "predict"}


def loader_edit(line: int, values: Mapping[str, int | bool]) -> Edit:
    """Set `values` in the `DataLoader(...)` call at `line`.

    It cannot be made if there is no such call, or if its arguments are uncertain: a value that
    is computed or passed in is set elsewhere.
    """

    def edit(source: Source) -> list[Splice] | None:
        call = _loader_call(source, line)
        trainer = None if call else _trainer_arguments(source, line)
        if call is not None:
            return _set_arguments(source, call, values)
        if trainer is None or not values.keys() <= ARGUMENTS.keys():
            return None
        return _set_arguments(source, trainer, {ARGUMENTS[n]: v for n, v in values.items()})

    return edit


def loader_place(path: Path, line: int) -> tuple[int, str] | None:
    """Line and name of the call to edit."""
    source = read_source(path)
    call = (_loader_call(source, line) or _trainer_arguments(source, line)) if source else None
    return (call.lineno, last_name(call.func) or "") if call else None


def statement_edit(statement: str) -> Edit:
    """Insert `statement` after the imports at the top.

    It uses `torch` and sets one of its flags. It cannot be made if `torch` is not imported by that
    name there, or if the file sets the flag itself.
    """

    def edit(source: Source) -> list[Splice] | None:
        (wanted,) = ast.parse(statement).body
        block = leading_imports(source.tree)
        flag = statement.partition("(")[0].partition(" =")[0]
        used = (n for n in ast.walk(source.tree) if isinstance(n, ast.Attribute))
        if not imports_torch(block) or any(ast.unparse(node) == flag for node in used):
            return None
        at = behind(source, block[-1])
        if at is None:
            return None
        source.tree.body.insert(source.tree.body.index(block[-1]) + 1, wanted)
        return [(at, at, source.newline * 2 + statement.encode())]

    return edit


def _loader_call(source: Source, line: int) -> ast.Call | None:
    """Single DataLoader call that covers `line`."""
    names = {"DataLoader"} | {
        alias.asname
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.utils.data")
        for alias in node.names
        if alias.name == "DataLoader" and alias.asname
    }
    found = [call for call in _calls(source, line) if last_name(call.func) in names]
    return found[0] if len(found) == 1 else None


def _trainer_arguments(source: Source, line: int) -> ast.Call | None:
    """The file's only TrainingArguments, if a Trainer runs at `line`."""
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    found = [each for each in calls if (last_name(each.func) or "").endswith("TrainingArguments")]
    trained = any(last_name(each.func) in TRAINER_METHODS for each in _calls(source, line))
    return found[0] if trained and len(found) == 1 else None


def _calls(source: Source, line: int) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]


def _set_arguments(
    source: Source, call: ast.Call, values: Mapping[str, int | bool]
) -> list[Splice] | None:
    """Splice `values` into `call`, and into the tree."""
    splats = [keyword for keyword in call.keywords if keyword.arg is None]
    named = {keyword.arg: keyword for keyword in call.keywords if keyword.arg}
    starred = any(isinstance(arg, (ast.Starred, ast.GeneratorExp)) for arg in call.args)
    if starred or len(splats) > 1 or len(call.args) > len(POSITIONS):
        return None
    if values.get("num_workers") == 0 and (splats or NEEDS_WORKERS & named.keys()):
        return None
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    ends = [source.span(each)[1] for each in arguments]
    splices: list[Splice] = []
    missing: dict[str, int | bool] = {}
    for name, value in values.items():
        position = POSITIONS.index(name) if name in POSITIONS else len(call.args)
        if name in named:
            written, named[name].value = named[name].value, ast.Constant(value)
        elif position < len(call.args):
            written, call.args[position] = call.args[position], ast.Constant(value)
        else:
            missing[name] = value
            continue
        if not isinstance(written, ast.Constant):
            return None
        splices.append((*source.span(written), repr(value).encode()))
    if missing and splats:
        return splices + _override(source, splats[0], missing)
    if missing and ends:
        at = max(ends)
        words = "".join(f", {name}={value!r}" for name, value in missing.items())
        splices.append((at, at, words.encode()))
        call.keywords += [ast.keyword(arg=n, value=ast.Constant(v)) for n, v in missing.items()]
    return splices or None


def _override(source: Source, splat: ast.keyword, values: dict[str, int | bool]) -> list[Splice]:
    """Override names that `**options` may hold.

    `**{**options, "num_workers": 4}` is sure.
    """
    start, end = source.span(splat.value)
    pairs = "".join(f', "{name}": {value!r}' for name, value in values.items())
    splat.value = ast.Dict(
        keys=[None, *(ast.Constant(name) for name in values)],
        values=[splat.value, *(ast.Constant(value) for value in values.values())],
    )
    return [(start, start, b"{**"), (end, end, f"{pairs}}}".encode())]
