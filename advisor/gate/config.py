"""Programs to gate, from gpu-advisor.toml or one string."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from advisor import settings
from advisor.commands import invocation
from advisor.errors import ReportError, SettingsError, UsageError
from advisor.executor.program import with_seed
from advisor.gate import history
from advisor.gate.checkout import git
from advisor.runner import limits
from advisor.runner.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from advisor.gate.checkout import Checkout
    from advisor.settings import Workload

COMMAND = "command"
"""Name of the one program given with --command."""

THROUGHPUT_LINE = r"^[ \t]*throughput:[ \t]*(\S+)"
"""Line of output with the program's own rate, in units per second."""

SHORTEST_NAME = 3
"""Names of fewer characters occur in any message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Command that is run as it is in both arms."""

    name: str
    command: str
    """As the user wrote it."""
    config: str | None = None
    """Path of its config relative to `folder`."""
    folder: str = "."
    """Working directory, relative to the checkout's top."""
    env: tuple[tuple[str, str], ...] = ()
    unit: str = "sample"
    unit_regex: str | None = None
    metric_regex: str = THROUGHPUT_LINE
    in_shell: bool = False
    """Run through `bash -c`: one shell string, as given with --command."""
    limits: Limits = field(default_factory=Limits)
    """Limits of gpu-advisor.toml; no part of the definition."""

    @property
    def definition(self) -> str:
        """Digest of all that must equal in both arms."""
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
        """Working directory in `checkout`."""
        return checkout.top / self.folder

    def argv(self, checkout: Checkout) -> tuple[str, ...]:
        """Command line in `checkout`, with one seed."""
        if self.in_shell:
            return with_seed(("bash", "-c", self.command), None)
        if self.config is None:
            return with_seed(tuple(shlex.split(self.command)), None)
        cwd = self.cwd(checkout)
        return with_seed(invocation.split(self.command, cwd / self.config, cwd), None)


def choose(head: Checkout, workloads: Sequence[str], command: str | None) -> tuple[Program, ...]:
    """Programs to gate, as head defines them.

    Raises UsageError and SettingsError.
    """
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
    """Workloads of the settings for `checkout`.

    Raises SettingsError.
    """
    found = settings.load(settings.find(checkout.cwd))
    top = checkout.top.resolve()
    folder = str(found.root.relative_to(top)) if found.root.is_relative_to(top) else "."
    return {
        name: _of(name, entry, folder, limits.of_settings(entry, found.defaults))
        for name, entry in found.workload.items()
    }


def why_not_comparable(program: Program, base: Checkout) -> str | None:
    """Reason that `base` cannot be compared; else None."""
    if program.name == COMMAND and program.in_shell:
        return None
    of_base = declared(base).get(program.name)
    if of_base is None:
        return f"new in head: the base's gpu-advisor.toml has no workload {program.name!r}"
    changed = [
        f"{name} was {was!r}, is {new!r}"
        for name, was, new in _facts(of_base, program)
        if was != new
    ]
    if not changed:
        return None
    return f"workload {program.name!r} is defined differently in the base: {'; '.join(changed)}"


def _facts(base: Program, head: Program) -> list[tuple[str, object, object]]:
    """Differing parts of a definition, by name."""
    return [
        ("command", base.command, head.command),
        ("config", base.config, head.config),
        ("its folder", base.folder, head.folder),
        ("env", dict(base.env), dict(head.env)),
        ("unit", base.unit, head.unit),
        ("unit_regex", base.unit_regex, head.unit_regex),
        ("metric_regex", base.metric_regex, head.metric_regex),
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


# --- workloads that are not new -----------------------------------------------------------


def known_names(program: Program, base: Checkout, past: Path | None) -> list[str]:
    """Known workloads of base's settings or the history."""
    found = {program.name} if _declares(base, program) else set()
    for path in dict.fromkeys((past, base.cwd / past)) if past else ():
        try:
            series = history.read(path).series.values()
        except ReportError:
            continue
        for each in series:
            if each.program == program.name and each.definition == program.definition:
                found |= {program.name, each.benchmark or program.name}
    return sorted(found)


def _declares(base: Checkout, program: Program) -> bool:
    """True if base declares `program`.

    Settings that cannot be read declare nothing here.
    """
    try:
        return not program.in_shell and program.name in declared(base)
    except SettingsError:
        return False


def left_behind(head: Checkout, base: Checkout, message: str) -> str | None:
    """Ignored path that base lacks and its failure names."""
    listed = git(
        head.cwd, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"
    )
    for path in (listed or "").split("\0"):
        name = PurePosixPath(path).name
        stems = {name, name.removesuffix(".py")}
        if len(name) < SHORTEST_NAME or (base.cwd / path).exists():
            continue
        if any(re.search(rf"(?<![\w-]){re.escape(stem)}(?![\w-])", message) for stem in stems):
            return path.rstrip("/")
    return None
