"""Arguments that the program declares and parses.

`install` listens during a measured run: values, and which of them were defaults.
`start_recording` serves a run that ends once its arguments are parsed. It records every option
that a parser declares. Libraries built on argparse or click need nothing of their own here.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import json
import os
import re
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterable, Iterator

from .session import Session

NAMES_KEPT = 400
OPTIONS_KEPT = 2000
GRACE_S = 1.0
"""Wait after a complete parse: some programs parse twice."""
LONG_GRACE_S = 20.0
"""Wait where words are left over for another parser."""
PLAIN = (str, int, float, bool, type(None))
TAKES_BOOL_TEXT = "its type is bool, which reads every text as true"
TAKES_SEVERAL = "it takes several values"
LEAVE = getattr(sys.modules.get("posix"), "_exit", os._exit)
"""The system's own exit: no handler of the program runs."""

Record = Dict[str, Any]
"""One option, as the parent reads it."""


# --- a measured run ---------------------------------------------------------------------------


def install(argparse: Any, session: Session) -> None:
    """Observe every ArgumentParser, with subcommands under their parent."""

    def keep(parser: Any, result: Any, typed: set[str], nested: list[Any]) -> None:
        for name, value in list(vars(result[0]).items())[:NAMES_KEPT]:
            session.arguments[str(name)] = value if isinstance(value, PLAIN) else str(value)[:200]
            if name in typed:
                session.defaulted = [other for other in session.defaulted if other != name]
            elif name not in session.defaulted:
                session.defaulted.append(str(name))

    _listen(argparse, keep, session.fail)


def _listen(argparse: Any, keep: Callable[..., None], fail: Callable[[Exception], None]) -> None:
    """Call `keep` with each outermost parser's result."""
    parser = argparse.ArgumentParser
    convert = parser._get_values
    at_work: list[tuple[set[str], list[Any]]] = []

    def listening(parse: Any) -> Any:
        @functools.wraps(parse)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            if at_work:
                at_work[0][1].append(self)
                return parse(self, *args, **kwargs)
            at_work.append((set(), []))
            try:
                result = parse(self, *args, **kwargs)
                try:
                    keep(self, result, *at_work[0])
                except Exception as problem:
                    fail(problem)
                return result
            finally:
                at_work.clear()

        return wrapped

    @functools.wraps(convert)
    def _get_values(self: Any, action: Any, words: Any) -> Any:
        if at_work and (words or action.option_strings):
            at_work[0][0].add(action.dest)
        return convert(self, action, words)

    # jsonargparse only calls the inner one, tyro replaces it.
    for name in ("parse_known_args", "_parse_known_args"):
        setattr(parser, name, listening(getattr(parser, name)))
    parser._get_values = _get_values


# --- a run that only parses -------------------------------------------------------------------


def start_recording(path: str, when_imported: Callable[[Any], None]) -> None:
    """Record each parser's options, then end the process."""
    recorder = Recorder(path)
    when_imported(
        {
            "argparse": recorder.hook_argparse,
            "tyro._backends._argparse": recorder.hook_argparse,
            "click.core": recorder.hook_click,
            "typer._click.core": recorder.hook_click,
            "absl.flags._flagvalues": recorder.hook_absl,
            "fire.core": recorder.hook_fire,
            "omegaconf": recorder.hook_omegaconf,
            "hydra._internal.config_loader_impl": recorder.hook_hydra,
        }
    )
    recorder.hook_exec()


class Recorder:
    """Options found so far, written before the process ends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.options: dict[str, Record] = {}
        self._ends_at = float("inf")
        self._thread: threading.Thread | None = None

    def add(self, options: Iterable[Record], library: str, *, complete: bool) -> None:
        """Add `options`; a `complete` parse ends the process soon."""
        try:
            if _is_program():
                self._add(list(options), library, complete)
        except Exception as problem:
            print(f"gpu-advisor: options not recorded: {problem!r}", file=sys.stderr)

    def _add(self, options: list[Record], library: str, complete: bool) -> None:
        for option in options:
            key = f"{option.get('command') or ''} {option['flags'][0]}"
            if len(self.options) < OPTIONS_KEPT:
                self.options[key] = {"library": library, **option}
        draft = f"{self.path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"options": list(self.options.values())}, file)
        os.replace(draft, self.path)
        self._ends_at = time.monotonic() + (GRACE_S if complete else LONG_GRACE_S)
        if self._thread is None:
            self._thread = threading.Thread(target=self._end, daemon=True)
            self._thread.start()

    def _end(self) -> None:
        while time.monotonic() < self._ends_at:
            time.sleep(0.05)
        LEAVE(0)

    # Each hook knows one library.

    def hook_argparse(self, argparse: Any) -> None:
        """argparse, and every library built on it."""
        _declaring(argparse._ActionsContainer, "_add_action", place=1)

        def keep(parser: Any, result: Any, typed: set[str], nested: list[Any]) -> None:
            if type(parser).__module__.startswith(("hydra.", "torch.distributed")):
                return
            if "hydra" in str(getattr(parser, "description", "")).lower():
                self.add((), "hydra", complete=False)
                return
            found = list(_of_argparse(parser, None))
            for each in nested:
                if each is not parser:
                    found += _of_argparse(each, _command_of(each, [parser, *nested]))
            self.add(found, "argparse", complete=not result[1])

        _listen(argparse, keep, print)

    def hook_click(self, core: Any) -> None:
        """click and typer: every command that is reached."""
        _declaring(core.Parameter, "__init__", place=0)

        def reached(
            context: Any, command: Any, name: Any, args: Any, parent: Any = None, **_: Any
        ) -> None:
            found = _of_click(command, name if parent is not None else None)
            self.add(found, "click", complete=not hasattr(command, "list_commands"))

        _around(core.Command, "make_context", reached)

    def hook_absl(self, flagvalues: Any) -> None:
        """absl.flags, with the configs of ml_collections."""

        def parsed(result: Any, values: Any, *_: Any, **__: Any) -> None:
            self.add(_of_absl(values), "absl", complete=True)

        _around(flagvalues.FlagValues, "__call__", parsed)

    def hook_fire(self, core: Any) -> None:
        """fire: the arguments of the called function."""

        def called(component: Any = None, *_: Any, **__: Any) -> None:
            words = [word for word in sys.argv[1:] if not word.startswith("-")]
            command, target = None, component
            for word in words[:1]:
                each = target.get(word) if isinstance(target, dict) else getattr(target, word, None)
                command, target = (word, each) if callable(each) else (None, target)
            self.add(_of_signature(target, command), "fire", complete=True)

        fire = _around(core, "Fire", called, first=True)
        if "fire" in sys.modules:
            sys.modules["fire"].Fire = fire  # type: ignore[attr-defined]

    def hook_omegaconf(self, omegaconf: Any) -> None:
        """OmegaConf: merges of the words of the command line."""
        conf = omegaconf.OmegaConf
        words: list[Any] = []

        def merged(result: Any, *parts: Any, **_: Any) -> None:
            if any(part is one for part in parts for one in words):
                self.add(_of_config(omegaconf, result, _user_line()), "omegaconf", complete=True)

        for name in ("from_cli", "from_dotlist"):
            _around(conf, name, lambda result, *_, **__: words.append(result), static=True)
        for name in ("merge", "unsafe_merge"):
            _around(conf, name, merged, static=True)

    def hook_hydra(self, loader: Any) -> None:
        """Hydra: the composed config."""

        def composed(result: Any, this: Any, config_name: Any, *_: Any, **__: Any) -> None:
            self.add(_of_hydra(result, config_name), "hydra", complete=True)

        _around(loader.ConfigLoaderImpl, "load_configuration", composed)

    def hook_exec(self) -> None:
        """Globals that executed code overrides from the command line."""
        before = builtins.exec

        def run(source: Any, globals: Any = None, locals: Any = None, **extra: Any) -> None:  # noqa: A002
            frame = sys._getframe(1)
            names = frame.f_globals if globals is None else globals
            declared = set(names)
            inner = locals if locals is not None else names
            if globals is None and locals is None:
                inner = frame.f_locals
            before(source, names, inner, **extra)
            if isinstance(source, str) and "sys.argv" in source and "globals()" in source:
                found = {name: names[name] for name in names if name in declared}
                self.add(_of_globals(found), "globals", complete=True)

        builtins.exec = run


def _around(
    owner: Any, name: str, record: Callable[..., None], *, first: bool = False, static: bool = False
) -> Any:
    """Call `record(result, *args)` after each call; `first`: `record(*args)` before it."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if first:
            record(*args, **kwargs)
        result = original(*args, **kwargs)
        if not first:
            record(result, *args, **kwargs)
        return result

    setattr(owner, name, staticmethod(wrapped) if static else wrapped)
    return wrapped


def _declaring(owner: Any, name: str, place: int) -> None:
    """Keep the user's line on the option that a call declares."""

    def note(*args: Any, **kwargs: Any) -> None:
        if not hasattr(args[place], "_declared_at"):
            args[place]._declared_at = _user_line()

    _around(owner, name, note, first=True)


# --- what each library declares ---------------------------------------------------------------


def _record(flags: Any, default: Any, form: str, **more: Any) -> Record:
    choices = more.get("choices")
    plain = [c for c in choices if isinstance(c, PLAIN)] if choices else []
    return {
        "flags": [str(flag) for flag in flags],
        "default": default if isinstance(default, PLAIN) else None,
        "form": form,
        "choices": plain[:100],
        "help": str(more["help"])[:400] if isinstance(more.get("help"), str) else None,
        "at": more.get("at"),
        "why": more.get("why"),
        "command": more.get("command"),
    }


def _of_argparse(parser: Any, command: str | None) -> Iterator[Record]:
    for action in parser._actions:
        kind = type(action).__name__
        if not action.option_strings or any(w in kind for w in ("Help", "Version", "Subparsers")):
            continue
        if "--print_config" in kind or kind.startswith(("ActionPrintConfig", "_ActionPrintConfig")):
            continue
        flags, form, why = list(action.option_strings), "apart", None
        type_ = getattr(action, "type", None)
        name = getattr(type_, "__name__", "")
        if "BooleanOptional" in kind or any(f"--no-{f[2:]}" in flags for f in flags):
            form = "pair"
            flags = [flag for flag in flags if not flag.startswith("--no-")] or flags
        elif action.nargs == 0:
            if getattr(action, "const", None) is not True:
                continue
            form = "bare"
        elif action.nargs not in (None, "?", 1) or "Append" in kind:
            why = TAKES_SEVERAL
        elif name == "bool" and action.nargs is None and type_ is bool:
            why = TAKES_BOOL_TEXT
        default = _default_of(parser, action)
        flags.sort(key=lambda flag: -len(flag) if flag.startswith("--") else 0)
        yield _record(
            flags,
            False if form == "bare" and default is None else default,
            form,
            choices=action.choices if isinstance(action.choices, (list, tuple, set)) else None,
            help=action.help,
            at=getattr(action, "_declared_at", None),
            why=why,
            command=command,
        )


def _default_of(parser: Any, action: Any) -> Any:
    """Return the default, converted where it is text."""
    default = parser._defaults.get(action.dest, action.default)
    if isinstance(default, str) and callable(action.type) and action.type is not str:
        try:
            default = action.type(default)
        except Exception:
            return default
    shown = re.search(r"\(default: (.*?)\)", action.help or "")
    if not isinstance(default, PLAIN) and shown:  # tyro keeps the value itself elsewhere
        return {"True": True, "False": False, "None": None}.get(shown[1], _number(shown[1]))
    return default


def _command_of(parser: Any, around: Any) -> str | None:
    """The word of the command line that calls `parser`."""
    for outer in around:
        for action in outer._actions:
            choices = getattr(action, "choices", None)
            for name, inner in choices.items() if isinstance(choices, dict) else ():
                if inner is parser and name in sys.argv:
                    return str(name)
    return None


def _of_click(command: Any, name: str | None) -> Iterator[Record]:
    for param in command.params:
        is_help = getattr(param, "name", None) in ("help", "install_completion", "show_completion")
        if getattr(param, "param_type_name", "") != "option" or is_help:
            continue
        flags = sorted(param.opts, key=lambda flag: -len(flag))
        form = "apart"
        if param.secondary_opts:
            if f"--no-{flags[0].lstrip('-')}" not in param.secondary_opts:
                continue
            form = "pair"
        elif getattr(param, "is_flag", False):
            form = "bare"
        default = param.default() if callable(param.default) else param.default
        several = getattr(param, "multiple", False) or param.nargs != 1
        yield _record(
            flags,
            default,
            form,
            choices=getattr(getattr(param, "type", None), "choices", None),
            help=getattr(param, "help", None),
            at=getattr(param, "_declared_at", None),
            why=TAKES_SEVERAL if several else None,
            command=name,
        )


def _of_absl(values: Any) -> Iterator[Record]:
    for module, flags in values.flags_by_module_dict().items():
        for flag in flags if not module.startswith("absl") else ():
            if hasattr(flag.value, "to_dict"):
                for path, value in _flat(flag.value.to_dict()):
                    yield _record([f"--{flag.name}.{path}"], value, "joint", at=module)
            yield _record(
                [f"--{flag.name}"],
                flag.default,
                "joint",
                choices=getattr(flag.parser, "enum_values", None),
                help=flag.help,
                at=module,
                why=TAKES_SEVERAL if isinstance(flag.default, list) else None,
            )


def _of_signature(target: Any, command: str | None) -> Iterator[Record]:
    try:
        parameters = inspect.signature(target).parameters.values()
        code = getattr(inspect.unwrap(target), "__code__", None)
    except (TypeError, ValueError):
        return
    at = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code else None
    for each in parameters:
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and each.name != "self":
            default = None if each.default is each.empty else each.default
            yield _record([f"--{each.name}"], default, "joint", at=at, command=command)


def _of_config(omegaconf: Any, config: Any, at: str | None) -> Iterator[Record]:
    if omegaconf.OmegaConf.is_config(config):
        config = omegaconf.OmegaConf.to_container(config, resolve=False)
    for path, value in _flat(config):
        refers = isinstance(value, str) and "${" in value
        yield _record([path], value, "joint", at=at, why="it refers to other values"
                      if refers else None)  # fmt: skip


def _of_hydra(config: Any, name: Any) -> Iterator[Record]:
    omegaconf = sys.modules["omegaconf"]
    plain = omegaconf.OmegaConf.to_container(config, resolve=False)
    plain.pop("hydra", None)
    yield from _of_config(omegaconf, plain, f"{name}.yaml")


def _of_globals(names: Dict[str, Any]) -> Iterator[Record]:
    at = os.path.basename(str(names.get("__file__") or "")) or None
    for name, value in list(names.items()):
        if not name.startswith("_") and value is not None and isinstance(value, PLAIN):
            yield _record([f"--{name}"], value, "joint", at=at)


def _flat(node: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Return paths and values of nested mappings."""
    for key, value in node.items() if isinstance(node, dict) else ():
        path = f"{above}.{key}" if above else str(key)
        if isinstance(value, dict):
            yield from _flat(value, path)
        elif isinstance(value, PLAIN) and value != "???":
            yield path, value


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# --- shared ----------------------------------------------------------------------------------


def _is_program() -> bool:
    """Return True in the program, False in a launcher."""
    script = os.environ.get("GPU_ADVISOR_PARSE_SCRIPT", "")
    path = os.path.realpath(sys.argv[0] if sys.argv else "")
    return _module_path(path).endswith(_module_path(script))


def _module_path(path: str) -> str:
    for end in (".py", "/__main__"):
        path = path[: -len(end)] if path.endswith(end) else path
    return path


def _user_line() -> str | None:
    """`train.py:12`: the nearest caller outside of installed packages."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        is_library = "site-packages" in file or file.startswith((sys.base_prefix, "<"))
        if not is_library and os.path.dirname(__file__) not in file:
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return None
