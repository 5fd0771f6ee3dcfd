"""Failure patterns: exceptions and messages by failure kind.

Patterns are matched against the exceptions of a run, as `Type: message`. Those that nobody writes
unless it happened are also matched against the output, where native libraries speak.
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
    "no-steps": "Check that the command trains or infers; if it does, count its output lines: set "
    "unit-regex in gpu-advisor.toml. Raise start-limit there if its first step comes later.",
    "hang": "See the stacks for what it waits for; raise hang-limit in "
    "gpu-advisor.toml if it still works.",
    "timeout": "Raise run-limit in gpu-advisor.toml, or give a command that works on a "
    "smaller subset.",
    "gpu-fault": "Look at nvidia-smi and dmesg: the card failed, or others hold it.",
    "non-finite": "Run it by hand and look at the loss; in half precision try bfloat16.",
    "work-not-done": "Mend what the line reports: a rate over work that failed is no rate.",
    "probe-not-loaded": "Start Python without -S, -I, -E and keep PYTHONPATH, or set unit-regex in "
    "gpu-advisor.toml.",
    "outputs-not-apart": "Give the program another output directory, or pass --allow-writes.",
    "interrupted": "Call again to go on from what was measured.",
    "write-denied": "Let that output go below TMPDIR, or give --allow-writes.",
    "disk-full": "Free space on the disk that it names, or move what is written to another one.",
}
"""One sentence for every kind of failure; a pattern may have a better one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePattern:
    """Message that names a kind of failure."""

    kind: str
    pattern: re.Pattern[str]
    next_step: str | None = None
    in_output: bool = False
    """Believed in any line of the output, not only in an exception."""


def _pattern(
    kind: str, *alternatives: str, next_step: str | None = None, in_output: bool = False
) -> FailurePattern:
    pattern = re.compile("|".join(alternatives))
    return FailurePattern(kind=kind, pattern=pattern, next_step=next_step, in_output=in_output)


OUT_OF_MEMORY = (
    _pattern(
        "shm",
        r"unable to open shared memory object",
        r"Unexpected bus error encountered in worker",
        r"killed by signal: Bus error",
        r"(?:terminated with signal SIGBUS|Signal 7 \(SIGBUS\))",
        in_output=True,
    ),
    _pattern(
        "shm",
        r"shared memory segment /dev/shm",
        r"(?:insufficient|out of) shared memory",
        r"(?:unable to|No space left on device).*(?:/dev/shm|/torch_|/psm_)",
    ),
    _pattern(
        "gpu-oom",
        r"(?:CUDA|HIP|XPU|MPS backend) out of memory[. (]+(?:Tried|MPS) (?:to )?allocate",
        r"Failed to CUDA (?:host )?[mc]alloc",
        r"Cuda failure (?:\d+ )?'out of memory'",
        in_output=True,
    ),
    _pattern(
        "gpu-oom",
        r"(?:CUDA|HIP|XPU|MPS backend)[\w ]*(?: error:)? out of memory",
        r"\b(?:torch\.)?(?:cuda\.)?OutOfMemoryError\b",
        r"(?i:cuda runtime error \(2\))",
        r"Triton Error \[\w+\]: out of memory",
        r"would exceed allowed memory",
        r"RESOURCE_EXHAUSTED: Out of memory",
        r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation)\b",
        r"\bCU[A-Z]+_(?:STATUS_)?(?:INTERNAL_ERROR_DEVICE_)?ALLOC(?:ATION)?_FAILED\b",
    ),
    _pattern(
        "gpu-oom",
        r"\bCU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_NOT_INITIALIZED\b",
        next_step="Mostly the card was full when the library began: lower the batch. Else run it "
        "with CUDA_LAUNCH_BLOCKING=1 for the kernel that failed before.",
    ),
    _pattern(
        "gpu-oom",
        r"(?i)unable to find (?:an engine to execute|a valid cudnn algorithm)",
        next_step="Mostly no memory was left for a workspace: lower the batch. Else cuDNN has no "
        "kernel for this dtype or shape here.",
    ),
    _pattern(
        "host-oom",
        r"Unable to allocate [\d.]+ \w+ for an array",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
        r"(?:what\(\):\s+|instance of ')std::bad_alloc",
        in_output=True,
    ),
    _pattern(
        "host-oom",
        r"\b_?(?:Array)?MemoryError\b",
        r"std::bad_alloc",
        r"Cannot allocate memory",
        r"\bCUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED\b",
    ),
)
"""Memory that ran out."""

DEVICE = (
    _pattern(
        "gpu-fault",
        r"(?i:uncorrectable (?:ECC|NVLink) error)",
        r"\bNVRM: Xid\b",
        r"(?i:GPU has fallen off the bus)",
        r"\bGPU is lost\b",
        r"CUDA error: (?:hardware stack error|the launch timed out)",
        r"\bCUDA_ERROR_(?:ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR)\b",
        next_step="The card itself failed: look at `nvidia-smi -q -d ECC` and dmesg; the settings "
        "are not to blame.",
        in_output=True,
    ),
    _pattern(
        "gpu-fault",
        r"(?i:CUDA-capable device(?:s|\(s\)) (?:is/)?are busy or unavailable)",
        r"\b(?:cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE)\b",
        next_step="Another process holds the card (exclusive mode, MIG or MPS): see nvidia-smi, "
        "end it or wait, and call again.",
    ),
    _pattern(
        "gpu-fault",
        r"(?i:no CUDA-capable device is detected)",
        r"(?i:CUDA driver version is insufficient|driver on your system is too old)",
        r"no kernel image is available for execution on the device",
        r"CUDA error: (?:system not yet initialized|invalid device ordinal)",
        r"forward compatibility was attempted on non supported HW",
        next_step="The program found no usable GPU: see nvidia-smi, CUDA_VISIBLE_DEVICES and the "
        "driver's version.",
    ),
    _pattern(
        "crash-step",
        r"\bOutOfResources: out of resource:",
        next_step="A Triton kernel asks for more than this GPU's cores have: give it smaller "
        "blocks or fewer stages.",
    ),
)
"""Cards and cores that refused."""

CONFIG = (
    _pattern(
        "config-rejected",
        r"error: (?:unrecognized arguments|argument |the following arguments are required)",
        r"error: (?:invalid choice|ambiguous option|expected )",
        r"^Error: (?:No such option|Invalid value|Missing (?:option|argument|parameter))",
        r"Some specified arguments are not used by the HfArgumentParser",
        next_step="Take the flag out of the command, or run the version that knows it.",
        in_output=True,
    ),
    _pattern(
        "config-rejected",
        r"prefetch_factor option could only be specified in multiprocessing",
        r"persistent_workers option needs num_workers > 0",
        r"num_workers option (?:should|cannot) be",
        r"batch_size should be a positive integer",
        next_step="These loader settings exclude each other; change them together.",
    ),
    _pattern(
        "config-rejected",
        r"\b\d+ validation errors? for ",
        r"\b(?:ValidationError|SchemaError|MisconfigurationException|DeepSpeedConfigError)\b",
        r"^(?:yaml\.|ruamel\.yaml\.|\w+\.)*(?:Scanner|Parser|Constructor|Composer|Reader)Error\b",
        r"\b(?:JSON|TOML|Toml)DecodeError\b",
        r"\bomegaconf\.errors\.|\bConfig(?:Key|Attribute|Type|Value)Error\b",
        r"\b(?:ConfigCompositionException|MissingConfigException|OverrideParseException)\b",
        r"^Could not override '",
        r"Check batch related parameters\.",
        r"FileNotFoundError: .*\.gpu-advisor-",
    ),
)
"""Settings that the program refused. Believed only before the first step."""

_ITEM = (
    r"(?:batch|sample|image|tile|item|file|frame|example|record|sequence|request|patch|clip|scan|"
    r"volume|document|prediction)(?:e?s)?\b"
)

_POSSIBLE = r"(?!.*\b(?:if|may|might|could|would|can|to avoid|retrying on)\b)"
"""No condition, advice or capability."""

LOST_WORK = (
    _pattern(
        "work-not-done",
        *(each.pattern.pattern for each in OUT_OF_MEMORY if each.in_output),
        r"^(?:[\w.]*\.)?\w*Error: .*(?:allocate memory|out of memory)",
        r"(?<![\w(])(?:[\w.]*\.)?_?(?:Array|OutOf)?MemoryError(?:: \S+ \S|\(['\")])",
        r"^(?:CUDA )?(?:error: )?out of memory\W*$",
        in_output=True,
    ),
    _pattern(
        "work-not-done",
        rf"(?i:^{_POSSIBLE}.*\b(?:warn(?:ing)?|error|critical)\b.*\bout of memory\b)",
        rf"(?i:^{_POSSIBLE}.*\bran out of memory\b)",
        rf"(?i:^{_POSSIBLE}.*\b(?:OOM|out of memory)\b.*\b(?:skipp|dropp)(?:ed|ing)\b)",
        rf"(?i:^{_POSSIBLE}.*\b(?:skipp|dropp)(?:ed|ing)\b.*\b(?:OOM|out of memory)\b)",
        r"(?i:^\W*(?:caught|hit|got) (?:an? )?(?:\S+\.)?"
        r"(?:OOM|(?:OutOf)?MemoryError|out of memory)\b)",
        in_output=True,
    ),
    _pattern(
        "work-not-done",
        rf"(?i:^\W*(?:info\W+)?(?:total |number of )?fail(?:ed|ures)(?: {_ITEM})?\s*[:=]\s*[1-9])",
        rf"(?i:(?:^|, |\b(?:with|and|of) )[1-9]\d* (?:{_ITEM} )?failed(?: {_ITEM})?\W*$)",
        rf"(?i:^\W*{_ITEM} #?\d+ (?:has |was )?failed\b(?! over))",
        in_output=True,
    ),
    _pattern(
        "work-not-done",
        rf"(?i:^\W*(?:skipp|dropp)(?:ed|ing) (?!0 )(?:\w+ ){{0,2}}{_ITEM}"
        r"\W+(?:[1-9]|\S*[./]\w|because|due).*(?:error|fail|exception|nan|memory|corrupt))",
        rf"(?i:^\W*(?:error\W+)?failed to (?:process|load|read|decode|save|write) {_ITEM}"
        r" \S*[\d./])",
        r"(?i:^\W*(?:error|exception) (?:while |when )?(?:processing|loading|reading|during|in) "
        rf"{_ITEM} (?!\d*\.\d+\W*$)\S*[\d./'])",
        in_output=True,
    ),
)
"""Lines of a program that ends well although work was lost."""

DEATHS = re.compile(
    r"killed by signal: (?P<text>[A-Z][a-z]+(?: [a-z]+)?)"
    r"|terminated with signal (?P<name>SIG\w+)"
    r"|Signal \d+ \((?P<rank>SIG\w+)\) received by PID"
)
"""Report of a parent process on the signal that ended a child."""

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
    r"|NCCL communicator was aborted|Watchdog caught collective operation timeout"
)
"""Exceptions of a rank that another rank left alone."""
