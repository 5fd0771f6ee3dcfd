"""Command, configs and settings of one call."""

import argparse
import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from advisor import config as documents, errors, files, knobs, settings
from advisor.commands.program_options import record_options, with_fields
from advisor.config import originals
from advisor.config.argv import first_own_word
from advisor.config.document import SUFFIXES
from advisor.executor.engines.connection import LOCAL
from advisor.executor.requests import CommandName
from advisor.model import Phase
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
"""Seconds below which a bare number may be meant as minutes.

Judgement: no trial fits so few seconds. Smaller lets `30`, meant as minutes, end a call after half
a minute. Larger refuses seconds that were meant."""


def parse_budget_s(text: str) -> float:
    """Seconds of a budget; a bare number below BARE_SECONDS is refused. Raises ValueError."""
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
    """`argv` as a document; without a config also with options that the user did not type."""
    cwd: Path
    workload: Workload
    settings: Settings
    notes: list[str]
    """Sentences on leftovers of killed calls."""

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(Path(config.name) for config in self.configs)

    @property
    def versioned(self) -> tuple[Path, ...]:
        """Files whose originals are kept: configs, else gpu-advisor.toml of the current folder."""
        return self.paths or (Path.cwd() / settings.FILE_NAME,)

    def state(self) -> Path:
        """Folder of originals and measurements. Raises StateUnusableError."""
        return state_folder(project_root(self.versioned[0]))

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
    """Find command, configs and settings of a call; what is typed wins over gpu-advisor.toml.

    `with_options` lets the program start once, to tell what else may be set: its options without
    a config, the fields of a single config with one. `use_case` is only named in a refusal.
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
    argv, cwd = _command(command, entry, paths, loaded, use_case)
    for config in configs:
        if fault := why_not_taken(argv, config, cwd):
            raise errors.CommandMissingError(fault)
    entry = entry or Workload(command=shlex.join(argv))
    if with_options and len(configs) == 1:
        env = tuple(sorted(entry.env.items()))
        declared = None if entry.phase == "any" else entry.phase
        configs = (with_fields(configs[0], argv, cwd, env, declared),)
    entry = _with_phase(entry, argv)
    typed = documents.of_command(argv)
    return Invocation(
        configs=configs,
        argv=argv,
        command_line=command_document(argv, cwd, configs, entry) if with_options else typed,
        cwd=cwd,
        workload=entry,
        settings=loaded,
        notes=notes,
    )


def _command(
    typed: Sequence[str] | None,
    entry: Workload | None,
    paths: Sequence[Path],
    loaded: Settings,
    use_case: str,
) -> tuple[tuple[str, ...], Path]:
    """Command and its folder: the typed one here, else the workload's.

    Raises CommandMissingError.
    """
    if typed:
        config = str(paths[0]) if paths else "{config}"
        return tuple(word.replace("{config}", config) for word in typed), Path.cwd()
    if entry is None:
        raise errors.CommandMissingError(_no_command(paths, loaded, use_case))
    return split(entry.command, paths, loaded.root), loaded.root


def _with_phase(entry: Workload, argv: Sequence[str]) -> Workload:
    """`entry` with the phase that its validation or the command names, where its own is open."""
    command = documents.of_command(tuple(argv))
    phase = "eval" if entry.validation else knobs.phase_of_command(command)
    if entry.phase != "any" or not phase:
        return entry
    return entry.model_copy(update={"phase": phase})


def command_document(
    argv: tuple[str, ...],
    cwd: Path,
    configs: Sequence[documents.Document],
    workload: Workload,
) -> documents.Document:
    """Command as a document; without configs it has the options that its parser declares."""
    if configs:
        return documents.of_command(argv)
    env = tuple(sorted(workload.env.items()))
    return documents.of_command(argv, record_options(argv, cwd, env).options)


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
    """Command of gpu-advisor.toml as argv, by `bash -c` if it needs a shell.

    {config} in it is the first of `paths`.
    """
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
        "program takes it. Or leave the config out: then the program's own options are tuned."
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
    programs = [path for path in paths if path.suffix == ".py"]
    if len(programs) == 1:  # mostly the program itself
        configs = (str(path) for path in paths if path not in programs)
        right = " ".join(["gpu-advisor", use_case, *configs, "-- python", str(programs[0])])
    return (
        f"No command is known. Add it after `--`:\n"
        f"  {right}\n"
        f"or name an entry [workload.NAME] of {settings.FILE_NAME} with --workload "
        f"(known: {', '.join(loaded.workload) or 'none'})."
    )
