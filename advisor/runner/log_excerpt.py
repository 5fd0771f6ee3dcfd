"""What was said last: by the program, by what ended it, by the probe."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from advisor.runner.failure_patterns import NOISE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.runner.monitor import TrialExit
    from advisor.runner.records import ProgramException

TAIL_LINES = 20
"""Of the output; so many tell why it ended."""
STACK_LINES = 400
LAUNCHERS = {
    "CalledProcessError",
    "ChildFailedError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
}
"""Exceptions in which a launcher tells that a process of its own has failed."""
TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION_LINE = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: (?P<message>.*))?$")


def log_tail(ending: TrialExit) -> str:
    """The stacks of a hung program, then the last lines of its standard error, or output."""
    lines = [line for line in ending.stderr.splitlines() if not NOISE.search(line)]
    lines = lines or [line for line in ending.stdout.splitlines() if line.strip()]
    lines = [*ending.stacks.splitlines()[:STACK_LINES], *lines[-TAIL_LINES:]]
    # a launcher's own words may stand where those of the process that failed would be
    told = [problem.tail.rstrip() for problem in exceptions(ending)[:1] if problem.tail]
    told += [error.rstrip() for process in ending.processes for error in process.errors[-1:]]
    lost = [tail for tail in told if tail.rpartition("\n")[2] not in lines]
    return "\n".join([*lost, *lines])


def exceptions(ending: TrialExit) -> list[ProgramException]:
    """What ended processes: that of the work itself before that of whoever launched it."""
    problems = [process.exception for process in ending.processes if process.exception]
    return sorted(problems, key=lambda problem: problem.type in LAUNCHERS)


def last_line(ending: TrialExit) -> str:
    """What the program printed last."""
    for text in (ending.stderr, ending.stdout):
        lines = [line for line in text.splitlines() if not NOISE.search(line)]
        if lines:
            return lines[-1].strip()
    return "(no output)"


def last_error(ending: TrialExit) -> str | None:
    """The probe's own: what it raised last."""
    errors = [error for process in ending.processes for error in process.errors]
    return f"the probe itself failed: {errors[-1].splitlines()[-1]}" if errors else None


def exception_lines(lines: Sequence[str]) -> list[str]:
    """The lines that end tracebacks: `ValueError: ...`."""
    found = []
    inside = False
    for line in lines:
        if line.strip() == TRACEBACK:
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
            if _EXCEPTION_LINE.match(line):
                found.append(line)
    return found
