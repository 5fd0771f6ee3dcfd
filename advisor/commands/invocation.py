"""Command, config and settings of one call."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from advisor import config as documents
from advisor import knobs, settings
from advisor.commands import program_options
from advisor.config.argv import first_own_word
from advisor.config.formats import SUFFIXES
from advisor.errors import CommandMissingError, ConfigReadOnlyError, SettingsError
from advisor.sandbox.capabilities import detect_isolation
from advisor.settings import Settings, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.executor.requests import CommandName
    from advisor.model import Phase

LOOKED_THROUGH = ("README*", "*.md", "*.sh", "Makefile", "*.py", "scripts/*", "docs/*.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A command, its config if known, and their settings."""

    config: documents.Document | None
    path: Path | None
    """The config as the user or gpu-advisor.toml named it."""
    argv: tuple[str, ...]
    command_line: documents.Document
    """`argv` as a document. Without a config the options that nobody typed are part of it: where
    one is named, its values are the settings of the program."""
    cwd: Path
    name: str | None
    """Name of the workload in gpu-advisor.toml, if it came from there."""
    workload: Workload
    settings: Settings

    @property
    def command(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.argv)

    @property
    def phase(self) -> Phase | None:
        """Phase that gpu-advisor.toml or the command names."""
        return None if self.workload.phase == "any" else self.workload.phase

    def quality_commands(self) -> dict[CommandName, documents.Document]:
        """Commands of the quality measures, with `command_line`'s options.

        Where none is declared it is the command itself; what confirms runs what chose.
        """
        chooses = self.workload.quality_command
        confirms = self.workload.confirm_quality_command or chooses
        return {"quality": self._declared(chooses), "confirm-quality": self._declared(confirms)}

    def _declared(self, command: str | None) -> documents.Document:
        argv = self.argv if command is None else split(command, self.path, self.cwd)
        return command_document(argv, self.cwd, self.config, environment(self.workload))


def resolve(
    config: Path | None,
    command: list[str] | None,
    *,
    workload: str | None = None,
    use_case: str = "optimize",
    with_options: bool = True,
) -> Invocation:
    """Find the command, config and settings of a call.

    What is named here wins over what gpu-advisor.toml says; a command alone is enough. Raises the
    Config errors for a config that cannot be read, SettingsError (also for a workload that is not
    there), and CommandMissingError with what was found when there is no command, or it never
    names the config. `with_options`: without a config the program is started until it has parsed
    its arguments.
    """
    document = documents.read(config) if config else None
    near = config.parent if config and config.parent.exists() else Path()
    found = settings.load(settings.find(near))
    name, entry = _entry(found, config, workload)
    if config is None and entry is not None and entry.config is not None and not command:
        config = shown(found.root / entry.config)
        document = documents.read(config)
    if command:
        argv, cwd = tuple(command), Path.cwd()
        if config is not None:
            argv = tuple(token.replace("{config}", str(config)) for token in argv)
    elif entry is not None:
        argv, cwd = split(entry.command, config, found.root), found.root
    else:
        raise CommandMissingError(_no_command(config, found, use_case))
    if config is not None and (why := why_not_taken(argv, config, document, cwd)):
        raise CommandMissingError(why)
    entry = _of_its_phase(entry or Workload(command=shlex.join(argv)), argv)
    return Invocation(
        config=document,
        path=config,
        argv=argv,
        command_line=command_document(argv, cwd, document, environment(entry))
        if with_options
        else documents.of_command(argv),
        cwd=cwd,
        name=name,
        workload=entry,
        settings=found,
    )


def command_document(
    command: tuple[str, ...],
    cwd: Path,
    config: documents.Document | None,
    env: tuple[tuple[str, str], ...] = (),
) -> documents.Document:
    """Document of a command, with its program's options."""
    known = program_options.recorded(command, cwd, env).options if config is None else ()
    return documents.of_command(command, known)


def environment(workload: Workload) -> tuple[tuple[str, str], ...]:
    """Variables that gpu-advisor.toml adds for the command."""
    return tuple(sorted(workload.env.items()))


def _of_its_phase(workload: Workload, argv: tuple[str, ...]) -> Workload:
    """Add the command's phase to a `workload` without one."""
    if workload.phase != "any":
        return workload
    phase = knobs.phase_of_command(documents.of_command(argv))
    return workload.model_copy(update={"phase": phase}) if phase else workload


def _entry(
    found: Settings, config: Path | None, workload: str | None
) -> tuple[str | None, Workload | None]:
    """Workload of this name, else of `config`."""
    if workload is None:
        return (found.workload_for(config) if config else None) or (None, None)
    if workload not in found.workload:
        known = ", ".join(found.workload) or "none"
        msg = (
            f"{settings.FILE_NAME} has no workload {workload!r} (known: {known}). Add it, or name "
            "another."
        )
        raise SettingsError(msg)
    return workload, found.workload[workload]


def shown(path: Path) -> Path:
    """Shorten a path below the working directory."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def split(command: str, config: Path | None, cwd: Path) -> tuple[str, ...]:
    """Split a declared command into argv.

    One with shell operators goes through `bash -c`. `{config}` becomes the config's path as seen
    from `cwd`, where the command runs.
    """
    text = command
    if config is not None:
        real = Path(os.path.realpath(config))
        shown = real.relative_to(cwd) if real.is_relative_to(cwd) else real
        text = command.replace("{config}", shlex.quote(str(shown)))
    if settings.needs_shell(command):
        return ("bash", "-c", text)
    return tuple(shlex.split(text))


def why_not_taken(
    argv: tuple[str, ...], config: Path, document: documents.Document | None, cwd: Path
) -> str | None:
    """Reason why a changed `config` would not be read."""
    if names_config(argv, config, cwd) or _is_imported(argv, config, document, cwd):
        return None
    return (
        f"The command never names {config}, so a changed copy could not be passed to it: "
        f"`{shlex.join(argv)}`. Write {{config}} or the path where the program takes it."
    )


def require_program(argv: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> None:
    """Require the command's program and script.

    Raises CommandMissingError.
    """
    name = argv[0]
    near = cwd / name if os.sep in name else None
    if near is not None:
        found = near.is_file() and os.access(near, os.X_OK)
    else:
        found = shutil.which(name, path=environ.get("PATH")) is not None
    where = f"{near} is no program" if near else f"{name!r} is not in PATH"
    if found and PurePath(name).name.startswith("python"):
        script = next((word for word in argv[1 : first_own_word(argv)] if word[:1] != "-"), "")
        found = not script.endswith(".py") or (cwd / script).exists()
        where = where if not found and not script else f"{cwd / script} does not exist"
    if not found:
        msg = f"The command `{shlex.join(argv)}` cannot run: {where}. Correct the command."
        raise CommandMissingError(msg)


def names_config(argv: tuple[str, ...], config: Path, cwd: Path) -> bool:
    """True if `argv` holds the path of `config`."""
    real = os.path.realpath(config)
    for token in argv:
        for part in (token, token.partition("=")[2]):
            if part and os.path.realpath(cwd / part) == real:
                return True
        if str(config) in token or real in token:
            return True
    return False


def _is_imported(
    argv: tuple[str, ...], config: Path, document: documents.Document | None, cwd: Path
) -> bool:
    """True if the program imports its config.

    A candidate in its place must be seen too.
    """
    if (
        document is None
        or document.format != "python"
        or detect_isolation(str(cwd)).kind != "overlay"
    ):
        return False
    return program_options.imports(argv, cwd, config)


def configs_among(command: Sequence[str], cwd: Path) -> list[Path]:
    """Config files that a command names."""
    first = first_own_word(command)
    found = []
    for word in command[first:]:
        path = Path(word.split("=", 1)[-1])
        with contextlib.suppress(OSError):  # no path at all, such as code of many lines
            if path.suffix.lower() in SUFFIXES and (cwd / path).is_file():
                found.append(path)
    return found


def require_writable(config: Path) -> None:
    """Raise ConfigReadOnlyError when `config` could not be replaced."""
    real = Path(os.path.realpath(config))
    for path, what in ((real, "the file"), (real.parent, "its folder")):
        if not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222:
            msg = (
                f"{config} cannot be rewritten: {what} is read-only. Make it writable, or name "
                "another file with --output, or only look with --dry-run."
            )
            raise ConfigReadOnlyError(msg)


def _no_command(config: Path | None, found: Settings, use_case: str) -> str:
    if config is None:
        known = ", ".join(found.workload) or "none"
        return (
            "No command was given. Add it after `--`:\n"
            f"  gpu-advisor {use_case} -- python YOUR_SCRIPT.py\n"
            f"or name a workload of {settings.FILE_NAME} with --workload (known: {known})."
        )
    seen = mentions(config)
    shown = "\n".join(f"  {line}" for line in seen) if seen else "  (nothing names it)"
    return (
        f"No command is known that uses {config}. Add it after `--`:\n"
        f"  gpu-advisor {use_case} {config} -- python YOUR_SCRIPT.py --config {config}\n"
        f"or to {settings.FILE_NAME}:\n"
        f"  [workload.{config.stem.replace('_', '-')}]\n"
        f'  config = "{config}"\n'
        f'  command = "python YOUR_SCRIPT.py --config {{config}}"\n'
        f"Lines here that name {config.name}:\n{shown}"
    )


def mentions(config: Path, *, most: int = 5) -> list[str]:
    """Lines near the config that name it.

    `README.md:12: python run.py -c config/x.json`
    """
    found: list[str] = []
    for folder in dict.fromkeys((Path.cwd(), config.parent, config.parent.parent)):
        for pattern in LOOKED_THROUGH:
            for path in sorted(folder.glob(pattern)):
                try:
                    if not path.is_file() or path.stat().st_size > 1_000_000:
                        continue
                    text = path.read_text(encoding="utf-8", errors="replace")
                except OSError:
                    continue
                for number, line in enumerate(text.splitlines(), 1):
                    if config.name in line:
                        found.append(f"{path}:{number}: {line.strip()[:120]}")
                    if len(found) >= most:
                        return found
    return list(dict.fromkeys(found))
