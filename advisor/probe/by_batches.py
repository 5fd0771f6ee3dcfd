"""What the program does once a batch: draws for all its items, values in turn, numbers that decay.

One time of a diffusion model, or one weight of a mixture, that is drawn for a whole batch: an
update over 16 batches held 16 of them, and over one larger batch it holds one. A weight of the loss
that comes from `next(ramp)`, and a temperature that falls by `t * 0.999`, follow the batches in the
same way, and are no whole numbers that count them. Nothing of torch's tells any of these. They
stand in the code that runs with each backward pass: the innermost loop around it, the program's own
functions and networks that this loop calls, the collation of its batches and what yields their
indices. What lies in a loop further inside is done by items and not by batches; what an update
alone does, or only tells a person, is left out. No code of the program runs.
"""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import operator
import os
import random
import sys
import types
from typing import Any, Iterator, NamedTuple

from . import call_sites, set_in_loops
from .copied_weights import variables_of
from .loop_code import UNKNOWN
from .session import Session
from .source_code import tree_of

# By judgement: what a loop does stands near, and looking must not slow the first batch.
CALLS_DEEP = 4
"""Levels of calls that are followed from the loop."""
MOST_FUNCTIONS = 60
"""Functions that are followed from the loop."""
MOST_ELEMENTS = 8
"""Elements of a container whose calls are followed.

Judgement: fewer miss one of several losses in a dict, more read functions that are much alike."""
MOST_MODULES = 300
"""Modules of a network whose code is read.

Judgement: fewer miss layers of large networks, more slow the first batch."""
MOST_TOLD = 4
"""Expressions that are told.

Judgement: one is enough to refuse a batch, and more only help a reader. Many lengthen each record.
"""
TOLD_CHARS = 60
"""Characters of each that are kept.

Judgement: more break the sentence that quotes it, fewer cut it before the call that draws."""
MOST_VALUES = 64
"""Values reached from an iterator that are looked at.

Judgement: fewer take nested iterators over data for plain numbers, more slow the first batch for a
long list."""

CALL = "__call__"
"""Looked up on a type: `callable` says nothing of the function that would run."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""What lies in one is done by items, as in an inner loop."""
LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
"""Statements behind which the rest of a block does not run."""
COMPARISONS: dict[type, Any] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
PLAIN = (bool, int, float, str, type(None))
"""Types whose comparisons run no code of the program; a tuple of them is plain, too."""
UPDATES = frozenset(("step", "zero_grad"))
"""Methods whose code runs once an update."""
TELLING = (
    "print", "log", "info", "debug", "warn", "write", "scalar", "postfix", "description", "plot",
    "append", "save", "format", "wandb", "writer",
)  # fmt: skip
"""Parts of the names of functions that only tell a person, or keep what is told."""
SCALAR_OF_PYTHON = frozenset(
    (
        "random", "uniform", "randint", "randrange", "choice", "gauss", "betavariate", "triangular",
        "normalvariate", "expovariate", "gammavariate", "lognormvariate",
    )
)  # fmt: skip
"""Draws of one number, of Python's `random`."""
SEVERAL_OF_PYTHON = frozenset(("choices", "sample"))
"""Draws of as many as are asked for."""
PARAMETERS_OF_NUMPY = {
    "random": 0, "random_sample": 0, "rand": 0, "randn": 0, "standard_normal": 0, "uniform": 2,
    "normal": 2, "lognormal": 2, "beta": 2, "gamma": 2, "binomial": 2, "randint": 2, "integers": 2,
    "exponential": 1, "poisson": 1, "choice": 1, "dirichlet": 1,
}  # fmt: skip
"""Arguments before the size: without one, a single number is drawn."""
OF_TORCH = {"rand": 0, "randn": 0, "randint": 1, "randperm": 0}
"""Functions of torch's, and the arguments before those that may be a size."""
SIZES = ("size", "k")
"""Names of arguments that say how many are drawn."""
FILLED = frozenset(("empty", "zeros", "ones"))
"""Functions of torch's whose result a draw may fill."""
FILLING = frozenset(
    ("uniform_", "normal_", "bernoulli_", "exponential_", "log_normal_", "random_")
)
"""Methods that fill a tensor by a draw."""
SAMPLED = frozenset(("sample", "rsample"))
"""Methods of torch's distributions."""
DECAYING = frozenset(("lerp_", "mul_", "div_"))
"""Methods by which a tensor follows itself in its place."""


class Piece(NamedTuple):
    """Code that runs with each batch, and the variables that it sees."""

    body: list[Any]
    variables: dict[str, Any]
    loop: ast.AST | None
    """The loop, if this is its own body: its variables last from batch to batch."""
    file: str
    yields: bool = False
    """It yields the indices of batches, and draws of several are for the items of one."""


class Made(NamedTuple):
    """A function by which batches are made."""

    function: Any
    owner: Any
    yielding: bool
    """It yields one after the other, and is no call for each."""


def find(session: Session) -> None:
    """Read the code around the first backward pass, once."""
    if session.once_a_batch is not None or session.capture is not None:
        return
    session.once_a_batch = []
    try:
        told = _Reading(session).told()
        session.once_a_batch = list(dict.fromkeys(told))[:MOST_TOLD]
    except RecursionError:  # the program's stack is nearly full
        pass


def _pieces_of_stack() -> list[Piece]:
    """Functions under way, up to the innermost loop around the pass; empty without one.

    A library's loop over the batches calls the program in ways that its code does not show.
    """
    pieces: list[Piece] = []
    frame: Any = sys._getframe()
    while frame is not None:
        name = frame.f_code.co_filename
        if not call_sites.is_foreign(name):
            function, loops = set_in_loops.at(frame)
            body = loops[-1].body if loops else getattr(function, "body", [])
            variables = {**frame.f_globals, **variables_of(frame)}
            pieces.append(Piece(body, variables, loops[-1] if loops else None, name))
            if loops:
                return pieces
        elif pieces and f"{os.sep}torch{os.sep}" not in name:
            break
        frame = frame.f_back
    return []


def _items_of(session: Session) -> float | None:
    latest = (session.fed or {}).get("latest")
    return float(latest[0]) if latest else None


def _making(session: Session, outermost: Piece) -> Iterator[Made]:
    """What makes the batches of the loop: collation, a sampler, or a generator of the program's."""
    facts = session.fed or {}
    iterator = facts["iterator"]() if "iterator" in facts else None
    if iterator is not None:
        for function, owner in _functions_of(iterator._collate_fn, None):
            yield Made(function, owner, False)
        sampler = iterator._index_sampler if iterator._auto_collation else iterator._dataset
        yield from _yielding_of(sampler)
    gone_through = getattr(outermost.loop, "iter", None)
    while isinstance(gone_through, ast.Call):
        for function, owner in _called(gone_through, outermost.variables):
            yield from _yielding_of(function, owner)
        gone_through = next(iter(gone_through.args), None)
    if gone_through is not None:
        yield from _yielding_of(_value(gone_through, outermost.variables))


def _yielding_of(value: Any, owner: Any = None) -> Iterator[Made]:
    """A generator function of the program's own: itself, or by which an object is gone through."""
    if not isinstance(value, types.FunctionType):
        value, owner = getattr(type(value), "__iter__", None), value
    if _is_own(value) and value.__code__.co_flags & inspect.CO_GENERATOR:
        yield Made(inspect.unwrap(value), owner, True)


def _yielding(body: list[Any]) -> list[Any]:
    """Innermost statements of a loop among which a value is yielded: they run once for each."""
    found: list[Any] = []
    here = [(body, False)]
    while here:
        statements, in_loop = here.pop()
        for statement in statements:
            if isinstance(statement, set_in_loops.INNER):
                continue
            own = (each for part in _own_parts(statement) for each in ast.walk(part))
            if in_loop and any(isinstance(each, ast.Yield) for each in own):
                found = statements
            within = in_loop or isinstance(statement, LOOPS)
            inner = ("body", "orelse", "finalbody")
            here += [(getattr(statement, name, []), within) for name in inner]
    return found


class _Reading:
    """Reading of the code of one batch, from its loop on into the functions that it calls.

    Each function is read once, however often it is called. Numbers that decay are told at the end:
    only then it is known whether something sets them anew, and which files could compute with them.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._batch: float | None = None
        """Items of the latest batch: a draw of as many is one for each."""
        self._modules = [entry.module() for entry in session.modules]
        self._followed: set[Any] = set()
        """Functions that were read, or are being read."""
        self._decaying: dict[str, list[ast.stmt]] = {}
        """Statements by which a number follows itself, by what they set."""
        self._set_anew: set[str] = set()
        """What each batch sets to another value than its own last one, as the program writes it."""
        self._files: set[str] = set()
        """Files whose code was read."""

    def told(self) -> Iterator[str]:
        """What is drawn, taken or moved once a batch, in the program's words."""
        pieces = _pieces_of_stack()
        if not pieces:
            return
        self._batch = _items_of(self._session)
        for made in _making(self._session, pieces[-1]):
            if made.function not in self._followed:
                self._followed.add(made.function)
                pieces.append(
                    self._piece(made.function, made.owner, yielding=made.yielding)
                )
        for module in self._modules:  # whoever calls them
            for function, part in _forwards(module):
                if function not in self._followed:
                    self._followed.add(function)
                    pieces.append(self._piece(function, part))
        for piece in pieces:
            yield from self._read(piece, CALLS_DEEP)
        for name, statements in self._decaying.items():
            holder = name.split(".")[0].split("[")[0]  # `state` of `state["t"]`
            lasts = not {name, holder} & self._set_anew
            if lasts and any(
                _is_computed_with(tree_of(file), statements) for file in self._files
            ):
                yield ast.unparse(statements[0])[:TOLD_CHARS]

    def _read(self, piece: Piece, calls: int) -> Iterator[str]:
        """Read one piece; `calls`: further levels of calls to follow, here and below."""
        self._files.add(piece.file)
        self._set_anew |= _stored(getattr(piece.loop, "target", None))
        return self._block(piece.body, piece, calls, False)

    def _block(
        self, statements: list[Any], piece: Piece, calls: int, by_items: bool
    ) -> Iterator[str]:
        """Read statements in their order, without branches that are not taken.

        `by_items`: they lie in a further loop, so what they draw is no draw for the whole batch.
        """
        updating = _names_of_updates(statements)
        for statement in statements:
            if isinstance(statement, set_in_loops.INNER):
                continue
            if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                self._note_set(statement, piece.loop is not None)
            elif (decaying := _decaying_in_place(statement)) is not None:
                if piece.loop is not None or not isinstance(decaying, ast.Name):
                    key = ast.unparse(decaying)
                    self._decaying.setdefault(key, []).append(statement)
            else:
                self._set_anew |= set().union(*map(_stored, _own_parts(statement)))
            branch = isinstance(statement, ast.If)
            if not (branch and _only_tells(statement.body)):
                yield from self._expressions(statement, piece, calls, by_items)
            if not branch:
                within = by_items or isinstance(statement, LOOPS)
                for name in ("body", "orelse", "finalbody"):
                    inner = getattr(statement, name, [])
                    yield from self._block(inner, piece, calls, within)
                continue
            taken = truth(statement.test, piece.variables)
            apart = _is_of_update(statement, updating) or _only_tells(statement.body)
            if taken is not False and not apart:
                yield from self._block(statement.body, piece, calls, by_items)
            if taken is True and isinstance(statement.body[-1], LEAVES):
                return
            if taken is not True:
                yield from self._block(statement.orelse, piece, calls, by_items)

    def _expressions(
        self, statement: Any, piece: Piece, calls: int, by_items: bool
    ) -> Iterator[str]:
        """Read what a statement itself computes, without those inside it."""
        waiting = [(part, by_items) for part in _own_parts(statement)]
        while waiting:
            part, within = waiting.pop()
            within = within or isinstance(part, COMPREHENSIONS)
            if isinstance(part, ast.Call):
                yield from self._call(part, piece, calls, within)
            parts = list(_own_parts(part))
            if isinstance(part, ast.IfExp):
                taken = truth(part.test, piece.variables)
                left_out = part.orelse if taken else part.body if taken is False else None
                parts = [inner for inner in parts if inner is not left_out]
            waiting += [(inner, within) for inner in parts]

    def _call(
        self, call: ast.Call, piece: Piece, calls: int, by_items: bool
    ) -> Iterator[str]:
        """Tell a call that draws or takes a value, and read the functions that it runs."""
        variables = piece.variables
        in_turn = not piece.yields and _is_next(call, variables)  # else it takes an index
        if not by_items and (in_turn or self._is_draw(call, piece)):
            yield ast.unparse(call)[:TOLD_CHARS]
        for function, owner in _called(call, variables) if calls else ():
            if len(self._followed) < MOST_FUNCTIONS and function not in self._followed:
                self._followed.add(function)
                inner = self._piece(function, owner)
                inner.variables.update(_given(call, function, owner, variables))
                self._files.add(inner.file)
                yield from self._block(inner.body, inner, calls - 1, by_items)

    def _is_draw(self, call: ast.Call, piece: Piece) -> bool:
        """Return True for a draw for the whole batch; a size that each batch sets may follow it."""
        sizes = [*call.args, *(each.value for each in call.keywords if each.arg in SIZES)]
        parts = (part for size in sizes for part in ast.walk(size))
        named = {part.id for part in parts if isinstance(part, ast.Name)}
        size = None if named & self._set_anew else self._batch
        return _is_draw(call, piece.variables, size, single=piece.yields)

    def _piece(self, function: Any, owner: Any, *, yielding: bool = False) -> Piece:
        code = function.__code__
        tree = set_in_loops.function_of(code)
        variables = dict(function.__globals__)
        variables.update((name, UNKNOWN) for name in code.co_varnames)
        if owner is not None and code.co_argcount:
            variables[code.co_varnames[0]] = owner
        body = getattr(tree, "body", [])
        body = _yielding(body) if yielding else body
        return Piece(body, variables, None, code.co_filename, yielding)

    def _note_set(self, statement: Any, is_loop: bool) -> None:
        """Note what an assignment sets: by its own last value, or anew.

        A plain variable lasts from batch to batch only in the loop's own body.
        """
        targets = getattr(statement, "targets", None) or [statement.target]
        name = ast.unparse(targets[0])
        is_variable = isinstance(targets[0], ast.Name)
        if len(targets) == 1 and _follows_itself(statement, name):
            if is_loop or not is_variable:
                self._decaying.setdefault(name, []).append(statement)
        elif not isinstance(statement, ast.AugAssign):
            self._set_anew |= set().union(*map(_stored, targets))


# Which code belongs to the batch


def _own_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a statement or an expression, without statements and functions inside it."""
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, (ast.stmt, ast.ExceptHandler, *set_in_loops.INNER)):
            yield part


def _stored(target: ast.AST | None) -> set[str]:
    """What a target sets, as the program writes it."""
    parts = [] if target is None else list(ast.walk(target))
    stored = [part for part in parts if isinstance(getattr(part, "ctx", None), ast.Store)]
    return set(map(ast.unparse, stored))


def _given(
    call: ast.Call, function: Any, owner: Any, variables: dict[str, Any]
) -> dict[str, Any]:
    """Values of the arguments that a call gives, as far as they are known."""
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    values = dict(zip(names[len(names) - len(defaults) :], defaults))
    values.update(function.__kwdefaults__ or {})
    places = names[1:] if owner is not None else names
    values.update((name, _value(arg, variables)) for name, arg in zip(places, call.args))
    for keyword in call.keywords:
        if keyword.arg is None:  # `**settings`
            return {}
        values[keyword.arg] = _value(keyword.value, variables)
    return {} if any(isinstance(arg, ast.Starred) for arg in call.args) else values


def truth(test: ast.AST, variables: dict[str, Any]) -> bool | None:
    """Whether a condition holds by what is known of its variables now; None: unknown."""
    if isinstance(test, ast.BoolOp):
        parts = [truth(operand, variables) for operand in test.values]
        deciding = isinstance(
            test.op, ast.Or
        )  # one that is so decides, whatever the others are
        return deciding if deciding in parts else None if None in parts else not deciding
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        holds = truth(test.operand, variables)
        return None if holds is None else not holds
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        one, other = (_plain(side, variables) for side in (test.left, *test.comparators))
        compare = COMPARISONS.get(type(test.ops[0]))
        try:
            unknown = UNKNOWN in (one, other) or compare is None
            return None if unknown else bool(compare(one, other))  # type: ignore[misc]
        except TypeError:
            return None
    value = _plain(test, variables)
    return None if value is UNKNOWN else bool(value)


def _plain(part: ast.AST, variables: dict[str, Any]) -> Any:
    """Value of a plain expression; UNKNOWN for any other object, whose code might run."""
    value = _value(part, variables)
    if isinstance(part, (ast.Tuple, ast.List)):
        value = tuple(_plain(element, variables) for element in part.elts)
        return UNKNOWN if UNKNOWN in value else value
    parts = value if type(value) is tuple else (value,)
    return value if all(type(inner) in PLAIN for inner in parts) else UNKNOWN


def _forwards(module: Any) -> Iterator[tuple[Any, Any]]:
    """Functions of the program's own by which a network and its parts are called."""
    parts = module.modules() if hasattr(module, "modules") else ()
    for _, part in zip(range(MOST_MODULES), parts):
        function = getattr(type(part), "forward", None)
        if function is not None and _is_own(function):
            yield inspect.unwrap(function), part


def _called(call: ast.Call, variables: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The program's own functions that a call runs, each with the object that it is of."""
    function, owner = call.func, UNKNOWN
    if isinstance(function, ast.Attribute):
        owner = _value(function.value, variables)
        method = getattr(type(owner), function.attr, None)
        if owner is not UNKNOWN and isinstance(method, types.FunctionType):
            held = inspect.getattr_static(type(owner), function.attr)
            if _is_own(method):
                yield inspect.unwrap(method), None if type(held) is staticmethod else owner
            return
    if isinstance(function, ast.Subscript):
        container = _value(function.value, variables)
        elements = (
            list(container.values() if type(container) is dict else container)[
                :MOST_ELEMENTS
            ]
            if type(container) in (dict, list, tuple)
            else []
        )
    else:
        elements = [_value(function, variables)]
    for element in elements:
        yield from _functions_of(element, owner)


def _functions_of(element: Any, owner: Any) -> Iterator[tuple[Any, Any]]:
    """The program's own functions that a call of this object runs, each with what it is of."""
    called: Any
    if isinstance(element, functools.partial):
        element = element.func
    if isinstance(element, types.MethodType):
        called, of = element.__func__, element.__self__
    elif isinstance(element, types.FunctionType):
        called, of = element, None if owner is UNKNOWN else owner
    elif hasattr(type(element), "forward"):
        yield from _forwards(element)
        return
    else:
        called, of = getattr(type(element), CALL, None), element
    if _is_own(called):
        yield inspect.unwrap(called), of


def _is_own(function: Any) -> bool:
    """Return True for a function of the program's own code."""
    if not isinstance(function, types.FunctionType):
        return False
    return not call_sites.is_foreign(inspect.unwrap(function).__code__.co_filename)


def _value(part: ast.AST, variables: dict[str, Any]) -> Any:
    """Value of names, attributes and items, without a call of the program's code."""
    if isinstance(part, ast.Constant):
        return part.value
    if isinstance(part, ast.Name):
        return variables.get(part.id, UNKNOWN)
    if isinstance(part, ast.Attribute):
        return set_in_loops.attribute(_value(part.value, variables), part.attr)
    if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant):
        return set_in_loops.item(_value(part.value, variables), part.slice.value)
    return UNKNOWN


def _names_of_updates(body: list[Any]) -> set[str]:
    """Variables that say whether an update is due: `last = (i + 1) % accumulation == 0`."""
    return {
        target.id
        for statement in body
        for part in ast.walk(statement)
        if isinstance(part, ast.Assign) and _has_modulo(part.value)
        for target in part.targets
        if isinstance(target, ast.Name)
    }


def _has_modulo(part: ast.AST) -> bool:
    return any(isinstance(getattr(node, "op", None), ast.Mod) for node in ast.walk(part))


def _is_of_update(branch: ast.If, updating: set[str]) -> bool:
    """Return True for a branch that some batches take: an update, or each n-th batch."""
    names = {name for part in ast.walk(branch.test) for name in _names(part)}
    called = {
        name
        for statement in branch.body
        for part in ast.walk(statement)
        if isinstance(part, ast.Call)
        for name in _names(part.func)
    }
    return (
        _has_modulo(branch.test)
        or bool(names & updating)
        or any("sync" in name or "accumul" in name for name in names)
        or bool(called & UPDATES)
    )


def _names(part: ast.AST) -> list[str]:
    """Last name of a variable or attribute, alone in a list; no name of other nodes."""
    name = getattr(part, "id", None) or getattr(part, "attr", None)
    return [name] if isinstance(name, str) else []


def _only_tells(body: list[Any]) -> bool:
    """Return True for a branch that does nothing but log or print."""
    return all(
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and _tells(statement.value)
        for statement in body
    )


def _tells(call: ast.Call) -> bool:
    words = " ".join(name for part in ast.walk(call.func) for name in _names(part)).lower()
    return any(word in words for word in TELLING)


# Draws, and values in turn


def _is_draw(
    call: ast.Call, variables: dict[str, Any], batch: float | None, *, single: bool
) -> bool:
    """Return True for a draw of one number or, if not `single`, of as many whatever the batch is.

    Without a batch, a size has to be written out: it might be that of one.
    """
    function = call.func
    name = (_names(function) or [""])[0]
    owner = (
        _value(function.value, variables)
        if isinstance(function, ast.Attribute)
        else UNKNOWN
    )
    if owner is UNKNOWN:  # `from random import random`
        owner = getattr(_value(function, variables), "__self__", UNKNOWN)

    def fixed(*sizes: ast.AST) -> bool:
        if single:
            return all(ast.unparse(each) in ("1", "(1,)", "[1]") for each in sizes)
        return all(_is_fixed(each, variables, batch) for each in sizes)

    sizes = [each.value for each in call.keywords if each.arg in SIZES]
    if owner is random or isinstance(owner, random.Random):
        several = name in SEVERAL_OF_PYTHON and fixed(*sizes, *call.args[1:])
        return name in SCALAR_OF_PYTHON or several
    kind = getattr(owner, "__name__", "") if isinstance(owner, types.ModuleType) else ""
    of_numpy = kind == "numpy.random" or type(owner).__module__.startswith("numpy.random")
    if of_numpy and name in PARAMETERS_OF_NUMPY:
        return fixed(*sizes, *call.args[PARAMETERS_OF_NUMPY[name] :])
    if kind == "torch" and name in OF_TORCH:
        given = [*call.args[OF_TORCH[name] :], *sizes]
        if name == "randint":  # from 0, or from another number
            given = given[-1:]
        return bool(given) and fixed(*given)
    inner = getattr(function, "value", None)
    if name in FILLING and isinstance(inner, ast.Call):  # `torch.empty(1).uniform_()`
        return (_names(inner.func) or [""])[0] in FILLED and fixed(*inner.args)
    return name in SAMPLED and fixed(*call.args, *sizes) and _is_of_one(inner, variables)


def _is_of_one(part: Any, variables: dict[str, Any]) -> bool:
    """Return True for a distribution of torch's over one number, or over a fixed few."""
    kind, parameters = type(_value(part, variables)), []
    if isinstance(part, ast.Call):  # `Beta(alpha, alpha).sample()`
        kind = _value(part.func, variables)
        parameters = [*part.args, *(each.value for each in part.keywords)]
    elif shape := getattr(_value(part, variables), "__dict__", {}).get("_batch_shape"):
        return not tuple(shape)
    of_torch = getattr(kind, "__module__", "").startswith("torch.distributions")
    return of_torch and all(_is_plain_number(each, variables) for each in parameters)


def _is_plain_number(part: ast.AST, variables: dict[str, Any]) -> bool:
    """Return True for a number, and for a tensor of numbers that are written out."""
    if isinstance(part, ast.Call):
        return all(map(_is_constant, part.args))
    return type(_value(part, variables)) in (int, float)


def _is_fixed(part: ast.AST, variables: dict[str, Any], batch: float | None) -> bool:
    """Return True for a size, or a shape, that no batch has a part in."""
    if _is_constant(part) or batch is None:
        return _is_constant(part)
    if isinstance(part, (ast.Tuple, ast.List)):
        return all(_is_fixed(each, variables, batch) for each in part.elts)
    value = _value(part, variables)
    return type(value) is int and value != batch


def _is_constant(part: ast.AST) -> bool:
    """Return True for a number, and for a shape of numbers."""
    return all(
        isinstance(node, (ast.Constant, ast.Tuple, ast.List, ast.expr_context))
        for node in ast.walk(part)
    )


def _is_next(call: ast.Call, variables: dict[str, Any]) -> bool:
    """Return True for the next of an iterator over plain values: none of data."""
    if (_names(call.func) or [""])[0] not in ("next", "__next__"):
        return False
    of = call.args[0] if call.args else getattr(call.func, "value", call.func)
    iterator = _value(of, variables)
    return hasattr(type(iterator), "__next__") and _holds_plain_values(iterator)


def _holds_plain_values(iterator: Any) -> bool:
    """Return True for an iterator from which only numbers and texts are reached, and no data.

    Reached are variables of generators, elements of lists, and what iterators of Python hold.
    """
    waiting, seen = [iterator], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        frame = getattr(value, "gi_frame", None)
        if len(seen) > MOST_VALUES:
            return True  # a long list of numbers
        if frame is not None:
            waiting += list(variables_of(frame).values())
        elif isinstance(value, (list, tuple)):
            waiting += list(value[:MOST_ELEMENTS])
        elif hasattr(type(value), "__next__") and type(value).__module__ in (
            "builtins",
            "itertools",
        ):
            waiting += gc.get_referents(value)
        elif not isinstance(value, (bool, int, float, str, range, type(None), type)):
            return False
    return True


# Numbers that follow themselves


def _follows_itself(statement: Any, name: str) -> bool:
    """Return True for `x *= 0.99`, `x = 0.9 * x + 0.1 * y`, and `x = min(1.0, x + 1e-4)`."""
    if isinstance(statement, ast.AugAssign):
        moves = isinstance(statement.op, (ast.Mult, ast.Div, ast.Pow))
        return moves or _is_ramp(statement.op, statement.value)
    for part in ast.walk(statement.value) if statement.value is not None else ():
        if isinstance(part, ast.BinOp):
            sides = [part.left, part.right]
            itself = [side for side in sides if ast.unparse(side) == name]
            others = [side for side in sides if side not in itself]
            if itself and isinstance(part.op, ast.Mult):
                return True
            if itself and others and _is_ramp(part.op, others[0]):
                return True
    return False


def _decaying_in_place(statement: Any) -> Any:
    """What `centre.mul_(0.9).add_(mean)` moves; None for any other statement."""
    part: Any = statement.value if isinstance(statement, ast.Expr) else None
    decays = False
    while isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
        decays = decays or part.func.attr in DECAYING
        part = part.func.value
    plain = isinstance(part, (ast.Name, ast.Attribute))
    return part if decays and plain and "grad" not in _names(part) else None


def _is_ramp(op: ast.operator, step: ast.AST) -> bool:
    """Return True for a fraction that is added: a whole number is a count, and told as one."""
    fraction = isinstance(step, ast.Constant) and isinstance(step.value, float)
    return isinstance(op, (ast.Add, ast.Sub)) and fraction


def _is_computed_with(tree: ast.Module, statements: list[Any]) -> bool:
    """Return True if code beside these statements computes with what they set.

    What is printed, returned or kept in a dict as it is, only tells a person. An attribute of
    `self` is looked for as such only in the class that sets it, and elsewhere by its name.
    """
    first = statements[0]
    target = _decaying_in_place(first) or getattr(first, "target", None) or first.targets[0]
    name = (_names(target) or [""])[0]
    of_self = ast.unparse(target).startswith("self.")
    setting = {(statement.lineno, ast.dump(statement)) for statement in statements}
    waiting: list[tuple[Any, bool]] = [(tree, not of_self)]
    while waiting:
        part, in_its_class = waiting.pop()
        if isinstance(part, ast.stmt) and (part.lineno, ast.dump(part)) in setting:
            continue
        if isinstance(part, ast.ClassDef) and of_self:
            inside = (node for node in ast.walk(part) if isinstance(node, ast.stmt))
            in_its_class = any((node.lineno, ast.dump(node)) in setting for node in inside)
        if isinstance(part, (ast.JoinedStr, ast.Return, ast.Dict)) and not any(
            isinstance(node, (ast.BinOp, ast.Call)) for node in ast.iter_child_nodes(part)
        ):
            continue
        if isinstance(part, ast.Call) and _tells(part):
            continue
        if name in _names(part) and isinstance(getattr(part, "ctx", None), ast.Load):
            owner = getattr(getattr(part, "value", None), "id", "")
            if in_its_class or owner != "self":
                return True
        waiting += [(node, in_its_class) for node in ast.iter_child_nodes(part)]
    return False


def content(session: Session) -> list[str]:
    """What is drawn, taken or moved once a batch, in the program's words."""
    return session.once_a_batch or []
