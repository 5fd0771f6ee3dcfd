"""Failure of a trial: the first of `CHECKS` that its end meets."""

import math
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from advisor import numbers
from advisor.model import Failure, Trial
from advisor.probe.env_propagation import isolating
from advisor.runner.monitor import TrialExit
from advisor.runner.output import TRACEBACK, Wanted, short_line
from advisor.runner.process_records import ProgramException

NEXT_STEPS = {
    "gpu-oom": "Lower the batch size or the model's size; close what else uses the GPU's memory.",
    "host-oom": "Lower the number of loader workers or the batch, or raise the memory limit.",
    "killed": "Look for who sent the signal: a scheduler, a watchdog, or a crash in native code.",
    "shm": "Enlarge /dev/shm (docker run --shm-size=8g) or use fewer loader workers.",
    "crash-import": "Run the command by hand in this environment and install what is missing.",
    "crash-start": "Run the command by hand; if it works there, report it with the log.",
    "crash-step": "Run the command by hand; its last lines are below.",
    "config-rejected": "Compare the value it names with what the program accepts.",
    "no-steps": "Check that the command trains or infers; if it does, count its output lines: set "
    "unit-regex in gpu-advisor.toml. Raise start-limit there if its first step comes later.",
    "hang": "See the stacks for what it waits for; raise hang-limit in "
    "gpu-advisor.toml if it still works.",
    "timeout": "Raise run-limit in gpu-advisor.toml, or give a command that works on a "
    "smaller subset.",
    "gpu-fault": "Look at nvidia-smi and dmesg. The card failed, others hold it (exclusive mode, "
    "MIG, MPS), or the driver does not fit.",
    "non-finite": "Run it by hand and look at the loss; in half precision try bfloat16.",
    "work-not-done": "Fix the error in that line; failed work does not count as throughput.",
    "probe-not-loaded": "Start Python without -S, -I, -E and keep PYTHONPATH, or set unit-regex in "
    "gpu-advisor.toml.",
    "outputs-not-apart": "Give the program another output directory, or pass --allow-writes.",
    "interrupted": "Call again to go on from what was measured.",
    "write-denied": "Let that output go below TMPDIR, or give --allow-writes.",
    "not-judged": "This is a defect of gpu-advisor: please report it with the log.",
    "disk-full": "Free space on the disk that it names, or move what is written to another one.",
}
"""A sentence for every failure kind; a pattern may have a better one."""


class FailurePattern(NamedTuple):
    kind: str
    pattern: re.Pattern[str]
    next_step: str | None = None


def _row(kind: str, *alternatives: str, next_step: str | None = None) -> FailurePattern:
    return FailurePattern(kind, re.compile("|".join(alternatives)), next_step)


OUT_OF_MEMORY = (
    _row(
        "shm",
        r"shared memory (?:object|segment)",
        r"(?:insufficient|out of) shared memory",
        r"[Bb]us error|SIGBUS",
        r"(?:unable to|No space left on device).*(?:/dev/shm|/torch_|/psm_)",
    ),
    _row(
        "gpu-oom",
        r"\bOutOfMemoryError\b",
        r"(?i:cuda|hip|xpu|mps|triton)\b.*\bout of memory",
        r"\bCUDA_ERROR_OUT_OF_MEMORY\b",
        r"would exceed allowed memory",
        r"\bCU[A-Z]+_(?:STATUS_)?(?:INTERNAL_ERROR_DEVICE_)?ALLOC(?:ATION)?_FAILED\b",
    ),
    _row(
        "gpu-oom",
        r"\bCU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_NOT_INITIALIZED\b",
        r"(?i:unable to find (?:an engine to execute|a valid cudnn algorithm))",
        next_step="Mostly the card was full: lower the batch. Else run it with "
        "CUDA_LAUNCH_BLOCKING=1 for the kernel that failed before.",
    ),
    _row(
        "host-oom",
        r"\b_?(?:Array)?MemoryError\b",
        r"std::bad_alloc",
        r"(?:Cannot|can't|not enough memory to|Unable to) allocate \S+",
    ),
)

DEVICE = _row(
    "gpu-fault",
    r"(?i:uncorrectable (?:ECC|NVLink) error|GPU has fallen off the bus|GPU is lost)",
    r"(?i:CUDA-capable device(?:s|\(s\)) (?:is/)?are busy or unavailable)",
    r"(?i:no CUDA-capable device is detected|no kernel image is available for execution)",
)

OLD_DRIVER = _row(
    "gpu-fault",
    r"(?i:driver on your system is too old|driver version is insufficient)",
    next_step="The driver is older than the CUDA of this torch. Update the driver, or install a "
    "torch that was built for an older CUDA.",
)

KILLED = _row(
    "killed",
    r"killed by signal: (?!Terminated)",
    r"(?:terminated with signal |Signal \d+ \()SIG(?!TERM)",
)
"""A parent's report on the signal that ended a child; SIGTERM only follows a failure."""

NO_CUDA = _row(
    "crash-start",
    r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available",
    next_step="Ask `gpu-advisor doctor` why torch sees no GPU, or let the program use the CPU.",
)

NOT_ALONE = (
    _row(
        "crash-start",
        r"^EOFError: EOF when reading a line",
        next_step="It asks for input, and a trial has no keyboard: take the answer from an option "
        "or the config.",
    ),
    _row(
        "crash-start",
        r"Inappropriate ioctl for device",
        r"^(?:_curses|termios|curses)\.error\b",
        r"(?i:the input device is not a TTY|must be run (?:in|from) a terminal)",
        next_step="It needs a terminal, which a trial does not have: switch its display off.",
    ),
    _row(
        "crash-start",
        r"name 'get_ipython' is not defined",
        r"No module named '(?:google\.colab|IPython)'",
        next_step="Its code is that of a notebook: leave out what only a notebook has.",
    ),
    _row(
        "crash-import",
        r"attempted relative import with no known parent package",
        next_step="Start it as a module of its package: python -m PACKAGE.MODULE.",
    ),
    _row(
        "crash-import",
        r"^(?:SyntaxError|IndentationError|TabError)\b",
        next_step="Correct that line, or name an interpreter that knows its syntax.",
    ),
    _row(
        "crash-import",
        r"No module named 'torch'",
        next_step="The interpreter has no torch: write the path of the one of your environment.",
    ),
)
"""Habits of interactive work that a trial cannot serve, each with its remedy."""

CONFIG = _row(
    "config-rejected",
    r"error: (?:unrecognized arguments|argument |the following arguments are required)",
    r"error: (?:invalid choice|ambiguous option|expected )",
    r"^Error: (?:No such option|Invalid value|Missing (?:option|argument|parameter))",
    r"prefetch_factor option could only be specified in multiprocessing",
    r"persistent_workers option needs num_workers > 0",
    r"batch_size should be a positive integer",
    r"\b(?:Validation|Schema|Misconfiguration|DeepSpeedConfig)(?:Error|Exception)\b",
    r"^(?:\w+\.)*(?:Scanner|Parser|Constructor|Composer)Error\b",
    r"\b(?:JSON|TOML)DecodeError\b",
    r"\bConfig(?:Key|Attribute|Type|Value|Composition)\w*(?:Error|Exception)\b",
    r"FileNotFoundError: .*\.gpu-advisor-",
)
"""Settings that the program refused. Believed only before the first step."""

_POSSIBLE = r"(?!.*\b(?:if|may|might|could|would|can|to avoid|retrying on)\b)"
"""No condition, advice or capability."""
_RAN_OUT = r"(?=.*(?:\bOOM|out of memory|MemoryError)\b)"
_HAPPENED = (
    r".*\b(?:ran|skipp(?:ed|ing)|dropp(?:ed|ing)|caught|hit|got|exception|error|warning)\b"
)
_ITEM = r"(?:batch|sample|image|tile|item|file|frame)(?:e?s)?\b"

LOST_WORK = _row(
    "work-not-done",
    r"^(?:[\w.]*\.)?\w*Error: .*(?:allocate memory|out of memory)",
    r"memory[.:] (?:T|you t)ried to allocate",
    rf"(?i:^{_POSSIBLE}{_RAN_OUT}{_HAPPENED})",
    rf"(?i:^\W*(?:info\W+)?fail(?:ed|ures)(?: {_ITEM})?\s*[:=]\s*[1-9])",
    rf"(?i:(?:^|, |\b(?:with|and|of) )[1-9]\d* {_ITEM} failed\W*$)",
)
"""Lines of a program that ends well with lost work."""
LOST_WORK_WORDS = ("memory", "oom", "fail")
"""Each of those lines holds one of these, in lower case."""

NOISE = re.compile(
    r"resource_tracker|leaked (?:semaphore|shared_memory|folder)|warnings\.warn\("
    r"|^\s*$|^Terminated$"
)
"""Lines of stderr that never give a failure's cause."""

LAUNCHERS = {
    "CalledProcessError",
    "ChildFailedError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
}
"""Exceptions by which a launcher reports that its process failed."""

COLLATERAL = re.compile(
    r"Connection (?:closed by|reset by) peer|Broken pipe|remote process exited"
    r"|NCCL communicator was aborted|Watchdog caught collective operation timeout|EOFError"
    r"|DataLoader worker .*(?:exited unexpectedly|killed by signal: Terminated)"
)
"""Exceptions of a process left alone by another."""


EVIDENCE_CHARS = 300
"""Longest evidence of a failure that a sentence quotes, in characters.

Judgement: shorter cuts torch's messages before their cause, longer buries the next step."""
CUT = " ..."
"""End of evidence that is longer."""
FREE_IT = "End what holds the card's memory (`nvidia-smi` names it)"
SLOW_CPUS = 0.5
"""CPUs used by a silent but slow program; a hanging one only waits.

Judgement: a loop that polls takes less of one, and a step on a crowded host mostly more."""
IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError"}
TAIL_LINES = 20
"""Last lines of an output that a failure keeps, and in which a refused config is looked for."""
STACK_LINES = 400
"""Lines of a hung program's stacks that a failure keeps.

Judgement: fewer loses the thread that hangs among those of many workers, more hides the last lines
of the output below them."""
KEEP_COUNTING = "count output lines: set unit-regex in gpu-advisor.toml."

_RANK = re.compile(r"^\[rank\d+\]:\s?")
"""Torch's prefix to lines of a rank that raised."""
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)
_INSTALLED = re.compile(r"-packages/|/lib/python3|^<|/advisor/probe/")
"""Files of stacks that are not the program's."""
_EXCEPTION_LINE = re.compile(r"^(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:: .*)?$")


def wanted(trial: Trial) -> Wanted:
    """What is looked for in the whole output of `trial`."""
    return Wanted(
        figures=trial.plan.figures, lines=LOST_WORK.pattern, words=LOST_WORK_WORDS
    )


def failed(kind: str, evidence: str, next_step: str | None = None) -> Failure:
    """Failure with its kind's next step, unless there is a better one."""
    evidence = shortened(evidence.strip())
    return Failure(kind=kind, evidence=evidence, next_step=next_step or NEXT_STEPS[kind])


def shortened(text: str) -> str:
    """Text of at most EVIDENCE_CHARS: whole sentences, else whole words and ` ...`."""
    if len(text) <= EVIDENCE_CHARS:
        return text
    kept = text[:EVIDENCE_CHARS]
    sentences, stop, _ = kept.rpartition(". ")
    if len(sentences) > EVIDENCE_CHARS / 2:
        return sentences + stop.rstrip()
    return kept[: -len(CUT)].rsplit(None, 1)[0] + CUT


_SIZE = r"([\d.]+) (bytes|[KMGT]iB)"
_TOLD = {
    "asked": re.compile(rf"Tried to allocate {_SIZE}"),
    "total": re.compile(rf"total capacity of {_SIZE}"),
    "free": re.compile(rf"of which {_SIZE} is free"),
    "own": re.compile(rf"this process has {_SIZE} memory in use"),
}
"""Sizes in torch's message on memory that ran out."""
_GIB_OF = {
    "bytes": 1 / 2**30,
    "KiB": 1 / 2**20,
    "MiB": 1 / 2**10,
    "GiB": 1.0,
    "TiB": 2.0**10,
}
HELD_SHARE = 0.05
"""Less of a card, like a desktop's windows, is not what a program ran out for. Judgement."""
MOSTLY_HELD = 0.5
"""From this share on others have the card, and no batch size is the remedy.

Judgement: below, a smaller batch is named beside what holds the card."""


def beside_others(
    found: Failure, said: str, others_gib: float | None, total_gib: float | None
) -> Failure:
    """Failure of a card's memory, with what others held of it in front.

    `said`: the program's message; it tells what NVML does not where programs of other
    containers hold the memory. A program that would fit the empty card, and found more than
    half of it taken, was kept out: its own batch is not the cause.
    """
    if found.kind != "gpu-oom":
        return found
    sizes = {name: _gib(pattern.search(said)) for name, pattern in _TOLD.items()}
    asked, own, total = sizes["asked"], sizes["own"], sizes["total"] or total_gib
    if sizes["total"] and sizes["free"] is not None and own is not None:
        others_gib = max(others_gib or 0.0, sizes["total"] - sizes["free"] - own)
    if not others_gib or not total or others_gib < HELD_SHARE * total:
        return found
    held = f"others hold {numbers.number(others_gib)} of {numbers.number(total)} GiB of the card"
    found = replace(found, evidence=shortened(f"{held}; {found.evidence}"))
    fits = asked is None or own is None or asked + own <= total
    if others_gib < MOSTLY_HELD * total or not fits:
        return replace(found, next_step=f"{FREE_IT}, or lower the batch size.")
    return replace(found, kind="gpu-fault", next_step=f"{FREE_IT}, or take another card.")


def _gib(match: re.Match[str] | None) -> float | None:
    return match and float(match[1]) * _GIB_OF[match[2]]


def classify(trial: Trial, ending: TrialExit, *, measured: bool) -> Failure | None:
    """Find the failure of `trial`, or None; `measured`: there is a rate."""
    first = next(filter(None, (check(trial, ending) for check in CHECKS)), None)
    if first is None and not measured:
        first = _nothing_measured(trial, ending)
    return first and _by_rank(ending, first)


def _by_rank(ending: TrialExit, failure: Failure) -> Failure:
    for process in ending.processes:
        raised = process.exception.lines if process.exception else []
        begun = failure.evidence.removesuffix(CUT)
        its_own = f"PID {process.pid}" in begun or any(
            line.startswith(begun) for line in raised
        )
        if process.world_size > 1 and its_own:
            return replace(failure, evidence=f"rank {process.rank}: {failure.evidence}")
    return failure


def _ended_by_us(trial: Trial, ending: TrialExit) -> Failure | None:
    """Failure that a limit of ours or the user ended; None after an end of its own."""
    by_limit = "ended by our limit"
    match ending.end:
        case "cancelled":
            return failed("interrupted", f"stopped on request after {ending.wall_s:.1f} s")
        case "not-started":
            return failed(
                "crash-start", f"the command could not be started: {ending.problem}"
            )
        case "hang" if any(p.world_size > 1 and p.exception for p in ending.processes):
            # the others wait in a collective for the failed rank
            return _cause(trial, ending, exceptions(ending))
        case "hang":
            silence = f"no step for {ending.silence_s:.0f} s after step {ending.steps}"
            silence = "; ".join([*_places(ending), silence])
            limit = f"{by_limit} (hang-limit {trial.hang_limit_s:.0f}s)"
            busy = ending.busy_cpus or 0.0
            if busy <= SLOW_CPUS:
                return failed("hang", f"{silence}; {limit}")
            evidence = f"{silence}, while {busy:.1f} CPUs were busy; {limit}"
            return failed("timeout", evidence, NEXT_STEPS["hang"])
        case "start-limit" if not ending.processes or ending.aside:
            return _nothing_measured(trial, ending)
        case "start-limit":
            return failed(
                "no-steps",
                f"no step within {ending.silence_s:.0f} s; {last_line(ending)}; {by_limit} "
                f"(start-limit {trial.start_limit_s:.0f}s)",
            )
        case "total-limit":
            stated = (process.measurement.missing for process in ending.processes)
            reason = next(filter(None, stated), f"at step {ending.steps}")
            return failed(
                "timeout",
                f"still running after {ending.wall_s:.0f} s; {by_limit} "
                f"(run-limit {trial.total_limit_s:.0f}s); {reason}",
            )
        case "exited" | "measured":
            return None


def _places(ending: TrialExit) -> list[str]:
    """Lines at which ranks stand, rarest first: `rank 1 at train.py:30`."""
    at: dict[str, list[int]] = {}
    for process in ending.processes:
        _, _, stacks = ending.stacks.partition(f"process {process.pid}:\n")
        _, _, stack = stacks.partition("\nprocess ")[0].partition("Current thread")
        frames = _FRAME.findall(stack.partition("\nThread")[0])
        programs_own = [frame for frame in frames if not _INSTALLED.search(frame[0])]
        if process.world_size > 1 and programs_own:
            path, line = programs_own[0]
            at.setdefault(f"{path.rpartition('/')[2]}:{line}", []).append(process.rank)
    if len(at) < 2:
        return []
    groups = sorted(at.items(), key=lambda group: len(group[1]))
    return [
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} at {place}"
        for place, ranks in groups
    ]


def _guarded(_: Trial, ending: TrialExit) -> Failure | None:
    guarded = next((process.guard for process in ending.processes if process.guard), None)
    if guarded is None:
        return None
    return failed("outputs-not-apart", f"stopped before it overwrote {guarded}")


def _died(trial: Trial, ending: TrialExit) -> Failure | None:
    """Judge a failed end by exception, signal or code.

    After a good end a failed helper is no failure; a lost rank is.
    """
    problems = exceptions(ending)
    if ending.end == "exited" and ending.exit_code != 0:
        return _cause(trial, ending, problems)
    lost = [
        problem
        for problem in problems
        if problem.where == "step" and not _ours(ending, problem.lines[0])
    ]
    return _cause(trial, ending, lost) if lost else None


def _lost_work(_: Trial, ending: TrialExit) -> Failure | None:
    """Find work lost in a run that ended well.

    Running out of memory and restarting with a smaller batch loses nothing.
    """
    lines = [*ending.printed.lines, *ending.output.splitlines()]
    if any(process.shrunk_from is not None for process in ending.processes):
        lines = [line for line in lines if not _matched(OUT_OF_MEMORY, [line])]
        return _matched((LOST_WORK,), lines[::-1])
    caught = (error for process in ending.processes for error in process.caught)
    lost = [f"caught in the {error.where}: {error.lines[0]}" for error in caught]
    lost += [f"caught and printed: {line}" for line in _printed_exceptions(ending, lines)]
    lost = [line for line in lost if not _ours(ending, line)]
    said = _matched((LOST_WORK,), lines[::-1])
    return said or (failed("work-not-done", lost[0]) if lost else None)


def _ours(ending: TrialExit, line: str) -> bool:
    """True if others or a launcher tell of a process we ended."""
    lost = COLLATERAL.search(line) or any(name in line for name in LAUNCHERS)
    return ending.end == "measured" and bool(lost)


def _not_finite(_: Trial, ending: TrialExit) -> Failure | None:
    for process in ending.processes:
        for number, loss in enumerate(process.losses, 1):
            if not math.isfinite(loss):
                many = len(process.losses)
                return failed("non-finite", f"loss {number} of the {many} seen is {loss}")
    return None


CHECKS = (_ended_by_us, _guarded, _died, _lost_work, _not_finite)
"""What may have failed a trial, in the order in which it is asked: the first answer stands.

What we did to a program explains all that it does afterwards, so that comes first. Only a run
that ended well is searched for work that it lost, and its losses looked at.
"""


def _nothing_measured(trial: Trial, ending: TrialExit) -> Failure:
    """Failure of a trial in which nothing was measured, by what kept it from being seen."""
    ended = f"ended with exit code {ending.exit_code} after {ending.wall_s:.1f} s"
    if ending.left_behind and not ending.steps:
        return failed(
            "no-steps",
            f"{ended}, while {numbers.many(ending.left_behind, 'process')} that it had started "
            "went on in the background",
            "Keep it in the foreground: without `&`, nohup, a daemon or a terminal multiplexer.",
        )
    steps = f"steps seen: {ending.steps}"
    if ending.aside:
        return failed(
            "probe-not-loaded",
            f"the probe itself failed: {ending.aside}; {steps}; it left the program alone",
            "This is a defect of gpu-advisor: please report it with the log. Until it is mended, "
            f"{KEEP_COUNTING}",
        )
    if trial.plan.unit_regex is not None:
        return failed(
            "no-steps",
            f"{ended}; output lines that match {trial.plan.unit_regex!r}: {ending.count.lines}",
            "Mend the pattern that counts: unit-regex in gpu-advisor.toml.",
        )
    if not ending.processes:
        option = isolating(trial.command)
        why = "its environment was cleared (env -i, sudo), or Python started with -I, -E or -S"
        return failed(
            "probe-not-loaded",
            "no Python process of the command that does the work loaded the probe: "
            f"{f'{option} keeps it out' if option else why}; it ran {ending.wall_s:.1f} s, "
            f"{last_line(ending)}",
        )
    if problems := exceptions(ending):
        return _cause(trial, ending, problems)
    for process in ending.processes:
        if process.unread:
            return failed(
                "probe-not-loaded",
                f"the record of process {process.pid} could not be read: {process.unread}",
                f"Use one version of gpu-advisor for all that runs, or {KEEP_COUNTING}",
            )
    if not ending.steps:
        return failed("no-steps", f"{ended}; {steps}: {last_line(ending)}")
    stated = [
        (process.measurement.unmeasured, *process.errors) for process in ending.processes
    ]
    why = next(
        (reason for some in stated for reason in some if reason), "too few to measure"
    )
    return failed("no-steps", f"{ended}; {steps}: {why}")


def _cause(
    trial: Trial, ending: TrialExit, problems: Sequence[ProgramException]
) -> Failure:
    """Find the cause: memory, device, signal, settings or error.

    Exceptions of the work come first; a launcher that then ends other ranks is no cause.
    Else the output is searched from its end.
    """
    printed = [_RANK.sub("", line) for line in ending.output.splitlines()]
    traced = exception_lines(printed)
    raised = [line for problem in problems for line in problem.lines]
    raised += [line for line in traced if line not in raised]
    of_the_work = [
        line
        for problem in problems
        if problem.type not in LAUNCHERS
        for line in problem.lines
    ]
    of_the_work += [line for line in traced if _type_of(line) not in LAUNCHERS]
    alone = all(COLLATERAL.search(line) for line in of_the_work)
    searched = [*raised, *printed[::-1]] if alone else of_the_work
    stepped = bool(ending.steps) or any(problem.where == "step" for problem in problems)
    cause = (
        _matched((*OUT_OF_MEMORY, OLD_DRIVER, DEVICE), searched)
        or _killed(ending, searched)
        or (
            None
            if stepped
            else _matched((NO_CUDA, *NOT_ALONE), searched)
            or _rejected(trial, ending, raised)
        )
    )
    if cause is not None:
        return cause
    if problems:
        where, lines = problems[0].where, problems[0].lines
        evidence = next(reversed(exception_lines(lines)), lines[0])
    else:
        evidence = (
            traced[-1] if traced else f"exit code {ending.exit_code}: {last_line(ending)}"
        )
        where = "import" if _type_of(evidence) in IMPORT_ERRORS else "start"
    return failed("crash-step" if ending.steps else f"crash-{where}", evidence)


def _matched(patterns: Iterable[FailurePattern], lines: Sequence[str]) -> Failure | None:
    """Match patterns in order, each in the first line that fits."""
    for pattern in patterns:
        for line in lines:
            if pattern.pattern.search(line):
                return failed(pattern.kind, line, pattern.next_step)
    return None


def _killed(ending: TrialExit, lines: Sequence[str]) -> Failure | None:
    """Judge by the signal of the process or a child, and the kernel's counters."""
    number, oom = _signal_of(ending), ending.oom
    reported = _matched((KILLED,), lines) if number is None else None
    if number is None and reported is None and not oom["cgroup"]:
        return None
    evidence = reported.evidence if reported else ""
    if number is not None:
        evidence = f"ended by {signal.Signals(number).name}"
    if ending.exit_code is None and ending.end == "exited":
        evidence = "the process that supervises the trial was ended from outside"
    if oom["cgroup"] or (oom["host"] and re.search("SIGKILL|Killed", evidence)):
        inside, outside = f"{oom['cgroup']} in this cgroup", f"{oom['host']} on this host"
        many = inside if oom["cgroup"] else outside
        return failed("host-oom", f"{evidence}; out-of-memory kills: {many}".strip("; "))
    return failed("shm" if number == signal.SIGBUS else "killed", evidence)


def _signal_of(ending: TrialExit) -> int | None:
    code = ending.exit_code
    if code is None:  # the supervisor itself was killed
        return signal.SIGKILL if ending.end == "exited" else None
    number = -code if code < 0 else code - 128
    return number if number in set(signal.Signals) else None


def _rejected(trial: Trial, ending: TrialExit, raised: Sequence[str]) -> Failure | None:
    last = [line for line in ending.stderr.splitlines() if line.strip()][-TAIL_LINES:]
    if refusal := _matched((CONFIG,), raised or last[::-1]):
        return refusal
    if ending.exit_code == 2 and any(line.lower().startswith("usage:") for line in last):
        return failed("config-rejected", last[-1])
    for change in trial.candidate.changes:
        leaf = re.search(r"[^.\[\]\"]+(?=[\]\"]*$)", change.path)
        for line in raised:
            if leaf and re.search(rf"\b{re.escape(leaf[0])}\b", line):
                return failed("config-rejected", f"{line} (tried {trial.label})")
    return None


def exceptions(ending: TrialExit) -> list[ProgramException]:
    """Final exceptions: the work's own, those left alone by it, a launcher's."""
    problems = [process.exception for process in ending.processes if process.exception]
    problems.sort(key=lambda problem: COLLATERAL.search(problem.lines[0]) is not None)
    return sorted(problems, key=lambda problem: problem.type in LAUNCHERS)


def _printed_exceptions(ending: TrialExit, lines: Sequence[str]) -> Iterator[str]:
    """Exceptions that a successful program printed.

    Teardown, optional imports and parents of children we stopped lose no work.
    """
    parents = {process.ppid for process in ending.processes if process.state == "stopped"}
    ours = [
        p.exception.lines[0] for p in ending.processes if p.exception and p.pid in parents
    ]
    for number, line in enumerate(lines):
        if line.strip() != TRACEBACK or lines[number - 1].startswith(
            "Exception ignored in"
        ):
            continue
        raised = next(iter(exception_lines(lines[number:])), "")
        if (
            raised
            and _type_of(raised) not in IMPORT_ERRORS
            and not raised.startswith(tuple(ours))
        ):
            yield raised


def exception_lines(lines: Sequence[str]) -> list[str]:
    """Lines that end tracebacks: `ValueError: ...`."""
    endings = []
    inside = False
    for line in lines:
        if line.strip() == TRACEBACK:
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
            if _EXCEPTION_LINE.match(line):
                endings.append(line)
    return endings


def _type_of(line: str) -> str:
    return line.partition(":")[0].rpartition(".")[2]


def log_tail(ending: TrialExit) -> str:
    """Stacks of a hang, lost tracebacks and the last output lines.

    A traceback may stand in the one stream and a progress bar in the other.
    """
    lines = (_told(ending.stderr) or _told(ending.stdout))[-TAIL_LINES:]
    printed = [last_traceback(_told(text)) for text in (ending.stdout, ending.stderr)]
    tails = ["\n".join(block[-TAIL_LINES:]) for block in printed]
    tails += [problem.tail.rstrip() for problem in exceptions(ending)[:1]]
    tails += [
        error.rstrip() for process in ending.processes for error in process.errors[-1:]
    ]
    told = [*ending.stacks.splitlines()[:STACK_LINES], *lines]
    for tail in filter(None, reversed(tails)):
        if tail.rpartition("\n")[2] not in told:
            told = [*tail.splitlines(), *told]
    return "\n".join(map(short_line, told))


def last_traceback(lines: Sequence[str]) -> Sequence[str]:
    """Lines of the last traceback, its exception the last one; none without one."""
    begun = [number for number, line in enumerate(lines) if line.strip() == TRACEBACK]
    if not begun:
        return ()
    block = lines[begun[-1] :]
    ends = (number for number, line in enumerate(block) if number and line[0] != " ")
    return block[: next(ends, len(block)) + 1]


def last_line(ending: TrialExit) -> str:
    lines = _told(ending.stderr) or _told(ending.stdout)
    return f"its last line was: {lines[-1].strip()}" if lines else "it printed nothing"


def _told(text: str) -> list[str]:
    return [line for line in text.splitlines() if not NOISE.search(line)]
