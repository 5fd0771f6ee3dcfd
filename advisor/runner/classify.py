"""From how a trial ended to what that means: a typed Failure, or None where the work was done."""

from __future__ import annotations

import itertools
import math
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.runner.failure_patterns import (
    CONFIG,
    DEATHS,
    DEVICE,
    NEXT_STEPS,
    RESOURCES,
    SWALLOWED,
    Sign,
)
from advisor.runner.log_excerpt import (
    LAUNCHERS,
    TAIL_LINES,
    TRACEBACK,
    exception_lines,
    exceptions,
    last_error,
    last_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from advisor.model import Trial
    from advisor.runner.monitor import TrialExit
    from advisor.runner.records import ProgramException

EVIDENCE_CHARS = 300
IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError"}

_ISOLATED = re.compile(r"(?:^|\s)(?:\S*/)?python[\d.]*\s+(?:-\w+\s+)*?(-\w*[SIE]\w*)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What went wrong: a key of FAILURE_EXIT_CODES, the decisive line, and what to do."""

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
    """What kept the work of `trial` from being done; None if nothing did.

    `measured` tells whether there is a rate, by the probe or by other means.
    """
    for judge in (_by_us, _guarded, _died, _swallowed, _not_finite):
        finding = judge(trial, ending)
        if finding is not None:
            return finding
    return None if measured else _nothing_measured(trial, ending)


# --- one judge after another --------------------------------------------------------------


def _by_us(trial: Trial, ending: TrialExit) -> Finding | None:
    """We ended it: on request, or because a limit was reached."""
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
            return Finding.of("hang", f"no step for {ending.silence_s:.0f} s, {seen}{busy}")
        case "start-limit" if ending.booted and not ending.lost:
            seen = last_error(ending) or f"last line: {last_line(ending)}"
            return Finding.of("no-steps", f"no step within {ending.silence_s:.0f} s; {seen}")
        case "start-limit":
            return _probe_missing(trial, ending)
        case "total-limit":
            return Finding.of(
                "timeout", f"still running after {ending.wall_s:.0f} s, at step {ending.steps}"
            )
        case "exited" | "measured" | "aside":
            return None


def _lost_rank(trial: Trial, ending: TrialExit) -> Finding | None:
    """What ended one of several ranks, for which the others then waited."""
    if all(process.world_size < 2 for process in ending.processes):
        return None
    problems = [problem for problem in exceptions(ending) if problem.type not in LAUNCHERS]
    if problems:
        return _cause(trial, ending, problems)
    return _signed((*RESOURCES, *DEVICE), reversed(ending.output.splitlines()))


def _guarded(_: Trial, ending: TrialExit) -> Finding | None:
    """The probe kept the program from overwriting something."""
    guarded = next((process.guard for process in ending.processes if process.guard), None)
    if guarded is None:
        return None
    return Finding.of("outputs-not-apart", f"stopped before it overwrote {guarded}")


def _died(trial: Trial, ending: TrialExit) -> Finding | None:
    """It ended badly: an exception, a signal, an exit code."""
    problems = exceptions(ending)
    if ending.end in {"measured", "aside"} or ending.exit_code == 0:
        # a helper that failed and was got over is the program's own affair; a lost rank is not
        problems = [problem for problem in problems if problem.where == "step"]
        return _cause(trial, ending, problems) if problems else None
    return _cause(trial, ending, problems)


def _cause(trial: Trial, ending: TrialExit, problems: Sequence[ProgramException]) -> Finding:
    """Why it died: what ran out, a signal, settings that were refused, or simply an error."""
    said = [line for problem in problems for line in _lines(problem)]
    printed = [*ending.stdout.splitlines(), *ending.stderr.splitlines()]
    return (
        _signed((*RESOURCES, *DEVICE), said, raised=True)
        or _signed((*RESOURCES, *DEVICE), reversed(printed))
        or _by_signal(ending, [*said, *printed])
        or _rejected(trial, ending, problems)
        or _crashed(ending, problems)
    )


def _swallowed(_: Trial, ending: TrialExit) -> Finding | None:
    """It ended well, but work was lost: by its own words, or by what the probe saw it catch.

    A program that ran out of memory and began again with a smaller batch has lost nothing by it.
    """
    again = any(p.measured and p.measured.shrunk_from is not None for p in ending.processes)
    lines = ending.output.splitlines()
    if again:
        lines = [line for line in lines if not _signed(RESOURCES, [line])]
    known = _missed(ending)
    finding = _signed(SWALLOWED, lines) or (None if again else _logged_exception(lines, known))
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
    said = [(process.measurement.unmeasured, *process.errors) for process in ending.processes]
    why = next((each for each in itertools.chain(*said) if each), "too few to measure")
    return Finding.of("no-steps", f"{ended} and {_steps(ending)}: {why}")


def _steps(ending: TrialExit) -> str:
    return "1 step" if ending.steps == 1 else f"{ending.steps} steps"


# --- how it died --------------------------------------------------------------------------


def _signed(signs: Iterable[Sign], lines: Iterable[str], *, raised: bool = False) -> Finding | None:
    """The first sign that some line tells of; `raised`: the lines are those of exceptions."""
    lines = list(lines)
    for sign in signs:
        for line in lines:
            if sign.seen_in(line, raised=raised):
                return Finding.of(sign.kind, line, sign.next_step)
    return None


def _by_signal(ending: TrialExit, lines: Sequence[str]) -> Finding | None:
    """Ended by a signal: its own, or that of a child as a parent tells it."""
    number, told = _signal_of(ending)
    if not number:
        deaths = [(died, line) for line in lines if (died := _signal_told(line))]
        # when one rank is lost, its launcher asks the others to end
        deaths.sort(key=lambda death: death[0] == signal.SIGTERM)
        number, told = deaths[0] if deaths else (None, "")
    if ending.oom is not None and (number == signal.SIGKILL or ending.oom.scope == "this cgroup"):
        counted = (
            f"{ending.oom.kills} out-of-memory kills in {ending.oom.path} ({ending.oom.scope})"
        )
        return Finding.of("host-oom", "; ".join(filter(None, [told, counted])))
    if not number:
        return None
    return Finding.of("shm" if number == signal.SIGBUS else "killed", told)


def _signal_of(ending: TrialExit) -> tuple[int | None, str]:
    """The signal in an exit code: negative from a child, 128 and more from a shell."""
    code = ending.exit_code
    if code is None and ending.end == "exited":
        return signal.SIGKILL, "the process that guards the trial was ended from outside"
    number = abs(code) if code is not None and code < 0 else (code or 0) - 128
    if number not in set(signal.Signals):
        return None, ""
    return number, f"ended by {signal.Signals(number).name}"


def _signal_told(line: str) -> int | None:
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
    """The program would not take its settings, before any step was made."""
    if ending.steps or any(problem.where == "step" for problem in problems):
        return None
    last = [line for line in ending.stderr.splitlines() if line.strip()][-TAIL_LINES:]
    said = [line for problem in problems for line in _lines(problem)]
    finding = _signed(CONFIG, said or last, raised=bool(said))
    if finding is not None:
        return finding
    usage = any(line.lower().startswith("usage:") for line in last)
    if ending.exit_code == 2 and usage:
        return Finding.of("config-rejected", last[-1])
    for change in trial.candidate.changes:
        leaf = re.search(r"[^.\[\]\"]+(?=[\]\"]*$)", change.path)
        named = re.compile(rf"\b{re.escape(leaf[0])}\b") if leaf else None
        for line in said or exception_lines(last):
            if named and named.search(line):
                return Finding.of("config-rejected", f"{line} (tried {trial.label})")
    return None


def _crashed(ending: TrialExit, problems: Sequence[ProgramException]) -> Finding:
    if problems:
        where, lines = problems[0].where, _lines(problems[0])
        evidence = next(reversed(exception_lines(lines)), lines[0])
    else:
        raised = exception_lines(ending.stderr.splitlines())
        evidence = raised[-1] if raised else f"exit code {ending.exit_code}: {last_line(ending)}"
        missing = evidence.partition(":")[0].rpartition(".")[2] in IMPORT_ERRORS
        where = "import" if missing else "start"
    return Finding.of("crash-step" if ending.steps else f"crash-{where}", evidence)


def _lines(problem: ProgramException) -> list[str]:
    """`ValueError: ...`, and what else the message holds, such as a child's traceback."""
    return f"{problem.type}: {problem.message}".strip(": ").splitlines() or [problem.type]


def _missed(ending: TrialExit) -> tuple[str, ...]:
    """What was raised by parents of processes that we stopped: they miss what those would have
    left or sent."""
    parents = {process.ppid for process in ending.processes if process.state == "stopped"}
    return tuple(
        _lines(process.exception)[0]
        for process in ending.processes
        if process.exception is not None and process.pid in parents
    )


def _logged_exception(lines: Sequence[str], known: tuple[str, ...]) -> Finding | None:
    """A traceback in the output of a program that ended well: something was caught and lost.

    What Python prints when an object is torn down is no loss of work, nor is an optional import
    that was missing, nor what is `known` to come from our own doing.
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
    """Pythons that the probe could not follow into, and why: as it knows, and as seen outside."""
    for process in ending.processes:
        for command in process.unreached:
            yield f"`{command}` ignores PYTHONPATH, and was started by the program itself"
    yield from ending.lost
