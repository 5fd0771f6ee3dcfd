"""Patches around the model's call: autocast, compilation, and gradients that are dropped.

Only where the call stands in a simple statement of its own, or under a plain name.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from advisor.advice.python_source import Splice, as_patch, last_name, read_source

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.advice.python_source import Source

SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


def autocast_patch(path: Path, line: int, device: str, dtype: str, cwd: Path) -> str | None:
    """The statement at `line`, which calls the model, inside `with torch.autocast(...)`.

    None if it shares its lines with another, stands under autocast already, or if `torch` is not
    imported by that name.
    """
    source = read_source(path)
    found = _statement(source, line) if source else None
    if source is None or found is None or not _imports_torch(source.tree):
        return None
    statement, block, above = found
    withs = [node for node in above if isinstance(node, (ast.With, ast.AsyncWith))]
    if any("autocast" in ast.unparse(item) for node in withs for item in node.items):
        return None
    head = f'with torch.autocast("{device}", dtype=torch.{dtype}):'
    start, end = source.span(statement)
    first = source.code.rfind(b"\n", 0, start) + 1
    indent = source.code[first:start]
    rest, _, _ = source.code[end:].partition(b"\n")
    if indent.strip() or (rest.strip() and not rest.strip().startswith(b"#")):
        return None
    unit = b"\t" if b"\t" in indent else b"    "
    lines = source.code[first:end].split(b"\n")
    body = b"\n".join(unit + text if text.strip() else text for text in lines)
    wrapped = ast.parse(f"{head}\n    pass").body[0]
    assert isinstance(wrapped, ast.With)
    wrapped.body = [statement]
    block[block.index(statement)] = wrapped
    return as_patch(source, [(first, end, indent + head.encode() + source.newline + body)], cwd)


def compile_patch(path: Path, line: int, cwd: Path) -> str | None:
    """`model.compile()` after the last line that gives `model`, called at `line`, its value.

    None if the model is called by anything but a plain name, or if that name is given its value in
    another scope, in a branch or a loop, or after the call.
    """
    source = read_source(path)
    if source is None:
        return None
    scope = _scope(source.tree, line)
    names = {
        node.func.id
        for node in ast.walk(scope)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.lineno == line
    }
    for name in sorted(names):
        stores = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        ]
        given = [
            node
            for node in scope.body
            if isinstance(node, ast.Assign)
            and [ast.unparse(target) for target in node.targets] == [name]
        ]
        if not given or len(stores) != len(given) or given[-1].lineno >= line:
            continue
        if not isinstance(given[-1].value, ast.Call):
            continue
        return _after(source, scope, given[-1], f"{name}.compile()", cwd)
    return None


def zero_grad_patch(path: Path, cwd: Path) -> tuple[int, str] | None:
    """Line of the first, and a patch of all, `zero_grad(set_to_none=False)` of a file."""
    source = read_source(path)
    if source is None:
        return None
    splices: list[Splice] = []
    lines = []
    for call in ast.walk(source.tree):
        if not isinstance(call, ast.Call) or last_name(call.func) != "zero_grad":
            continue
        said = [k.value for k in call.keywords if k.arg == "set_to_none"] or call.args[:1]
        if said and isinstance(said[0], ast.Constant) and said[0].value is False:
            splices.append((*source.span(said[0]), b"True"))
            said[0].value = True
            lines.append(call.lineno)
    patch = as_patch(source, splices, cwd)
    return (min(lines), patch) if patch else None


def _statement(source: Source, line: int) -> tuple[ast.stmt, list[ast.stmt], list[ast.AST]] | None:
    """The simple statement that covers `line`, the block it stands in, and what is around it."""
    found = None
    above: list[ast.AST] = []
    node: ast.AST = source.tree
    while True:
        inner: ast.stmt | None = None
        block: list[ast.stmt] = []
        for name in ("body", "orelse", "finalbody", "handlers"):
            for child in getattr(node, name, ()):
                if child.lineno <= line <= (child.end_lineno or child.lineno):
                    inner, block = child, getattr(node, name)
        if inner is None:
            return found
        above.append(node)
        node = inner
        if isinstance(inner, SIMPLE):
            found = inner, block, above


def _imports_torch(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Import)
        and any(alias.name.split(".")[0] == "torch" and not alias.asname for alias in node.names)
        for node in tree.body
    )


def _scope(tree: ast.Module, line: int) -> Scope:
    """The innermost function around `line`, or the module."""
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(inside, key=lambda node: node.lineno, default=tree)


def _after(source: Source, scope: Scope, node: ast.stmt, statement: str, cwd: Path) -> str | None:
    """`statement` on a line of its own behind `node` of `scope`."""
    start, end = source.span(node)
    first = source.code.rfind(b"\n", 0, start) + 1
    indent = source.code[first:start]
    stop = source.code.find(b"\n", end)
    if indent.strip() or stop == -1 or b";" in source.code[end:stop]:
        return None
    scope.body.insert(scope.body.index(node) + 1, ast.parse(statement).body[0])
    text = indent + statement.encode() + source.newline
    return as_patch(source, [(stop + 1, stop + 1, text)], cwd)
