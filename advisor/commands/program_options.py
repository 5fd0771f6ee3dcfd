"""Program options, as its own parser declares them.

The program is started in the sandbox and ends as soon as its arguments are parsed. The probe
records what argparse, click, absl, Hydra, OmegaConf and what is built on them declare.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.config.argv import first_own_word
from advisor.config.options import Option
from advisor.errors import AdvisorError
from advisor.model import Candidate, Failure, MeasurePlan, Trial
from advisor.runner import run_trial

PARSE_LIMIT_S = 120.0
"""Longest wait for a program to parse its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """Recorded options, or the reason for none."""

    options: tuple[Option, ...] = ()
    why_unknown: str | None = None


@functools.lru_cache(maxsize=32)
def recorded(
    command: tuple[str, ...], cwd: Path, env: tuple[tuple[str, str], ...] = ()
) -> ProgramOptions:
    """Record the options of the program in `command`.

    Each command runs once, in `cwd`.
    """
    first = first_own_word(command)
    script = _script(command, first, cwd)
    if script is None:
        program = " ".join(command[:first]) or "the command"
        return ProgramOptions(why_unknown=f"{program} leads to no Python file here")
    with tempfile.TemporaryDirectory(prefix="gpu-advisor-", ignore_cleanup_errors=True) as scratch:
        record = Path(scratch, "probe", "arguments.json")
        trial = Trial(
            id="parse",
            purpose="profile",
            label="arguments",
            candidate=Candidate(),
            command=command,
            cwd=str(cwd),
            scratch=scratch,
            env=(
                *env,
                ("GPU_ADVISOR_PARSE_ONLY", str(record)),
                ("GPU_ADVISOR_PARSE_SCRIPT", script),
            ),
            plan=MeasurePlan(measure_s=0.5, min_steps=2, whole_batches=1),
            start_limit_s=PARSE_LIMIT_S,
            total_limit_s=PARSE_LIMIT_S,
        )
        try:
            result = run_trial(trial)
        except AdvisorError as problem:
            return ProgramOptions(why_unknown=str(problem).rstrip("."))
        found = _read(record)
    if found is None:
        return ProgramOptions(why_unknown=_why_unrecorded(result))
    return ProgramOptions(options=tuple(_placed(found, command, first)))


def _read(path: Path) -> list[dict[str, Any]] | None:
    """The probe's record; a program may have spoiled it."""
    try:
        options = json.loads(path.read_text("utf-8"))["options"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return [each for each in options if isinstance(each, dict) and each.get("flags")]


def _why_unrecorded(result: object) -> str:
    if not isinstance(result, Failure) or not result.kind.startswith(("crash", "config")):
        return "the program parses no arguments in a way that is known here"
    lines = [line.strip() for line in result.log_tail.splitlines() if line.strip()]
    last = f": {lines[-1]}" if lines else ""
    return f"the program ended before it had parsed its arguments{last}".rstrip(".")


def _placed(
    found: Sequence[Mapping[str, Any]], command: Sequence[str], first: int
) -> Iterator[Option]:
    """Place each option after the word it must follow.

    Behind the program's own name it stands before everything that could end its options.
    """
    seen: set[str] = set()
    for each in sorted(found, key=lambda option: option.get("default") is None):
        flag, *others = map(str, each["flags"])
        is_override = each.get("library") in ("hydra", "omegaconf", "globals")
        behind = len(command) - 1 if is_override else first - 1
        subcommand = each.get("command")
        if subcommand is not None:
            if subcommand not in command[first:]:
                continue
            behind = command.index(subcommand, first)
        if flag in seen:
            continue
        seen.add(flag)
        yield Option(
            flag=flag,
            default=each.get("default"),
            form=each["form"],
            behind=behind,
            source="that of its parser",
            others=tuple(others),
            choices=tuple(each.get("choices") or ()),
            comment=each.get("help"),
            why=each.get("why"),
        )


def _script(command: Sequence[str], first: int, cwd: Path) -> str | None:
    """Path end of the program's `sys.argv[0]`.

    None where it is no Python.
    """
    if not 0 < first <= len(command):
        return None
    name = command[first - 1]
    if first >= 2 and command[first - 2] in {"-m", "--module"}:
        return "/" + name.replace(".", "/")
    try:
        path = cwd / name
        if not path.exists() and "/" not in name:
            path = Path(shutil.which(name) or path)
        package = (path / "__main__.py").is_file()
        return str(path.resolve()) if package or _is_python(path) else None
    except OSError:  # no path at all, such as code of many lines
        return None


def _is_python(path: Path) -> bool:
    """True if the file is named or begins like Python."""
    if path.suffix == ".py":
        return path.is_file()
    with path.open("rb") as file:
        return bool(re.match(rb"#!.*python|#!/bin/sh\n'''exec'", file.read(200)))
