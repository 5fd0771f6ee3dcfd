"""Classification of a trial's end as success or failure."""

from __future__ import annotations

import itertools
import math
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.runner.failure_patterns import (
    COLLATERAL,
    CONFIG,
    DEATHS,
    DEVICE,
    LAUNCHERS,
    LOST_WORK,
    NEXT_STEPS,
    NOISE,
    OUT_OF_MEMORY,
    FailurePattern,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from advisor.model import Trial
    from advisor.runner.monitor import TrialExit
    from advisor.runner.records import ProgramException

EVIDENCE_CHARS = 300
IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError"}
TAIL_LINES = 20
"""Limit of output lines searched for a cause."""
STACK_LINES = 400
TRACEBACK = "Traceback (most recent call last):"

_RANK = re.compile(r"^\[rank(\d+)\]:\s?")
"""Prefix that torch gives the lines of a rank that raised."""
_EXCEPTION_LINE = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*)(?:: (?P<message>.*))?$")
_ISOLATED = re.compile(r"(?:^|\s)(?:\S*/)?python[\d.]*\s+(?:-\w+\s+)*?(-\w*[SIE]\w*)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Kind of failure, decisive line and next step."""

    kind: str
    evidence: str
    next_step: str

    @classmethod
    def of(cls, kind: str, evidence: str, next_step: str | None = None) -> Finding:
        return cls(
            kind=kind,
            evidence=evidence.strip()[:EVIDENCE_CHARS],
            next_step=next_step or NEXT_STEPS[kind],
        )


def classify(trial: Trial, ending: TrialExit, *, measured: bool) -> Finding | None:
    """Find the failure of `trial`, or None.

    `measured`: there is a rate, by the probe or by other means.
    """
    for judge in (_by_us, _guarded, _died, _swallowed, _not_finite):
        finding = judge(trial, ending)
        if finding is not None:
            return finding
    return None if measured else _nothing_measured(trial, ending)


# --- ends, in the order of precedence ------------------------------------------------------


def _by_us(trial: Trial, ending: TrialExit) -> Finding | None:
    """Name the request or limit that ended the trial."""
    match ending.end:
        case "cancelled":
            return Finding.of("interrupted", f"stopped on request after {ending.wall_s:.1f} s")
        case "not-started":
            return Finding.of("crash-start", f"the command could not be started: {ending.problem}")
        case "hang" if lost := _lost_rank(trial, ending):
            return lost
        case "hang":
            busy = "" if ending.busy_cpus is None else f", {ending.busy_cpus:.1f} CPUs busy"
            seen = f"the last one seen was step {ending.steps}"
            return Finding.of(
                "hang",
                f"no step for {ending.silence_s:.0f} s, {seen}{busy}; ended by our limit "
                f"(hang-limit {trial.hang_limit_s:.0f}s)",
            )
        case "start-limit" if ending.booted and not ending.lost:
            seen = last_error(ending) or f"last line: {last_line(ending)}"
            return Finding.of(
                "no-steps",
                f"no step within {ending.silence_s:.0f} s; {seen}; ended by our limit "
                f"(start-limit {trial.start_limit_s:.0f}s)",
            )
        case "start-limit":
            return _probe_missing(trial, ending)
        case "total-limit":
            return Finding.of(
                "timeout",
                f"still running after {ending.wall_s:.0f} s, at step {ending.steps}; ended by our "
                f"limit (run-limit {trial.total_limit_s:.0f}s)",
            )
        case "exited" | "measured" | "aside":
            return None


def _lost_rank(trial: Trial, ending: TrialExit) -> Finding | None:
    """Find the end of the first lost rank."""
    if all(process.world_size < 2 for process in ending.processes):
        return None
    problems = [problem for problem in exceptions(ending) if not _is_launchers(problem)]
    if problems:
        return _cause(trial, ending, problems)
    return _matched((*OUT_OF_MEMORY, *DEVICE), ending.output.splitlines())


def _guarded(_: Trial, ending: TrialExit) -> Finding | None:
    """Report the file that the write guard protected."""
    guarded = next((process.guard for process in ending.processes if process.guard), None)
    if guarded is None:
        return None
    return Finding.of("outputs-not-apart", f"stopped before it overwrote {guarded}")


def _died(trial: Trial, ending: TrialExit) -> Finding | None:
    """Judge a failed end by exception, signal or code."""
    problems = exceptions(ending)
    if ending.end in {"measured", "aside"} or ending.exit_code == 0:
        # a helper that failed and was got over is the program's own affair; a lost rank is not
        problems = [problem for problem in problems if problem.where == "step"]
        return _cause(trial, ending, problems) if problems else None
    return _cause(trial, ending, problems)


def _cause(trial: Trial, ending: TrialExit, problems: Sequence[ProgramException]) -> Finding:
    """Find the cause: memory, device, signal, settings or error.

    Exceptions of the work itself come first. Whatever a launcher did afterwards (it asks the other
    ranks to end) is no cause.
    """
    raised = [line for problem in problems for line in _lines(problem)]
    printed = _plain_lines(ending)
    raised += [line for line in exception_lines(printed) if line not in raised]
    own = [line for problem in problems if not _is_launchers(problem) for line in _lines(problem)]
    own += [line for line in exception_lines(printed) if _type_of(line) not in LAUNCHERS]
    native = (*OUT_OF_MEMORY, *DEVICE)
    found = (
        _matched(native, raised, raised=True)
        or _matched(native, reversed(printed))
        or _by_signal(ending, own or [*raised, *printed])
        or _rejected(trial, ending, problems)
        or _crashed(ending, problems)
    )
    rank = _rank_of(ending, found.evidence)
    return (
        found
        if rank is None
        else Finding.of(found.kind, f"rank {rank}: {found.evidence}", found.next_step)
    )


def _rank_of(ending: TrialExit, evidence: str) -> int | None:
    """Find the rank that raised the line."""
    for process in ending.processes:
        problem = process.exception
        if process.world_size > 1 and problem and evidence in _lines(problem):
            return process.rank
    for line in ending.output.splitlines():
        found = _RANK.match(line)
        if found and evidence and evidence in line:
            return int(found[1])
    return None


def _swallowed(_: Trial, ending: TrialExit) -> Finding | None:
    """Find work lost in a run that exited well.

    A program that ran out of memory and began again with a smaller batch has lost nothing by it.
    """
    again = any(p.measured and p.measured.shrunk_from is not None for p in ending.processes)
    lines = ending.output.splitlines()
    if again:
        lines = [line for line in lines if not _matched(OUT_OF_MEMORY, [line], raised=True)]
    known = _missed(ending)
    finding = _matched(LOST_WORK, lines) or (None if again else _logged_exception(lines, known))
    if finding is not None:
        return finding
    if again:
        return None
    caught = next((each for process in ending.processes for each in process.caught), None)
    if caught is not None:
        return Finding.of("work-not-done", f"caught in the {caught.where}: {_lines(caught)[0]}")
    ooms = sum(process.memory.ooms or 0 for process in ending.processes)
    if not ooms:
        return None
    times = "once" if ooms == 1 else f"{ooms} times"
    return Finding.of(
        "work-not-done",
        f"the device's memory ran out {times}, and the program went on without a word of it",
        "Lower the batch size or the model's size: what did not fit was left out of the work.",
    )


def _not_finite(_: Trial, ending: TrialExit) -> Finding | None:
    for process in ending.processes:
        for number, loss in enumerate(process.losses, 1):
            if not math.isfinite(loss):
                many = len(process.losses)
                return Finding.of("non-finite", f"loss {number} of the {many} seen is {loss}")
    return None


def _nothing_measured(trial: Trial, ending: TrialExit) -> Finding:
    if ending.end == "aside":
        return Finding.of(
            "probe-not-loaded",
            f"{last_error(ending)}, after {_steps(ending)}; it left the program alone",
            "This is a defect of gpu-advisor: please report it with the log. Until it is mended, "
            "count output lines: set unit-regex in gpu-advisor.toml, or --unit-regex.",
        )
    ended = f"ended with exit code {ending.exit_code} after {ending.wall_s:.1f} s"
    if trial.plan.unit_regex is not None:
        many = ending.count.lines
        lines = "1 output line matches" if many == 1 else f"{many} output lines match"
        return Finding.of(
            "no-steps",
            f"{ended}; {lines} {trial.plan.unit_regex!r}",
            "Mend the pattern that counts: unit-regex in gpu-advisor.toml, or --unit-regex.",
        )
    if not ending.booted or (not ending.steps and any(_unreached(ending))):
        return _probe_missing(trial, ending)
    problems = exceptions(ending)
    if problems:
        return _cause(trial, ending, problems)
    unread = next((process for process in ending.processes if process.unread), None)
    if unread is not None:
        return Finding.of(
            "probe-not-loaded",
            f"what the probe told of process {unread.pid} could not be read: {unread.unread}",
            "Use one version of gpu-advisor for all that runs, or count output lines: set "
            "unit-regex in gpu-advisor.toml.",
        )
    if not ending.steps:
        return Finding.of("no-steps", f"{ended} without a step; last line: {last_line(ending)}")
    stated = [(process.measurement.unmeasured, *process.errors) for process in ending.processes]
    why = next((each for each in itertools.chain(*stated) if each), "too few to measure")
    return Finding.of("no-steps", f"{ended} and {_steps(ending)}: {why}")


def _steps(ending: TrialExit) -> str:
    return "1 step" if ending.steps == 1 else f"{ending.steps} steps"


# --- how it died --------------------------------------------------------------------------


def _matched(
    patterns: Iterable[FailurePattern], lines: Iterable[str], *, raised: bool = False
) -> Finding | None:
    """Match failure patterns in output or exception lines."""
    lines = list(lines)
    for each in patterns:
        for line in lines if raised or each.in_output else ():
            if each.pattern.search(line):
                return Finding.of(each.kind, line, each.next_step)
    return None


def _by_signal(ending: TrialExit, lines: Sequence[str]) -> Finding | None:
    """Judge an end by the process's or child's signal."""
    number, evidence = _signal_of(ending)
    if not number:
        deaths = [(died, line) for line in lines if (died := _reported_signal(line))]
        # when one rank is lost, its launcher asks the others to end
        deaths.sort(key=lambda death: death[0] == signal.SIGTERM)
        number, evidence = deaths[0] if deaths else (None, "")
    if ending.oom is not None and (number == signal.SIGKILL or ending.oom.scope == "this cgroup"):
        kills = f"{ending.oom.kills} out-of-memory kills in {ending.oom.path} ({ending.oom.scope})"
        return Finding.of("host-oom", "; ".join(filter(None, [evidence, kills])))
    if not number:
        return None
    return Finding.of("shm" if number == signal.SIGBUS else "killed", evidence)


def _signal_of(ending: TrialExit) -> tuple[int | None, str]:
    """Return the signal in an exit code."""
    code = ending.exit_code
    if code is None and ending.end == "exited":
        return signal.SIGKILL, "the process that supervises the trial was ended from outside"
    number = abs(code) if code is not None and code < 0 else (code or 0) - 128
    if number not in set(signal.Signals):
        return None, ""
    return number, f"ended by {signal.Signals(number).name}"


def _reported_signal(line: str) -> int | None:
    found = DEATHS.search(line)
    if not found:
        return None
    name = found["name"] or found["rank"]
    for each in signal.Signals:
        if name == each.name or (found["text"] or "?") in (signal.strsignal(each) or ""):
            return each
    return None


def _rejected(
    trial: Trial, ending: TrialExit, problems: Sequence[ProgramException]
) -> Finding | None:
    """Detect settings refused before the first step."""
    if ending.steps or any(problem.where == "step" for problem in problems):
        return None
    last = [line for line in ending.stderr.splitlines() if line.strip()][-TAIL_LINES:]
    raised = [line for problem in problems for line in _lines(problem)] or exception_lines(last)
    finding = _matched(CONFIG, raised, raised=True) or _matched(CONFIG, last)
    if finding is not None:
        return finding
    usage = any(line.lower().startswith("usage:") for line in last)
    if ending.exit_code == 2 and usage:
        return Finding.of("config-rejected", last[-1])
    for change in trial.candidate.changes:
        leaf = re.search(r"[^.\[\]\"]+(?=[\]\"]*$)", change.path)
        named = re.compile(rf"\b{re.escape(leaf[0])}\b") if leaf else None
        for line in raised:
            if named and named.search(line):
                return Finding.of("config-rejected", f"{line} (tried {trial.label})")
    return None


def _crashed(ending: TrialExit, problems: Sequence[ProgramException]) -> Finding:
    if problems:
        where, lines = problems[0].where, _lines(problems[0])
        evidence = next(reversed(exception_lines(lines)), lines[0])
    else:
        raised = exception_lines(_plain_lines(ending))
        evidence = raised[-1] if raised else f"exit code {ending.exit_code}: {last_line(ending)}"
        missing = evidence.partition(":")[0].rpartition(".")[2] in IMPORT_ERRORS
        where = "import" if missing else "start"
    return Finding.of("crash-step" if ending.steps else f"crash-{where}", evidence)


def _lines(problem: ProgramException) -> list[str]:
    """Split an exception's name from its message."""
    return f"{problem.type}: {problem.message}".strip(": ").splitlines() or [problem.type]


def _missed(ending: TrialExit) -> tuple[str, ...]:
    """Return exceptions of parents whose children we stopped."""
    parents = {process.ppid for process in ending.processes if process.state == "stopped"}
    return tuple(
        _lines(process.exception)[0]
        for process in ending.processes
        if process.exception is not None and process.pid in parents
    )


def _logged_exception(lines: Sequence[str], known: tuple[str, ...]) -> Finding | None:
    """Find a traceback in a successful program's output.

    Errors while an object is torn down lose no work, nor do optional imports, nor those `known` to
    come from our own doing.
    """
    for number, line in enumerate(lines):
        if line.strip() != TRACEBACK:
            continue
        if number and lines[number - 1].startswith("Exception ignored in"):
            continue
        raised = next(iter(exception_lines(lines[number:])), None)
        if raised and raised.startswith(known or ("\n",)):
            continue
        if raised and raised.partition(":")[0].rpartition(".")[2] not in IMPORT_ERRORS:
            return Finding.of("work-not-done", f"caught and printed: {raised}")
    return None


def _probe_missing(trial: Trial, ending: TrialExit) -> Finding:
    isolated = _ISOLATED.search(" ".join(trial.command))
    why = f"python {isolated[1]} keeps it out" if isolated else next(_unreached(ending), "")
    return Finding.of(
        "probe-not-loaded",
        f"no Python process of the command that does the work loaded the probe"
        f"{f': {why}' if why else ''}; it ran {ending.wall_s:.1f} s, "
        f"last line: {last_line(ending)}",
    )


def _unreached(ending: TrialExit) -> Iterator[str]:
    """Yield uninstrumented Pythons with their reasons."""
    for process in ending.processes:
        for command in process.unreached:
            yield f"`{command}` ignores PYTHONPATH, and was started by the program itself"
    yield from ending.lost


# --- the log ------------------------------------------------------------------------------


def log_tail(ending: TrialExit) -> str:
    """Return the hang's stacks and the last output lines."""
    lines = [line for line in ending.stderr.splitlines() if not NOISE.search(line)]
    lines = lines or [line for line in ending.stdout.splitlines() if line.strip()]
    lines = [*ending.stacks.splitlines()[:STACK_LINES], *lines[-TAIL_LINES:]]
    # a launcher's own words may stand where those of the process that failed would be
    tails = [problem.tail.rstrip() for problem in exceptions(ending)[:1] if problem.tail]
    tails += [error.rstrip() for process in ending.processes for error in process.errors[-1:]]
    lost = [tail for tail in tails if tail.rpartition("\n")[2] not in lines]
    return "\n".join([*lost, *lines])


def exceptions(ending: TrialExit) -> list[ProgramException]:
    """Return the final exceptions, work before launcher."""
    problems = [process.exception for process in ending.processes if process.exception]
    return sorted(problems, key=lambda each: (_is_launchers(each), _is_collateral(each)))


def _is_launchers(problem: ProgramException) -> bool:
    return problem.type in LAUNCHERS


def _is_collateral(problem: ProgramException) -> bool:
    """Return True for a rank that lost a connection."""
    return COLLATERAL.search(f"{problem.type}: {problem.message}") is not None


def exception_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines that end tracebacks: `ValueError: ...`."""
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


def _plain_lines(ending: TrialExit) -> list[str]:
    """Return the output without the prefixes of ranks."""
    return [_RANK.sub("", line) for line in ending.output.splitlines()]


def _type_of(line: str) -> str:
    return line.partition(":")[0].rpartition(".")[2]


def last_line(ending: TrialExit) -> str:
    """Return what the program printed last."""
    for text in (ending.stderr, ending.stdout):
        lines = [line for line in text.splitlines() if not NOISE.search(line)]
        if lines:
            return lines[-1].strip()
    return "(no output)"


def last_error(ending: TrialExit) -> str | None:
    """Return the probe's own last error."""
    errors = [error for process in ending.processes for error in process.errors]
    return f"the probe itself failed: {errors[-1].splitlines()[-1]}" if errors else None
