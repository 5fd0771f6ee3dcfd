"""Options that are made of a class's fields or a function's parameters: HfArgumentParser, tyro,
typer, fire and their like."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.options import styles
from advisor.options.calls import called, choices, constant, place, subcommand
from advisor.options.declared import SEVERAL, Declared
from advisor.options.source import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from advisor.model import JsonScalar
    from advisor.options.source import Definition, Module, Project, Unit
    from advisor.options.styles import Style

MOST_DEEP = 5
"""Classes within classes, and bases of bases."""


_LIGHTNING = {"model_class": "model.", "datamodule_class": "data."}
"""What LightningCLI is handed, in this order, and what the options of its `__init__` begin with."""
_LIGHTNING_COMMANDS = ("fit", "validate", "test", "predict")
_WRAPPERS = {"Annotated", "Optional", "OmitArgPrefixes"}
_HANDED_OVER = {"config_class", "dataclass_types", "node"}


def declared(project: Project, units: Sequence[Unit]) -> Iterator[Declared]:
    """Every option made of fields in the reached code."""
    for unit in units:
        for node in unit.every:
            if isinstance(node, ast.Call):
                yield from _of_call(project, unit.module, node)
            elif isinstance(node, ast.ClassDef):
                style = styles.of_class(units, node)
                if style is not None:
                    yield from _of_class(project, unit.module, node, style)
            elif isinstance(node, ast.FunctionDef):
                yield from _of_decorated(project, unit.module, node)


def _of_call(project: Project, module: Module, call: ast.Call) -> Iterator[Declared]:
    name = dotted(call.func)
    if name.rpartition(".")[2] == "LightningCLI":
        yield from _of_lightning(project, module, call)
        return
    style = styles.BY_MAKER.get(name) or styles.BY_MAKER.get(called(call))
    if style is None:
        return
    handed = [*call.args, *(w.value for w in call.keywords if w.arg in _HANDED_OVER)]
    if not handed and style is styles.FIRE:
        for name, made in module.definitions.items():
            yield from _of_definition(project, module, made, style, name)
    for given in handed:
        for word, one in _named(given):
            node = one.func if isinstance(one, ast.Call) else one
            found = project.anywhere(module, dotted(node)) if dotted(node) else None
            if found is not None:
                is_made = isinstance(one, ast.Call)
                yield from _of_definition(project, *found, style, word, is_made=is_made)


def _named(given: ast.expr) -> Iterator[tuple[str | None, ast.expr]]:
    """What is handed over, one by one, and the word that calls it where it is one of several."""
    if isinstance(given, ast.Dict):
        for key, value in zip(given.keys, given.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(given, (ast.Tuple, ast.List)):
        for one in given.elts:
            name = dotted(one).rpartition(".")[2]
            yield (name if len(given.elts) > 1 and name else None), one
    else:
        yield None, given


def _of_lightning(project: Project, module: Module, call: ast.Call) -> Iterator[Declared]:
    """`LightningCLI(Model, Data)`: the parameters of both, behind the subcommand."""
    handed = dict(zip(_LIGHTNING, call.args, strict=False))
    handed |= {word.arg: word.value for word in call.keywords if word.arg in _LIGHTNING}
    for what, node in handed.items():
        found = project.anywhere(module, dotted(node)) if dotted(node) else None
        body = found[1].body if found is not None else []
        for made in body:
            if found and isinstance(made, ast.FunctionDef) and made.name == "__init__":
                for option in _of_parameters(found[0], made, styles.PLAIN, _LIGHTNING[what]):
                    for command in _LIGHTNING_COMMANDS:
                        yield replace(option, command=command)


def _of_definition(
    project: Project,
    module: Module,
    node: Definition,
    style: Style,
    word: str | None = None,
    *,
    is_made: bool = False,
) -> Iterator[Declared]:
    """The options of a class or a function; behind `word` where it is a subcommand.

    `is_made`: it is one of the class, whose `__init__` has run.
    """
    if not isinstance(node, ast.ClassDef):
        yield from _behind(word if style.commands else None, _of_parameters(module, node, style))
        return
    yield from _of_class(project, module, node, style)
    for method in node.body if style in (styles.FIRE, styles.JSONARGPARSE) else ():
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            yield from () if is_made else _of_parameters(module, method, style)
        elif isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
            yield from _behind(method.name, _of_parameters(module, method, style))


def _behind(word: str | None, found: Iterator[Declared]) -> Iterator[Declared]:
    """Options of the subcommand that is called by `word`, also with dashes."""
    words = [None] if word is None else dict.fromkeys((word, word.replace("_", "-")))
    for option in found:
        for spelled in words:
            yield replace(option, command=spelled)


def _of_decorated(
    project: Project, module: Module, function: ast.FunctionDef
) -> Iterator[Declared]:
    """`@app.command()` of typer, `@pyrallis.wrap()`."""
    for decorator in function.decorator_list:
        name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        owner, _, last = name.rpartition(".")
        first = function.args.args[0].annotation if function.args.args else None
        if name in styles.BY_MAKER and first is not None:
            found = project.anywhere(module, dotted(first))
            if found is not None:
                yield from _of_definition(project, *found, styles.BY_MAKER[name])
        elif last in {"command", "callback"} and _is_typer(module, owner):
            single = last == "callback" or _commands_of(module, owner) == {"command": 1}
            for option in _of_parameters(module, function, styles.TYPER):
                yield replace(option, command=None if single else subcommand(function))


def _is_typer(module: Module, name: str) -> bool:
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and called(node.value) == "Typer"
        and any(dotted(target) == name for target in node.targets)
        for node in module.tree.body
    )


def _commands_of(module: Module, owner: str) -> dict[str, int]:
    """How often each of `command` and `callback` decorates for `owner`: one command alone needs
    no word, unless a callback stands before it."""
    decorators = Counter(
        dotted(one.func if isinstance(one, ast.Call) else one)
        for node in module.definitions.values()
        for one in node.decorator_list
    )
    names = {word: decorators[f"{owner}.{word}"] for word in ("command", "callback")}
    return {word: count for word, count in names.items() if count}


def _of_class(
    project: Project,
    module: Module,
    node: ast.ClassDef,
    style: Style,
    above: str = "",
    depth: int = 0,
) -> Iterator[Declared]:
    """The fields of a class and of its bases; what a class says again counts."""
    if depth > MOST_DEEP:
        return
    own: dict[str, list[Declared]] = {}
    for base in node.bases:
        found = project.anywhere(module, dotted(base)) if dotted(base) else None
        if found is not None and isinstance(found[1], ast.ClassDef):
            for option in _of_class(project, found[0], found[1], style, above, depth + 1):
                own[option.flag] = [option]
    for field in node.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if field.target.id.startswith("_") or _wrapper(field.annotation) == "ClassVar":
            continue
        inner = _class_of(project, module, field)
        if inner is not None:
            is_apart = style.nested and _wrapper(field.annotation) != "OmitArgPrefixes"
            name = above + field.target.id + "." if is_apart else above
            for option in _of_class(project, *inner, style, name, depth + 1):
                own[option.flag] = [option]
            continue
        made = _made(module, field, field.target.id, field.annotation, field.value, style, above)
        own[made.flag] = [made]
    for options in own.values():
        yield from options


def _class_of(
    project: Project, module: Module, field: ast.AnnAssign
) -> tuple[Module, ast.ClassDef] | None:
    """The class within a class that a field holds."""
    annotation: ast.expr = field.annotation
    if isinstance(annotation, ast.Subscript) and _wrapper(annotation) in _WRAPPERS:
        inner = annotation.slice
        annotation = inner.elts[0] if isinstance(inner, ast.Tuple) and inner.elts else inner
    names = [dotted(annotation)]
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        names.append(annotation.value)
    for name in names:
        found = project.anywhere(module, name) if name else None
        if found is not None and isinstance(found[1], ast.ClassDef) and _has_fields(found[1]):
            return found[0], found[1]
    return None


def _wrapper(annotation: ast.AST) -> str:
    """`Annotated` of `Annotated[Loader, ...]`; empty for a name alone."""
    if not isinstance(annotation, ast.Subscript):
        return ""
    return dotted(annotation.value).rpartition(".")[2]


def _has_fields(node: ast.ClassDef) -> bool:
    return any(isinstance(each, ast.AnnAssign) for each in node.body)


def _of_parameters(
    module: Module,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    style: Style,
    above: str = "",
) -> Iterator[Declared]:
    """`def main(batch_size: int = 32)`."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    values = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    both = [*zip(plain, values, strict=True)]
    both += [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    for parameter, value in both:
        annotation = parameter.annotation
        is_word = style.own_names and _told(annotation, value, "Argument") is not None
        if value is not None and not is_word:
            yield _made(module, parameter, parameter.arg, annotation, value, style, above)


def _made(
    module: Module,
    node: ast.AST,
    name: str,
    annotation: ast.AST | None,
    value: ast.AST | None,
    style: Style,
    above: str,
) -> Declared:
    """One field or parameter as an option."""
    default, comment, others = _default(module, value)
    kind = _kind(annotation)
    if kind == "float" and isinstance(default, int) and not isinstance(default, bool):
        default = float(default)
    form = style.truth if kind == "bool" or isinstance(default, bool) else style.form
    renamed = _told(annotation, value, "arg")
    said = {word.arg: word.value for word in renamed.keywords} if renamed else {}
    path = above + str(constant(module, said.get("name")) or name)
    flag = style.prefix + (path.replace("_", "-") if style.dashes else path)
    others = (*others, *((f"--{path}",) if style.dashes and "_" in path else ()))
    option = _told(annotation, value, "Option") if style.own_names else None
    by_hand = [text for arg in option.args if (text := _flag(arg))] if option else []
    if by_hand:
        (flag, negation), *rest = sorted(map(_parted, by_hand), key=lambda two: -len(two[0]))
        others = tuple(first for first, _ in rest)
        form = "bare" if form == "pair" and not negation else form
    return Declared(
        flag=flag,
        default=default,
        form=form,
        source=place(module, node),
        others=others,
        choices=_literals(module, annotation),
        comment=comment or module.comment_behind(node),
        why=SEVERAL if kind in {"list", "tuple", "List", "Tuple", "Sequence"} else None,
    )


def _told(annotation: ast.AST | None, value: ast.AST | None, name: str) -> ast.Call | None:
    """The call of `name` that a default is, or that an `Annotated` type holds."""
    inside: list[ast.AST | None] = [value]
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        inside += annotation.slice.elts
    calls = (one for one in inside if isinstance(one, ast.Call))
    return next((call for call in calls if called(call).rpartition(".")[2] == name), None)


def _flag(node: ast.AST) -> str:
    text = node.value if isinstance(node, ast.Constant) else None
    return text if isinstance(text, str) and text.startswith("-") else ""


def _parted(text: str) -> tuple[str, str]:
    """`--amp/--no-amp` to what puts it on and what puts it off."""
    on, _, off = text.partition("/")
    return on, off


def _default(
    module: Module, value: ast.AST | None
) -> tuple[JsonScalar, str | None, tuple[str, ...]]:
    """Value, help and other spellings of `32`, `field(default=32)`, `typer.Option(32, "-b")`."""
    if not isinstance(value, ast.Call):
        return constant(module, value), None, ()
    said = {word.arg: word.value for word in value.keywords if word.arg}
    first = value.args[0] if value.args else None
    told = constant(module, said.get("help") or said.get("description"))
    metadata = said.get("metadata")
    if told is None and isinstance(metadata, ast.Dict):
        pairs = zip(metadata.keys, metadata.values, strict=True)
        told = next((constant(module, v) for k, v in pairs if constant(module, k) == "help"), None)
    spelled = [constant(module, arg) for arg in value.args[1:]]
    others = tuple(text for text in spelled if isinstance(text, str) and text.startswith("-"))
    default = constant(module, said.get("default", first))
    return default, told if isinstance(told, str) else None, others


def _kind(annotation: ast.AST | None) -> str:
    """`int` of `int`, `Optional[int]`, `int | None` and `"int"`."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    if isinstance(annotation, ast.BinOp):
        return _kind(annotation.left)
    if isinstance(annotation, ast.Subscript):
        outer = dotted(annotation.value).rpartition(".")[2]
        if outer in {"Optional", "Union", "Annotated"}:
            inner = annotation.slice
            return _kind(inner.elts[0] if isinstance(inner, ast.Tuple) and inner.elts else inner)
        return outer
    return dotted(annotation).rpartition(".")[2] if annotation is not None else ""


def _literals(module: Module, annotation: ast.AST | None) -> tuple[JsonScalar, ...]:
    """The words of `Literal["a", "b"]`."""
    if isinstance(annotation, ast.Subscript) and _kind(annotation) == "Literal":
        return choices(module, annotation.slice)
    return ()
