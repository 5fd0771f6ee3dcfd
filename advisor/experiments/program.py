"""The user's program as something to be run: one candidate of it becomes one Trial."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from advisor import documents
from advisor.documents import argv
from advisor.model import JsonScalar, Trial, TrialFile
from advisor.trials.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from advisor.experiments.attempts import Ask
    from advisor.model import Candidate

COMMAND_LINE = "command line"


@dataclass(frozen=True, kw_only=True)
class Program:
    """One command, the config it reads if there is one, and where its outputs would go."""

    config: documents.Document | None
    command_line: documents.Document
    """The user's argv as a document: `argv` format."""
    cwd: Path
    unit: str
    output_paths: tuple[str, ...] = ()
    """Scalars of the config that name output directories: pointed into scratch."""
    output_flags: tuple[str, ...] = ()
    """The same on the command line."""
    env: Mapping[str, str] = field(default_factory=dict)
    memory_cap_gib: float | None = None
    allow_writes: bool = False
    limits: Limits = field(default_factory=Limits)

    def content(self, candidate: Candidate, extra: Mapping[str, JsonScalar] | None = None) -> bytes:
        """The config's bytes with `candidate`'s values, verified; empty without a config."""
        if self.config is None:
            return b""
        values: dict[str, JsonScalar] = {
            c.path: c.new for c in candidate.changes if c.document == self.config.name
        }
        return self.config.with_values({**values, **(extra or {})})

    def argv(
        self, candidate: Candidate, command_line: documents.Document | None = None
    ) -> tuple[str, ...]:
        """The command with `candidate`'s values."""
        document = command_line or self.command_line
        values: dict[str, JsonScalar] = {
            c.path: c.new
            for c in candidate.changes
            if c.document == COMMAND_LINE and c.path in document.scalars
        }
        return argv.split(document.with_values(values))

    def values(self, candidate: Candidate) -> object:
        """The config as the program would read it; None without a config."""
        if self.config is None:
            return None
        content = self.content(candidate)
        return documents.parse(content, self.config.format, self.config.name).data

    def trial(
        self,
        id_: str,
        ask: Ask,
        scratch: Path,
        command_line: documents.Document | None = None,
    ) -> Trial:
        """The trial that runs `ask` in `scratch`, its outputs kept in there too."""
        candidate, plan = ask.arm.candidate, replace(ask.plan, whatif=ask.arm.whatif)
        outputs = str(scratch / "outputs")
        command = self.argv(candidate, command_line)
        for flag in self.output_flags:
            command = _with_flag(command, flag, outputs)
        files: tuple[TrialFile, ...] = ()
        if self.config is not None:
            content = self.content(candidate, dict.fromkeys(self.output_paths, outputs))
            files = (TrialFile(original=str(self.config.path), content=content),)
        start_s, hang_s, total_s = self.limits.of(plan)
        return Trial(
            id=id_,
            purpose=ask.purpose,
            label=ask.arm.label,
            candidate=candidate,
            command=command,
            cwd=str(self.cwd),
            scratch=str(scratch),
            files=files,
            env=tuple(self.env.items()),
            plan=replace(plan, memory_cap_gib=self.memory_cap_gib),
            unit=self.unit,
            start_limit_s=start_s,
            hang_limit_s=hang_s,
            total_limit_s=total_s,
            allow_writes=self.allow_writes,
            caches=str(scratch.parent / "caches"),
        )


def _with_flag(command: tuple[str, ...], flag: str, value: str) -> tuple[str, ...]:
    """`command` with `flag` pointing to `value`: replaced where it stands, else appended."""
    for index, token in enumerate(command):
        if token == flag and index + 1 < len(command):
            return (*command[: index + 1], value, *command[index + 2 :])
        if token.startswith(flag + "="):
            return (*command[:index], f"{flag}={value}", *command[index + 1 :])
    return (*command, flag, value)
