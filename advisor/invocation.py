"""Which program is meant: the config, the user's command, and the settings that go with them."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from advisor import documents, settings
from advisor.errors import CommandMissingError, ConfigReadOnlyError
from advisor.settings import Settings, Workload

LOOKED_THROUGH = ("README*", "*.md", "*.sh", "Makefile", "*.py", "scripts/*", "docs/*.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One config with the command that uses it."""

    config: documents.Document
    path: Path
    """The config as the user named it."""
    argv: tuple[str, ...]
    cwd: Path
    name: str | None
    """Name of the workload in gpu-advisor.toml, if it came from there."""
    workload: Workload
    settings: Settings

    @property
    def command(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.argv)

    def quality_argv(self) -> tuple[str, ...]:
        """The command of the quality measures: the declared one, else the command itself."""
        if self.workload.quality_command is None:
            return self.argv
        return split(self.workload.quality_command, self.path)


def resolve(config: Path, command: list[str] | None) -> Invocation:
    """The invocation that CONFIG and what stood after `--` mean.

    Raises the Config errors for a config that cannot be read, SettingsError, and
    CommandMissingError with what was found when there is no command, or it never names the config.
    """
    document = documents.read(config)
    found = settings.load(settings.find(config.parent if config.parent.exists() else Path()))
    entry = found.workload_for(config)
    name, workload = entry or (None, None)
    if command:
        argv, cwd = tuple(command), Path.cwd()
        argv = tuple(token.replace("{config}", str(config)) for token in argv)
    elif workload is not None:
        argv, cwd = split(workload.command, config), found.root
    else:
        raise CommandMissingError(_no_command(config))
    if not names_config(argv, config, cwd):
        msg = (
            f"The command never names {config}, so a changed copy could not be passed to it: "
            f"`{shlex.join(argv)}`. Write {{config}} or the path where the program takes it."
        )
        raise CommandMissingError(msg)
    return Invocation(
        config=document,
        path=config,
        argv=argv,
        cwd=cwd,
        name=name,
        workload=workload or Workload(command=shlex.join(argv)),
        settings=found,
    )


def split(command: str, config: Path) -> tuple[str, ...]:
    """A declared command as argv; one with shell operators goes through `bash -c`."""
    text = command.replace("{config}", shlex.quote(str(config.resolve())))
    if any(mark in command for mark in ("&&", "||", ";", "|", "`", "$(", "<", ">")):
        return ("bash", "-c", text)
    return tuple(shlex.split(text))


def names_config(argv: tuple[str, ...], config: Path, cwd: Path) -> bool:
    """Whether some token of `argv` is, or holds, the path of `config`."""
    real = config.resolve()
    for token in argv:
        for part in (token, token.partition("=")[2]):
            if part and (cwd / part).resolve() == real:
                return True
        if str(config) in token or str(real) in token:
            return True
    return False


def require_writable(config: Path) -> None:
    """Raise ConfigReadOnlyError when the tuned config could not be put in place of `config`."""
    real = config.resolve()
    for path, what in ((real, "the file"), (real.parent, "its folder")):
        if not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222:
            msg = (
                f"{config} cannot be rewritten: {what} is read-only. Make it writable, or name "
                "another file with --output, or only look with --dry-run."
            )
            raise ConfigReadOnlyError(msg)


def _no_command(config: Path) -> str:
    seen = mentions(config)
    shown = "\n".join(f"  {line}" for line in seen) if seen else "  (nothing names it)"
    return (
        f"No command is known that uses {config}. Add it after `--`:\n"
        f"  gpu-advisor optimize {config} -- python YOUR_SCRIPT.py --config {config}\n"
        f"or to {settings.FILE_NAME}:\n"
        f"  [workload.{config.stem.replace('_', '-')}]\n"
        f'  config = "{config}"\n'
        f'  command = "python YOUR_SCRIPT.py --config {{config}}"\n'
        f"Lines here that name {config.name}:\n{shown}"
    )


def mentions(config: Path, *, most: int = 5) -> list[str]:
    """`README.md:12: python run.py -c config/x.json`: lines near the config that name it."""
    found: list[str] = []
    for folder in dict.fromkeys((Path.cwd(), config.parent, config.parent.parent)):
        for pattern in LOOKED_THROUGH:
            for path in sorted(folder.glob(pattern)):
                if not path.is_file() or path.stat().st_size > 1_000_000:
                    continue
                text = path.read_text(encoding="utf-8", errors="replace")
                for number, line in enumerate(text.splitlines(), 1):
                    if config.name in line:
                        found.append(f"{path}:{number}: {line.strip()[:120]}")
                    if len(found) >= most:
                        return found
    return list(dict.fromkeys(found))
