"""Options that a program declares one by one, by a call each: argparse, optparse, click, absl."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from advisor.config.constants import NotConstantError, worth
from advisor.options.declared import BOOL_OF_TEXT, SEVERAL, Declared
from advisor.options.source import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from advisor.config.options import Form
    from advisor.model import JsonScalar
    from advisor.options.source import Module, Unit

TOP: frozenset[str | None] = frozenset({None})
Commands = frozenset[str | None]
"""The subcommands that a parser serves; None is the program itself."""

_ABSL = re.compile(r"DEFINE_(integer|float|string|bool|boolean|enum)")
_PARSERS = re.compile(r"(?:\w+\.)*(?:\w*(?:Argument|Arg|Option)Parser)")
_ADD = {"add_argument", "add_option", "add_arg"}
"""Of a parser that is known to be one, `add` too, as ConfigArgParse calls it."""
ROUNDS = 4
"""A parser is handed on from function to function about so often; each round tells one more."""
_GROUPS = {"add_argument_group", "add_mutually_exclusive_group", "add_option_group"}
_FORMS: dict[str, Form] = {"store_true": "bare", "BooleanOptionalAction": "pair", "store": "apart"}
"""What `action` says; any other, such as `append` or a class of the program's own, is left."""
_TYPES = {
    "int": int,
    "integer": int,
    "click.INT": int,
    "IntRange": int,
    "float": float,
    "click.FLOAT": float,
    "FloatRange": float,
}


def declared(units: Sequence[Unit]) -> Iterator[Declared]:
    """Every option that the reached code declares by a call."""
    parsers = _Parsers(units)
    for unit in units:
        for node in unit.every:
            if isinstance(node, ast.Call):
                yield from _of_call(unit, node, parsers)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from _of_decorators(unit.module, node, units)


def _of_call(unit: Unit, call: ast.Call, parsers: _Parsers) -> Iterator[Declared]:
    name = called(call)
    adder = parsers.adder(unit, call)
    if adder is not None:
        option = argument(unit.module, call, adder.keywords)
        if option is not None:
            option = parsers.with_later_default(option)
            for command in sorted(parsers.of(unit, adder.parser), key=str):
                yield replace(option, command=command)
    elif _ABSL.fullmatch(name):
        option = absl_flag(unit.module, call)
        if option is not None:
            yield option


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else dotted(call.func)


def constant(module: Module, node: ast.AST | None) -> JsonScalar:
    """The value of an expression; None where only running the program would tell."""
    try:
        return worth(node, module.constants) if node is not None else None
    except NotConstantError:
        return None


def place(module: Module, node: ast.AST) -> str:
    """`train.py:12`."""
    return f"{module.path.name}:{getattr(node, 'lineno', 0)}"


def argument(
    module: Module, call: ast.Call, keywords: Sequence[ast.keyword] = ()
) -> Declared | None:
    """An option of argparse or optparse; None for what is none, or cannot be added as one.

    `keywords` hold where the call says nothing else.
    """
    flags = [text for arg in call.args if (text := _text(arg)).startswith("-")]
    said = {word.arg: word.value for word in (*keywords, *call.keywords) if word.arg}
    form = _FORMS.get(_text(said["action"]) or dotted(said["action"]).rpartition(".")[2]
                      if "action" in said else "store")  # fmt: skip
    if not flags or form is None:
        return None
    kind = _type(said.get("type"))
    why = BOOL_OF_TEXT if kind == "bool" and form == "apart" else None
    if "nargs" in said and constant(module, said["nargs"]) not in ("?", None):
        why = SEVERAL
    default = converted(constant(module, said.get("default")), kind)
    if form == "bare" and default is None:
        default = False
    flag, *others = sorted(flags, key=lambda text: -len(text) if text.startswith("--") else 0)
    return Declared(
        flag=flag,
        default=default,
        form=form,
        source=place(module, call),
        others=tuple(others),
        choices=choices(module, said.get("choices")),
        comment=_text(said.get("help")) or None,
        why=why,
    )


def absl_flag(module: Module, call: ast.Call) -> Declared | None:
    """`flags.DEFINE_integer("batch_size", 32, "Samples a step.")`."""
    names = ("name", "default", "enum_values" if called(call) == "DEFINE_enum" else "help", "help")
    said = dict(zip(names, call.args, strict=False))
    said |= {word.arg: word.value for word in call.keywords if word.arg}
    name = _text(said.get("name"))
    if not name:
        return None
    return Declared(
        flag=f"--{name}",
        default=constant(module, said.get("default")),
        form="joint",
        source=place(module, call),
        choices=choices(module, said.get("enum_values")),
        comment=_text(said.get("help")) or None,
    )


def _of_decorators(
    module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef, units: Sequence[Unit]
) -> Iterator[Declared]:
    """`@click.option(...)` above a function, and the subcommand that `@group.command()` makes.

    A decorator of the program's own adds the options that are made inside it.
    """
    command = subcommand(function)
    calls = [(module, node) for node in function.decorator_list if isinstance(node, ast.Call)]
    own = {dotted(getattr(node, "func", node)) for node in function.decorator_list}
    for unit in units:
        if unit.name and unit.name in own:
            calls += [(unit.module, node) for node in unit.every if isinstance(node, ast.Call)]
    for where, call in calls:
        option = click_option(where, call) if _last(call) == "option" else None
        if option is not None:
            yield replace(option, command=command)


def subcommand(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """The word that calls a function decorated as one of several commands."""
    for node in function.decorator_list:
        call = node if isinstance(node, ast.Call) else None
        owner, _, last = dotted(call.func if call else node).rpartition(".")
        if last == "command" and owner not in {"", "click", "typer"}:
            named = [_text(arg) for arg in call.args] if call else []
            words = {word.arg: _text(word.value) for word in call.keywords} if call else {}
            plain = function.name.lower().replace("_", "-")
            return next(filter(None, [*named, words.get("name")]), None) or plain
    return None


def click_option(module: Module, call: ast.Call) -> Declared | None:
    """One `@click.option(...)`."""
    flags = [text for arg in call.args if (text := _text(arg)).startswith("-")]
    said = {word.arg: word.value for word in call.keywords if word.arg}
    if not flags:
        return None
    flag = max(flags, key=len)
    default = constant(module, said.get("default"))
    form: Form = "apart"
    if "/" in flag:
        flag, _, negation = flag.partition("/")
        if negation != f"--no-{flag.removeprefix('--')}":
            return None
        form = "pair"
    elif constant(module, said.get("is_flag")) is True:
        form, default = "bare", default or False
    several = constant(module, said.get("multiple")) or "nargs" in said
    given = said.get("type")
    offered = given.args[0] if isinstance(given, ast.Call) and given.args else None
    is_choice = isinstance(given, ast.Call) and called(given) == "Choice"
    return Declared(
        flag=flag,
        default=converted(default, _type(given)),
        form=form,
        source=place(module, call),
        others=tuple(text for text in flags if "/" not in text and text != flag),
        choices=choices(module, offered) if is_choice else (),
        comment=_text(said.get("help")) or None,
        why=SEVERAL if several else None,
    )


def choices(module: Module, node: ast.AST | None) -> tuple[JsonScalar, ...]:
    """The values of a written list; empty where they are not all written."""
    if isinstance(node, ast.Call) and called(node) == "range" and 1 <= len(node.args) <= 3:
        bounds = [constant(module, arg) for arg in node.args]
        if all(isinstance(bound, int) for bound in bounds):
            values = range(*bounds)  # type: ignore[arg-type]
            return tuple(values) if len(values) <= 1024 else ()
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return ()
    found = [constant(module, item) for item in node.elts]
    return tuple(found) if None not in found else ()


def converted(default: JsonScalar, kind: str) -> JsonScalar:
    """A default that is text, as argparse hands it on: through the option's type."""
    if isinstance(default, str) and kind in _TYPES:
        try:
            return int(default) if _TYPES[kind] is int else float(default)
        except ValueError:
            return default
    return default


def _type(node: ast.AST | None) -> str:
    """`int` of `int`, `"int"`, `click.INT` and `click.IntRange(1)`."""
    inner = node.func if isinstance(node, ast.Call) else node
    name = _text(inner) or dotted(inner) if inner is not None else ""
    return name if name in _TYPES else name.rpartition(".")[2]


def _text(node: ast.AST | None) -> str:
    """A written text; empty for anything else."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def _last(call: ast.Call) -> str:
    return dotted(call.func).rpartition(".")[2]


def _numbers(function: ast.FunctionDef) -> dict[str, int]:
    """Each parameter's number, as a caller counts them."""
    names = [parameter.arg for parameter in function.args.args]
    bound = names[:1] in (["self"], ["cls"])
    return {name: number - bound for number, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class Adder:
    """A way to add options to a parser."""

    parser: ast.expr
    keywords: tuple[ast.keyword, ...] = ()
    """What every option is given, of `functools.partial(parser.add_argument, type=int)`."""


def _adder_of(value: ast.expr) -> Adder | None:
    """`parser.add_argument` itself, or with some keywords."""
    keywords: tuple[ast.keyword, ...] = ()
    if isinstance(value, ast.Call) and _last(value) == "partial" and len(value.args) == 1:
        keywords = tuple(value.keywords)
        value = value.args[0]
    if isinstance(value, ast.Attribute) and value.attr in _ADD:
        return Adder(value.value, keywords)
    return None


@dataclass(eq=False)
class _Parsers:
    """Which parser a variable holds, told by what it was assigned and what it was passed on to."""

    units: Sequence[Unit]
    _of: dict[tuple[Unit | Module, str], Commands] = field(default_factory=dict)
    _passed: dict[tuple[str, int], Commands] = field(default_factory=dict)
    """Function and number of a parameter, to what callers put there."""
    _defaults: dict[str, JsonScalar] = field(default_factory=dict)
    """Of `parser.set_defaults(...)`, by destination."""

    _adders: dict[tuple[Unit | Module, str], Adder] = field(default_factory=dict)
    """Names that stand for `parser.add_argument`."""
    _functions: dict[Unit, list[tuple[str, dict[str, int]]]] = field(default_factory=dict)
    """Names of the functions in a unit, and the numbers of their parameters."""

    def __post_init__(self) -> None:
        for unit in self.units:
            if unit.name:
                found = [node for node in unit.every if isinstance(node, ast.FunctionDef)]
                self._functions[unit] = [(node.name, _numbers(node)) for node in found]
        for _ in range(ROUNDS):
            for unit in self.units:
                self._assignments(unit)
            for unit in self.units:
                self._calls(unit)

    def of(self, unit: Unit, node: ast.AST) -> Commands:
        """The subcommands of the parser that `node` stands for; the program itself in doubt."""
        if isinstance(node, ast.Call):
            return self._made(unit, node) or TOP
        return self._known(unit, dotted(node)) or TOP

    def adder(self, unit: Unit, call: ast.Call) -> Adder | None:
        """The parser that `call` adds an option to, by `add_argument` or a name for it."""
        if isinstance(call.func, ast.Attribute):
            owner = call.func.value
            known = call.func.attr == "add" and self._known(unit, dotted(owner)) is not None
            return Adder(owner) if call.func.attr in _ADD or known else None
        name = dotted(call.func)
        return self._adders.get((unit, name)) or self._adders.get((unit.module, name))

    def with_later_default(self, option: Declared) -> Declared:
        """The default that `set_defaults` gives, where it names the option."""
        for spelling in (option.flag, *option.others):
            name = spelling.lstrip("-").replace("-", "_")
            if spelling.startswith("--") and name in self._defaults:
                return replace(option, default=self._defaults[name])
        return option

    def _assignments(self, unit: Unit) -> None:
        for node in unit.every:
            if isinstance(node, ast.Assign) and (adder := _adder_of(node.value)) is not None:
                for target in node.targets:
                    self._adders[unit if unit.name else unit.module, dotted(target)] = adder
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = self._made(unit, node.value)
                for target in node.targets if made is not None else ():
                    holder = unit if unit.name else unit.module
                    self._of[holder, dotted(target)] = made or frozenset()

    def _made(self, unit: Unit, call: ast.Call) -> Commands | None:
        """The parser that a call makes; None if it makes none."""
        name = called(call)
        if name == "add_parser":
            word = _text(call.args[0]) if call.args else ""
            commands: Commands = frozenset({word}) if word else frozenset()
            self._share(unit, call, commands)
            return commands
        if name in _GROUPS or name == "add_subparsers":
            return self.of(unit, call.func.value) if isinstance(call.func, ast.Attribute) else TOP
        if _PARSERS.fullmatch(dotted(call.func)):
            self._share(unit, call, TOP)
            return TOP
        return None

    def _share(self, unit: Unit, call: ast.Call, commands: Commands) -> None:
        """`parents=[common]`: what is declared there belongs to this parser too."""
        for word in call.keywords:
            if word.arg == "parents" and isinstance(word.value, (ast.List, ast.Tuple)):
                for parent in word.value.elts:
                    key = (unit if unit.name else unit.module, dotted(parent))
                    own = self._of.get(key, frozenset())
                    self._of[key] = (own - TOP if commands != TOP else own) | commands

    def _calls(self, unit: Unit) -> None:
        for node in unit.every:
            if not isinstance(node, ast.Call):
                continue
            if called(node) == "set_defaults":
                values = {w.arg: constant(unit.module, w.value) for w in node.keywords if w.arg}
                self._defaults |= {n: value for n, value in values.items() if value is not None}
            for number, argument_ in enumerate(node.args):
                commands = self._known(unit, dotted(argument_))
                if commands is not None:
                    key = (called(node).rpartition(".")[2], number)
                    self._passed[key] = self._passed.get(key, frozenset()) | commands

    def _known(self, unit: Unit, name: str) -> Commands | None:
        if not name:
            return None
        own = self._of.get((unit, name), self._parameter(unit, name))
        return self._of.get((unit.module, name)) if own is None else own

    def _parameter(self, unit: Unit, name: str) -> Commands | None:
        for function, names in self._functions.get(unit, ()):
            if name in names and (function, names[name]) in self._passed:
                return self._passed[function, names[name]]
        return None
