"""Which programs gate: entries of gpu-advisor.toml, or one shell string."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor import settings
from advisor.commands import invocation
from advisor.errors import UsageError
from advisor.executor.program import with_seed
from advisor.runner import limits
from advisor.runner.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from advisor.gate.base import Checkout
    from advisor.settings import Workload

COMMAND = "command"
"""Name of the one program given with --command."""

THROUGHPUT_LINE = r"^[ \t]*throughput:[ \t]*(\S+)"
"""A line in which the output of any program may say its own rate, in units per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One command that is run as it is in both arms."""

    name: str
    command: str
    """As the user wrote it."""
    config: str | None = None
    """Path of its config relative to `folder`."""
    folder: str = "."
    """Folder it is run in, relative to the checkout's top; None of it may lie outside."""
    env: tuple[tuple[str, str], ...] = ()
    unit: str = "sample"
    unit_regex: str | None = None
    metric_regex: str = THROUGHPUT_LINE
    in_shell: bool = False
    """Run through `bash -c`: one shell string, as given with --command."""
    limits: Limits = field(default_factory=Limits)
    """What gpu-advisor.toml says; no part of the definition."""

    @property
    def definition(self) -> str:
        """Digest of all that must be the same in both arms to compare them."""
        facts = [
            self.command,
            self.config,
            self.folder,
            sorted(self.env),
            self.unit,
            self.unit_regex,
            self.metric_regex,
            self.in_shell,
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def cwd(self, checkout: Checkout) -> Path:
        """Where it runs in `checkout`."""
        return checkout.top / self.folder

    def argv(self, checkout: Checkout) -> tuple[str, ...]:
        """Its command line in `checkout`; every run has the same seed."""
        if self.in_shell:
            return with_seed(("bash", "-c", self.command), None)
        if self.config is None:
            return with_seed(tuple(shlex.split(self.command)), None)
        cwd = self.cwd(checkout)
        return with_seed(invocation.split(self.command, cwd / self.config, cwd), None)


def choose(head: Checkout, workloads: Sequence[str], command: str | None) -> tuple[Program, ...]:
    """The programs asked for, as head defines them. Raises UsageError and SettingsError."""
    if command is not None and workloads:
        msg = "--command and --workload exclude each other. Give one of them."
        raise UsageError(msg)
    if command is not None:
        if not command.strip():
            msg = "--command is empty. Give the command that runs your benchmark."
            raise UsageError(msg)
        folder = str(head.cwd.relative_to(head.top.resolve()))
        return (Program(name=COMMAND, command=command, folder=folder, unit="unit", in_shell=True),)
    known = declared(head)
    if not workloads:
        if len(known) == 1:
            return tuple(known.values())
        names = ", ".join(known) or "none in gpu-advisor.toml"
        msg = f"Say what to measure: --workload NAME (known: {names}) or --command CMD."
        raise UsageError(msg)
    missing = [name for name in workloads if name not in known]
    if missing and not known:
        msg = (
            f"There is no workload {missing[0]!r}: no gpu-advisor.toml here declares any. Add it, "
            "or give --command CMD."
        )
        raise UsageError(msg)
    if missing:
        msg = f"gpu-advisor.toml has no workload {missing[0]!r}. Name one of: {', '.join(known)}."
        raise UsageError(msg)
    return tuple(known[name] for name in dict.fromkeys(workloads))


def declared(checkout: Checkout) -> dict[str, Program]:
    """The workloads of the gpu-advisor.toml that holds for `checkout`. Raises SettingsError."""
    found = settings.load(settings.find(checkout.cwd))
    top = checkout.top.resolve()
    folder = str(found.root.relative_to(top)) if found.root.is_relative_to(top) else "."
    return {
        name: _of(name, entry, folder, limits.of_settings(entry, found.defaults))
        for name, entry in found.workload.items()
    }


def why_not_comparable(program: Program, base: Checkout) -> str | None:
    """Why `program` of head has nothing to be compared with in `base`; None if it has."""
    if program.name == COMMAND and program.in_shell:
        return None
    then = declared(base).get(program.name)
    if then is None:
        return f"new in head: the base's gpu-advisor.toml has no workload {program.name!r}"
    changed = [
        f"{name} was {was!r}, is {now!r}" for name, was, now in _facts(then, program) if was != now
    ]
    if not changed:
        return None
    return f"workload {program.name!r} is defined differently in the base: {'; '.join(changed)}"


def _facts(then: Program, now: Program) -> list[tuple[str, object, object]]:
    """What makes a definition: its name in gpu-advisor.toml, in base, in head."""
    return [
        ("command", then.command, now.command),
        ("config", then.config, now.config),
        ("its folder", then.folder, now.folder),
        ("env", dict(then.env), dict(now.env)),
        ("unit", then.unit, now.unit),
        ("unit_regex", then.unit_regex, now.unit_regex),
        ("metric_regex", then.metric_regex, now.metric_regex),
    ]


def _of(name: str, entry: Workload, folder: str, allowed: Limits) -> Program:
    return Program(
        name=name,
        command=entry.command,
        config=entry.config,
        folder=folder,
        env=tuple(sorted(entry.env.items())),
        unit=entry.unit,
        unit_regex=entry.unit_regex,
        metric_regex=entry.metric_regex or THROUGHPUT_LINE,
        limits=allowed,
    )
