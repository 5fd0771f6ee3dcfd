"""Python configs: literals of the syntax tree, never run.

Leaves are written out: `batch_size = 32`, keywords of calls (`dict(batch_size=32)`,
`L(build_loader)(total_batch_size=16)`), dict values, list items, class fields, and parts
that are set (`train.max_iter = 90000`, `cfg["lr"] = 0.1`). One that is computed, set
under a condition, or changed again says why it is left.

Of a path that is set twice the last plain value is the leaf. If the later one is a call or
stands under a condition, an earlier leaf stays and says why it cannot be edited.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Sequence

from advisor.config import spelling
from advisor.config.leaves import COMPUTED, Scalar, Syntax, line_starts, syntax_error
from advisor.config.spelling import is_number
from advisor.model import JsonScalar

_PLAIN_TEXT = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"", re.DOTALL)
_BLOCKS = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.Match)
_PART_END = re.compile(r"[.\[]")
_HOLDERS = {"dict", "list", "tuple", "set"}


def parse(text: str, name: str) -> Iterable[Scalar]:
    if "\0" in text:
        raise syntax_error(name, text, text.index("\0"), "not valid Python: it holds a NUL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is the program's own affair
            tree = ast.parse(text)
        reader = _Reader(text)
        reader.body(tree.body, "", None)
    except SyntaxError as problem:
        at = problem.lineno or 1, max(problem.offset or 1, 1)
        raise syntax_error(name, text, at, f"not valid Python: {problem.msg}") from problem
    return reader.found.values()


def spell_text(value: str, old: str) -> str:
    quoted = repr(value)
    if old[:1] == '"' and quoted[0] == "'" and '"' not in value:
        return f'"{quoted[1:-1]}"'
    return quoted


class Places:
    """Places of nodes in the text of a tree, in characters."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = line_starts(text)
        self._ascii = text.isascii()

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        start = self._offset(node.lineno, node.col_offset)
        # The parser always sets both ends; only their types allow None.
        return start, self._offset(node.end_lineno or 0, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        """Character offset of the parser's line and byte."""
        start = self._starts[line - 1]
        if self._ascii:
            return start + column
        end = self._starts[line] if line < len(self._starts) else len(self._text)
        return start + len(self._text[start:end].encode()[:column].decode())


class _Reader:
    """Scalars of one syntax tree by path."""

    def __init__(self, text: str) -> None:
        self.found: dict[str, Scalar] = {}
        self._above: set[str] = set()
        """Every path that ever was a leaf, or an ancestor of one."""
        self._text = text
        self._places = Places(text)

    def body(self, body: Sequence[ast.stmt], path: str, reason: str | None) -> None:
        """Read statements; `reason` prevents their edit."""
        for node in body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    several = (
                        "it is assigned to several names" if len(node.targets) > 1 else None
                    )
                    self._assign(target, node.value, path, reason or several)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._assign(node.target, node.value, path, reason)
            elif (changed := _changed_by(node)) is not None:
                place = self._place(changed, path)
                self._mark(place, f"it is changed again on line {node.lineno}")
            elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.body(node.body, spelling.member(path, node.name), reason)
            elif isinstance(node, _BLOCKS):
                self._block(node, path, reason)
            elif isinstance(node, ast.Return) and isinstance(
                node.value, (ast.Call, ast.Dict)
            ):
                self._value(node.value, path, reason)

    def _block(self, node: ast.stmt, path: str, reason: str | None) -> None:
        if not isinstance(node, ast.With):
            reason = (
                reason or f"it is set under a condition or in a loop, line {node.lineno}"
            )
        for field in ("body", "orelse", "finalbody"):
            self.body(getattr(node, field, ()), path, reason)
        for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self.body(inner.body, path, reason)

    def _assign(
        self, target: ast.expr, value: ast.expr, path: str, reason: str | None
    ) -> None:
        place = self._place(target, path)
        if place is None:
            for inner in ast.walk(target):  # `a, b = 1, 2`, or no path: `cfg[i] = 3`
                if isinstance(inner, ast.Name):
                    again = spelling.member(path, inner.id)
                    self._mark(again, f"it is set on line {target.lineno}")
        elif (reason or isinstance(value, ast.Call)) and self._below(place):
            # A call may read the old value and change a part: earlier leaves stay, marked.
            self._mark(place, reason or f"it is changed again on line {target.lineno}")
        else:
            self._forget(place)
            self._value(value, place, reason)

    def _below(self, place: str | None) -> list[str]:
        """Paths of the leaves at `place` and below it."""
        if place not in self._above:
            return []
        inside = (f"{place}.", f"{place}[")
        return [path for path in self.found if path == place or path.startswith(inside)]

    def _forget(self, place: str) -> None:
        for path in self._below(place):
            del self.found[path]

    def _mark(self, place: str | None, reason: str) -> None:
        for path in self._below(place):
            self.found[path] = self.found[path]._replace(why=reason)

    def _place(self, target: ast.expr, path: str) -> str | None:
        """Path of `x`, `cfg.a.b` or `cfg["a"].b`."""
        if isinstance(target, ast.Name):
            return spelling.member(path, target.id)
        if isinstance(target, ast.Attribute):
            above = self._place(target.value, path)
            return None if above is None else spelling.member(above, target.attr)
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            above, key = self._place(target.value, path), target.slice.value
            if above is None or not isinstance(key, (str, int)) or isinstance(key, bool):
                return None
            return spelling.member(above, key)
        return None

    def _value(self, node: ast.expr, path: str, reason: str | None) -> None:
        if isinstance(node, ast.Call):
            before = len(self.found)
            self._members(node, path, reason)
            name = ast.unparse(node.func).rpartition(".")[2]
            # a function computes a value, and a class without literals is an object of its own
            if len(self.found) == before and name[:1].islower() and name not in _HOLDERS:
                self._leaf(node, path, reason)
        elif isinstance(node, ast.Dict):
            for key, inner in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    place = spelling.member(path, key.value)
                    self._forget(place)  # a key that is written twice
                    self._value(inner, place, reason)
        elif isinstance(node, (ast.List, ast.Tuple)):
            for number, item in enumerate(node.elts):
                self._value(item, spelling.member(path, number), reason)
        else:
            self._leaf(node, path, reason)

    def _members(self, call: ast.Call, path: str, reason: str | None) -> None:
        if isinstance(call.func, ast.Call):
            self._members(call.func, path, reason)
        for number, argument in enumerate(call.args):
            place = path if len(call.args) == 1 else spelling.member(path, number)
            if isinstance(argument, ast.Call):
                self._members(argument, place, reason)
            elif isinstance(argument, ast.Dict):
                self._value(argument, place, reason)
        for word in call.keywords:
            if word.arg:
                self._value(word.value, spelling.member(path, word.arg), reason)

    def _leaf(self, node: ast.expr, path: str, reason: str | None) -> None:
        start, end = self._places.span(node)
        text = self._text[start:end]
        value: JsonScalar = None
        if is_literal(node):
            value = ast.literal_eval(node)
            if isinstance(value, str) and not _PLAIN_TEXT.fullmatch(text):
                reason = reason or "it is no plain text in one pair of quotes"
        elif isinstance(node, ast.Constant):
            return  # bytes, an ellipsis: no setting
        else:
            reason = f"{COMPUTED}: {' '.join(text.split())[:60]}"
        self.found[path] = Scalar(path, value, start, end, reason)
        self._above |= {path, *(path[: end.start()] for end in _PART_END.finditer(path))}


def _changed_by(node: ast.stmt) -> ast.expr | None:
    """Target that a statement such as `n *= 2` or `m.update(n=4)` changes."""
    if isinstance(node, ast.AugAssign):
        return node.target
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return call.func.value if call.func.attr == "update" else None
    return None


def is_literal(node: ast.AST) -> bool:
    """True for text, a number, a boolean or None as a literal; a number may have a sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = node.operand
        return isinstance(inner, ast.Constant) and is_number(inner.value)
    return isinstance(node, ast.Constant) and isinstance(node.value, JsonScalar)


SYNTAX = Syntax(parse=parse, spell_text=spell_text, null="None", true="True")
