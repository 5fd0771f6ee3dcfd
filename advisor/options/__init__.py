"""The options of a program that nobody typed, with their defaults, read from its source.

source.py     the Python files that a script leads to, and what of them runs
calls.py      options declared one by one: argparse, optparse, click, absl
fields.py     options made of a class or a function: HfArgumentParser, tyro, typer, fire, ...
styles.py     how each library spells the options that it makes of a class's fields, as data
usage.py      options declared by the text of the usage: docopt
overrides.py  variables and configs that a command overrides: `--key=value`, Hydra, OmegaConf
declared.py   what these find

Nothing is imported or run: a program that would start to train when it is asked for its options
is none the less read.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import config as documents
from advisor.config import argv
from advisor.config.files import read_bytes
from advisor.config.options import Option
from advisor.errors import AdvisorError
from advisor.options import calls, fields, overrides, usage
from advisor.options.source import Project, reached

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from advisor.options.declared import Declared
    from advisor.options.source import Module

_INSTALLED = ("lib/python3*/site-packages", "lib64/python3*/site-packages")


def of_command(command: Sequence[str], cwd: Path) -> tuple[Option, ...]:
    """The options of the program that `command`, run in `cwd`, starts; none where its source is
    not found or is no Python. Never raises for what the source holds."""
    first = argv.first_own_word(command)
    words = command[first:]
    project, script = _opened(command, first, cwd)
    if script is None:
        return ()
    units = reached(project, script)
    found = [
        *calls.declared(units),
        *fields.declared(project, units),
        *usage.declared(units),
        *overrides.of_globals(project, script, words, cwd),
        *overrides.of_config_flags(units, words, cwd),
        *overrides.of_configs(units, words, cwd),
    ]
    return tuple(_placed(found, command, first))


def unknown_overrides(command: Sequence[str], cwd: Path) -> Iterator[tuple[str, str]]:
    """Words of `command` that Hydra will refuse, because the config that it composes has no such
    key, each with a sentence. None where not all of that config can be read."""
    first = argv.first_own_word(command)
    project, script = _opened(command, first, cwd)
    if script is None:
        return
    for word, near in overrides.unknown_keys(reached(project, script), command[first:]):
        hint = f"; did you mean {near}?" if near else ""
        yield word, f"{word}: the config that Hydra composes has no such key{hint}"


def why_unread(command: Sequence[str], cwd: Path) -> str | None:
    """Why only what is typed in `command` is known of its program; None where its source was
    read."""
    first = argv.first_own_word(command)
    path = script_of(command, first, cwd)
    if path is None:
        program = " ".join(command[:first]) or "the command"
        return f"{program} leads to no Python file here"
    if Project(()).module(path) is not None:
        return None
    try:
        documents.parse(read_bytes(path), "python", str(path))
    except AdvisorError as problem:
        return str(problem).rstrip(".")
    return f"{path} is too large to be read"


def imports(command: Sequence[str], cwd: Path, path: Path) -> bool:
    """Whether the program that `command` starts imports the file at `path`, or is told to by the
    name of its module."""
    first = argv.first_own_word(command)
    project, script = _opened(command, first, cwd)
    if script is None:
        return False
    real = path.resolve()
    named = [word.rpartition("=")[2] for word in command[first:]]
    told = (project.named(word) for word in named if re.fullmatch(r"[A-Za-z_][\w.]{0,200}", word))
    return any(
        module is not None and module.path == real
        for module in (*(unit.module for unit in reached(project, script)), *told)
    )


def _opened(command: Sequence[str], first: int, cwd: Path) -> tuple[Project, Module | None]:
    """The program's files, and the one that is run; None where it is not found."""
    path = script_of(command, first, cwd)
    own = (path.resolve().parent, cwd, cwd / "src") if path is not None else ()
    project = Project(own, installed(command, cwd))
    return project, project.module(path) if path is not None else None


def _placed(found: Sequence[Declared], command: Sequence[str], first: int) -> Iterator[Option]:
    """Each option once, with the word of the command that it is to follow.

    Behind the program's own name it stands before everything that could end its options; that of
    a subcommand stands behind this.
    """
    seen: set[str] = set()
    for one in sorted(found, key=lambda each: each.default is None):
        behind = len(command) - 1 if one.last else first - 1
        if one.command is not None:
            if one.command not in command[first:]:
                continue
            behind = command.index(one.command, first)
        if one.flag in seen:
            continue
        seen.add(one.flag)
        yield Option(
            flag=one.flag,
            default=one.default,
            form=one.form,
            behind=behind,
            source=one.source,
            others=one.others,
            choices=one.choices,
            comment=one.comment,
            why=one.why,
        )


def script_of(command: Sequence[str], first: int, cwd: Path) -> Path | None:
    """The Python file that `command` runs, whose own words begin at `first`."""
    try:
        return _script_of(command, first, cwd)
    except OSError:  # no path at all, such as code of many lines
        return None


def _script_of(command: Sequence[str], first: int, cwd: Path) -> Path | None:
    if not 0 < first <= len(command):
        return None
    name = command[first - 1]
    if first >= 2 and command[first - 2] in {"-m", "--module"}:
        parts = name.split(".")
        places = [root.joinpath(*parts) for root in (cwd, cwd / "src")]
        paths = [path for p in places for path in (p.with_suffix(".py"), p / "__main__.py")]
        return next((path for path in paths if path.is_file()), None)
    path = cwd / name
    if path.is_dir():
        path = path / "__main__.py"
    if path.is_file():
        return path if path.suffix == ".py" or _is_python(path) else None
    found = shutil.which(name) if "/" not in name else None
    return Path(found) if found and _is_python(Path(found)) else None


def _is_python(path: Path) -> bool:
    """Whether a file without `.py` begins as a script of Python does."""
    try:
        with path.open("rb") as file:
            return bool(re.match(rb"#!.*python|#!/bin/sh\n'''exec'", file.read(200)))
    except OSError:
        return False


def installed(command: Sequence[str], cwd: Path) -> tuple[Path, ...]:
    """The package folders of the interpreter that `command` names, or that is used here."""
    named = shutil.which(command[0]) if command else None
    own = os.environ.get("VIRTUAL_ENV")
    prefixes = [
        *([Path(named).parent.parent] if named else []),
        *([Path(own)] if own else []),
        cwd / ".venv",
    ]
    return tuple(folder for p in prefixes for pattern in _INSTALLED for folder in p.glob(pattern))
