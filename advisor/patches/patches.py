"""Patches for Python code: loader arguments, global statements, calls of a model.

Without a certain place there is no patch: a wrong one costs its user more than none. Each edit is
made twice, as splices of the text, so that all other bytes stay, and on the syntax tree, which
says what is meant. The spliced text is parsed again and must be that tree. A quote, a bracket
or a line end that was misread is found by this, without a rule for each. Files are only read.
"""

import ast
import builtins
import difflib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.config.leaves import Splice, spliced
from advisor.config.python import Places
from advisor.knobs.registry import loader_arguments
from advisor.model import JsonScalar
from advisor.patches import fields, names
from advisor.patches.fields import Place

LINES = re.compile(r"[^\n]*\n|[^\n]+")
NO_LINE_END = "\\ No newline at end of file"
IMPORTS = (ast.Import, ast.ImportFrom)
POSITIONS = ("dataset", "batch_size", "shuffle")
"""DataLoader parameters that people give without a name."""
NEEDS_WORKERS = {*loader_arguments("workers"), "multiprocessing_context", "timeout"}
"""Arguments that a DataLoader refuses without workers."""
ARGUMENTS = {
    kind: f"dataloader_{kind}" for kind in loader_arguments() if kind != "in_order"
}
"""Names of loader arguments in transformers' TrainingArguments."""
TRAINER_METHODS = {"train", "evaluate", "predict"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFile:
    """Text of a Python file, its tree, and its places as read."""

    code: str
    tree: ast.Module
    places: Places
    path: Path
    folder: Path
    """Root of the program's own files."""

    @property
    def newline(self) -> str:
        """The file's line end."""
        return "\r\n" if "\r\n" in self.code else "\n"

    def is_seen_elsewhere(self, binding: names.Binding) -> bool:
        """True if other files of the program may read the name that `binding` binds."""
        return names.is_seen_elsewhere(self.tree, binding, self.path, self.folder)


Edit = Callable[[PythonFile], list[Splice] | None]
"""Change of a tree, and like splices of code; None if impossible."""


def all_edits(edits: Sequence[Edit], source: PythonFile) -> list[Splice] | None:
    """Several edits of one file; None unless each is possible beside the others."""
    splices: list[Splice] = []
    for edit in edits:
        new_splices = edit(source)
        if new_splices is None:
            return None
        splices += new_splices
    return splices


def _given_by(
    line: int, values: Mapping[str, JsonScalar], source: PythonFile
) -> tuple[ast.Call, Mapping[str, str]] | None:
    """The DataLoader call at `line`, or the only TrainingArguments; and how it spells `values`.

    transformers builds its loader inside a method of its Trainer, so the line that was seen is the
    call of that method. The values then belong into the arguments that the file gives it.
    """
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    here = [call for call in calls if _covers(call, line)]
    loader_names = _loader_names(source)
    loaders = [call for call in here if last_name(call.func) in loader_names]
    if len(loaders) == 1:
        return loaders[0], {name: name for name in values}
    called = {last_name(call.func) for call in here}
    phase = "train" if "train" in called else "eval"
    spelled = ARGUMENTS | {"batch_size": f"per_device_{phase}_batch_size"}
    given = [c for c in calls if (last_name(c.func) or "").endswith("TrainingArguments")]
    if (
        len(given) != 1
        or not called & TRAINER_METHODS
        or not values.keys() <= spelled.keys()
    ):
        return None
    return given[0], {name: spelled[name] for name in values}


def loader_edit(
    line: int, values: Mapping[str, JsonScalar], source: PythonFile
) -> list[Splice] | None:
    """Set literals of the call that gives the loader at `line` its arguments."""
    giver = _given_by(line, values, source)
    if giver is None:
        return None
    call, spelled = giver
    return _set_arguments(source, call, {spelled[n]: v for n, v in values.items()})


def fields_given(
    path: Path, cwd: Path, line: int, values: Mapping[str, JsonScalar]
) -> dict[str, str]:
    """Field that the loader's call at `line` reads for each of `values`, where it reads one.

    `batch_size=config.bs` reads `bs`. A `num_workers` of 0 is left out where the call has arguments
    that need workers: DataLoader would refuse them, so setting the field alone is no patch.
    """
    source = _read(path, cwd)
    giver = _given_by(line, values, source) if source else None
    if giver is None:
        return {}
    call, spelled = giver
    words = dict(zip(POSITIONS, call.args, strict=False))
    words |= {word.arg: word.value for word in call.keywords if word.arg}
    if values.get("num_workers") == 0 and (
        NEEDS_WORKERS & words.keys() or any(word.arg is None for word in call.keywords)
    ):
        return {}
    read = {
        name: fields.field_of(words[spelled[name]])
        for name in values
        if spelled[name] in words
    }
    return {name: field for name, field in read.items() if field is not None}


def field_edit(field: str, value: JsonScalar, source: PythonFile) -> list[Splice] | None:
    """Set `field` to `value` at the one place where the file sets it."""
    places = fields.uses_of(source.tree, field).places
    if len(places) != 1:
        return None
    span = source.places.span(places[0].written)
    places[0].put(value)
    return [(*span, repr(value))]


def statement_edit(statement: str, source: PythonFile) -> list[Splice] | None:
    """Insert `statement`, which sets a flag of torch, after the first imports.

    None where the file has the flag already, since its own line may run later and win.
    """
    (wanted,) = ast.parse(statement).body
    body = source.tree.body
    start = 0 if ast.get_docstring(source.tree, clean=False) is None else 1
    block = list(itertools.takewhile(lambda node: isinstance(node, IMPORTS), body[start:]))
    flag = statement.partition("(")[0].partition(" =")[0]
    used = (n for n in ast.walk(source.tree) if isinstance(n, ast.Attribute))
    if not imports_torch(block) or any(ast.unparse(node) == flag for node in used):
        return None
    at = behind(source, block[-1])
    if at is None:
        return None
    body.insert(start + len(block), wanted)
    return [(at, at, source.newline * 2 + statement)]


def _loader_names(source: PythonFile) -> set[str]:
    """DataLoader, and its names in the file's imports."""
    aliases = (node for node in ast.walk(source.tree) if isinstance(node, ast.alias))
    return {"DataLoader", *(a.asname or a.name for a in aliases if a.name == "DataLoader")}


def _set_arguments(
    source: PythonFile, call: ast.Call, values: Mapping[str, JsonScalar]
) -> list[Splice] | None:
    """Splice `values` into `call`, and into the tree; None unless that is certain.

    What stands there must be a literal, or a name that is one. An expression may be needed as it
    is, and `*args` may hold any argument. `**options` may hold a name too, and a repeated one
    raises: so missing names are put behind it in a dict, where the later value wins. Only where
    all of its keys are known, each value goes where its key stands.
    """
    splats = [keyword for keyword in call.keywords if keyword.arg is None]
    starred = any(isinstance(arg, (ast.Starred, ast.GeneratorExp)) for arg in call.args)
    if starred or len(splats) > 1 or len(call.args) > len(POSITIONS):
        return None
    places: dict[str, Place] = {
        word.arg: Place(word, "value") for word in call.keywords if word.arg
    }
    places |= {n: Place(call.args, at) for at, n in enumerate(POSITIONS[: len(call.args)])}
    options = names.sole_options(source.tree, splats[0].value) if splats else None
    if options is not None and not source.is_seen_elsewhere(options.binding):
        places |= {key: Place(options.values, at) for key, at in options.keys.items()}
        splats = []
    if values.get("num_workers") == 0 and (splats or NEEDS_WORKERS & places.keys()):
        return None
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    ends = [source.places.span(argument)[1] for argument in arguments]
    splices: list[Splice] = []
    # None is the same as not given
    missing = {n: v for n, v in values.items() if n not in places and v is not None}
    for name in (name for name in values if name in places):
        written = _replaced(source, places[name], values[name])
        if written is None:
            return None
        splices.append((*source.places.span(written), repr(values[name])))
    if missing and splats:
        return splices + _override(source, splats[0], missing)
    if missing and ends:
        at = max(ends)
        words = "".join(f", {name}={value!r}" for name, value in missing.items())
        splices.append((at, at, words))
        call.keywords += [
            ast.keyword(arg=n, value=ast.Constant(v)) for n, v in missing.items()
        ]
    return splices or None


def _replaced(source: PythonFile, place: Place, value: JsonScalar) -> ast.expr | None:
    """Put `value` in the tree for the literal at `place`; what it replaces, None if uncertain.

    A name that the file binds once, to a literal, stands for it. Is it used here alone, then its
    own value changes, and no constant stays behind that says another. Else the call gets the
    value that was tried, and other uses of the name keep theirs.
    """
    written = place.written
    if isinstance(written, ast.Name):
        binding = names.sole_binding(source.tree, written.id)
        if binding is None or not isinstance(binding.value, ast.Constant):
            return None
        alone = names.binds_one(binding) and names.is_used_once(source.tree, written.id)
        if alone and not source.is_seen_elsewhere(binding):
            place = Place(binding, "value")
    elif not isinstance(written, ast.Constant):
        return None
    written = place.written
    place.put(value)
    return written


def _override(
    source: PythonFile, splat: ast.keyword, values: Mapping[str, JsonScalar]
) -> list[Splice]:
    """Override names that may be in `options`: `**{**options, "num_workers": 4}`."""
    start, end = source.places.span(splat.value)
    pairs = "".join(f', "{name}": {value!r}' for name, value in values.items())
    splat.value = ast.Dict(
        keys=[None, *(ast.Constant(name) for name in values)],
        values=[splat.value, *(ast.Constant(value) for value in values.values())],
    )
    return [(start, start, "{**"), (end, end, f"{pairs}}}")]


SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias)
LOSSES = ("loss", "crit")
"""Parts of names of what takes a model's output."""


def autocast_edit(
    line: int, device: str, dtype: str, source: PythonFile, *, widen: bool
) -> list[Splice] | None:
    """Wrap the model's call at `line` in autocast; `widen`: then float32 again.

    Each line of the statement is indented by one level. Inside a text of several lines that
    would change the text: `patch_of` sees it, and no patch is shown.
    """
    place = _statement(source, line)
    if place is None or not imports_torch(source.tree.body):
        return None
    statement, block, above = place
    withs = [node for node in above if isinstance(node, (ast.With, ast.AsyncWith))]
    if any("autocast" in ast.unparse(item) for node in withs for item in node.items):
        return None
    start, end = source.places.span(statement)
    first = source.code.rfind("\n", 0, start) + 1
    indent = source.code[first:start]
    called = _called(source, line)
    if indent.strip() or behind(source, statement) is None or (widen and len(called) != 1):
        return None
    head = f'with torch.autocast("{device}", dtype=torch.{dtype}):'
    unit = "\t" if "\t" in indent else "    "
    splices: list[Splice] = [(first, first, indent + head + source.newline + unit)]
    at = first
    for text in source.code[first:end].split("\n"):
        if at > first and text.strip():
            splices.append((at, at, unit))
        at += len(text) + 1
    if widen:
        splices.append(_widened(source, *called.values()))
    wrapped = ast.parse(f"{head}\n    pass").body[0]
    assert isinstance(wrapped, ast.With)
    wrapped.body = [statement]
    block[block.index(statement)] = wrapped
    return splices


def _widened(source: PythonFile, call: ast.Call) -> Splice:
    _, end = source.places.span(call)
    inner = ast.Call(func=call.func, args=call.args, keywords=call.keywords)
    call.func, call.args, call.keywords = ast.Attribute(inner, "float", ast.Load()), [], []
    return end, end, ".float()"


def _called(source: PythonFile, line: int) -> dict[str, ast.Call]:
    """Calls of `model` or `self.model` at `line`: no loss, no known function."""
    functions = {
        getattr(node, "asname", None) or node.name
        for node in ast.walk(source.tree)
        if isinstance(node, DEFINED)
    }
    calls = {}
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or node.lineno != line:
            continue
        name = ast.unparse(node.func)
        on_name = isinstance(node.func, ast.Attribute) and isinstance(
            node.func.value, ast.Name
        )
        plain = isinstance(node.func, ast.Name) or (on_name and name.startswith("self."))
        last = (last_name(node.func) or "").lower()
        if not plain or name.removeprefix("self.") in {*functions, *dir(builtins)}:
            continue
        if not any(word in last for word in LOSSES):
            calls[name] = node
    return calls


def _covers(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", None) or 0)


def _statement(
    source: PythonFile, line: int
) -> tuple[ast.stmt, list[ast.stmt], list[ast.AST]] | None:
    """Simple statement at `line`, its block, and its surroundings."""
    above: list[ast.AST] = []
    block: list[ast.stmt] = source.tree.body
    while True:
        node = next((statement for statement in block if _covers(statement, line)), None)
        if node is None:
            return None
        if isinstance(node, SIMPLE):
            return node, block, above
        above.append(node)
        blocks = [
            getattr(node, name, []) for name in ("body", "orelse", "finalbody", "handlers")
        ]
        block = next(
            (block for block in blocks if any(_covers(n, line) for n in block)), []
        )


def last_name(node: ast.expr) -> str | None:
    """Last word of a name or an attribute."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def imports_torch(statements: Sequence[ast.stmt]) -> bool:
    """True if one of `statements` imports torch under its own name."""
    return any(
        isinstance(node, ast.Import)
        and any(
            alias.name.split(".")[0] == "torch" and not alias.asname for alias in node.names
        )
        for node in statements
    )


def behind(source: PythonFile, node: ast.stmt) -> int | None:
    """Offset of the end of a node's last line; None if it is shared."""
    _, end = source.places.span(node)
    rest = source.code[end:].partition("\n")[0]
    if rest.strip() and not rest.strip().startswith("#"):
        return None
    return end + len(rest.removesuffix("\r"))


def patch_of(path: Path, cwd: Path, edit: Edit) -> str | None:
    """Diff of `edit` for `git apply`; None unless edited as meant.

    An edit is made twice: in the tree, and as splices of the text, which keep its comments and
    layout. It is shown only where the new text parses into the new tree.
    """
    source = _read(path, cwd)
    if source is None:
        return None
    try:
        new = spliced(source.code, edit(source) or [])
        is_meant = ast.dump(ast.parse(new)) == ast.dump(source.tree)
    except (ValueError, SyntaxError):
        return None
    return file_patch(path, source.code, new, cwd) if is_meant else None


def _read(path: Path, cwd: Path) -> PythonFile | None:
    """A Python file as it is; None if it is none, or begins with a byte order mark."""
    try:
        code = path.read_bytes().decode()
        tree = ast.parse(code)
    except (OSError, ValueError, SyntaxError):
        return None
    return PythonFile(code=code, tree=tree, places=Places(code), path=path, folder=cwd)


def file_patch(path: Path, old: str, new: str, cwd: Path) -> str | None:
    """Diff of a file for git, from its repository or `cwd`; None if unchanged."""
    if old == new:
        return None
    real = path.resolve()
    root = next(
        (parent for parent in real.parents if (parent / ".git").exists()), cwd.resolve()
    )
    name = (
        real.relative_to(root).as_posix() if real.is_relative_to(root) else real.as_posix()
    )
    lines = difflib.unified_diff(
        LINES.findall(old), LINES.findall(new), f"a/{name}", f"b/{name}"
    )
    whole = (line if line.endswith("\n") else f"{line}\n{NO_LINE_END}\n" for line in lines)
    return "".join((f"diff --git a/{name} b/{name}\n", *whole))
