"""Failure patterns: exceptions and messages by failure kind, as data.

A pattern is searched in the exceptions of a run, as `Type: message`. Where a program ended without
one, it is searched in the output, in which native libraries speak.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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
    "gpu-fault": "Look at nvidia-smi and dmesg: the card failed, others hold it (exclusive mode, "
    "MIG, MPS), or the driver does not fit.",
    "non-finite": "Run it by hand and look at the loss; in half precision try bfloat16.",
    "work-not-done": "Fix the error in that line; failed work does not count as throughput.",
    "probe-not-loaded": "Start Python without -S, -I, -E and keep PYTHONPATH, or set unit-regex in "
    "gpu-advisor.toml.",
    "outputs-not-apart": "Give the program another output directory, or pass --allow-writes.",
    "interrupted": "Call again to go on from what was measured.",
    "write-denied": "Let that output go below TMPDIR, or give --allow-writes.",
    "disk-full": "Free space on the disk that it names, or move what is written to another one.",
}
"""One sentence for every kind of failure; a pattern may have a better one."""


class FailurePattern(NamedTuple):
    """Message of one kind of failure."""

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
"""Memory that ran out."""

DEVICE = (
    _row(
        "gpu-fault",
        r"(?i:uncorrectable (?:ECC|NVLink) error|GPU has fallen off the bus|GPU is lost)",
        r"(?i:CUDA-capable device(?:s|\(s\)) (?:is/)?are busy or unavailable)",
        r"(?i:no CUDA-capable device is detected|driver version is insufficient)",
        r"(?i:driver on your system is too old|no kernel image is available for execution)",
    ),
)
"""Cards that refused."""

KILLED = (
    _row(
        "killed",
        r"killed by signal: (?!Terminated)",
        r"(?:terminated with signal |Signal \d+ \()SIG(?!TERM)",
    ),
)
"""Report of a parent process on the signal that ended a child; SIGTERM only follows a failure."""

CONFIG = (
    _row(
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
    ),
)
"""Settings that the program refused. Believed only before the first step."""

_POSSIBLE = r"(?!.*\b(?:if|may|might|could|would|can|to avoid|retrying on)\b)"
"""No condition, advice or capability."""
_RAN_OUT = r"(?=.*(?:\bOOM|out of memory|MemoryError)\b)"
_HAPPENED = r".*\b(?:ran|skipp(?:ed|ing)|dropp(?:ed|ing)|caught|hit|got|exception|error|warning)\b"
_ITEM = r"(?:batch|sample|image|tile|item|file|frame)(?:e?s)?\b"

LOST_WORK = (
    _row(
        "work-not-done",
        r"^(?:[\w.]*\.)?\w*Error: .*(?:allocate memory|out of memory)",
        r"memory[.:] (?:T|you t)ried to allocate",
        rf"(?i:^{_POSSIBLE}{_RAN_OUT}{_HAPPENED})",
        rf"(?i:^\W*(?:info\W+)?fail(?:ed|ures)(?: {_ITEM})?\s*[:=]\s*[1-9])",
        rf"(?i:(?:^|, |\b(?:with|and|of) )[1-9]\d* {_ITEM} failed\W*$)",
    ),
)
"""Lines of a program that ends well although work was lost."""

NOISE = re.compile(
    r"resource_tracker|leaked (?:semaphore|shared_memory|folder)|warnings\.warn\("
    r"|^\s*$|^Terminated$"
)
"""Lines of standard error that never give the cause of a failure."""

LAUNCHERS = {
    "CalledProcessError",
    "ChildFailedError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
}
"""Exceptions in which a launcher reports that a process of its own has failed."""

COLLATERAL = re.compile(
    r"Connection (?:closed by|reset by) peer|Broken pipe|remote process exited"
    r"|NCCL communicator was aborted|Watchdog caught collective operation timeout|EOFError"
    r"|DataLoader worker .*(?:exited unexpectedly|killed by signal: Terminated)"
)
"""Exceptions of a process that another one left alone."""
