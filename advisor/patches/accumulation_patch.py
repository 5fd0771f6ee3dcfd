"""The patch for gradients of several batches an update: what was tried from inside, as code.

The helper is the very function that was tried.
"""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING

from advisor.patches.python_source import added, behind, last_name, leading_imports
from advisor.probe import accumulating

if TYPE_CHECKING:
    from advisor.patches.python_source import Edit, Source, Splice

HELPER = accumulating.accumulate.__name__


def helper() -> str:
    """What was tried, as the program's own code: without the types, which name what it lacks."""
    tree = ast.parse(inspect.getsource(accumulating.accumulate))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return f"\n\n{ast.unparse(tree)}"


def accumulation_edit(optimizers: tuple[str, ...], times: int) -> Edit:
    """A helper behind the imports, and its call behind the one statement that builds an optimizer
    of these kinds.

    It cannot be made where there is not exactly one, where gradients are scaled, as they would be
    unscaled more than once, or where the helper's name is taken.
    """

    def edit(source: Source) -> list[Splice] | None:
        block = leading_imports(source.tree)
        text = source.code.decode()
        built = [
            (body, node)
            for body in _bodies(source.tree)
            for node in body
            if isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], (ast.Name, ast.Attribute))
            and isinstance(node.value, ast.Call)
            and last_name(node.value.func) in optimizers
        ]
        if len(built) != 1 or not block or "caler" in text or HELPER in text:
            return None
        body, node = built[0]
        at = behind(source, block[-1])
        start, end = source.span(node)
        first = source.code.rfind(b"\n", 0, start) + 1
        stop = source.code.find(b"\n", end)
        indent = source.code[first:start]
        if at is None or stop == -1 or indent.strip() or b";" in source.code[end:stop]:
            return None
        stop -= source.code[stop - 1 : stop] == b"\r"
        call = f"{HELPER}({ast.unparse(node.targets[0])}, {times})"
        body.insert(body.index(node) + 1, added(ast.parse(call).body[0]))
        types = not any(isinstance(n, ast.Import) and "types" in _names(n) for n in block)
        inserted = ("import types\n" if types else "") + helper()
        index = source.tree.body.index(block[-1]) + 1
        source.tree.body[index:index] = [added(each) for each in ast.parse(inserted).body]
        lines = inserted.replace("\n", source.newline.decode()).encode()
        return [
            (at, at, source.newline + lines),
            (stop, stop, source.newline + indent + call.encode()),
        ]

    return edit


def _names(node: ast.Import) -> set[str]:
    return {alias.name for alias in node.names if not alias.asname}


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    """The module's statements, and those of its functions; nothing in a branch or a loop."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, functions))]
