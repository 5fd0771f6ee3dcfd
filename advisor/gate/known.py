"""Is a workload new, or can it only not be measured in base? Green for ever is no answer."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from advisor.errors import ReportError, SettingsError
from advisor.gate import history
from advisor.gate.git import git
from advisor.gate.program import COMMAND, declared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from advisor.gate.base import Checkout
    from advisor.gate.program import Program

SHORTEST_NAME = 3
"""Names of fewer characters occur in any message."""


def names(program: Program, base: Checkout, past: Path) -> list[str]:
    """What of `program`, it or its benchmarks, base's settings or the sessions in `past` know.

    A `--command` has no name of its own: there sessions of the same definition count.
    """
    found = [program.name] if _declares(base, program) else []
    for series in _series(past, base):
        workload, definition = series.workload, series.facts.get("workload", "")
        if program.name == COMMAND and not definition.startswith(f"{program.definition}/"):
            continue
        if workload == program.name or workload.startswith(f"{program.name}: "):
            found += [workload, program.name]
    return sorted(set(found))


def _declares(base: Checkout, program: Program) -> bool:
    """Settings of base that cannot be read declare nothing: that is told when they are compared."""
    try:
        return not program.in_shell and program.name in declared(base)
    except SettingsError:
        return False


def _series(past: Path, base: Checkout) -> Iterator[history.Series]:
    """Of the file that was named, and of the one that base has in its place."""
    for path in dict.fromkeys((past, base.cwd / past)):
        try:
            yield from history.read(path).series.values()
        except ReportError:
            continue


def left_behind(head: Checkout, base: Checkout, said: str) -> str | None:
    """What git ignores, head has, base lacks, and a failed run of base complained of in `said`.

    Relative to the folder that commands run in; None if it was nothing of the kind.
    """
    listed = git(
        head.cwd, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"
    )
    for path in (listed or "").split("\0"):
        name = PurePosixPath(path).name
        stems = {name, name.removesuffix(".py")}
        if len(name) < SHORTEST_NAME or (base.cwd / path).exists():
            continue
        if any(re.search(rf"(?<![\w-]){re.escape(stem)}(?![\w-])", said) for stem in stems):
            return path.rstrip("/")
    return None
