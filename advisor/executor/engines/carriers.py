"""Commands that start an agent on a node, and reasons for their ends."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from advisor.errors import SettingsError
from advisor.settings import EngineTable

LOCAL = "local"
"""Name of the engine that needs no carrier."""
AGENT = ("-P", "-m", "advisor.executor.engines.agent")
"""Arguments of a node's Python; `-P` keeps the user's folder from hiding our modules."""
KNOWN = {"slurm": "srun"}
"""Command of an engine that gpu-advisor.toml does not define."""
ADDED = {
    "srun": ("--unbuffered", "--nodes=1", "--ntasks=1", "--cpu-bind=none"),
    "ssh": ("-T", "-o", "BatchMode=yes"),
}
"""Words that a program needs to carry a pipe; the user's come after them and win."""
INSIDE = {"srun": ("SLURM_JOB_ID", ("--overlap",))}
"""Variable that tells an allocation, and words that share it with the step that we are."""


class Ending(NamedTuple):
    """Reason for the end of a carrier, by what it said."""

    pattern: str
    what: str
    next_step: str
    again: bool
    """Another node may do: a loss that nobody asked for."""


ENDINGS = (
    Ending(
        r"DUE TO TIME LIMIT",
        "the time limit of the allocation was reached",
        "Ask for more with --time, or for less with a smaller --budget.",
        again=False,
    ),
    Ending(r"DUE TO PREEMPTION", "another job took its place (preemption)", "", again=True),
    Ending(r"DUE TO NODE FAILURE|[Nn]ode failure|NODE_FAIL", "the node failed", "", again=True),
    Ending(
        r"CANCELLED AT|[Jj]ob (?:\d+ )?(?:has been )?(?:cancelled|revoked)",
        "the job was cancelled (scancel)",
        "Call again when it may run; finished runs are kept.",
        again=False,
    ),
    Ending(
        r"Unable to contact slurm controller|Zero Bytes were transmitted|Communication connection",
        "the SLURM controller does not answer",
        "Ask `scontrol ping`, and call again once it is up.",
        again=False,
    ),
    Ending(
        r"Unable to allocate resources: (.*)|Unable to create step for job \d+: (.*)",
        "SLURM refused the request",
        "Correct the words of srun in gpu-advisor.toml, table [engine.slurm].",
        again=False,
    ),
    Ending(
        r"(Could not resolve hostname.*|Permission denied.*|Connection (?:refused|timed out).*)",
        "ssh could not log in",
        "Log in by hand first; keys must do without a password.",
        again=False,
    ),
    Ending(
        r"(No module named '?advisor.*)",
        "that Python has no gpu-advisor",
        "Install it there, or name a Python that has it: `python` in [engine.NAME].",
        again=False,
    ),
)
"""The first whose pattern is found tells the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """Command that starts an agent and carries its pipe."""

    words: tuple[str, ...]
    python: str = sys.executable
    """The node's, at the same path unless gpu-advisor.toml names another."""

    @property
    def shown(self) -> str:
        """The command as the user wrote it."""
        return f"`{shlex.join(self.words)}`"

    def command(self, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        """Whole command of the agent, started under `environ`."""
        first, *own = self.words
        program = os.path.basename(first)  # noqa: PTH119  a word of a command
        inside, shared = INSIDE.get(program, ("", ()))
        added = (*ADDED.get(program, ()), *(shared if inside in environ else ()))
        return (first, *added, *own, self.python, *AGENT)


def carrier_of(name: str, tables: Mapping[str, EngineTable]) -> Carrier | None:
    """Carrier of the engine `name`; None is this machine.

    Raises SettingsError for a name that is unknown.
    """
    if name == LOCAL:
        return None
    table = tables.get(name)
    command = table.command if table else KNOWN.get(name)
    if command is None:
        known = ", ".join(sorted({LOCAL, *KNOWN, *tables}))
        msg = (
            f"There is no engine {name!r} (known: {known}). Add a table [engine.{name}] with a "
            "command to gpu-advisor.toml: see docs/engines.md."
        )
        raise SettingsError(msg)
    python = (table.python if table else None) or sys.executable
    return Carrier(words=tuple(shlex.split(command)), python=python)


def why_ended(said: str, code: int | None) -> Ending:
    """Reason for the end of a carrier that said `said`."""
    for ending in ENDINGS:
        if match := re.search(ending.pattern, said):
            told = next((text for text in match.groups() if text), "")
            return ending._replace(what=f"{ending.what}: {told}" if told else ending.what)
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    what = last.strip() or f"its command ended with exit code {code}"
    return Ending("", what, "", again=True)
