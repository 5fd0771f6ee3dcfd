"""Programs to gate, from gpu-advisor.toml or one string.

Head says what is run, and base must say the same: a change that also changes the benchmark is
compared with nothing, and says so. Allowed changes (`[workload.NAME.gate]`) are no part of that:
cli.py reads them in base alone. Time limits of a process are head's.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from advisor import settings
from advisor.commands import invocation
from advisor.errors import UsageError
from advisor.executor.requests import with_seed
from advisor.gate.checkout import Checkout, git
from advisor.runner import resources

COMMAND = "command"
"""Name of the workload that --command gives."""

SHORTEST_NAME = 3
"""Characters of the shortest name of a file that is looked for in a message.

Judgement: shorter names occur in any message. A larger bound misses a folder such as `lib`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateProgram:
    """Command to measure, the same in both arms."""

    name: str
    workload: settings.Workload
    """Command, config, unit, patterns and variables."""
    folder: str = "."
    """Working folder, below the top of each arm's checkout."""
    in_shell: bool = False
    """Given by --command, so that base needs no declaration of it. `bash -c` runs it always; a
    declared one only where it needs a shell."""
    limits: resources.ProcessLimits = field(default_factory=resources.ProcessLimits)
    """Time limits of a process, from head's gpu-advisor.toml; no part of `facts`, which base must
    share."""

    @property
    def facts(self) -> dict[str, object]:
        """Definition: all that both arms must share."""
        names = {"command", "config", "unit", "unit_regex", "metric_regex", "env"}
        fields = {"folder": self.folder, "in_shell": self.in_shell}
        return self.workload.model_dump(include=names) | fields

    def cwd(self, checkout: Checkout) -> Path:
        return checkout.top / self.folder

    def argv(self, checkout: Checkout) -> tuple[str, ...]:
        """Command line in `checkout`; `{seed}` in it is 0 in both arms."""
        command, config = self.workload.command, self.workload.config
        words: Sequence[str] = ("bash", "-c", command)
        if not self.in_shell:
            cwd = self.cwd(checkout)
            words = invocation.split(command, [cwd / config] if config else [], cwd)
        return with_seed(tuple(words), None)


def choose(
    head: Checkout,
    workloads: Sequence[str],
    command: str | None,
    *,
    typed: str = "--command CMD",
) -> tuple[GateProgram, ...]:
    """Programs to gate, as head defines them. Raises UsageError, SettingsError.

    `typed`: how this call spells a command, for the refusal.
    """
    if command is not None:
        if workloads:
            msg = "--command and --workload exclude each other. Give one of them."
            raise UsageError(msg)
        if not command.strip():
            msg = "--command is empty. Give the command that runs your benchmark."
            raise UsageError(msg)
        folder = str(head.cwd.relative_to(head.top))
        # not validated: it is a shell string, and has no unit of its own
        entry = settings.Workload.model_construct(command=command, unit="unit")
        return (GateProgram(name=COMMAND, workload=entry, folder=folder, in_shell=True),)
    programs = declared(head)
    if not workloads and len(programs) == 1:
        return tuple(programs.values())
    missing = [name for name in workloads if name not in programs]
    if missing or not workloads:
        named = (
            f"There is no workload {missing[0]!r}" if missing else "Nothing was asked for"
        )
        names = ", ".join(programs) or "none"
        msg = f"{named}. Give --workload (gpu-advisor.toml declares: {names}) or {typed}."
        raise UsageError(msg)
    return tuple(programs[name] for name in dict.fromkeys(workloads))


def declared(checkout: Checkout) -> dict[str, GateProgram]:
    """Workloads of the settings for `checkout`. Raises SettingsError, UsageError."""
    _require_own_settings(checkout)
    loaded = settings.load(settings.find(checkout.cwd))
    # without a settings file the root is relative, and there are no workloads
    inside = loaded.root.is_relative_to(checkout.top)
    folder = str(loaded.root.relative_to(checkout.top)) if inside else "."
    return {
        name: GateProgram(
            name=name,
            workload=entry,
            folder=folder,
            limits=resources.of_settings(entry, loaded.defaults),
        )
        for name, entry in loaded.workload.items()
    }


def _require_own_settings(checkout: Checkout) -> None:
    """Refuse settings behind a link that leads out of the checkout. Raises UsageError.

    Else a change could link gpu-advisor.toml to a file outside that it may not read itself, and
    find some of it in the gate's messages.
    """
    top = checkout.top.resolve()
    for folder in (checkout.cwd, *checkout.cwd.parents):
        if not folder.is_relative_to(checkout.top):
            return
        for name in (settings.FILE_NAME, "pyproject.toml"):
            real = Path(os.path.realpath(folder / name))
            if not real.is_relative_to(top):
                msg = f"{folder / name} leads out of its checkout, to {real}. Let it be a file."
                raise UsageError(msg)


def why_not_comparable(program: GateProgram, base: Checkout) -> str | None:
    """Reason that base has no such workload, or another of that name.

    None if it is the same, or was given by --command.
    """
    if program.in_shell:
        return None
    other = declared(base).get(program.name)
    if other is None:
        return f"new in head: the base's gpu-advisor.toml has no workload {program.name!r}"
    changed = [
        f"{name} was {was!r}, is {new!r}"
        for name, was in other.facts.items()
        if was != (new := program.facts[name])
    ]
    if not changed:
        return None
    return f"workload {program.name!r} is defined differently in the base: {'; '.join(changed)}"


def left_behind(head: Checkout, base: Checkout, message: str) -> str | None:
    """Path that git ignores, that base lacks, and that base's failure names; None without one.

    Data and built modules are seldom in git. Head has them in its working tree, and base fails
    for want of them, which is no fault of the change.
    """
    words = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    listed = git(head.cwd, *words) or ""
    for path in listed.split("\0"):
        name = PurePosixPath(path).name
        if len(name) < SHORTEST_NAME or (base.cwd / path).exists():
            continue
        stem = re.escape(name.removesuffix(".py"))
        if re.search(rf"(?<![\w-]){stem}(?![\w-])", message):
            return path.rstrip("/")
    return None
