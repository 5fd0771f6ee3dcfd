"""What the program's code sets in the loops around a pass over its data.

A short trial may never reach a second pass, nor the batch at which a level rises. That the
dataset is told something (`dataset.epoch = epoch`, `progress["level"] = 3`) then stands in the
code only: in a loop around the line that begins the pass, in the loop over its batches, or in a
function of the program that one of them calls. Whose attribute it is, is looked up in the
variables of the functions under way: `meter.update()` sets nothing of a dataset's. Where that
cannot be told, the name alone tells. No code of the program runs.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from typing import Any, Iterator

from . import call_sites, source_code
from .copied_weights import variables_of
from .item_making import Settable
from .loop_code import UNKNOWN

# By judgement: what a loop sets stands near, and looking must not slow the first batch.
CALLS_DEEP = 3
"""Levels of calls that are followed from one loop."""
MOST_FUNCTIONS = 50
"""Functions that are followed from one loop."""
CHANGING = {
    "append", "appendleft", "extend", "insert", "add", "update", "setdefault", "clear", "pop",
    "popleft", "popitem", "remove", "discard",
}  # fmt: skip
"""Methods that change Python's containers."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
INNER = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
"""Code that does not run where it stands."""
Index = dict[tuple[str, int], Any]
"""Functions of a file by name and first line, that of a decorator included."""


def around(state: Settable) -> tuple[set[str], set[str]]:
    """Names of the `state` that loops under way set, and all attributes that they name.

    Only functions of the program's own are looked at, each in the loops that enclose the line at
    which it waits.
    """
    found: set[str] = set()
    named: set[str] = set()
    for frame in call_sites.own_frames():
        for loop in _enclosing(frame)[:1]:
            found |= _set_in(loop, frame, state)
            named |= {
                part.attr for part in _within(loop) if isinstance(part, ast.Attribute)
            }
    return found, named


def inside(state: Settable) -> set[str]:
    """Names that are set in the loop whose pass is about to begin.

    That is the loop at the line at which the innermost function of the program waits, or the
    next one in it. A generator and an iterator's method are driven by a loop of their caller's.
    """
    found: set[str] = set()
    driven = False
    for frame in call_sites.own_frames():
        loop = _loop_of_the_pass(frame, driven)
        if loop is not None:
            found |= _set_in(loop, frame, state)
        code = frame.f_code
        driven = bool(code.co_flags & inspect.CO_GENERATOR) or code.co_name == "__next__"
        if not driven and code.co_name != "__iter__":
            break
    return found


def function_at(name: str, line: int) -> ast.AST:
    """Innermost function of a file at the line."""
    return _at(name, line)[0]


def function_of(code: Any) -> Any:
    """Function of that code in its file; None where it cannot be read."""
    return _tree(code.co_filename)[1].get((code.co_name, code.co_firstlineno))


def at(frame: Any) -> tuple[ast.AST, list[Any]]:
    """Innermost function at the line at which a frame waits, and its loops around that line."""
    return _at(frame.f_code.co_filename, frame.f_lineno)


# Loops


def _enclosing(frame: Any) -> list[Any]:
    """Loops around the line at which a function waits, the outermost first."""
    return at(frame)[1]


def _loop_of_the_pass(frame: Any, driven: bool) -> Any:
    """Loop that takes the items: at the line itself, around a `next()`, or behind it."""
    name, line = frame.f_code.co_filename, frame.f_lineno
    function, around = _at(name, line)
    loops = sorted(
        (part for part in _within(function) if isinstance(part, LOOPS)),
        key=lambda loop: loop.lineno,
    )
    for loop in loops:
        if loop.lineno <= line < loop.body[0].lineno:
            return loop
    if driven and around:
        return around[-1]
    return next((loop for loop in loops if loop.lineno >= line), None)


@functools.lru_cache(maxsize=64)
def _at(name: str, line: int) -> tuple[ast.AST, list[Any]]:
    """Innermost function of a file at the line, and its loops around it."""
    function: ast.AST = _tree(name)[0]
    loops: list[Any] = []
    here: list[ast.AST] = [function]
    while here:
        node = here.pop()
        if isinstance(node, FUNCTIONS):
            function, loops = node, []
        elif isinstance(node, LOOPS) and _spans(node.body, line):
            loops.append(node)
        here += [part for part in ast.iter_child_nodes(node) if _spans([part], line)]
    return function, loops


def _spans(nodes: list[Any], line: int) -> bool:
    """Return True for statements, from the first to the last of which the line lies."""
    first, last = getattr(nodes[0], "lineno", None), getattr(nodes[-1], "end_lineno", None)
    statement = isinstance(nodes[0], (ast.stmt, ast.ExceptHandler, ast.match_case))
    if isinstance(nodes[0], ast.match_case):
        first, last = nodes[0].body[0].lineno, nodes[0].body[-1].end_lineno
    return statement and first is not None and first <= line <= (last or first)


def _within(node: ast.AST) -> Iterator[Any]:
    """Parts of a piece of code that run with it."""
    here: list[ast.AST] = [node]
    while here:
        part = here.pop()
        yield part
        here += [
            inner for inner in ast.iter_child_nodes(part) if not isinstance(inner, INNER)
        ]


@functools.lru_cache(maxsize=16)
def _tree(name: str) -> tuple[ast.Module, Index]:
    """A file of the program, and its functions."""
    tree = source_code.tree_of(name)
    index: Index = {}
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            for line in [
                node.lineno,
                *(decorator.lineno for decorator in node.decorator_list),
            ]:
                index[node.name, line] = node
    return tree, index


# What they set


class _Scope:
    """Variables that a piece of code sees, as far as they hold still."""

    def __init__(self, code: Any, variables: Any, outer: Any, node: ast.AST) -> None:
        self._variables, self._outer = variables, outer
        own = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
        self._own = set() if variables is outer else set(own)
        self._shared = {*code.co_cellvars, *code.co_freevars}
        self._bound = {
            part.id
            for part in _within(node)
            if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)
        }

    def key(self, name: str) -> tuple[int, str]:
        """The variable of that name, as `Settable.variables` has it."""
        if name in self._own:
            return (0 if name in self._shared else -1), name
        return id(self._outer), name

    def value(self, node: ast.AST) -> Any:
        """Value of an expression of names, attributes and items."""
        if isinstance(node, ast.Name):
            if node.id in self._bound:
                return UNKNOWN
            of = self._variables if node.id in self._own else self._outer
            return of.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            return attribute(self.value(node.value), node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return item(self.value(node.value), node.slice.value)
        return UNKNOWN


def attribute(owner: Any, name: str) -> Any:
    """Attribute of an object, a class or a module, if no code makes it."""
    own = getattr(owner, "__dict__", {})
    own = own if isinstance(own, (dict, types.MappingProxyType)) else {}
    places = [
        own,
        *(own.get(part) or {} for part in ("_modules", "_parameters", "_buffers")),
    ]
    for place in places:  # those of a network lie in its parts
        if isinstance(place, (dict, types.MappingProxyType)) and name in place:
            return place[name]
    for base in type(owner).__mro__:
        if name in vars(base):
            found = vars(base)[name]
            return UNKNOWN if hasattr(type(found), "__get__") else found
    return UNKNOWN


def item(owner: Any, key: Any) -> Any:
    if isinstance(owner, dict):
        return dict.get(owner, key, UNKNOWN)
    if isinstance(owner, list) and type(key) is int and -len(owner) <= key < len(owner):
        return list.__getitem__(owner, key)
    return UNKNOWN


def _set_in(loop: ast.AST, frame: Any, state: Settable) -> set[str]:
    try:
        scope = _Scope(frame.f_code, variables_of(frame), frame.f_globals, loop)
        return set(_Look(state).names(loop, scope, CALLS_DEEP))
    except RecursionError:  # the program's stack is nearly full
        return set()


class _Look:
    """Search of one loop, and of the functions that it calls."""

    def __init__(self, state: Settable) -> None:
        self._state = state
        self._followed: set[Any] = set()

    def names(self, node: ast.AST, scope: _Scope, calls: int) -> Iterator[str]:
        """Names of the state that a piece of code sets."""
        for part in _within(node):
            stored = not isinstance(getattr(part, "ctx", ast.Load()), ast.Load)
            if isinstance(part, ast.Call):
                yield from self._called(part, scope, calls)
            elif isinstance(part, ast.Subscript) and stored:
                yield from self._changed(part.value, scope)
            elif isinstance(part, ast.Attribute) and stored:
                yield from self._set(scope.value(part.value), part.attr)
            elif isinstance(part, ast.Name) and stored:
                yield from {part.id} if scope.key(part.id) in self._state.variables else ()

    def _set(self, owner: Any, name: str) -> Iterator[str]:
        if self._state.is_set(owner, name):
            yield name

    def _changed(self, container: ast.AST, scope: _Scope) -> Iterator[str]:
        """Name of a container of the state that code changes."""
        reached = self._state.reaches(scope.value(container))
        while isinstance(container, ast.Subscript):
            container = container.value
        if isinstance(container, ast.Attribute):
            if reached or (reached is None and container.attr in self._state.attributes):
                yield container.attr
        elif isinstance(container, ast.Name):
            known = scope.key(container.id) in self._state.variables
            if reached or (reached is None and known):
                yield container.id

    def _called(self, call: ast.Call, scope: _Scope, calls: int) -> Iterator[str]:
        """Names that a call sets: by a method of the state, of a container, or by `setattr`."""
        function, owner = call.func, UNKNOWN
        if isinstance(function, ast.Attribute):
            owner, name = scope.value(function.value), function.attr
            reached = self._state.reaches(owner)
            # as `tensor.fill_()`
            in_place = name.endswith("_") and not name.startswith("_")
            if name in self._state.methods:
                yield from {name} if reached is not False else ()
            elif name in CHANGING or (in_place and reached):
                yield from self._changed(function.value, scope)
        elif (
            isinstance(function, ast.Name)
            and function.id == "setattr"
            and len(call.args) > 1
        ):
            target, attribute = call.args[:2]
            if isinstance(attribute, ast.Constant):
                yield from self._set(scope.value(target), str(attribute.value))
        if calls:
            yield from self._follow(call, scope, owner, calls)

    def _follow(
        self, call: ast.Call, scope: _Scope, owner: Any, calls: int
    ) -> Iterator[str]:
        """Names that a function of the program's own sets, if it can be told which is called."""
        function = _function(call.func, scope, owner)
        code = getattr(function, "__code__", None)
        if code is None or code in self._followed or len(self._followed) >= MOST_FUNCTIONS:
            return
        self._followed.add(code)
        node = _tree(code.co_filename)[1].get((code.co_name, code.co_firstlineno))
        if node is None:
            return
        of_object = isinstance(call.func, ast.Attribute) and not isinstance(
            owner, types.ModuleType
        )
        given = [owner] * of_object + [scope.value(argument) for argument in call.args]
        variables = dict(zip(code.co_varnames[: code.co_argcount], given))
        variables.update(
            (keyword.arg, scope.value(keyword.value)) for keyword in call.keywords
        )
        cells = zip(code.co_freevars, function.__closure__ or ())
        variables.update(
            (name, cell.cell_contents) for name, cell in cells if _is_bound(cell)
        )
        body = ast.Module(node.body, [])
        inner = _Scope(code, variables, function.__globals__, body)
        yield from self.names(body, inner, calls - 1)


def _function(node: ast.AST, scope: _Scope, owner: Any) -> Any:
    """Function of the program's own that a call runs; None where that cannot be told."""
    found: Any = None
    if isinstance(node, ast.Attribute) and owner is not UNKNOWN:
        held = owner if isinstance(owner, types.ModuleType) else type(owner)
        found = next(
            (
                vars(base)[node.attr]
                for base in getattr(held, "__mro__", [held])
                if node.attr in vars(base)
            ),
            None,
        )
    elif isinstance(node, ast.Name):
        found = scope.value(node)
    if isinstance(found, types.FunctionType):
        found = inspect.unwrap(found)  # as of `torch.no_grad`
    is_own = isinstance(found, types.FunctionType) and not call_sites.is_foreign(
        found.__code__.co_filename
    )
    return found if is_own else None


def _is_bound(cell: Any) -> bool:
    try:
        return cell.cell_contents is not UNKNOWN
    except ValueError:
        return False
