"""Exceptions and messages name a failure; a mere mention names none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.errors import FAILURE_EXIT_CODES
from advisor.runner.failure_patterns import NEXT_STEPS
from tests.runner.endings import DIED, DONE, failure_of, kind_of

RAISED = {
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": "gpu-oom",
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling": "gpu-oom",
    "RuntimeError: GET was unable to find an engine to execute this computation": "gpu-oom",
    "RuntimeError: Triton Error [CUDA]: out of memory": "gpu-oom",
    "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory.": "gpu-oom",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB": "host-oom",
    "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory": "host-oom",
    "RuntimeError: unable to open shared memory object </torch_1_2_3> in read-write": "shm",
    "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is": "shm",
    "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. ": "killed",
    "m.ProcessExitedException: process 1 terminated with signal SIGKILL": "killed",
    "yaml.scanner.ScannerError: mapping values are not allowed here": "config-rejected",
    "omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct": "config-rejected",
    "ValueError: prefetch_factor option could only be specified in multiprocessing.":
        "config-rejected",
    "KeyError: 'batch_size'": "config-rejected",
    "KeyError: 'epochs'": "crash-start",
    "ModuleNotFoundError: No module named 'apex'": "crash-import",
    "CudaError: no kernel image is available for execution on the device": "gpu-fault",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": "gpu-fault",
}  # fmt: skip
HAPPENED = """\
RuntimeError: CUDA out of memory, skipping the batch
Epoch 1: 100%|####| 10/10 RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
[2026-01-01 10:00:00,000][trainer][WARNING] - CUDA out of memory at batch 32; skipping
2026-01-01T10:00:00Z ERROR worker: OutOfMemoryError('CUDA out of memory.')
{"time": "10:00", "level": "error", "message": "CUDA out of memory"}
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
OOM: skipping batch 12
Ran out of memory, retrying with batch size 8
Caught OutOfMemoryError on batch 3, continuing
exception in batch 3: CUDA out of memory
got MemoryError, giving up on tile 3
12 samples failed
Failed: 4/100
DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes
1 of 10 images failed
""".splitlines()
MENTIONED = """\
oom_policy = "retry"
oom: 0
--oom {skip,raise}   what to do on OOM
expandable_segments can reduce CUDA out of memory errors
tip: lower batch_size in case of CUDA out of memory
except torch.cuda.OutOfMemoryError:
"retry_exceptions": ["MemoryError"],
Will retry 3 times on MemoryError
[INFO] OutOfMemoryError will be retried with half the batch
INFO config: catch_oom=True (RuntimeError: CUDA out of memory)
WARNING: batches over 64 may hit CUDA out of memory
If you get "RuntimeError: CUDA out of memory", lower --batch
failed: 0
Failed logins: 2
failures allowed: 5
up to 3 images failed are tolerated
attempt 1 failed, trying the mirror
error in batch: 0.12
0 OOM errors
std::bad_alloc handler installed
""".splitlines()


def test_every_kind_has_a_next_step() -> None:
    assert NEXT_STEPS.keys() == FAILURE_EXIT_CODES.keys()


@pytest.mark.parametrize(("line", "kind"), RAISED.items())
def test_the_last_line_of_a_traceback_names_the_kind(line: str, kind: str) -> None:
    """Where the probe saw nothing, standard error is all there is."""
    trace = f'Traceback (most recent call last):\n  File "run.py", line 1, in <module>\n{line}\n'
    found = failure_of(replace(DIED, stderr=trace))
    assert (found.kind, line.strip()[:60] in found.evidence) == (kind, True)


@pytest.mark.parametrize(
    "text", [*HAPPENED, "Traceback (most recent call last):\n  File 'a.py'\nValueError: bad tile"]
)
def test_lost_work_is_a_failure_whatever_the_exit_code(text: str) -> None:
    assert kind_of(replace(DONE, stdout=f"start\n{text}\nend\n"), measured=True) == "work-not-done"


@pytest.mark.parametrize(
    "text",
    [
        *MENTIONED,
        "Exception ignored in: <function f>\nTraceback (most recent call last):\n  x\nOSError: 9",
        "Traceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'apex'",
    ],
)
def test_harmless_words_are_no_failure(text: str) -> None:
    assert kind_of(replace(DONE, stdout=f"start\n{text}\nend\n"), measured=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "retry_on: [OutOfMemoryError]",
        "to avoid out of shared memory, pass --ipc=host",
        "hint: when all CUDA-capable devices are busy or unavailable, wait",
        "config errors: yaml.scanner.ScannerError, pydantic.ValidationError",
    ],
)
def test_advice_in_the_log_gives_no_other_crash_its_name(text: str) -> None:
    crash = "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: odd"
    assert kind_of(replace(DIED, stdout=text, stderr=crash)) == "crash-start"
