"""Entry of a tuned command in gpu-advisor.toml.

An entry that is there gets its `command` edited, one that is not is added at the end. All of it
is looked at before the first trial, so that nothing that was measured is lost to a refusal.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import config as documents
from advisor import settings
from advisor.commands.invocation import shown
from advisor.config import argv, paths, spelling
from advisor.errors import ConfigSyntaxError, EditRefusedError, UsageError

if TYPE_CHECKING:
    from advisor.commands.invocation import Invocation
    from advisor.config import Document
    from advisor.model import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The place of one command in a settings file."""

    path: Path
    file: Document | None
    """The settings file as it is; None where there is none yet."""
    table: str
    """The entry's table: `workload.train`, below `tool.gpu-advisor` in pyproject.toml."""
    command: Document
    """The command as it is written there, or is to be."""
    config: str | None
    """The config's path for an entry that is new."""

    @property
    def is_new(self) -> bool:
        """True if the entry is still to be added."""
        return self.file is None or self._key not in self.file.scalars

    @property
    def _key(self) -> str:
        return f"{self.table}.command"

    def content(self, changes: tuple[Change, ...]) -> bytes:
        """Whole settings file with the changed command.

        Raises EditRefusedError.
        """
        tuned = argv.split(self.command.with_values({c.path: c.new for c in changes}))
        text = shlex.join(tuned).replace("'{config}'", "{config}")
        if self.file is not None and not self.is_new:
            return self.file.with_values({self._key: text})
        return self._with_table(text)

    def _with_table(self, command: str) -> bytes:
        """The file with the entry added at its end."""
        old = self.file.raw if self.file is not None else b""
        newline = "\r\n" if b"\r\n" in old else "\n"
        lines = [f"[{self.table}]"]
        if self.config is not None:
            lines.append(f"config = {spelling.double_quoted(self.config)}")
        lines.append(f"command = {spelling.double_quoted(command)}")
        gap = newline * (0 if not old else 1 if old.endswith(b"\n") else 2)
        new = old + (gap + newline.join(lines) + newline).encode()
        try:
            parsed = documents.parse(new, "toml", str(self.path))
        except ConfigSyntaxError as problem:
            msg = f"no [{self.table}] can be added to {self.path}: {problem}"
            raise EditRefusedError(msg) from problem
        before = {p: s.value for p, s in self.file.scalars.items()} if self.file else {}
        after = {path: scalar.value for path, scalar in parsed.scalars.items()}
        added = {path for path in after if path.startswith(f"{self.table}.")}
        if {p: v for p, v in after.items() if p not in added} != before:
            msg = f"{self.path}: adding [{self.table}] would change more than that."
            raise EditRefusedError(msg)
        return new


def place(asked: Invocation) -> Entry:
    """Find the entry of this call's command.

    Raises UsageError where it cannot be written, and the Config errors for a settings file that
    cannot be read.
    """
    near = asked.path.parent if asked.path and asked.path.parent.exists() else Path()
    path = shown(settings.find(near) or Path.cwd() / settings.FILE_NAME)
    file = documents.read(path) if path.exists() else None
    above = "" if path.name == settings.FILE_NAME else "tool.gpu-advisor."
    name = asked.name or _free_name(asked)
    found = Entry(
        path=path,
        file=file,
        table=paths.member(f"{above}workload", name),
        command=documents.of_command(_written(asked), asked.command_line.options),
        config=None if asked.path is None else os.path.relpath(asked.path, path.parent),
    )
    why = _why_not(asked, found)
    if why is None:
        try:
            found.content(())
        except EditRefusedError as problem:
            why = str(problem).rstrip(".")
    if why is not None:
        msg = f"--write-toml: {why}. Call without it; the report tells the tuned command."
        raise UsageError(msg)
    return found


def _why_not(asked: Invocation, found: Entry) -> str | None:
    """Reason why the command cannot be written."""
    if asked.name is not None and settings.needs_shell(asked.workload.command):
        return f"the command of [{found.table}] runs through a shell, so its words are not edited"
    if os.path.realpath(asked.cwd) != os.path.realpath(found.path.parent):
        return (
            f"{found.path} runs its commands in its own folder, and this one runs in {asked.cwd}; "
            "call from there"
        )
    scalar = found.file.scalars.get(f"{found.table}.command") if found.file else None
    if scalar is not None and not scalar.editable:
        return f"{found.table}.command in {found.path} cannot be edited: {scalar.why}"
    return None


def _written(asked: Invocation) -> tuple[str, ...]:
    """Command of the entry, with `{config}` for the path."""
    if asked.name is not None and not settings.needs_shell(asked.workload.command):
        return tuple(shlex.split(asked.workload.command))
    if asked.path is None:
        return asked.argv
    return tuple(word.replace(str(asked.path), "{config}") for word in asked.argv)


def _free_name(asked: Invocation) -> str:
    """Unused entry name, from the program's name."""
    first = argv.first_own_word(asked.argv)
    program = Path(asked.argv[first - 1]).stem if 0 < first <= len(asked.argv) else "command"
    plain = re.sub(r"[^A-Za-z0-9-]+", "-", program.rpartition(".")[2]).strip("-") or "command"
    taken = asked.settings.workload
    numbers = range(2, len(taken) + 2)
    return next(n for n in (plain, *(f"{plain}-{i}" for i in numbers)) if n not in taken)
