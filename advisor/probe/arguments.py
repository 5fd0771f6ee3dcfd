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
CHOICES_KEPT = 100
GRACE_S = 1.0
"""Wait after a complete parse: some programs parse twice."""
LONG_GRACE_S = 20.0
"""Wait where words are left over for another parser."""
PLAIN = (str, int, float, bool, type(None))
TAKES_BOOL_TEXT = "its type is bool, which reads every text as true"
TAKES_SEVERAL = "it takes several values"
LEAVE = getattr(sys.modules.get("posix"), "_exit", os._exit)
"""The system's own exit: no handler of the program runs."""

Option = Dict[str, Any]
"""One option, as the parent reads it."""


# --- a measured run ---------------------------------------------------------------------------


def install(argparse: Any, session: Session) -> None:
    """Observe every ArgumentParser, with subcommands under their parent."""

    def keep(parser: Any, result: Any, typed: set[str], nested: list[Any]) -> None:
        for name, value in list(vars(result[0]).items())[:NAMES_KEPT]:
            session.arguments[str(name)] = value if isinstance(value, PLAIN) else str(value)[:200]
            if name in typed and name in session.defaulted:
                session.defaulted.remove(name)
            elif name not in typed and name not in session.defaulted:
                session.defaulted.append(str(name))

    _listen(argparse, keep, session.fail)


def _listen(argparse: Any, keep: Callable[..., None], fail: Callable[[Exception], None]) -> None:
    """Call `keep` with each outermost parser's result."""
    parser = argparse.ArgumentParser
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

    def typed(self: Any, action: Any, words: Any) -> None:
        if at_work and (words or action.option_strings):
            at_work[0][0].add(action.dest)

    # jsonargparse only calls the inner one, tyro replaces it.
    for name in ("parse_known_args", "_parse_known_args"):
        setattr(parser, name, listening(getattr(parser, name)))
    _before(parser, "_get_values", typed)


def _before(owner: Any, name: str, act: Callable[..., None]) -> Any:
    """Call `act(*args)` before each call of a function."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        act(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)
    return wrapped


def _after(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Call `act(result, *args)` after each call of a function."""
    original, held = getattr(owner, name), vars(owner).get(name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        act(result, *args, **kwargs)
        return result

    setattr(owner, name, staticmethod(wrapped) if isinstance(held, staticmethod) else wrapped)


# --- a run that only parses -------------------------------------------------------------------


def start_recording(path: str, when_imported: Callable[[Any], None]) -> None:
    """Record each parser's options, then end the process."""
    recorder = Recorder(path)
    when_imported({name: functools.partial(hook, recorder) for name, hook in LIBRARIES.items()})
    _hook_exec(recorder)


class Recorder:
    """Options found so far, written before the process ends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.options: dict[str, Option] = {}
        self._ends_at = float("inf")
        self._thread: threading.Thread | None = None

    def add(self, options: Iterable[Option], library: str, *, complete: bool = True) -> None:
        """Add `options`; a `complete` parse ends the process soon."""
        try:
            if _is_program():
                self._add(list(options), library, complete)
        except Exception as problem:
            print(f"gpu-advisor: options not recorded: {problem!r}", file=sys.stderr)

    def _add(self, options: list[Option], library: str, complete: bool) -> None:
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


def _option(flags: Any, default: Any, form: str = "joint", **more: Any) -> Option:
    plain = [choice for choice in more.get("choices") or () if isinstance(choice, PLAIN)]
    return {
        "flags": [str(flag) for flag in flags],
        "default": default if isinstance(default, PLAIN) else None,
        "form": form,
        "choices": plain[:CHOICES_KEPT],
        "help": str(more["help"])[:400] if isinstance(more.get("help"), str) else None,
        "at": more.get("at"),
        "why": more.get("why"),
        "command": more.get("command"),
    }


def _declaring(owner: Any, name: str, place: int) -> None:
    """Keep the user's line on the option that a call declares."""

    def note(*args: Any, **kwargs: Any) -> None:
        if not hasattr(args[place], "_declared_at"):
            args[place]._declared_at = _user_line()

    _before(owner, name, note)


# --- argparse, and every library built on it --------------------------------------------------


def _hook_argparse(recorder: Recorder, argparse: Any) -> None:
    _declaring(argparse._ActionsContainer, "_add_action", place=1)

    def keep(parser: Any, result: Any, typed: set[str], nested: list[Any]) -> None:
        of_hydra = "hydra" in str(getattr(parser, "description", "")).lower()
        if of_hydra or type(parser).__module__.startswith(("hydra.", "torch.distributed")):
            return  # what Hydra composes comes later
        found = list(_of_argparse(parser, None))
        for each in nested:
            if each is not parser:
                found += _of_argparse(each, _command_of(each, [parser, *nested]))
        recorder.add(found, "argparse", complete=not result[1])

    _listen(argparse, keep, print)


def _of_argparse(parser: Any, command: str | None) -> Iterator[Option]:
    for action in parser._actions:
        kind, flags = type(action).__name__, list(action.option_strings)
        other = ("Help", "Version", "Subparsers", "PrintConfig", "--print_config")
        if not flags or any(word in kind for word in other):
            continue
        form, why, type_ = "apart", None, getattr(action, "type", None)
        default = _default_of(parser, action)
        if "BooleanOptional" in kind or any(f"--no-{f[2:]}" in flags for f in flags):
            form = "pair"
            flags = [flag for flag in flags if not flag.startswith("--no-")] or flags
        elif action.nargs == 0:
            if getattr(action, "const", None) is not True:
                continue
            form, default = "bare", default or False
        elif action.nargs not in (None, "?", 1) or "Append" in kind:
            why = TAKES_SEVERAL
        elif type_ is bool and action.nargs is None:
            why = TAKES_BOOL_TEXT
        yield _option(
            sorted(flags, key=lambda flag: -len(flag) if flag.startswith("--") else 0),
            default,
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
    if isinstance(default, PLAIN) or not shown:
        return default
    text = shown[1]  # tyro keeps the value itself elsewhere
    words: dict[str, Any] = {"True": True, "False": False, "None": None}
    if text not in words and re.fullmatch(r"-?[\d.]+(e-?\d+)?", text):
        return float(text) if re.search(r"[.e]", text) else int(text)
    return words.get(text, text)


def _command_of(parser: Any, around: Any) -> str | None:
    """The word of the command line that calls `parser`."""
    for action in (action for outer in around for action in outer._actions):
        choices = getattr(action, "choices", None)
        for name, inner in choices.items() if isinstance(choices, dict) else ():
            if inner is parser and name in sys.argv:
                return str(name)
    return None


# --- other libraries --------------------------------------------------------------------------


def _hook_click(recorder: Recorder, core: Any) -> None:
    """click and typer: every command that is reached."""
    _declaring(core.Parameter, "__init__", place=0)

    def reached(
        context: Any, command: Any, name: Any, args: Any, parent: Any = None, **_: Any
    ) -> None:
        found = _of_click(command, name if parent is not None else None)
        recorder.add(found, "click", complete=not hasattr(command, "list_commands"))

    _after(core.Command, "make_context", reached)


def _of_click(command: Any, name: str | None) -> Iterator[Option]:
    for param in command.params:
        is_help = getattr(param, "name", None) in ("help", "install_completion", "show_completion")
        if getattr(param, "param_type_name", "") != "option" or is_help:
            continue
        flags = sorted(param.opts, key=lambda flag: -len(flag))
        form = "bare" if getattr(param, "is_flag", False) else "apart"
        if param.secondary_opts:
            if f"--no-{flags[0].lstrip('-')}" not in param.secondary_opts:
                continue
            form = "pair"
        several = getattr(param, "multiple", False) or param.nargs != 1
        yield _option(
            flags,
            param.default() if callable(param.default) else param.default,
            form,
            choices=getattr(getattr(param, "type", None), "choices", None),
            help=getattr(param, "help", None),
            at=getattr(param, "_declared_at", None),
            why=TAKES_SEVERAL if several else None,
            command=name,
        )


def _hook_absl(recorder: Recorder, flagvalues: Any) -> None:
    """absl.flags, with the configs of ml_collections."""

    def parsed(result: Any, values: Any, *_: Any, **__: Any) -> None:
        recorder.add(_of_absl(values), "absl")

    _after(flagvalues.FlagValues, "__call__", parsed)


def _of_absl(values: Any) -> Iterator[Option]:
    for module, flags in values.flags_by_module_dict().items():
        for flag in flags if not module.startswith("absl") else ():
            if hasattr(flag.value, "to_dict"):
                for path, value in _flat(flag.value.to_dict()):
                    yield _option([f"--{flag.name}.{path}"], value, at=module)
            choices = getattr(flag.parser, "enum_values", None)
            several = TAKES_SEVERAL if isinstance(flag.default, list) else None
            more = {"choices": choices, "help": flag.help, "at": module, "why": several}
            yield _option([f"--{flag.name}"], flag.default, **more)


def _hook_fire(recorder: Recorder, core: Any) -> None:
    """fire: the arguments of the called function."""

    def called(component: Any = None, *_: Any, **__: Any) -> None:
        command, target = None, component
        for word in [word for word in sys.argv[1:] if not word.startswith("-")][:1]:
            each = target.get(word) if isinstance(target, dict) else getattr(target, word, None)
            command, target = (word, each) if callable(each) else (None, target)
        recorder.add(_of_signature(target, command), "fire")

    fire = _before(core, "Fire", called)
    if "fire" in sys.modules:
        sys.modules["fire"].Fire = fire  # type: ignore[attr-defined]


def _of_signature(target: Any, command: str | None) -> Iterator[Option]:
    try:
        parameters = inspect.signature(target).parameters.values()
        code = getattr(inspect.unwrap(target), "__code__", None)
    except (TypeError, ValueError):
        return
    at = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code else None
    for each in parameters:
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and each.name != "self":
            default = None if each.default is each.empty else each.default
            yield _option([f"--{each.name}"], default, at=at, command=command)


def _hook_omegaconf(recorder: Recorder, omegaconf: Any) -> None:
    """OmegaConf: merges of the words of the command line."""
    conf = omegaconf.OmegaConf
    from_words: list[Any] = []

    def merged(result: Any, *parts: Any, **_: Any) -> None:
        if any(part is words for part in parts for words in from_words):
            recorder.add(_of_config(result, _user_line()), "omegaconf")

    for name in ("from_cli", "from_dotlist"):
        _after(conf, name, lambda result, *_, **__: from_words.append(result))
    for name in ("merge", "unsafe_merge"):
        _after(conf, name, merged)


def _hook_hydra(recorder: Recorder, loader: Any) -> None:
    """Hydra: the composed config."""

    def composed(result: Any, this: Any, config_name: Any, *_: Any, **__: Any) -> None:
        recorder.add(_of_config(result, f"{config_name}.yaml"), "hydra")

    _after(loader.ConfigLoaderImpl, "load_configuration", composed)


def _of_config(config: Any, at: str | None) -> Iterator[Option]:
    conf = sys.modules["omegaconf"].OmegaConf
    plain = conf.to_container(config, resolve=False) if conf.is_config(config) else config
    for path, value in _flat(plain):
        if path.partition(".")[0] != "hydra":
            refers = isinstance(value, str) and "${" in value
            yield _option([path], value, at=at, why="it refers to other values" if refers else None)


def _flat(node: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Return paths and values of nested mappings."""
    for key, value in node.items() if isinstance(node, dict) else ():
        path = f"{above}.{key}" if above else str(key)
        if isinstance(value, dict):
            yield from _flat(value, path)
        elif isinstance(value, PLAIN) and value != "???":
            yield path, value


def _hook_exec(recorder: Recorder) -> None:
    """Globals that executed code overrides from the command line."""
    before = builtins.exec

    def run(source: Any, globals: Any = None, locals: Any = None, **extra: Any) -> None:  # noqa: A002
        frame = sys._getframe(1)
        names = frame.f_globals if globals is None else globals
        declared = set(names)
        inner = names if locals is None else locals
        inner = frame.f_locals if globals is None and locals is None else inner
        before(source, names, inner, **extra)
        if isinstance(source, str) and "sys.argv" in source and "globals()" in source:
            at = os.path.basename(str(names.get("__file__") or "")) or None
            found = {n: v for n, v in names.items() if n in declared and not n.startswith("_")}
            plain = {n: v for n, v in found.items() if isinstance(v, PLAIN) and v is not None}
            recorder.add([_option([f"--{n}"], v, at=at) for n, v in plain.items()], "globals")

    builtins.exec = run


LIBRARIES: dict[str, Callable[[Recorder, Any], None]] = {
    "argparse": _hook_argparse,
    "tyro._backends._argparse": _hook_argparse,
    "click.core": _hook_click,
    "typer._click.core": _hook_click,
    "absl.flags._flagvalues": _hook_absl,
    "fire.core": _hook_fire,
    "omegaconf": _hook_omegaconf,
    "hydra._internal.config_loader_impl": _hook_hydra,
}


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
