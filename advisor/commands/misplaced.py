"""Words that a subcommand does not know: what was probably meant, and the right line."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.config.formats import SUFFIXES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

TAKES_COMMAND = ("optimize", "inspect", "profile")
ALIKE = 0.75
"""From this share of common letters on an option is another one misspelled."""
_INTERPRETER = re.compile(r"python[\d.]*")
_OPTION = re.compile(r"--[\w-]+")
_FLAG = re.compile(r"\[(--[\w-]+)\]")


def is_program(word: str) -> bool:
    """Whether `word` begins a command: the name of a program, or a file that can be run.

    On some disks every file can be run, configs too.
    """
    file = Path(word)
    if file.exists():
        return file.is_file() and file.suffix not in SUFFIXES and os.access(word, os.X_OK)
    return bool(_INTERPRETER.fullmatch(word) or (os.sep not in word and shutil.which(word)))


def in_place_of_config(name: str, args: argparse.Namespace) -> bool:
    """Whether a program stands where subcommand `name` takes configs."""
    given = getattr(args, "config", None) or ()
    configs = given if isinstance(given, list) else [given]
    return name in TAKES_COMMAND and any(is_program(str(config)) for config in configs)


def told(
    parser: argparse.ArgumentParser,
    name: str,
    words: Sequence[str],
    unknown: Iterable[str],
    command: Sequence[str] | None,
) -> str:
    """One sentence on what is wrong with `words` of subcommand `name`, and one on the right line.

    `unknown`: those that `parser` had no place for; `command`: what stood after `--`.
    """
    usage = parser.format_usage()
    takes_value = {*_OPTION.findall(usage)} - {*_FLAG.findall(usage)}
    begins = None
    if command is None and name in TAKES_COMMAND:
        begins = _begin_of_command(words, takes_value)
    own, theirs = list(words[:begins]), list(words[begins:]) if begins is not None else command
    near = _near(own, _OPTION.findall(usage))
    said = [f"{wrong} is no option of `gpu-advisor {name}`." for wrong in near]
    if begins is not None:
        said.append(f"`{shlex.join(theirs or ())}` looks like your command: put -- before it.")
    fixed = [near.get(word.partition("=")[0]) for word in own]
    if begins is None and not any(fixed):
        left = [word for word in unknown if word not in near]
        said += [f"There is no place for {shlex.join(left)}."] if left else []
        before = "Your command goes behind --; " if name in TAKES_COMMAND else ""
        return f"{' '.join(said)} {before}`gpu-advisor {name} --help` lists the options."
    right = [
        word if new is None else new + word[len(word.partition("=")[0]) :]
        for word, new in zip(own, fixed, strict=True)
    ]
    behind = ["--", *theirs] if theirs is not None else []
    said.append(f"Did you mean `{shlex.join(['gpu-advisor', name, *right, *behind])}`?")
    return " ".join(said)


def _begin_of_command(words: Sequence[str], takes_value: set[str]) -> int | None:
    """Place of the first word that is a program and no value of an option."""
    for place, word in enumerate(words):
        is_value = place > 0 and words[place - 1] in takes_value
        if not is_value and not word.startswith("-") and is_program(word):
            return place
    return None


def _near(words: Iterable[str], known: Sequence[str]) -> dict[str, str | None]:
    """Options among `words` that are not known, with the known one that is nearest, if any is."""
    asked = (word.partition("=")[0] for word in words if word.startswith("-"))
    return {
        option: next(iter(difflib.get_close_matches(option, known, n=1, cutoff=ALIKE)), None)
        for option in asked
        if option not in known and option != "-h"
    }
