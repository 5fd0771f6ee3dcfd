"""What programs print when something goes wrong, as data: pattern, meaning, and what to do.

Patterns are matched line by line, first against the exceptions that the probe saw, then against
the end of the output. The word "error" alone means nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NEXT_STEPS = {
    "gpu-oom": "Lower the batch size or the model's size; close what else uses the GPU's memory.",
    "host-oom": "Lower the number of loader workers or the batch, or raise the memory limit.",
    "killed": "Look for who sent the signal: a scheduler, a watchdog, or a crash in native code.",
    "shm": "Enlarge /dev/shm (docker run --shm-size=8g) or use fewer loader workers.",
    "crash-import": "Run the command by hand in this environment and install what is missing.",
    "crash-start": "Run the command by hand: it fails before its first step without us too.",
    "crash-step": "Run the command by hand; its last lines are below.",
    "config-rejected": "Compare the value it names with what the program accepts.",
    "no-steps": "Check that the command trains or infers; if it does, give --unit-regex.",
    "hang": "See the stacks for what it waits for; raise the hang limit if it still works.",
    "timeout": "Give a larger --budget, or a command that works on a smaller subset.",
    "non-finite": "Run it by hand and look at the loss; in half precision try bfloat16.",
    "work-not-done": "Mend what the line tells of: a rate over work that failed is no rate.",
    "probe-not-loaded": "Start Python without -S, -I, -E, keep PYTHONPATH, or give --unit-regex.",
    "outputs-not-apart": "Give the program another output directory, or pass --allow-writes.",
    "interrupted": "Call again to go on from what was measured.",
    "write-denied": "Let that output go below TMPDIR, or give --allow-writes.",
    "disk-full": "Free space on the disk that it names, or move what is written to another one.",
}
"""One sentence for every kind of failure; a sign may have a better one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A line that tells what happened."""

    kind: str
    pattern: re.Pattern[str]
    next_step: str | None = None


def _signs(kind: str, *patterns: str, next_step: str | None = None) -> tuple[Sign, ...]:
    return tuple(
        Sign(kind=kind, pattern=re.compile(pattern), next_step=next_step) for pattern in patterns
    )


RESOURCES: tuple[Sign, ...] = (
    *_signs(
        "shm",
        r"unable to open shared memory",
        r"insufficient shared memory",
        r"out of shared memory",
        r"killed by signal: Bus error",
        r"unable to (?:mmap|resize|allocate|write) .*(?:/torch_|shared memory|shm)",
        r"No space left on device.*(?:/dev/shm|/torch_|/psm_)",
        r"(?:terminated with signal SIGBUS|Signal 7 \(SIGBUS\))",
    ),
    *_signs(
        "gpu-oom",
        r"(?:CUDA|HIP|XPU|MPS backend) out of memory",
        r"\bOutOfMemoryError\b",
        r"CUDA error: out of memory",
        r"CU(?:BLAS|DNN|FFT|SOLVER)_STATUS_ALLOC_FAILED",
        r"RESOURCE_EXHAUSTED: Out of memory",
    ),
    *_signs(
        "host-oom",
        r"^(?:\w+\.)*_?(?:Array)?MemoryError\b",
        r"Unable to allocate .+ for an array with shape",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
        r"std::bad_alloc",
        r"Cannot allocate memory",
    ),
)
"""Something ran out. True wherever it is said, of any exit but a good one."""

CONFIG: tuple[Sign, ...] = (
    *_signs(
        "config-rejected",
        r"error: (?:unrecognized arguments|argument |the following arguments are required)",
        r"error: (?:invalid choice|ambiguous option|expected )",
        r"^Error: (?:No such option|Invalid value|Missing (?:option|argument|parameter))",
        r"Some specified arguments are not used by the HfArgumentParser",
        next_step="Take the flag out of the command, or run the version that knows it.",
    ),
    *_signs(
        "config-rejected",
        r"\b\d+ validation errors? for ",
        r"\b(?:pydantic|jsonschema|marshmallow|schema)[\w.]*(?:ValidationError|SchemaError)",
        r"\byaml\.\w+\.\w+Error",
        r"\b(?:ruamel\.yaml\.)\S+Error",
        r"^(?:Scanner|Parser|Constructor|Composer|Reader)Error: ",
        r"\b(?:JSON|TOML|Toml)DecodeError\b",
        r"\bomegaconf\.errors\.\w+",
        r"\b(?:ConfigKeyError|ConfigAttributeError|ConfigTypeError|ConfigValueError): ",
        r"\b(?:ConfigCompositionException|MissingConfigException|OverrideParseException)\b",
        r"^Could not override '",
        r"\bMisconfigurationException\b",
        r"\bDeepSpeedConfigError\b",
        r"Check batch related parameters\.",
        r"FileNotFoundError: .*\.gpu-advisor-",
    ),
    *_signs(
        "config-rejected",
        r"prefetch_factor option could only be specified in multiprocessing",
        r"persistent_workers option needs num_workers > 0",
        r"num_workers option (?:should|cannot) be",
        r"batch_size should be a positive integer",
        next_step="These loader settings exclude each other; change them together.",
    ),
)
"""The program would not take its settings. Believed only before the first step."""

SWALLOWED: tuple[Sign, ...] = (
    *(
        Sign(kind="work-not-done", pattern=sign.pattern)
        for sign in RESOURCES
        if sign.kind in {"gpu-oom", "host-oom"}
    ),
    *_signs(
        "work-not-done",
        r"(?i)^\W*(?:total |number of |num )?fail(?:ed|ures)\b[^:=\n]{0,24}[:=]\s*0*[1-9]\d*\b",
        r"(?i)(?<!attempt )(?<!try )\b0*[1-9]\d* (?:\w+ ){0,2}(?:have |were |was )?failed\b",
        r"(?i)^\W*(?:skipp(?:ed|ing)|dropp(?:ed|ing)|ignor(?:ed|ing)) (?:\w+ ){0,2}"
        r"(?:batch|sample|image|tile|item|file|frame)e?s?\b.*"
        r"(?:error|fail|exception|nan|memory)",
        r"(?i)\b(?:error|failure|exception) (?:while |when )?(?:processing|during|in) "
        r"(?:\w+ ){0,2}(?:batch|sample|image|tile|item|file|frame)\b",
        r"(?i)\bfailed to (?:process|infer|predict|load|read|decode|save|write) "
        r"(?:\w+ ){0,2}(?:batch|sample|image|tile|item|file|frame)\b",
    ),
)
"""Said by a program that then ends well: the work was not done."""

DEATHS = re.compile(
    r"killed by signal: (?P<text>[A-Z][a-z]+(?: [a-z]+)?)"
    r"|terminated with signal (?P<name>SIG\w+)"
    r"|Signal \d+ \((?P<rank>SIG\w+)\) received by PID"
)
"""A parent process telling which signal ended a child."""

NOISE = re.compile(
    r"resource_tracker|leaked (?:semaphore|shared_memory|folder)|warnings\.warn\("
    r"|^\s*$|^Terminated$"
)
"""Lines of standard error that never say why a program failed."""
