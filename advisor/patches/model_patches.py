"""Patches around the model's call and its gradients.

They set autocast, layout and compilation, or drop gradients.

Only where the call stands in a simple statement of its own, or the model under a plain name or as
an attribute of the object whose method calls it.
"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from advisor.patches.python_source import Splice, added, imports_torch, last_name

if TYPE_CHECKING:
    from advisor.patches.python_source import Edit, Source

SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
LAST = ".to(memory_format=torch.channels_last)"
POSTFIX = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
"""Expressions that a method call can be written behind."""
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)
LOSSES = ("loss", "crit")
"""Parts of the names of what a model's output is given to."""


def autocast_edit(line: int, device: str, dtype: str, *, widen: bool) -> Edit:
    """Wrap the model's call in `torch.autocast(...)`.

    `line` is the call's. `widen`: the one tensor that the model returns goes on in float32. It
    cannot be made if it shares its lines with another, stands under autocast already, if `torch` is
    not imported by that name, or if the call to be widened is not certain.
    """

    def edit(source: Source) -> list[Splice] | None:
        found = _statement(source, line)
        if found is None or not imports_torch(source.tree.body):
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
        called = list(_called(source, line).values())
        if widen and len(called) != 1:
            return None
        unit = b"\t" if b"\t" in indent else b"    "
        splices: list[Splice] = [(first, first, indent + head.encode() + source.newline + unit)]
        at = first
        for text in source.code[first:end].split(b"\n"):
            if at > first and text.strip():
                splices.append((at, at, unit))
            at += len(text) + 1
        if widen:
            splices.append(_behind_call(source, statement, called[0], ".float()"))
        wrapped = ast.parse(f"{head}\n    pass").body[0]
        assert isinstance(wrapped, ast.With)
        ast.copy_location(added(wrapped), statement)
        wrapped.body = [statement]
        block[block.index(statement)] = wrapped
        return splices

    return edit


def compile_edit(line: int, mode: str = "") -> Edit:
    """Insert `model.compile()` after the model is built.

    The model is called at `line`. It cannot be made if what is called is neither a plain name nor
    an attribute of `self`, or if that is given its value in a branch or a loop, after the call, in
    more than one function, or by anything but a call.
    """

    def edit(source: Source) -> list[Splice] | None:
        if len(called := _called(source, line)) != 1:
            return None
        (name,) = called
        given = f'mode="{mode}"' if mode else ""
        found = _built(source, line, name)
        splice = _after(source, *found, f"{name}.compile({given})") if found else None
        return None if splice is None else [splice]

    return edit


def channels_last_edit(line: int) -> Edit:
    """Convert the model called at `line` to channels-last.

    So is its input, where it has one argument. It cannot be made where `compile_edit` cannot.
    """

    def edit(source: Source) -> list[Splice] | None:
        if not imports_torch(source.tree.body):
            return None
        if len(called := _called(source, line)) != 1:
            return None
        ((name, call),) = called.items()
        found = _built(source, line, name)
        splice = _after(source, *found, f"{name}{LAST}") if found else None
        if splice is None:
            return None
        alone = len(call.args) == 1 and not call.keywords
        if not alone or not isinstance(call.args[0], POSTFIX):
            return [splice]
        return [splice, _behind_call(source, call, call.args[0], LAST)]

    return edit


def zero_grad_edit(source: Source) -> list[Splice] | None:
    """Edit all `zero_grad(set_to_none=False)` of a file.

    None where there is none.
    """
    splices: list[Splice] = []
    for call in _keeping_zeros(source):
        values = [k.value for k in call.keywords if k.arg == "set_to_none"] or call.args[:1]
        splices.append((*source.span(values[0]), b"True"))
        assert isinstance(values[0], ast.Constant)
        values[0].value = True
    return splices or None


def zero_grad_line(source: Source) -> int | None:
    """Line of the first call that `zero_grad_edit` would change."""
    return min((call.lineno for call in _keeping_zeros(source)), default=None)


def _keeping_zeros(source: Source) -> list[ast.Call]:
    found = []
    for call in ast.walk(source.tree):
        if not isinstance(call, ast.Call) or last_name(call.func) != "zero_grad":
            continue
        values = [k.value for k in call.keywords if k.arg == "set_to_none"] or call.args[:1]
        if values and isinstance(values[0], ast.Constant) and values[0].value is False:
            found.append(call)
    return found


def _behind_call(source: Source, around: ast.AST, node: ast.expr, text: str) -> Splice:
    """Append the method call `text` to `node`."""
    _, end = source.span(node)
    parsed = ast.parse(f"_{text}", mode="eval").body
    assert isinstance(parsed, ast.Call)
    assert isinstance(parsed.func, ast.Attribute)
    added(parsed)
    for parent in ast.walk(around):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, parsed)
            elif isinstance(value, list) and any(each is node for each in value):
                value[:] = [parsed if each is node else each for each in value]
    parsed.func.value = node
    return end, end, text.encode()


def _called(source: Source, line: int) -> dict[str, ast.Call]:
    """Name of the model called at `line`.

    `model` or `self.model`. Not a loss, nor a function of the file or one that it imports.
    """
    functions = {
        getattr(each, "asname", None) or each.name
        for node in ast.walk(source.tree)
        for each in (getattr(node, "names", ()) if isinstance(node, IMPORTS) else [node])
        if isinstance(each, (*FUNCTIONS, ast.ClassDef, ast.alias))
    }
    found = {}
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or node.lineno != line:
            continue
        name = ast.unparse(node.func)
        own = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
        plain = isinstance(node.func, ast.Name) or (own and name.startswith("self."))
        last = (last_name(node.func) or "").lower()
        if not plain or name.removeprefix("self.") in {*functions, *dir(builtins)}:
            continue
        if not any(word in last for word in LOSSES):
            found[name] = node
    return found


def _built(source: Source, line: int, name: str) -> tuple[Scope, ast.stmt] | None:
    """Last statement that assigns `name`, and its function.

    The model is called at `line`.
    """
    scope = _scope(source.tree, line)
    scopes: list[Scope] = [scope]
    if name.startswith("self."):
        owner = next((n for n in ast.walk(source.tree) if _holds(n, scope)), None)
        scopes = [each for each in getattr(owner, "body", ()) if isinstance(each, FUNCTIONS)]
    stores = [(each, node) for each in scopes for node in ast.walk(each) if _stores(node, name)]
    if len({id(each) for each, _ in stores}) != 1:
        return None
    place = stores[0][0]
    given = [
        node
        for node in place.body
        if isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == [name]
    ]
    if not given or len(stores) != len(given) or not isinstance(given[-1].value, ast.Call):
        return None
    if place is scope and given[-1].lineno >= line:
        return None
    return place, given[-1]


def _holds(node: ast.AST, scope: Scope) -> bool:
    return isinstance(node, ast.ClassDef) and any(each is scope for each in node.body)


def _stores(node: ast.AST, name: str) -> bool:
    """True if `node` assigns `name`."""
    return (
        isinstance(node, (ast.Name, ast.Attribute))
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node) == name
    )


def _statement(source: Source, line: int) -> tuple[ast.stmt, list[ast.stmt], list[ast.AST]] | None:
    """Simple statement at `line`, with its surroundings."""
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


def _scope(tree: ast.Module, line: int) -> Scope:
    """The innermost function around `line`, or the module."""
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(inside, key=lambda node: node.lineno, default=tree)


def _after(source: Source, scope: Scope, node: ast.stmt, statement: str) -> Splice | None:
    """Insert `statement` behind `node` of `scope`."""
    start, end = source.span(node)
    first = source.code.rfind(b"\n", 0, start) + 1
    indent = source.code[first:start]
    stop = source.code.find(b"\n", end)
    if indent.strip() or stop == -1 or b";" in source.code[end:stop]:
        return None
    stop -= source.code[stop - 1 : stop] == b"\r"
    scope.body.insert(scope.body.index(node) + 1, added(ast.parse(statement).body[0]))
    return stop, stop, source.newline + indent + statement.encode()
