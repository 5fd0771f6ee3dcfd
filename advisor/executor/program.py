"""User's program, whose candidates become trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor import config as documents
from advisor.config import argv
from advisor.executor.requests import CommandName, KnobKey, TrialRequest
from advisor.model import Candidate, JsonScalar, Trial, TrialFile
from advisor.runner.limits import Limits

COMMAND_LINE = "command line"
SEED = "{seed}"
"""Stands for the seed in a command."""
SEEDS = 2**32
"""Number of seeds, that of Python's hashes."""


def with_seed(command: tuple[str, ...], seed: int | None) -> tuple[str, ...]:
    """Fill in the seed of `command`; 0 by default."""
    return tuple(token.replace(SEED, str((seed or 0) % SEEDS)) for token in command)


def seed_environment(seed: int | None) -> dict[str, str]:
    """The variables that tell a program its seed."""
    if seed is None:
        return {}
    return {"GPU_ADVISOR_SEED": str(seed % SEEDS), "PYTHONHASHSEED": str(seed % SEEDS)}


@dataclass(frozen=True, kw_only=True)
class Program:
    """Command with its configs and its outputs' places."""

    configs: tuple[documents.Document, ...] = ()
    command_line: documents.Document
    """The user's argv as a document: `argv` format."""
    commands: Mapping[CommandName, documents.Document] = field(default_factory=dict)
    """Commands of the quality measures; without one the user's own measures."""
    cwd: Path
    unit: str
    output_paths: tuple[KnobKey, ...] = ()
    """Scalars of the configs that name output directories: pointed into scratch."""
    output_flags: tuple[str, ...] = ()
    """The same on the command line."""
    env: Mapping[str, str] = field(default_factory=dict)
    memory_cap_gib: float | None = None
    allow_writes: bool = False
    limits: Limits = field(default_factory=Limits)
    seed: int | None = None
    """Given to the command in every run; None: its own."""

    def content(
        self, config: documents.Document, candidate: Candidate, outputs: str | None = None
    ) -> bytes:
        """Bytes of one config with `candidate`'s values, verified.

        What it names as output goes to the folder `outputs`.
        """
        values: dict[str, JsonScalar] = {
            c.path: c.new for c in candidate.changes if c.document == config.name
        }
        if outputs is not None:
            values |= {path: outputs for name, path in self.output_paths if name == config.name}
        return config.with_values(values)

    def argv(
        self,
        candidate: Candidate,
        command_line: documents.Document | None = None,
        outputs: str | None = None,
    ) -> tuple[str, ...]:
        """Command with `candidate`'s values.

        What it writes goes to the folder `outputs`.
        """
        document = command_line or self.command_line
        scalars = document.scalars
        values: dict[str, JsonScalar] = {
            c.path: c.new
            for c in candidate.changes
            if c.document == COMMAND_LINE and c.path in scalars
        }
        flags = self.output_flags if outputs is not None else ()
        typed = [
            flag
            for flag in flags
            if flag in scalars and scalars[flag].editable and scalars[flag].default_of is None
        ]
        command = argv.split(document.with_values({**values, **dict.fromkeys(typed, outputs)}))
        for flag in flags:
            if flag not in typed:
                command = (*command, flag, str(outputs))
        return command

    def values(self, candidate: Candidate) -> object:
        """Values of the configs as the program reads them."""
        read = (
            documents.parse(self.content(config, candidate), config.format, config.name)
            for config in self.configs
        )
        return [{path: leaf.value for path, leaf in each.parsed.leaves.items()} for each in read]

    def trial(self, id_: str, request: TrialRequest, scratch: Path) -> Trial:
        """Trial of `request`, with its outputs in `scratch`."""
        candidate, plan = (
            request.variant.candidate,
            replace(request.plan, whatif=request.variant.whatif),
        )
        outputs = str(scratch / "outputs")
        seed = self.seed if request.repeat is None else (self.seed or 0) + request.repeat
        document = self.commands.get(request.command)
        command = with_seed(self.argv(candidate, document, outputs), seed)
        files = tuple(
            TrialFile(original=str(config.path), content=self.content(config, candidate, outputs))
            for config in self.configs
        )
        start_s, hang_s, total_s = self.limits.of(plan)
        return Trial(
            id=id_,
            purpose=request.purpose,
            label=request.label,
            candidate=candidate,
            command=command,
            cwd=str(self.cwd),
            scratch=str(scratch),
            files=files,
            env=tuple({**self.env, **seed_environment(seed)}.items()),
            plan=replace(plan, memory_cap_gib=self.memory_cap_gib),
            unit=self.unit,
            start_limit_s=start_s,
            hang_limit_s=hang_s,
            total_limit_s=total_s,
            allow_writes=self.allow_writes,
            caches=str(scratch.parent / "caches"),
        )
