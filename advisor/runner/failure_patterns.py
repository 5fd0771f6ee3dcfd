"""What programs print when something goes wrong, as data: pattern, meaning, and what to do.

Patterns are matched line by line, first against the exceptions that the probe saw, then against
the end of the output. The word "error" alone means nothing, and a line that only mentions an error
(a help text, a config dump, a switch, a count of none) counts
for nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

NEXT_STEPS = {
    "gpu-oom": "Lower the batch size or the model's size; close what else uses the GPU's memory.",
    "host-oom": "Lower the number of loader workers or the batch, or raise the memory limit.",
    "killed": "Look for who sent the signal: a scheduler, a watchdog, or a crash in native code.",
    "shm": "Enlarge /dev/shm (docker run --shm-size=8g) or use fewer loader workers.",
    "crash-import": "Run the command by hand in this environment and install what is missing.",
    "crash-start": "Run the command by hand: it fails before its first step without us too.",
    "crash-step": "Run the command by hand; its last lines are below.",
    "config-rejected": "Compare the value it names with what the program accepts.",
    "no-steps": "Check that the command trains or infers; if it does, count its output lines: set "
    "unit-regex in gpu-advisor.toml. Raise start-limit there if its first step comes later.",
    "hang": "See the stacks for what it waits for; raise hang-limit in gpu-advisor.toml if needed.",
    "timeout": "Raise run-limit in gpu-advisor.toml, or give a command on a smaller subset.",
    "gpu-fault": "Look at nvidia-smi and dmesg: the card failed, or others hold it.",
    "non-finite": "Run it by hand and look at the loss; in half precision try bfloat16.",
    "work-not-done": "Mend what the line tells of: a rate over work that failed is no rate.",
    "probe-not-loaded": "Start Python without -S, -I, -E and keep PYTHONPATH, or set unit-regex in "
    "gpu-advisor.toml.",
    "outputs-not-apart": "Give the program another output directory, or pass --allow-writes.",
    "interrupted": "Call again to go on from what was measured.",
    "write-denied": "Let that output go below TMPDIR, or give --allow-writes.",
    "disk-full": "Free space on the disk that it names, or move what is written to another one.",
}
"""One sentence for every kind of failure; a sign may have a better one."""


Proof = Literal["words", "statement", "event"]
"""How a line must stand for a sign in it to be believed. words: nobody writes them but when it
happens. statement: not as a condition, a capability or a setting. event: besides, as an exception,
as a warning, with what came of it, or as all that the line says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A line that tells what happened."""

    kind: str
    pattern: re.Pattern[str]
    next_step: str | None = None
    proof: Proof = "event"

    def seen_in(self, line: str, *, raised: bool = False) -> bool:
        """Whether `line` tells it; `raised`: it is an exception's own text, not the output's."""
        loud, text = parted(line)
        found = self.pattern.search(text) or self.pattern.search(line)
        if found is None or raised or self.proof == "words":
            return found is not None
        if _EXCEPTION.match(text):
            return True
        before, after = found.string[: found.start()], found.string[found.end() :]
        if _MENTIONED_BEFORE.search(before) or _MENTIONED_AFTER.search(after):
            return False
        if self.proof == "statement":
            return True
        if _SETTING.fullmatch(text):
            return False
        alone = text == line.strip() and found.start() == 0 and _NOTHING_ELSE.match(after)
        return loud or bool(alone or _CAME_OF_IT.search(text))


def _signs(
    kind: str, *patterns: str, next_step: str | None = None, proof: Proof = "event"
) -> tuple[Sign, ...]:
    return tuple(
        Sign(kind=kind, pattern=re.compile(pattern), next_step=next_step, proof=proof)
        for pattern in patterns
    )


# --- how a line stands -----------------------------------------------------------------------

_HEAD = re.compile(
    r"\s*(?:\[[^\]]{0,60}\]:?|\d[\d:.,/T+-]*Z?(?=\s)|[|>*#•·✗✘❌⚠️-]+(?=\s)|"
    r"(?P<letter>[EWF])\d{4}(?=\s)|[\w./]+:\d+\](?=\s)|"
    r"(?P<level>WARN(?:ING)?|ERROR|CRITICAL|FATAL|(?:[Ww]arning|[Ee]rror|[Ff]atal)(?=\s*[:|]))\b:?|"
    r"(?:TRACE|DEBUG|INFO|NOTICE)\b:?|[a-z_][\w.]*(?::(?=\S)|\s+[-|](?=\s)))"
)
"""One part of what stands before a log's message: time, level, rank, logger, bullet."""
_HEAD_PARTS = 8
_STRUCTURED = re.compile(
    r"(?i)[\"']?(?:level|levelname|severity)[\"']?\s*[:=]\s*[\"']?(?:warn|err|crit|fatal)"
)
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|OutOfResources|Warning)"
    r"(?:: (?=\S+\s+\S)|\((?:['\"]|\)))"
)
"""`ValueError: several words`, `MemoryError()`; one word after a name is a setting."""
_SETTING = re.compile(r"[\w .'\"/{\[-]+[:=]\s*\S*")
"""`on_error: OutOfMemoryError`"""
_MENTIONED_BEFORE = re.compile(
    r"(?i)^\s*-{1,2}[a-z]|\b(?:if|when(?:ever)?|unless|until|in case|on|avoid\w*|prevent\w*|"
    r"support\w*|may|might|could|can|would|will|should|catch(?:es|ing)?|handl(?:e|es|ing)|"
    r"retry(?:ing)? (?:on|for|upon|after)|stop after|up to|at most|first)\b|"
    r"(?:\b(?:no|never|without|not|zero|0)|n't)\W+(?:\w+\W+){0,2}$"
)
_MENTIONED_AFTER = re.compile(
    r"(?i)^\W*(?:\w+\W+){0,2}(?:enabled|disabled|supported|handl(?:er|ers|ing)|polic(?:y|ies)|"
    r"(?:may|might|could|can|would) (?:occur|happen|be|appear)|"
    r"(?:is|are|will be|would be) (?:on|off|retried|handled|caught|ignored))\b|"
    r"[\[(]default\b|[:=]\s*(?:0+|true|false|yes|no|on|off|none)\W*$"
)
"""Conditions, capabilities, switches, advice, and counts of none."""
_NOTHING_ELSE = re.compile(r"\s*(?:$|[.:,;!(-]|(?:at|in|on|for|while|during|with|after)\b)")
_CAME_OF_IT = re.compile(
    r"(?i)\b(?:ran out of|caught|hit|got|encountered|raised|threw|thrown|due to|because of|"
    r"(?:skipp|dropp|reduc|halv|abort|recover|clear|fail|kill)(?:ed|ing)|retrying|retried|"
    r"falling back|fell back|giving up|gave up)\b"
)


def parted(line: str) -> tuple[bool, str]:
    """Whether a log marks `line` as a warning or worse, and what it says after time and level."""
    start, loud = 0, _STRUCTURED.search(line) is not None
    for _ in range(_HEAD_PARTS):
        part = _HEAD.match(line, start)
        if part is None:
            break
        loud, start = loud or bool(part["level"] or part["letter"]), part.end()
    return loud, line[start:].strip()


# --- what ran out ---------------------------------------------------------------------------

RESOURCES: tuple[Sign, ...] = (
    *_signs(
        "shm",
        r"unable to open shared memory object",
        r"Unexpected bus error encountered in worker",
        r"killed by signal: Bus error",
        r"Error while creating shared memory segment /dev/shm",
        r"(?:terminated with signal SIGBUS|Signal 7 \(SIGBUS\))",
        proof="words",
    ),
    *_signs(
        "shm",
        r"insufficient shared memory",
        r"out of shared memory",
        r"unable to (?:mmap|resize|allocate|write) .*(?:/torch_|shared memory|shm)",
        r"No space left on device.*(?:/dev/shm|/torch_|/psm_)",
    ),
    *_signs(
        "gpu-oom",
        r"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate \d",
        r"MPS backend out of memory \(MPS allocated",
        r"RESOURCE_EXHAUSTED: Out of memory .*\d",
        r"\bCU[A-Z]+_(?:STATUS_)?ALLOC_FAILED when calling",
        r"Cuda failure (?:\d+ )?'out of memory'",
        r"Triton Error \[\w+\]: out of memory",
        r"Allocation on device(?: \d+)? would exceed allowed memory",
        r"(?i)cuda runtime error \(2\) ?: out of memory",
        r"Failed to CUDA (?:host )?[mc]alloc",
        proof="words",
    ),
    *_signs(
        "gpu-oom",
        r"(?:CUDA|HIP|XPU|MPS backend) out of memory",
        r"\bOutOfMemoryError\b",
        r"CUDA (?:driver |runtime )?error: out of memory",
        r"\bcudaMalloc\w* failed\b",
        r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation)\b",
        r"\bCU(?:BLAS|DNN|FFT|SOLVER|SPARSE|RAND|TENSOR)_(?:STATUS_)?(?:ALLOC|ALLOCATION)_FAILED\b",
        r"\bCUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED\b",
    ),
    *_signs(
        "gpu-oom",
        r"\bCU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_NOT_INITIALIZED\b",
        next_step="Mostly the card was full when the library began: lower the batch. Else run it "
        "with CUDA_LAUNCH_BLOCKING=1 for the kernel that failed before.",
    ),
    *_signs(
        "gpu-oom",
        r"(?i)unable to find an engine to execute",
        r"(?i)unable to find a valid cudnn algorithm",
        next_step="Mostly no memory was left for a workspace: lower the batch. Else cuDNN has no "
        "kernel for this dtype or shape here.",
    ),
    *_signs(
        "host-oom",
        r"Unable to allocate [\d.]+ \w+ for an array with shape",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
        r"what\(\):\s+std::bad_alloc",
        r"instance of 'std::bad_alloc'",
        proof="words",
    ),
    *_signs(
        "host-oom",
        r"\b_?(?:Array)?MemoryError\b",
        r"std::bad_alloc",
        r"Cannot allocate memory",
        r"\bCUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED\b",
    ),
)
"""Something ran out. True of any exit but a good one."""

DEVICE: tuple[Sign, ...] = (
    *_signs(
        "gpu-fault",
        r"(?i)uncorrectable (?:ECC|NVLink) error",
        r"\bNVRM: Xid\b",
        r"(?i)GPU has fallen off the bus",
        r"\bGPU is lost\b",
        r"CUDA error: (?:hardware stack error|the launch timed out)",
        r"\bCUDA_ERROR_(?:ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR)\b",
        next_step="The card itself failed: look at `nvidia-smi -q -d ECC` and dmesg; the settings "
        "are not to blame.",
    ),
    *_signs(
        "gpu-fault",
        r"(?i)CUDA-capable device(?:s|\(s\)) (?:is/)?are busy or unavailable",
        r"\b(?:cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE)\b",
        next_step="Another process holds the card (exclusive mode, MIG or MPS): see nvidia-smi, "
        "end it or wait, and call again.",
    ),
    *_signs(
        "gpu-fault",
        r"(?i)no CUDA-capable device is detected",
        r"(?i)CUDA driver version is insufficient",
        r"(?i)driver on your system is too old",
        r"no kernel image is available for execution on the device",
        r"CUDA error: (?:system not yet initialized|invalid device ordinal)",
        r"forward compatibility was attempted on non supported HW",
        next_step="The program found no usable GPU: see nvidia-smi, CUDA_VISIBLE_DEVICES and the "
        "driver's version.",
    ),
    *_signs(
        "crash-step",
        r"\bOutOfResources: out of resource:",
        next_step="A Triton kernel asks for more than this GPU's cores have: give it smaller "
        "blocks or fewer stages.",
    ),
)
"""The card or one of its cores would not. True of any exit but a good one."""

CONFIG: tuple[Sign, ...] = (
    *_signs(
        "config-rejected",
        r"error: (?:unrecognized arguments|argument |the following arguments are required)",
        r"error: (?:invalid choice|ambiguous option|expected )",
        r"^Error: (?:No such option|Invalid value|Missing (?:option|argument|parameter))",
        r"Some specified arguments are not used by the HfArgumentParser",
        proof="words",
        next_step="Take the flag out of the command, or run the version that knows it.",
    ),
    *_signs(
        "config-rejected",
        r"\b\d+ validation errors? for ",
        r"^(?:Scanner|Parser|Constructor|Composer|Reader)Error: ",
        r"^Could not override '",
        r"Check batch related parameters\.",
        r"FileNotFoundError: .*\.gpu-advisor-",
        proof="words",
    ),
    *_signs(
        "config-rejected",
        r"\b(?:pydantic|jsonschema|marshmallow|schema)[\w.]*(?:ValidationError|SchemaError)",
        r"\byaml\.\w+\.\w+Error",
        r"\b(?:ruamel\.yaml\.)\S+Error",
        r"\b(?:JSON|TOML|Toml)DecodeError\b",
        r"\bomegaconf\.errors\.\w+",
        r"\b(?:ConfigKeyError|ConfigAttributeError|ConfigTypeError|ConfigValueError): ",
        r"\b(?:ConfigCompositionException|MissingConfigException|OverrideParseException)\b",
        r"\bMisconfigurationException\b",
        r"\bDeepSpeedConfigError\b",
    ),
    *_signs(
        "config-rejected",
        r"prefetch_factor option could only be specified in multiprocessing",
        r"persistent_workers option needs num_workers > 0",
        r"num_workers option (?:should|cannot) be",
        r"batch_size should be a positive integer",
        proof="words",
        next_step="These loader settings exclude each other; change them together.",
    ),
)
"""The program would not take its settings. Believed only before the first step."""

# --- work that was lost -----------------------------------------------------------------------

_ITEM = (
    r"(?:batch|sample|image|tile|item|file|frame|example|record|sequence|request|patch|clip|scan|"
    r"volume|document|prediction)(?:e?s)?\b"
)
_ONE = r"(?:\s*[:,(\['\"#/—-]|\s+(?:\d|\S*[./]\w|because|due|after|since|as\b))"
"""What follows the name of an item that is meant: a number, a name, a reason."""

SWALLOWED: tuple[Sign, ...] = (
    *(
        Sign(kind="work-not-done", pattern=sign.pattern, proof=sign.proof)
        for sign in RESOURCES
        if sign.kind in {"gpu-oom", "host-oom"}
    ),
    *_signs("work-not-done", r"\bOOM\b"),
    *_signs("work-not-done", r"(?i)\bran out of (?:\w+ )?memory\b", proof="statement"),
    *_signs(
        "work-not-done",
        rf"(?i)^\W*(?:total |number of |num )?fail(?:ed|ures)\b(?:\W+(?:to \w+|in|total|{_ITEM}))*"
        r"\s*[:=]\s*0*[1-9]\d*\b",
        r"(?i)(?:^|[^\w\s]\s*|\b(?:with|and|but|had|has|have|were|found|got|of|in total) )"
        r"0*[1-9]\d* (?:\w+ ){0,2}(?:have |were |was )?failed\b",
        rf"(?i)^\W*(?:skipp|dropp|ignor)(?:ed|ing) (?!0+ )(?:\w+ ){{0,2}}{_ITEM}{_ONE}.*"
        r"(?:error|fail|exception|nan|memory)",
        rf"(?i)^\W*(?:skipp|dropp|ignor)ed 0*[1-9]\d* (?:\w+ )?{_ITEM}.*"
        r"(?:error|fail|exception|nan|memory|corrupt)",
        r"(?i)^\W*(?:an? |unexpected |unhandled )?(?:error|failure|exception) (?:while |when )?"
        rf"(?:processing|loading|reading|during|in|at) (?:\w+ ){{0,2}}{_ITEM}"
        r"(?!.*(?:[:=]\s*[-+\d.e%]+|\s\d*\.\d+%?)\s*$)",
        rf"(?i)^\W*{_ITEM} #?\d+ (?:has |was )?failed\b(?! over)",
        rf"(?i)\bfailed to (?:process|infer|predict|load|read|decode|save|write) (?:\w+ ){{0,2}}"
        rf"{_ITEM}",
        proof="statement",
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
