"""Patches for Python code: arguments, and global statements.

Where the place cannot be found with certainty there is no patch.
"""

from __future__ import annotations

import ast
import bisect
import io
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.knobs.registry import LOADER_ARGUMENTS, REGISTRY, loader_arguments
from advisor.patches.python_source import (
    Source,
    Splice,
    added,
    behind,
    imports_torch,
    last_name,
    leading_imports,
    read_source,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from advisor.patches.python_source import Edit

LOADER_POSITIONS = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
)
"""Parameters of DataLoader that may be given without their name."""
WITHOUT_WORKERS: dict[str, int | bool | None] = {
    **{name: REGISTRY[name].without_workers for name in loader_arguments("workers")},
    "multiprocessing_context": None,
    "timeout": 0,
}
"""The only values a DataLoader accepts when it has no workers."""
ARGUMENTS = {each.kind: each.trainer_argument for each in LOADER_ARGUMENTS if each.trainer_argument}
"""Names of loader arguments among the TrainingArguments of transformers."""
OF_LIKE_LENGTH = "batches_of_like_length"
"""Helper that builds a loader in place of `DataLoader` after a patch."""
TRAINER_METHODS = {"train", "evaluate", "predict"}

Value = int | bool | None


def loader_edit(line: int, values: Mapping[str, Value]) -> Edit:
    """Set `values` in the `DataLoader(...)` call at `line`.

    It cannot be made if there is no such call, or if its arguments are uncertain: a value that
    is computed or passed in is set elsewhere.
    """

    def edit(source: Source) -> list[Splice] | None:
        call = loader_call(source, line)
        if call is None:
            return None
        given = dict(values)
        if call.from_arguments:
            if not given.keys() <= ARGUMENTS.keys():
                return None
            written = {keyword.arg for keyword in call.node.keywords}
            if given.get("num_workers") == 0:
                neutral = {n: v for n, v in WITHOUT_WORKERS.items() if ARGUMENTS.get(n) in written}
                given = neutral | given
            given = {ARGUMENTS[name]: value for name, value in given.items()}
        splices: list[Splice] = []
        return splices if _set_arguments(source, call.node, given, splices) else None

    return edit


def loader_place(path: Path, line: int) -> tuple[int, str] | None:
    """Line and name of the call to edit."""
    source = read_source(path)
    call = loader_call(source, line) if source else None
    return (call.node.lineno, last_name(call.node.func) or "") if call else None


def statement_edit(statements: Sequence[str]) -> Edit:
    """Insert `statements` after the imports at the top.

    They use `torch` and set its flags. It cannot be made if `torch` is not imported by that name
    there, or if the file sets one of the flags, or calls what would set it.
    """

    def edit(source: Source) -> list[Splice] | None:
        wanted = [added(node) for node in ast.parse("\n".join(statements)).body]
        block = leading_imports(source.tree)
        if not imports_torch(block) or _sets_already(source.tree, wanted):
            return None
        at = behind(source, block[-1])
        if at is None:
            return None
        index = source.tree.body.index(block[-1]) + 1
        source.tree.body[index:index] = wanted
        lines = (statement.encode() for statement in statements)
        return [(at, at, source.newline + b"".join(source.newline + line for line in lines))]

    return edit


def _sets_already(tree: ast.Module, wanted: Sequence[ast.stmt]) -> bool:
    """True if the file already sets what `wanted` does."""
    targets = {ast.unparse(part.targets[0]) for part in wanted if isinstance(part, ast.Assign)}
    calls = {
        ast.unparse(part.value.func)
        for part in wanted
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call)
    }
    return any(
        (isinstance(node, ast.Call) and ast.unparse(node.func) in calls)
        or (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node) in targets
        )
        for node in ast.walk(tree)
    )


# --- reading ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoaderCall:
    """The call whose arguments a loader is made with."""

    node: ast.Call
    from_arguments: bool
    """It makes TrainingArguments; the Trainer of transformers makes the loader."""


def loader_call(source: Source, line: int) -> LoaderCall | None:
    """Single DataLoader call that covers `line`.

    For a Trainer, it is the file's only TrainingArguments.
    """
    names = {"DataLoader", OF_LIKE_LENGTH} | {
        alias.asname
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.utils.data")
        for alias in node.names
        if alias.name == "DataLoader" and alias.asname
    }
    found = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and last_name(node.func) in names
    ]
    if found:
        return LoaderCall(found[0], from_arguments=False) if len(found) == 1 else None
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    trained = any(
        node.lineno <= line <= (node.end_lineno or node.lineno)
        and last_name(node.func) in TRAINER_METHODS
        for node in calls
    )
    arguments = [
        node for node in calls if (last_name(node.func) or "").endswith("TrainingArguments")
    ]
    if not trained or len(arguments) != 1:
        return None
    return LoaderCall(arguments[0], from_arguments=True)


# --- editing a call -----------------------------------------------------------------------


def _set_arguments(
    source: Source, call: ast.Call, values: dict[str, Value], splices: list[Splice]
) -> bool:
    """Splice arguments into `call`, and into the tree."""
    splats = [keyword for keyword in call.keywords if keyword.arg is None]
    if any(isinstance(arg, ast.Starred) for arg in call.args) or len(splats) > 1:
        return False
    named = {keyword.arg: keyword for keyword in call.keywords if keyword.arg}
    if values.get("num_workers", 1) == 0:
        given = {*named, *LOADER_POSITIONS[: len(call.args)]}
        values |= {n: v for n, v in WITHOUT_WORKERS.items() if n in given or splats}
    missing: dict[str, Value] = {}
    for name, value in values.items():
        position = LOADER_POSITIONS.index(name) if name in LOADER_POSITIONS else len(call.args)
        if name in named:
            written = named[name].value
            named[name].value = ast.Constant(value)
        elif position < len(call.args):
            written = call.args[position]
            call.args[position] = ast.Constant(value)
        else:
            missing[name] = value
            continue
        if not isinstance(written, ast.Constant):
            return False
        splices.append((*source.span(written), repr(value).encode()))
    if missing and splats:
        _override(source, splats[0], missing, splices)
    elif missing:
        splices.append(_appended(source, call, missing))
        call.keywords += [ast.keyword(arg=n, value=ast.Constant(v)) for n, v in missing.items()]
    return True


def _override(
    source: Source, splat: ast.keyword, values: dict[str, Value], splices: list[Splice]
) -> None:
    """Override names that `**options` may hold.

    `**{**options, "num_workers": 4}` is sure.
    """
    start, end = source.span(splat.value)
    pairs = "".join(f', "{name}": {value!r}' for name, value in values.items())
    splices += [(start, start, b"{**"), (end, end, f"{pairs}}}".encode())]
    splat.value = ast.Dict(
        keys=[None, *(ast.Constant(name) for name in values)],
        values=[splat.value, *(ast.Constant(value) for value in values.values())],
    )


def _appended(source: Source, call: ast.Call, values: dict[str, Value]) -> Splice:
    """Append keywords after the last argument.

    On a line of their own where each argument has one.
    """
    _, end = source.span(call)
    _, start = source.span(call.func)
    first, last = _last_tokens(source, start, end)
    keywords = [f"{name}={value!r}".encode() for name, value in values.items()]
    words = b", ".join(keywords)
    at = last.end
    if last.text != b",":
        lead = b"" if last.text == b"(" else b", "
        return at, at, lead + words
    line_start = source.code.rfind(b"\n", 0, first.start) + 1
    indent = source.code[line_start : first.start]
    line_end = source.code.find(b"\n", at)
    alone = not indent.strip() and line_end != -1 and line_end < end - 1
    if alone:
        lines = b"".join(indent + keyword + b"," + source.newline for keyword in keywords)
        return line_end + 1, line_end + 1, lines
    return at, at, b" " + words + b","


@dataclass(frozen=True, slots=True)
class _Token:
    start: int
    end: int
    text: bytes


def _last_tokens(source: Source, start: int, end: int) -> tuple[_Token, _Token]:
    """Tokens around the last argument of a call.

    The first token of its line, and the last token before the `)`.
    """
    columns = source.code.decode().split("\n")
    stops = [0]
    for line in source.code.split(b"\n"):
        stops.append(stops[-1] + len(line) + 1)

    def byte(position: tuple[int, int]) -> int:
        line, column = position
        return stops[line - 1] + len(columns[line - 1][:column].encode())

    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    skipped |= {tokenize.INDENT, tokenize.DEDENT}
    inside = [
        _Token(byte(token.start), byte(token.end), token.string.encode())
        for token in tokenize.generate_tokens(
            io.StringIO(source.code.decode(), newline="").readline
        )
        if token.type not in skipped and start <= byte(token.start) < end - 1
    ]
    last = inside[-1]
    line_start = stops[bisect.bisect_right(stops, last.start) - 1]
    return next(token for token in inside if token.start >= line_start), last
