"""Parsers of libraries: where each is hooked, and how its options are read.

One row of PARSERS for each place where a library has read a command or a config.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import sys
import typing
from typing import Any, Callable, Iterable, Iterator, NamedTuple

from .session import Patches

CHOICES_KEPT = 100
"""Choices of an option that are recorded."""
PLAIN = (str, int, float, bool, type(None))
TAKES_SEVERAL = "it takes several values"
READS_ALL_AS_TRUE = "its type is bool, which reads every text as true"
OF_LAUNCHER = "_gpu_advisor_of_launcher"
"""Attribute of a parser that reads a library's own flags, not the program's."""
ANY_NAME = "its function takes options of any name (`**kwargs`), which no parser declares"
UNKNOWN_PASSED_ON = "its command passes unknown options on, which no parser declares"
OF_GIN = "gin reads it from a file, or from a binding of the command"
NOT_MERGED = "the words of the command were merged with no config of {library}"

DeclaredOption = dict[str, Any]
"""Option as the parent reads it: flags, default, choices, help and where it may be typed."""
Act = Callable[..., None]


class ParseReading(NamedTuple):
    """What one parse told."""

    options: Iterable[DeclaredOption] = ()
    complete: bool = True
    """False where another parse follows, such as that of a subcommand."""
    untold: str | None = None
    """Why the program may take further options that are not known."""
    provisional: bool = False
    """True where this stands only until the library tells its options, and ends no process."""


class Parser(NamedTuple):
    """One place where a library has read options."""

    library: str
    module: str
    """Hooked once it is imported."""
    functions: tuple[str, ...]
    """Called once for each parse; as seen from the module. Empty: an ArgumentParser, whose parsers
    call each other."""
    read: Callable[..., ParseReading | Iterable[DeclaredOption] | None]
    """Called with a function's result and its arguments. Returns options, or a Reading; None where
    the call read no options of the program."""
    at_end: bool = False
    """True where its words stand at the end of the command, as overrides of a config do."""


def hook(parser: Parser, module: Any, act: Act) -> None:
    """Call `act(result, *args)` after each parse."""
    if not parser.functions:
        listen(module, act)
    for function in parser.functions:
        owner, _, name = function.rpartition(".")
        place = module
        for part in filter(None, owner.split(".")):
            place = getattr(place, part, None)
        if hasattr(place, name):  # other versions lack some
            _after(place, name, act)


def _after(owner: Any, name: str, act: Act) -> None:
    @Patches().wrap(owner, name)
    def wrapped(original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        act(result, *args, **kwargs)
        return result


def listen(argparse: Any, act: Act) -> None:
    """Call `act(result, parser, nested)` after each outermost parse of an ArgumentParser.

    nested: the parsers that it called, such as those of subcommands.
    """
    at_work: list[list[Any]] = []

    def listening(parse: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if at_work:
            at_work[0].append(self)
            return parse(self, *args, **kwargs)
        at_work.append([])
        try:
            result = parse(self, *args, **kwargs)
            act(result, self, at_work[0])
            return result
        finally:
            at_work.clear()

    for name in ("parse_known_args", "_parse_known_args"):  # jsonargparse calls the inner
        Patches().wrap(argparse.ArgumentParser, name)(listening)


def option(
    flags: Iterable[Any], default: Any, form: str = "joint", **more: Any
) -> DeclaredOption:
    """Return one option; `field`: its key in a config; `typed`: it may stand in the command."""
    plain = [choice for choice in more.get("choices") or () if isinstance(choice, PLAIN)]
    return {
        "flags": [str(flag) for flag in flags],
        "default": default if isinstance(default, PLAIN) else None,
        "form": form,
        "choices": plain[:CHOICES_KEPT],
        "help": str(more["help"])[:400] if isinstance(more.get("help"), str) else None,
        "why": more.get("why"),
        "command": more.get("command"),
        "field": more.get("field"),
        "typed": more.get("typed", True),
        "after": more.get("after"),
    }


def _flat(node: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Plain values of nested mappings, each with its dotted path."""
    for key, value in node.items() if isinstance(node, dict) else ():
        path = f"{above}.{key}" if above else str(key)
        if isinstance(value, dict):
            yield from _flat(value, path)
        elif isinstance(value, PLAIN) and value != "???":
            yield path, value


def _literal(text: Any) -> Any:
    """Return the number or truth that a text spells, else the text."""
    try:
        return ast.literal_eval(text) if isinstance(text, str) else text
    except (SyntaxError, ValueError):
        return text


def _longest_first(flags: Iterable[Any]) -> list[str]:
    """`--batch-size` before `-b`, which is kept where there is no other."""
    return sorted(map(str, flags), key=lambda flag: -len(flag) if flag[:2] == "--" else 0)


CONFIG_READERS = {"transformers", "trl", "jsonargparse", "pydantic_settings"}
"""Packages whose parsers read the destinations of their options from a config, too."""
SUPPRESSED = "==SUPPRESS=="
"""Argparse's mark of an option that leaves nothing behind unless it is typed."""
PARSED: list[tuple[Any, Any, Any]] = []
"""Each parser of argparse with its namespace and the words that it left."""


def _of_argparse(result: Any, parser: Any, nested: list[Any]) -> ParseReading | None:
    """Options of a parser and of the subcommands that were typed."""
    launches = type(parser).__module__.startswith(("hydra.", "torch.distributed"))
    if launches or "hydra" in str(parser.description).lower():  # Hydra composes later
        return None
    if vars(parser).get(OF_LAUNCHER):
        return None
    PARSED.append((parser, *result))
    parsers = [parser, *nested]
    options: list[DeclaredOption] = []
    for inner in parsers:
        options += _of_actions(inner, _command_of(inner, parsers))
    return ParseReading(options, complete=not result[1])


def _of_actions(
    parser: Any, command: str | None, *, typed: bool = True
) -> Iterator[DeclaredOption]:
    """Options that a parser declares, each with the way in which its value is typed.

    A value stands apart from its flag, a flag alone (bare) means true, and a pair has a `--no-`
    for false. What takes several values, or reads every text as true, says why it is left.
    """
    packages = {base.__module__.partition(".")[0] for base in type(parser).__mro__}
    reads_configs = not packages.isdisjoint(CONFIG_READERS)
    for action in parser._actions:
        kind, flags = type(action).__name__, list(action.option_strings)
        if not flags or any(word in kind for word in ("Help", "Version", "PrintConfig")):
            continue
        form, why, default = "apart", None, _default_of(parser, action)
        if any(f"--no-{flag[2:]}" in flags for flag in flags):
            form, flags = "pair", [flag for flag in flags if not flag.startswith("--no-")]
        elif action.nargs == 0:
            if getattr(action, "const", None) is not True:
                continue
            form, default = "bare", default or False
        elif action.nargs not in (None, "?", 1) or "Append" in kind:
            why = TAKES_SEVERAL
        elif action.type is bool and action.nargs is None and not reads_configs:
            why = READS_ALL_AS_TRUE
        yield option(
            _longest_first(flags),
            default,
            form,
            choices=action.choices
            if isinstance(action.choices, (list, tuple, set))
            else None,
            help=action.help,
            why=why,
            command=command,
            field=str(action.dest) if reads_configs else None,
            typed=typed,
        )


def _default_of(parser: Any, action: Any) -> Any:
    """Return the default, converted if text; None where the parser has none."""
    default = parser._defaults.get(action.dest, action.default)
    if default == SUPPRESSED:
        return None
    try:
        if not isinstance(default, PLAIN) and "(default: " in str(action.help):  # tyro's
            default = action.help.rpartition("(default: ")[2].removesuffix(")")
            return ast.literal_eval(default)
        return action.type(default) if isinstance(default, str) and action.type else default
    except Exception:
        return default


def _command_of(parser: Any, around: Any) -> str | None:
    """Word of the command line that calls `parser`."""
    for action in (action for outer in around for action in outer._actions):
        choices = action.choices if isinstance(action.choices, dict) else {}
        for name, inner in choices.items():
            if inner is parser and name in sys.argv:
                return str(name)
    return None


def _of_hf_fields(_: Any, parser: Any, *__: Any, **___: Any) -> Iterator[DeclaredOption]:
    """Fields of an HfArgumentParser that read a YAML or JSON file, and no command line."""
    return _of_actions(parser, None, typed=False)


def _of_optparse(_: Any, parser: Any, *__: Any, **___: Any) -> Iterator[DeclaredOption]:
    defaults = vars(parser.get_default_values())
    forms = {"store": "apart", "store_true": "bare", "append": "apart"}
    for each in parser._get_all_options():
        if each.action in forms:
            several = each.action == "append" or each.nargs not in (None, 1)
            default = defaults.get(each.dest)
            yield option(
                [*each._long_opts, *each._short_opts],
                default or False if each.action == "store_true" else default,
                forms[each.action],
                choices=each.choices,
                help=each.help,
                why=TAKES_SEVERAL if several else None,
            )


def _of_getopt(_: Any, __: Any, short: str, long: Any = ()) -> Iterator[DeclaredOption]:
    """Names that getopt was given; their defaults stand in the program's code."""
    for name in [long] if isinstance(long, str) else long:
        takes = name.endswith("=")
        yield option(
            [f"--{name.rstrip('=')}"],
            None if takes else False,
            "apart" if takes else "bare",
        )
    for letter, behind in zip(short, [*short[1:], ""]):
        if letter not in ":+-":
            takes = behind == ":"
            yield option(
                [f"-{letter}"], None if takes else False, "apart" if takes else "bare"
            )


def _of_docopt(
    result: Any, text: str = "", *_: Any, **more: Any
) -> Iterator[DeclaredOption]:
    """Options of a help text: those that it describes, and those that only its usage names."""
    module = sys.modules["docopt"]
    described = getattr(module, "parse_defaults", None) or module.parse_options
    known = {each.name: each for each in described(text or more.get("docstring", ""))}
    for name, value in result.items():
        if not name.startswith("-") or name in ("--help", "--version"):
            continue
        short = getattr(known.get(name), "short", None)
        is_flag = isinstance(value, bool)
        yield option(
            dict.fromkeys(filter(None, (name, short))),
            False if is_flag else _literal(getattr(known.get(name), "value", None)),
            "bare" if is_flag else "apart",
            why=TAKES_SEVERAL if isinstance(value, list) else None,
        )


def _of_click(
    _: Any, command: Any, name: Any, args: Any, parent: Any = None, **__: Any
) -> ParseReading:
    """Options of a command of click or typer; those of its subcommand follow."""
    return ParseReading(
        _of_params(command.params, name if parent is not None else None),
        complete=not hasattr(command, "list_commands"),
        untold=UNKNOWN_PASSED_ON
        if command.context_settings.get("ignore_unknown_options")
        else None,
    )


def _of_params(params: Any, command: str | None) -> Iterator[DeclaredOption]:
    for param in params:
        is_help = param.name in ("help", "install_completion", "show_completion")
        if param.param_type_name != "option" or is_help:
            continue
        flags = sorted(param.opts, key=lambda flag: -len(flag))
        form = "bare" if param.is_flag else "apart"
        if param.secondary_opts:
            if f"--no-{flags[0].lstrip('-')}" not in param.secondary_opts:
                continue
            form = "pair"
        default = param.default() if callable(param.default) else param.default
        yield option(
            flags,
            default.value if isinstance(default, enum.Enum) else default,
            form,
            choices=_choices(param),
            help=param.help,
            why=TAKES_SEVERAL if param.multiple or param.nargs != 1 else None,
            command=command,
        )


def _choices(param: Any) -> Any:
    """Values that an option of click takes, or of typer, whose own copy of click has no types."""
    annotation = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [each.value for each in annotation]
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)
    return getattr(getattr(param, "type", None), "choices", None)


def _of_cyclopts(result: Any, app: Any, tokens: Any = None, **_: Any) -> ParseReading:
    """Parameters of the command that was typed, each by its names."""
    declared = result[-1]
    words = app.parse_commands(tokens)[0]
    any_name = any(each._accepts_arbitrary_keywords for each in declared)
    return ParseReading(
        _of_arguments(declared, words[-1] if words else None),
        untold=ANY_NAME if any_name else None,
    )


def _of_arguments(declared: Any, command: str | None) -> Iterator[DeclaredOption]:
    """Options of cyclopts: fields of a dataclass have the values of the parameter's default."""
    objects: dict[str, Any] = {}
    for each in declared:
        flags = [flag for flag in each.positives if flag.startswith("-")]
        if not flags or not each.parse or "[" in flags[0]:
            continue
        default = objects[flags[0]] = each.field_info.default
        if each.keys:
            above = objects.get(flags[0].rpartition(".")[0])
            default = objects[flags[0]] = getattr(above, each.keys[-1], default)
        if each.children:
            continue
        count, takes_all = each.token_count()
        form, why = "apart", TAKES_SEVERAL if takes_all or count > 1 else None
        if each.is_flag():
            has_pair = f"--no-{flags[0].lstrip('-')}" in each.negatives
            form, why = "pair" if has_pair else "bare", None
        yield option(
            _longest_first(flags),
            default,
            form,
            choices=each.get_choices(force=True),
            help=each.parameter.help,
            why=why,
            command=command,
        )


def _of_absl(_: Any, values: Any, *__: Any, **___: Any) -> Iterator[DeclaredOption]:
    """Flags of absl, with configs of ml_collections."""
    for module, flags in values.flags_by_module_dict().items():
        for flag in flags if module.partition(".")[0] != "absl" else ():
            if hasattr(flag.value, "to_dict"):
                for path, value in _flat(flag.value.to_dict()):
                    yield option([f"--{flag.name}.{path}"], value)
            yield option(
                [f"--{flag.name}"],
                flag.default,
                choices=getattr(flag.parser, "enum_values", None),
                help=flag.help,
                why=TAKES_SEVERAL if isinstance(flag.default, list) else None,
            )


def _of_fire(_: Any, function: Any, *__: Any) -> ParseReading:
    """Parameters with a default of a function or class that Fire calls."""
    parameters = inspect.signature(function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    return ParseReading(
        [
            option([f"--{name}"], parameter.default)
            for name, parameter in parameters.items()
            if parameter.default is not parameter.empty
        ],
        untold=ANY_NAME if inspect.Parameter.VAR_KEYWORD in kinds else None,
    )


def _of_fires_own(parser: Any, *_: Any, **__: Any) -> None:
    """Fire's parser of its own flags."""
    setattr(parser, OF_LAUNCHER, True)


def _of_dataclass(config: Any, *_: Any, **__: Any) -> Iterator[DeclaredOption]:
    """Fields of the config that draccus or pyrallis made."""
    for path, value in _flat(dataclasses.asdict(config)):
        yield option([f"--{path}"], value, field=path)


def _of_pydantic(_: Any, model: Any, *__: Any, **___: Any) -> Iterator[DeclaredOption]:
    """Values of a settings object; its command line is argparse's, and knows no defaults."""
    for path, value in _flat(model.model_dump()):
        yield option([path], value, field=path, typed=False)


def _of_chz(_: Any, blueprint: Any, *__: Any, **___: Any) -> Iterator[DeclaredOption]:
    """Parameters of a chz blueprint, which are typed as `data.workers=2`."""
    for path, each in blueprint._make_lazy().all_params.items():
        if path:
            default = each.default.instantiate() if each.default is not None else None
            yield option([path], default, help=each.doc)


class ListPlace(NamedTuple):
    """Where further words may be added to a list that came from the command."""

    after: int | None = None
    """Number of the word before, counted in sys.argv; None: the end."""
    why: str | None = None
    """Why none can be added."""


def _place_of(words: Any) -> ListPlace | None:
    """Where a list stands in the command; None if the program made it up."""
    if words is None:
        return ListPlace()
    count = len(words)
    for parser, namespace, left in reversed(PARSED):
        if left is words or (words and left == words):
            return ListPlace()
        for action in parser._actions:
            value = getattr(namespace, action.dest, None)
            if value is not words and not (words and value == words):
                continue
            typed = [flag for flag in action.option_strings if flag in sys.argv]
            if typed:
                return ListPlace(after=sys.argv.index(typed[0]) + count)
            flag = "".join(_longest_first(action.option_strings)[:1])
            return ListPlace(why=f"it is typed behind {flag}") if flag else ListPlace()
    return ListPlace() if all(word in sys.argv for word in words) else None


FROM_WORDS: list[tuple[Any, ListPlace]] = []
"""Configs that OmegaConf made of words of the command."""


def _of_config(config: Any, place: ListPlace = ListPlace()) -> Iterator[DeclaredOption]:  # noqa: B008
    """Values of a config that OmegaConf merged, or that Hydra composed."""
    for path, value in _flat(sys.modules["omegaconf"].OmegaConf.to_container(config)):
        if path.partition(".")[0] != "hydra":
            refers = isinstance(value, str) and "${" in value
            why = "it refers to other values" if refers else place.why
            yield option([path], value, why=why, after=place.after)


def _of_hydra(config: Any, *_: Any, **__: Any) -> Iterator[DeclaredOption]:
    return _of_config(config)


def _of_words(config: Any, words: Any = None, **_: Any) -> ParseReading | None:
    """Remember a config that was made of words: a merge with it tells which keys there are."""
    place = _place_of(words)
    if place is None:
        return None
    FROM_WORDS.append((config, place))
    return ParseReading(untold=NOT_MERGED.format(library="OmegaConf"), provisional=True)


def _of_merged(merged: Any, *parts: Any, **_: Any) -> ParseReading | None:
    """The merged config, if one part was made of words of the command."""
    for part in parts:
        for config, place in FROM_WORDS:
            if part is config:
                return ParseReading(
                    _of_config(parts[0] if merged is None else merged, place)
                )
    return None


def _of_dotlist(_: Any, config: Any, words: Any = None, **__: Any) -> ParseReading | None:
    """A config that words were merged with: those given, else those of the command.

    One that holds nothing else is made of them, as `from_dotlist` does.
    """
    place = _place_of(words)
    if place is None:
        return None
    options = [*_of_config(config, place)]
    made_of_words = words is not None and len(options) <= len(words)
    return None if made_of_words else ParseReading(options)


def _of_structured(config: Any, *_: Any, **__: Any) -> Iterator[DeclaredOption]:
    """Fields of a config that was made of a dataclass; Hydra makes its own of them."""
    for each in () if "hydra" in sys.modules else _of_config(config):
        yield {**each, "field": each["flags"][0], "typed": False}


def _of_yacs(_: Any, config: Any, words: Any, **__: Any) -> Iterator[DeclaredOption] | None:
    """Values of a yacs config that words of the command were merged with, as `KEY VALUE`."""
    place = _place_of(words)
    if place is None:
        return None
    return (
        option([path], value, "apart", why=place.why, after=place.after)
        for path, value in _flat(config)
    )


def _of_sacred(run: Any, *_: Any, **__: Any) -> Iterator[DeclaredOption]:
    """Entries of an experiment's config, which are typed behind `with`."""
    why = None if "with" in sys.argv else "it is typed behind `with`"
    return (option([path], value, why=why) for path, value in _flat(run.config))


def _of_gin(_: Any, bindings: Any, *__: Any, **___: Any) -> Iterator[DeclaredOption]:
    """Bindings that gin knows so far; further ones are added to a list of them in the command."""
    place = _place_of(bindings) if PARSED and isinstance(bindings, (list, tuple)) else None
    place = place or ListPlace(why=OF_GIN)
    for (scope, selector), values in sys.modules["gin.config"]._CONFIG.items():
        name = "/".join(filter(None, (scope, selector.rpartition(".")[2])))
        for path, value in _flat(values, name):
            yield option([path], value, why=place.why, after=place.after)


def _of_unmerged(*_: Any, **__: Any) -> ParseReading:
    """A config that was made, before words of the command are merged with it."""
    return ParseReading(untold=NOT_MERGED.format(library="yacs"), provisional=True)


PARSERS = (
    Parser("argparse", "argparse", (), _of_argparse),
    Parser("argparse", "tyro._backends._argparse", (), _of_argparse),
    Parser("optparse", "optparse", ("OptionParser.parse_args",), _of_optparse),
    Parser("getopt", "getopt", ("getopt", "gnu_getopt"), _of_getopt),
    Parser("docopt", "docopt", ("docopt",), _of_docopt),
    Parser("click", "click.core", ("Command.make_context",), _of_click),
    Parser("click", "typer._click.core", ("Command.make_context",), _of_click),
    Parser("cyclopts", "cyclopts.core", ("App._parse_known_args",), _of_cyclopts),
    Parser("absl", "absl.flags._flagvalues", ("FlagValues.__call__",), _of_absl),
    Parser("fire", "fire.core", ("_MakeParseFn",), _of_fire),
    Parser("fire", "fire.core", ("parser.CreateParser",), _of_fires_own),
    Parser("draccus", "draccus.argparsing", ("ArgumentParser.parse_args",), _of_dataclass),
    Parser("pyrallis", "pyrallis.argparsing", ("ArgumentParser.parse_args",), _of_dataclass),
    Parser("pydantic_settings", "pydantic_settings.main", ("BaseSettings.__init__",), _of_pydantic),
    Parser(
        "transformers", "transformers.hf_argparser", ("HfArgumentParser.parse_dict",),
        _of_hf_fields,
    ),
    Parser("chz", "chz.blueprint._blueprint", ("Blueprint.apply_from_argv",), _of_chz, at_end=True),
    Parser(
        "hydra", "hydra._internal.config_loader_impl", ("ConfigLoaderImpl.load_configuration",),
        _of_hydra, at_end=True,
    ),
    Parser("omegaconf", "omegaconf", ("OmegaConf.from_cli", "OmegaConf.from_dotlist"), _of_words),
    Parser(
        "omegaconf", "omegaconf",
        ("OmegaConf.merge", "OmegaConf.unsafe_merge", "basecontainer.BaseContainer.merge_with"),
        _of_merged, at_end=True,
    ),
    Parser(
        "omegaconf", "omegaconf.basecontainer",
        ("BaseContainer.merge_with_cli", "BaseContainer.merge_with_dotlist"),
        _of_dotlist, at_end=True,
    ),
    Parser("omegaconf", "omegaconf", ("OmegaConf.structured",), _of_structured),
    Parser("sacred", "sacred.initialize", ("create_run",), _of_sacred, at_end=True),
    Parser("gin", "gin.config", ("parse_config",), _of_gin, at_end=True),
    Parser("yacs", "yacs.config", ("CfgNode.clone", "CfgNode.merge_from_file"), _of_unmerged),
    Parser("yacs", "yacs.config", ("CfgNode.merge_from_list",), _of_yacs, at_end=True),
)  # fmt: skip
