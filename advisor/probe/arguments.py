"""Arguments that the program declares and parses.

`install` listens to values during a measured run. `start_recording` records every option
that a parser declares, in a run that ends once arguments are parsed.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import inspect
import json
import os
import sys
import threading
from typing import Any, Callable, Iterable, Iterator

from .clocks import monotonic, sleep
from .session import Patches, Session

NAMES_KEPT = 400
"""Values of a parser that are recorded."""
CHOICES_KEPT = 100
"""Choices of an option that are recorded."""
GRACE_S = 1.0
"""Wait after a complete parse: some programs parse twice."""
LONG_GRACE_S = 20.0
"""Wait where words are left for another parser."""
PLAIN = (str, int, float, bool, type(None))
TAKES_SEVERAL = "it takes several values"
OF_LAUNCHER = "_gpu_advisor_of_launcher"
"""Attribute of a parser that reads a library's own flags, not the program's."""
LEAVE = getattr(sys.modules.get("posix"), "_exit", os._exit)
"""The system's exit: no handler of the program runs."""

Option = dict[str, Any]


def install(argparse: Any, session: Session) -> None:
    """Observe every ArgumentParser, with subcommands under their parent."""

    def keep(parser: Any, result: Any, nested: list[Any]) -> None:
        kept = session.facts["arguments"]
        for name, value in list(vars(result[0]).items())[:NAMES_KEPT]:
            kept[str(name)] = value if isinstance(value, PLAIN) else str(value)[:200]

    _listen(argparse, keep, session.fail)


def _listen(
    argparse: Any, keep: Callable[..., None], fail: Callable[[Exception], None]
) -> None:
    """Call `keep` with each outermost parser, its result, parsers it called."""
    at_work: list[list[Any]] = []

    def listening(parse: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if at_work:
            at_work[0].append(self)
            return parse(self, *args, **kwargs)
        at_work.append([])
        try:
            result = parse(self, *args, **kwargs)
            try:
                keep(self, result, at_work[0])
            except Exception as problem:
                fail(problem)
            return result
        finally:
            at_work.clear()

    for name in ("parse_known_args", "_parse_known_args"):  # jsonargparse calls the inner
        Patches().wrap(argparse.ArgumentParser, name)(listening)


def _hook(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Call `act(result, *args)` after each call of a function."""

    @Patches().wrap(owner, name)
    def wrapped(original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        act(result, *args, **kwargs)
        return result


def start_recording(path: str, when_imported: Callable[[Any], None]) -> None:
    """Record each parser's options, then end the process."""
    recorder = OptionRecorder(path)
    os.environ.setdefault("PYTHON_TYRO_BACKEND", "argparse")  # its copy, hooked below
    when_imported(
        {name: functools.partial(hook, recorder) for name, hook in LIBRARIES.items()}
    )
    _hook_exec(recorder)


class OptionRecorder:
    """Options found so far, written before the process ends.

    Which parse is the last one cannot be told when it comes: some programs parse twice, or leave
    words to another library's parser. So the process ends from a thread, a while after it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.options: dict[str, Option] = {}
        self._ends_at = float("inf")

    def add(
        self, options: Iterable[Option], library: str, *, complete: bool = True
    ) -> None:
        """Add `options`; a `complete` parse ends the process soon."""
        try:
            if _is_program():
                self._add(options, library, complete)
        except Exception as problem:
            print(f"gpu-advisor: options not recorded: {problem!r}", file=sys.stderr)

    def _add(self, options: Iterable[Option], library: str, complete: bool) -> None:
        for option in options:
            key = f"{option['command'] or ''} {option['flags'][0]}"
            self.options[key] = {"library": library, **option}
        draft = f"{self.path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"options": list(self.options.values())}, file)
        os.replace(draft, self.path)
        if self._ends_at == float("inf"):
            threading.Thread(target=self._end, daemon=True).start()
        self._ends_at = monotonic() + (GRACE_S if complete else LONG_GRACE_S)

    def _end(self) -> None:
        while monotonic() < self._ends_at:
            sleep(0.05)
        LEAVE(0)


def _is_program() -> bool:
    """Return True in the program, False in a launcher."""
    script = os.environ.get("GPU_ADVISOR_PARSE_SCRIPT", "")
    path = os.path.realpath(sys.argv[0] if sys.argv else "")
    path, script = (
        place.removesuffix(".py").removesuffix("/__main__") for place in (path, script)
    )
    return path.endswith(script)


def _option(flags: Iterable[Any], default: Any, form: str = "joint", **more: Any) -> Option:
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
    }


def _hook_argparse(recorder: OptionRecorder, argparse: Any) -> None:
    def keep(parser: Any, result: Any, nested: list[Any]) -> None:
        launches = type(parser).__module__.startswith(("hydra.", "torch.distributed"))
        if launches or "hydra" in str(parser.description).lower():  # Hydra composes later
            return
        if vars(parser).get(OF_LAUNCHER):
            return
        parsers = [parser, *nested]
        options: list[Option] = []
        for inner in parsers:
            options += _of_argparse(inner, _command_of(inner, parsers))
        recorder.add(options, "argparse", complete=not result[1])

    _listen(argparse, keep, print)


CONFIG_READERS = {"transformers", "trl", "jsonargparse"}
"""Packages whose parsers read the destinations of their options from a config, too."""


def _of_argparse(
    parser: Any, command: str | None, *, typed: bool = True
) -> Iterator[Option]:
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
            why = "its type is bool, which reads every text as true"
        yield _option(
            sorted(flags, key=lambda flag: -len(flag) if flag.startswith("--") else 0),
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


SUPPRESSED = "==SUPPRESS=="
"""Argparse's mark of an option that leaves nothing behind unless it is typed."""


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


def _of_click(command: Any, name: str | None) -> Iterator[Option]:
    """Options of a command of click or typer."""
    for param in command.params:
        is_help = param.name in ("help", "install_completion", "show_completion")
        if param.param_type_name != "option" or is_help:
            continue
        flags = sorted(param.opts, key=lambda flag: -len(flag))
        form = "bare" if param.is_flag else "apart"
        if param.secondary_opts:
            if f"--no-{flags[0].lstrip('-')}" not in param.secondary_opts:
                continue
            form = "pair"
        yield _option(
            flags,
            param.default() if callable(param.default) else param.default,
            form,
            choices=getattr(param.type, "choices", None),
            help=param.help,
            why=TAKES_SEVERAL if param.multiple or param.nargs != 1 else None,
            command=name,
        )


def _of_absl(values: Any) -> Iterator[Option]:
    """Flags of absl, with configs of ml_collections."""
    for module, flags in values.flags_by_module_dict().items():
        for flag in flags if not module.startswith("absl") else ():
            if hasattr(flag.value, "to_dict"):
                for path, value in _flat(flag.value.to_dict()):
                    yield _option([f"--{flag.name}.{path}"], value)
            yield _option(
                [f"--{flag.name}"],
                flag.default,
                choices=getattr(flag.parser, "enum_values", None),
                help=flag.help,
                why=TAKES_SEVERAL if isinstance(flag.default, list) else None,
            )


def _of_config(config: Any, *, typed: bool = True) -> Iterator[Option]:
    """Values of a config that OmegaConf merged or made of a dataclass, or that Hydra composed."""
    for path, value in _flat(sys.modules["omegaconf"].OmegaConf.to_container(config)):
        if path.partition(".")[0] != "hydra":
            refers = isinstance(value, str) and "${" in value
            why = "it refers to other values" if refers else None
            yield _option(
                [path], value, why=why, field=None if typed else path, typed=typed
            )


def _flat(node: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items() if isinstance(node, dict) else ():
        path = f"{above}.{key}" if above else str(key)
        if isinstance(value, dict):
            yield from _flat(value, path)
        elif isinstance(value, PLAIN) and value != "???":
            yield path, value


def _hook_click(recorder: OptionRecorder, core: Any) -> None:
    """click and typer: every command reached."""

    def reached(
        _: Any, command: Any, name: Any, args: Any, parent: Any = None, **__: Any
    ) -> None:
        options = _of_click(command, name if parent is not None else None)
        recorder.add(options, "click", complete=not hasattr(command, "list_commands"))

    _hook(core.Command, "make_context", reached)


def _hook_absl(recorder: OptionRecorder, flags: Any) -> None:
    """absl: every declared flag, after parsing."""
    add = functools.partial(recorder.add, library="absl")
    _hook(flags.FlagValues, "__call__", lambda _, values, *__, **___: add(_of_absl(values)))


def _hook_hydra(recorder: OptionRecorder, loader: Any) -> None:
    """Hydra: the composed config."""
    add = functools.partial(recorder.add, library="hydra")
    composer = loader.ConfigLoaderImpl
    _hook(composer, "load_configuration", lambda made, *_, **__: add(_of_config(made)))


def _hook_omegaconf(recorder: OptionRecorder, omegaconf: Any) -> None:
    """OmegaConf: merges of command-line words."""
    conf = omegaconf.OmegaConf
    from_words: list[Any] = []

    def merged(result: Any, *parts: Any, **_: Any) -> None:
        if any(part is words for part in parts for words in from_words):
            recorder.add(_of_config(result), "omegaconf")

    for name in ("from_cli", "from_dotlist"):
        _hook(conf, name, lambda result, *_, **__: from_words.append(result))
    for name in ("merge", "unsafe_merge"):
        _hook(conf, name, merged)

    def structured(result: Any, *_: Any, **__: Any) -> None:
        if "hydra" not in sys.modules:  # which makes its own of them
            recorder.add(_of_config(result, typed=False), "omegaconf")

    _hook(conf, "structured", structured)


def _hook_transformers(recorder: OptionRecorder, parsing: Any) -> None:
    """HfArgumentParser: its fields, where a YAML or JSON file is read without a command line."""

    def read(_: Any, parser: Any, *__: Any, **___: Any) -> None:
        recorder.add(_of_argparse(parser, None, typed=False), "transformers")

    _hook(parsing.HfArgumentParser, "parse_dict", read)


def _hook_pydantic(recorder: OptionRecorder, settings: Any) -> None:
    """pydantic-settings: the values of each settings object that is made."""

    def made(_: Any, model: Any, *__: Any, **___: Any) -> None:
        fields = _flat(model.model_dump())
        options = (
            _option([path], value, field=path, typed=False) for path, value in fields
        )
        recorder.add(options, "pydantic_settings")

    _hook(settings.BaseSettings, "__init__", made)


def _hook_fire(recorder: OptionRecorder, core: Any) -> None:
    """Fire: the parameters of each function or class that it calls."""

    def called(_: Any, function: Any, *__: Any) -> None:
        recorder.add(_of_parameters(function), "fire")

    _hook(core, "_MakeParseFn", called)
    _hook(
        core.parser, "CreateParser", lambda made, *_, **__: setattr(made, OF_LAUNCHER, True)
    )


def _of_parameters(function: Any) -> Iterator[Option]:
    """Parameters with a default, which flags of their names set."""
    for name, parameter in inspect.signature(function).parameters.items():
        named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if named and parameter.default is not parameter.empty:
            yield _option([f"--{name}"], parameter.default)


def _hook_dataclass_parser(recorder: OptionRecorder, parsing: Any, library: str) -> None:
    """draccus and pyrallis: fields of the config that was made."""

    def made(config: Any, *_: Any, **__: Any) -> None:
        fields = _flat(dataclasses.asdict(config))
        options = (_option([f"--{path}"], value, field=path) for path, value in fields)
        recorder.add(options, library)

    _hook(parsing.ArgumentParser, "parse_args", made)


def _hook_exec(recorder: OptionRecorder) -> None:
    """Globals that executed code overrides from the command line."""
    before = builtins.exec

    def run(source: Any, globals: Any = None, locals: Any = None, **extra: Any) -> None:  # noqa: A002
        frame = sys._getframe(1)
        names = frame.f_globals if globals is None else globals
        inner = frame.f_locals if globals is None and locals is None else locals
        declared = set(names)
        before(source, names, inner, **extra)
        if isinstance(source, str) and "sys.argv" in source and "globals()" in source:
            options = {
                n: v for n, v in names.items() if n in declared and not n.startswith("_")
            }
            plain = {
                n: v for n, v in options.items() if isinstance(v, PLAIN) and v is not None
            }
            recorder.add([_option([f"--{n}"], v) for n, v in plain.items()], "globals")

    builtins.exec = run


LIBRARIES: dict[str, Callable[[OptionRecorder, Any], None]] = {
    "argparse": _hook_argparse,
    "tyro._backends._argparse": _hook_argparse,
    "absl.flags._flagvalues": _hook_absl,
    "click.core": _hook_click,
    "typer._click.core": _hook_click,
    "fire.core": _hook_fire,
    "draccus.argparsing": functools.partial(_hook_dataclass_parser, library="draccus"),
    "pyrallis.argparsing": functools.partial(_hook_dataclass_parser, library="pyrallis"),
    "omegaconf": _hook_omegaconf,
    "transformers.hf_argparser": _hook_transformers,
    "pydantic_settings.main": _hook_pydantic,
    "hydra._internal.config_loader_impl": _hook_hydra,
}
