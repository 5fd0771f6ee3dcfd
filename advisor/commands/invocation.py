"""Command, configs, settings and program options of one call."""

import argparse
import contextlib
import functools
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from advisor import config as documents, errors, files, knobs, settings
from advisor.config import originals
from advisor.config.argv import first_own_word
from advisor.config.document import SUFFIXES
from advisor.config.leaves import Option
from advisor.executor.engines.connection import LOCAL, interpreter_of
from advisor.executor.requests import CommandName
from advisor.files import reading
from advisor.knobs.registry import loader_arguments
from advisor.model import Candidate, Failure, MeasurePlan, Phase, Trial
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import detect_isolation
from advisor.settings import Settings, Workload
from advisor.state import project_root, state_folder


def argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Turn a parser's ValueError into argparse's own refusal."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from problem

    return parsed


BARE_SECONDS = 60
"""A bare number below is asked about: it may mean minutes, and no trial fits so few seconds."""


def parse_budget_s(text: str) -> float:
    """Seconds of a budget; few without a unit are refused. Raises ValueError."""
    if re.fullmatch(r"\d+(\.\d+)?", text) and 0 < float(text) < BARE_SECONDS:
        msg = f"{text} has no unit; write {text}m for minutes, or {text}s for seconds"
        raise ValueError(msg)
    return settings.parse_duration_s(text)


FLAGS: dict[str, dict[str, Any]] = {
    "configs": {
        "type": Path,
        "nargs": "*",
        "metavar": "CONFIG",
        "help": "JSON, YAML, TOML or Python configs that COMMAND reads; without one its options "
        "are the settings",
    },
    "--workload": {"metavar": "NAME", "help": "entry of gpu-advisor.toml to run"},
    "--budget": {
        "type": argument(parse_budget_s),
        "metavar": "TIME",
        "help": "time to spend: 90s, 10m (default)",
    },
    "--window": {
        "type": argument(settings.parse_duration_s),
        "metavar": "TIME",
        "default": "3s",
        "help": "measured window of a trial (default 3s)",
    },
    "--wait": {
        "type": argument(settings.parse_duration_s),
        "metavar": "TIME",
        "default": 0.0,
        "help": "wait so long for another gpu-advisor that measures here: 30m (default: not)",
    },
    "--engine": {
        "metavar": "NAME",
        "default": LOCAL,
        "help": "where trials run: local (default), slurm, ray, or an [engine.NAME] of "
        "gpu-advisor.toml",
    },
    "--allow-writes": {
        "action": "store_true",
        "help": "go on although COMMAND writes over existing files of yours",
    },
    "--overwrite": {
        "action": "store_true",
        "help": "replace files that gpu-advisor did not write where its own files go",
    },
    "--json": {"action": "store_true", "help": "print the result as one JSON object"},
}


def add_flags(parser: argparse._ActionsContainer, *names: str) -> None:
    for name in names:
        parser.add_argument(name, **FLAGS[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Command, its configs if known, and their settings."""

    configs: tuple[documents.Document, ...]
    """By the path that the user or gpu-advisor.toml named."""
    argv: tuple[str, ...]
    command_line: documents.Document
    """`argv` as a document; without a config, with untyped options."""
    cwd: Path
    workload: Workload
    settings: Settings
    notes: list[str]
    """Sentences on leftovers of killed calls."""

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(Path(config.name) for config in self.configs)

    @property
    def kept_for(self) -> tuple[Path, ...]:
        """Configs, else the settings file beside the command: their originals are kept."""
        return self.paths or (Path.cwd() / settings.FILE_NAME,)

    def state(self) -> Path:
        """Folder of originals and measurements. Raises StateUnusableError."""
        return state_folder(project_root(self.kept_for[0]))

    @property
    def command(self) -> str:
        return shlex.join(self.argv)

    @property
    def environ(self) -> dict[str, str]:
        """Caller's environment, with the workload's variables."""
        return {**os.environ, **self.workload.env}

    @property
    def phase(self) -> Phase | None:
        """Phase that gpu-advisor.toml or the command names."""
        return None if self.workload.phase == "any" else self.workload.phase

    def quality_commands(self) -> dict[CommandName, documents.Document]:
        """Commands of quality measures, by default the command itself."""
        chooses = self.workload.quality_command
        confirms = self.workload.confirm_quality_command or chooses
        return {
            "quality": self._declared(chooses),
            "confirm-quality": self._declared(confirms),
        }

    def _declared(self, command: str | None) -> documents.Document:
        if command is None:
            return self.command_line
        argv = split(command, self.paths, self.cwd)
        return command_document(argv, self.cwd, self.configs, self.workload)


def resolve(
    paths: Sequence[Path],
    command: list[str] | None,
    *,
    workload: str | None = None,
    use_case: str = "optimize",
    with_options: bool = True,
) -> Invocation:
    """Find command, configs and settings; typed words win over the file's.

    `with_options`: without a config the program starts, to parse its arguments.
    """
    for path in paths:
        if path.suffix.lower() not in SUFFIXES and not (path.exists() or files.near(path)):
            msg = f"{path} is no config. A command stands after `--`: CONFIG [-- COMMAND ...]."
            raise errors.UsageError(msg)
    loaded = settings.load(settings.find(paths[0].parent if paths else Path()))
    entry = _entry(loaded, paths, workload)
    if not paths and entry is not None and entry.config is not None and not command:
        config_path, here = loaded.root / entry.config, Path.cwd()
        paths = [
            config_path.relative_to(here)
            if config_path.is_relative_to(here)
            else config_path
        ]
    notes = [note for path in paths for note in originals.recover(path)]
    configs = tuple(documents.read(path) for path in paths)
    if command:
        cwd = Path.cwd()
        first = str(paths[0]) if paths else "{config}"
        argv = tuple(token.replace("{config}", first) for token in command)
    elif entry is not None:
        argv, cwd = split(entry.command, paths, loaded.root), loaded.root
    else:
        raise errors.CommandMissingError(_no_command(paths, loaded, use_case))
    for config in configs:
        if fault := why_not_taken(argv, config, cwd):
            raise errors.CommandMissingError(fault)
    entry = entry or Workload(command=shlex.join(argv))
    if with_options and len(configs) == 1:
        env = tuple(sorted(entry.env.items()))
        declared = None if entry.phase == "any" else entry.phase
        configs = (with_fields(configs[0], argv, cwd, env, declared),)
    typed = documents.of_command(argv)
    named = "eval" if entry.validation else knobs.phase_of_command(typed)
    if entry.phase == "any" and named:
        entry = entry.model_copy(update={"phase": named})
    return Invocation(
        configs=configs,
        argv=argv,
        command_line=command_document(argv, cwd, configs, entry) if with_options else typed,
        cwd=cwd,
        workload=entry,
        settings=loaded,
        notes=notes,
    )


def command_document(
    argv: tuple[str, ...],
    cwd: Path,
    configs: Sequence[documents.Document],
    workload: Workload,
) -> documents.Document:
    """Document of a command, with its program's options."""
    if configs:
        return documents.of_command(argv)
    env = tuple(sorted(workload.env.items()))
    return documents.of_command(argv, recorded(argv, cwd, env).options)


def _entry(
    loaded: Settings, paths: Sequence[Path], workload: str | None
) -> Workload | None:
    """Workload of this name, else of the first config."""
    if workload is None:
        workload = next(filter(None, map(loaded.workload_for, paths)), None)
    if workload is None:
        return None
    if workload not in loaded.workload:
        names = ", ".join(loaded.workload) or "none"
        msg = (
            f"{settings.FILE_NAME} has no workload {workload!r} (known: {names}). Add it, or name "
            "another."
        )
        raise errors.SettingsError(msg)
    return loaded.workload[workload]


def split(command: str, paths: Sequence[Path], cwd: Path) -> tuple[str, ...]:
    """Split a declared command into argv, through `bash -c` with shell operators."""
    text = command
    if paths:
        real = Path(os.path.realpath(paths[0]))
        seen = real.relative_to(cwd) if real.is_relative_to(cwd) else real
        text = command.replace("{config}", shlex.quote(str(seen)))
    if settings.needs_shell(command):
        return ("bash", "-c", text)
    return tuple(shlex.split(text))


def why_not_taken(argv: Sequence[str], config: documents.Document, cwd: Path) -> str | None:
    """Reason why a changed `config` would not be read.

    Under an overlay it stands in the config's place, whatever reads it: a path in the code, a
    makefile, a script. Trials show if the program follows it.
    """
    name, real = config.name, os.path.realpath(config.name)
    parts = [part for word in argv for part in (word, word.partition("=")[2]) if part]
    if any(
        name in part or real in part or os.path.realpath(cwd / part) == real
        for part in parts
    ):
        return None
    if detect_isolation(str(cwd)).kind == "overlay":
        return None
    return (
        f"The command never names {config.name}, and without an overlay no changed copy can "
        f"stand in its place: `{shlex.join(argv)}`. Write {{config}} or the path where the "
        "program takes it; or leave the config out, and the program's own options are tuned."
    )


def require_program(argv: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> None:
    """Require the command's program and script. Raises CommandMissingError."""
    name, fault = argv[0], ""
    place = str(cwd / name) if os.sep in name else name
    if shutil.which(place, path=environ.get("PATH")) is None:
        fault = f"{place} is no program" if os.sep in name else f"{name!r} is not in PATH"
    elif PurePath(name).name.startswith("python"):
        script = next(
            (word for word in argv[1 : first_own_word(argv)] if word[:1] != "-"), ""
        )
        if script.endswith(".py") and not (cwd / script).exists():
            fault = f"{cwd / script} does not exist"
    if fault:
        msg = f"The command `{shlex.join(argv)}` cannot run: {fault}. Correct the command."
        raise errors.CommandMissingError(msg)


def configs_among(command: Sequence[str], cwd: Path) -> list[Path]:
    """Config files that a command names."""
    configs = []
    for word in command[first_own_word(command) :]:
        path = Path(word.split("=", 1)[-1])
        with contextlib.suppress(OSError):  # no path, such as code of many lines
            if path.suffix.lower() in SUFFIXES and (cwd / path).is_file():
                configs.append(path)
    return configs


def require_writable(config: Path) -> None:
    """Raise ConfigReadOnlyError if `config` cannot be replaced."""
    real = Path(os.path.realpath(config))
    for path, what in ((real, "the file"), (real.parent, "its folder")):
        if not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222:
            msg = (
                f"{config} cannot be rewritten: {what} is read-only. Make it writable, or name "
                "another file with --output, or only look with --dry-run."
            )
            raise errors.ConfigReadOnlyError(msg)
    documents.require_one_name(real)


def _no_command(paths: Sequence[Path], loaded: Settings, use_case: str) -> str:
    words = " ".join([use_case, *map(str, paths)])
    flag = f" --config {paths[0]}" if paths else ""
    right = f"gpu-advisor {words} -- python YOUR_SCRIPT.py{flag}"
    if [path.suffix for path in paths] == [".py"]:  # mostly the program itself
        right = f"gpu-advisor {use_case} -- python {paths[0]}"
    return (
        f"No command is known. Add it after `--`:\n"
        f"  {right}\n"
        f"or name an entry [workload.NAME] of {settings.FILE_NAME} with --workload "
        f"(known: {', '.join(loaded.workload) or 'none'})."
    )


PARSE_LIMIT_S = 60.0
"""Longest run that only records the program's options: its imports take most of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """Recorded options, or the reason for none."""

    options: tuple[Option, ...] = ()
    fields: tuple[Option, ...] = ()
    """What a config of the program may hold, by its path there."""
    why_unknown: str | None = None


@functools.lru_cache(maxsize=32)
def recorded(
    command: tuple[str, ...], cwd: Path, env: tuple[tuple[str, str], ...] = ()
) -> ProgramOptions:
    """Record a program's options; it runs once, up to where it parses its arguments.

    Reading its code would miss what it builds while it runs: options of a dataclass, of a
    library, or added in a loop. The call is kept, as several parts of one command ask for it.
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
        options = _read(record)
    if options is None:
        return ProgramOptions(why_unknown=_why_unrecorded(result))
    typed = [each for each in options if each.get("typed", True)]
    return ProgramOptions(
        options=tuple(_placed(typed, command, first)),
        fields=tuple(_field(each) for each in options if each.get("field")),
    )


def _read(path: Path) -> list[dict[str, Any]] | None:
    """Probe's record; a program may have spoiled it."""
    try:
        options = reading.from_json(path.read_text("utf-8"))["options"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return [
        option for option in options if isinstance(option, dict) and option.get("flags")
    ]


def _why_unrecorded(result: object) -> str:
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
        is_override = option.get("library") in ("hydra", "omegaconf", "globals")
        behind = len(command) - 1 if is_override else first - 1
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


def _field(each: Mapping[str, Any]) -> Option:
    return Option(
        flag=str(each["field"]),
        default=each.get("default"),
        form="apart",
        behind=0,
        choices=tuple(each.get("choices") or ()),
        comment=each.get("help"),
        why=each.get("why"),
    )


READS_FIELDS = re.compile(
    r"\b(HfArgumentParser|TrlParser|LightningCLI|jsonargparse|draccus|pyrallis|pydantic_settings"
    r"|OmegaConf\.structured)\b"
)
"""Words of a script whose config is read by a parser or dataclass that knows its fields."""
ADDABLE = {
    "batch_size", "grad_accum", "precision", "tf32", "compile", "attention_impl", "length_grouping",
    "packing", *loader_arguments(),
}  # fmt: skip
"""Kinds that are worth a line of their own where the config does not set them."""
OWN_KEYS = 0.5
"""More of a config's keys have to be fields: another file may be tuned, as of DeepSpeed."""


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
    fields = recorded(argv, cwd, env).fields
    known = {each.flag for each in fields}
    own = [path for path in config.leaves if "[" not in path]
    if not own or sum(path in known for path in own) <= OWN_KEYS * len(own):
        return config
    found = knobs.find(documents.with_fields(config, fields), phase=phase)
    given = {knob.kind for knob in found.knobs if knob.path in config.leaves}
    wanted = {
        knob.path
        for knob in found.knobs
        if knob.editable and knob.phase != "eval" and knob.kind in ADDABLE - given
    }
    return documents.with_fields(config, [each for each in fields if each.flag in wanted])


def _script(command: Sequence[str], first: int, cwd: Path) -> str | None:
    """Path end of the program's `sys.argv[0]`; None if no Python."""
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
