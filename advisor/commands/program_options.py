"""Options that the user's program declares, recorded by starting it once.

Its parser knows what its code does not show: options of a dataclass, of a library, or added in a
loop; and which keys its config may gain.
"""

import contextlib
import functools
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor import config as documents, errors, knobs
from advisor.config.argv import first_own_word
from advisor.config.leaves import Option
from advisor.executor.engines.connection import interpreter_of
from advisor.files import reading
from advisor.knobs.registry import loader_arguments
from advisor.model import Candidate, Failure, MeasurePlan, Phase, Run, Trial
from advisor.runner.trial import run_trial

PARSE_LIMIT_S = 60.0
"""Longest run that only records the program's options: its imports take most of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """Options that a program declares, or why they are unknown."""

    options: tuple[Option, ...] = ()
    fields: tuple[Option, ...] = ()
    """What a config of the program may hold, by its path there."""
    why_unknown: str | None = None
    untold: str | None = None
    """Why there may be further options than those that are known."""


@functools.lru_cache(maxsize=32)
def record_options(
    command: tuple[str, ...], cwd: Path, env: tuple[tuple[str, str], ...] = ()
) -> ProgramOptions:
    """Start the program up to where it parses its arguments, and record its options.

    The answer is kept, as several parts of one command ask for it.
    """
    first = first_own_word(command)
    script = _script(command, first, cwd)
    if script is None:
        program = " ".join(command[:first]) or "the command"
        return ProgramOptions(why_unknown=f"{program} leads to no Python file here")
    with tempfile.TemporaryDirectory(
        prefix="gpu-advisor-", ignore_cleanup_errors=True
    ) as scratch:
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
            plan=MeasurePlan(longest_s=0.0),  # parsing comes before the first step
            start_limit_s=PARSE_LIMIT_S,
            total_limit_s=PARSE_LIMIT_S,
        )
        with contextlib.suppress(OSError, ValueError):  # a closed stream
            print(
                "starting the program once, to read its options",
                file=sys.stderr,
                flush=True,
            )
        try:
            result = run_trial(trial)
        except errors.AdvisorError as problem:
            return ProgramOptions(why_unknown=str(problem).rstrip("."))
        recorded = _read(record)
    if recorded is None:
        return ProgramOptions(why_unknown=_why_unrecorded(result))
    options, untold = recorded
    if untold and not options:
        return ProgramOptions(why_unknown=untold)
    typed = [option for option in options if option.get("typed", True)]
    return ProgramOptions(
        options=tuple(_placed(typed, command, first)),
        fields=tuple(_field(option) for option in options if option.get("field")),
        untold=untold,
    )


def _read(path: Path) -> tuple[list[dict[str, Any]], str | None] | None:
    """Probe's record: options, and why there may be more; a program may have spoiled it."""
    try:
        record = reading.from_json(path.read_text("utf-8"))
        options, untold = record["options"], " and ".join(map(str, record["untold"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    with_flags = [
        option for option in options if isinstance(option, dict) and option.get("flags")
    ]
    return with_flags, untold or None


def _why_unrecorded(result: Run | Failure) -> str:
    if not isinstance(result, Failure) or not result.kind.startswith(("crash", "config")):
        return "the program parses no arguments in a way that is known here"
    lines = result.log_tail.strip().splitlines()
    last = f": {lines[-1].strip()}" if lines else ""
    return f"the program ended before it had parsed its arguments{last}".rstrip(".")


def _placed(
    options: Sequence[Mapping[str, Any]], command: Sequence[str], first: int
) -> Iterator[Option]:
    """Place each option after the word it must follow, before all that may end options.

    That is the script, or the subcommand that the option belongs to; an override of Hydra's
    kind is a word like the others and goes to the end. Where two parsers know one flag, the
    one with a default is told, since only that says what the program does now.
    """
    seen: set[str] = set()
    for option in sorted(options, key=lambda option: option.get("default") is None):
        flag, *others = map(str, option["flags"])
        behind = len(command) - 1 if option.get("at_end") else first - 1
        if option.get("after") is not None:  # counted in the program's own words
            behind = min(first - 1 + option["after"], len(command) - 1)
        subcommand = option.get("command")
        if subcommand is not None:
            if subcommand not in command[first:]:
                continue
            behind = command.index(subcommand, first)
        if flag in seen:
            continue
        seen.add(flag)
        yield Option(
            flag=flag,
            default=option.get("default"),
            form=option["form"],
            behind=behind,
            others=tuple(others),
            choices=tuple(option.get("choices") or ()),
            comment=option.get("help"),
            why=option.get("why"),
        )


def _field(field: Mapping[str, Any]) -> Option:
    return Option(
        flag=str(field["field"]),
        default=field.get("default"),
        form="apart",
        behind=0,
        choices=tuple(field.get("choices") or ()),
        comment=field.get("help"),
        why=field.get("why"),
    )


READS_FIELDS = re.compile(
    r"\b(HfArgumentParser|TrlParser|LightningCLI|jsonargparse|draccus|pyrallis|pydantic_settings"
    r"|OmegaConf\.structured)\b"
)
"""Words of a script whose config is read by a parser or dataclass that knows its fields."""
ADDABLE = {
    "batch_size", "grad_accum", "precision", "tf32", "compile", "attention_impl", "length_grouping",
    "packing", "fused_kernels", *loader_arguments(),
}  # fmt: skip
"""Kinds that are worth a line of their own where the config does not set them."""
DECLARED_SHARE = 0.5
"""A config whose parser declares no more than this share of its keys gains no fields.

It is then read by something else, such as DeepSpeed. Judgement: smaller adds fields that such a
reader does not know, larger withholds them where a config has many keys beside the parser's."""


def with_fields(
    config: documents.Document,
    argv: tuple[str, ...],
    cwd: Path,
    env: tuple[tuple[str, str], ...],
    phase: Phase | None,
) -> documents.Document:
    """`config` with the settings that it may gain, as its program's parser declares them.

    The program starts once for that, if its script names a library that reads configs so.
    """
    script = _script(argv, first_own_word(argv), cwd)
    text = ""
    with contextlib.suppress(OSError, UnicodeDecodeError, TypeError):
        text = Path(script or "").read_text("utf-8")
    if not READS_FIELDS.search(text):
        return config
    fields = record_options(argv, cwd, env).fields
    declared = {option.flag for option in fields}
    paths = [path for path in config.leaves if "[" not in path]  # not the elements of lists
    if not paths or sum(path in declared for path in paths) <= DECLARED_SHARE * len(paths):
        return config
    findings = knobs.find(documents.with_fields(config, fields), phase=phase)
    given = {knob.kind for knob in findings.knobs if knob.path in config.leaves}
    wanted = {
        knob.path
        for knob in findings.knobs
        if knob.editable and knob.phase != "eval" and knob.kind in ADDABLE - given
    }
    return documents.with_fields(
        config, [option for option in fields if option.flag in wanted]
    )


def _script(command: Sequence[str], first: int, cwd: Path) -> str | None:
    """End of the path that the program sees as `sys.argv[0]`; None if it is not Python.

    By it the probe tells the program from its launcher. `first`: index of its first argument.
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
        is_python = package or (path.is_file() and path.suffix == ".py")
        return str(path.resolve()) if is_python or interpreter_of(str(path)) else None
    except OSError:  # no path, such as code of many lines
        return None
