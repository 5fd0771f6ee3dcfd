"""What programs print when something goes wrong tells what it was; a mere mention tells nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.errors import FAILURE_EXIT_CODES
from advisor.runner.failure_patterns import NEXT_STEPS
from tests.runner.endings import DIED, DONE, failure_of, kind_of

HAPPENED = """\
Epoch 1: 100%|####| 10/10 RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
[2026-01-01 10:00:00,000][trainer][WARNING] - CUDA out of memory at batch 32; skipping
2026-01-01T10:00:00Z ERROR worker: OutOfMemoryError('CUDA out of memory.')
! CUDA OOM, batch dropped
OOM: skipping batch 12
Ran out of memory, retrying with batch size 8
Caught OutOfMemoryError on batch 3, continuing
exception in batch 3: CUDA out of memory
batch 17 failed: CUDA error: out of memory
got MemoryError, giving up on tile 3
❌ tile 14 failed: RuntimeError: odd
skipping tile (3, 4): exception ValueError
Skipping corrupted file a.png: error reading
Failed to decode image img_0001.png
12 samples failed
Processed 90/100 tiles, 10 failed
Failed: 4/100
failed=3
number of failed tiles: 12
DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes
numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB for an array with shape (1,)
error while processing sample 'x': bad
Exception during batch 3: odd
1 of 10 images failed
"""
MENTIONED = """\
on_oom: skip
oom_policy = "retry"
oom: 0
OOM handler installed
OOM protection enabled
  oom_retries: 3
--oom {skip,raise}   what to do on OOM
Using OOM-safe batch size
expandable_segments can reduce CUDA out of memory errors
tip: lower batch_size in case of CUDA out of memory
handle_errors=(OutOfMemoryError, ValueError)
except torch.cuda.OutOfMemoryError:
"retry_exceptions": ["MemoryError"],
Will retry 3 times on MemoryError
retry policy: MemoryError -> 3 attempts
Registered error callback for OutOfMemoryError
[INFO] OutOfMemoryError will be retried with half the batch
INFO config: catch_oom=True (RuntimeError: CUDA out of memory)
# CUDA out of memory is handled by halving the batch
failed: 0
Failed: none
fail_fast: 1
failures: 0
Failed logins: 2
retry 3 failed jobs: no
test error on batch: 0.123
validation error in sample space: 3.2e-3
error in image 0.5
max failed samples = 10
ignoring samples shorter than 3 (memory format channels_last)
dropped samples: 0, errors: 0
skipping validation
mean squared error during batch = 0.4
Skipping files already done; memory 3 GB
Skipped 0 files due to errors
skip_nan_batches: true
loss scale decreased, 0 batches failed
If you get "RuntimeError: CUDA out of memory", lower --batch
See https://pytorch.org/docs/notes/cuda.html for CUDA out of memory
Checking for OOM... ok
OOM check passed
torch.OutOfMemoryError is caught and the batch is halved
set max_split_size_mb to avoid fragmentation and CUDA out of memory
peak memory 3 GB, no OOM
oom_kill_disable 0
0 OOM errors
OOMs: 0
"""


def test_every_kind_has_a_next_step() -> None:
    """No failure leaves its reader without one."""
    assert NEXT_STEPS.keys() == FAILURE_EXIT_CODES.keys()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "gpu-oom"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", "gpu-oom"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB", "host-oom"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "host-oom"),
        ("OSError: [Errno 12] Cannot allocate memory", "host-oom"),
        ("RuntimeError: unable to open shared memory object </torch_1_2_3> in read-write", "shm"),
        (("ERROR: Unexpected bus error encountered in worker. This might be caused by "
         "insufficient shared memory (shm)."), "shm"),
        (("RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible "
         "that dataloader's workers are out of shared memory."), "shm"),
        ("RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. ", "killed"),
        (("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal "
         "SIGKILL"), "killed"),
        ("yaml.scanner.ScannerError: mapping values are not allowed here", "config-rejected"),
        ("pydantic_core._pydantic_core.ValidationError: 2 validation errors for Config",
         "config-rejected"),
        ("omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct", "config-rejected"),
        ("ValueError: prefetch_factor option could only be specified in multiprocessing.",
         "config-rejected"),
        ("KeyError: 'batch_size'", "config-rejected"),
        ("TypeError: Loader.__init__() got an unexpected keyword argument 'batch_size'",
         "config-rejected"),
        ("KeyError: 'epochs'", "crash-start"),
        ("ModuleNotFoundError: No module named 'apex'", "crash-import"),
        ("RuntimeError: CUDA driver error: out of memory", "gpu-oom"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
         "gpu-oom"),
        (("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling "
         "`cublasCreate(handle)`"), "gpu-oom"),
        ("RuntimeError: FIND was unable to find an engine to execute this computation", "gpu-oom"),
        ("RuntimeError: GET was unable to find an engine to execute this computation", "gpu-oom"),
        ("RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED", "gpu-oom"),
        (("torch.distributed.DistBackendError: NCCL error in: x.cpp:1970, unhandled cuda error; "
         "Cuda failure 2 'out of memory'"), "gpu-oom"),
        ("RuntimeError: Triton Error [CUDA]: out of memory", "gpu-oom"),
        ("torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory.", "gpu-oom"),
        ("RuntimeError: Allocation on device would exceed allowed memory. (out of memory)",
         "gpu-oom"),
        ("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/THCStorage.cu:58",
         "gpu-oom"),
        ("n1:7:9 [0] NCCL WARN Failed to CUDA calloc async 4 bytes", "gpu-oom"),
        ("RuntimeError: CUDA error: GPU is lost", "gpu-fault"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device",
         "gpu-fault"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
         "gpu-fault"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu-fault"),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python, Ch 00000008", "gpu-fault"),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "gpu-fault"),
        ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
         "gpu-fault"),
        (("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, "
         "Hardware limit: 101376. Reducing block sizes or `num_stages` may help."), "crash-step"),
    ],
)  # fmt: skip
def test_the_last_line_of_a_traceback_tells_the_kind(line: str, kind: str) -> None:
    """Where the probe saw nothing, standard error is all there is."""
    trace = f'Traceback (most recent call last):\n  File "run.py", line 1, in <module>\n{line}\n'
    found = failure_of(replace(DIED, stderr=trace))
    assert (found.kind, line.strip()[:60] in found.evidence) == (kind, True)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA out of memory, skipping the batch",
        "Failed: 3",
        "done, 4 images failed",
        "Error processing image 17: truncated file",
        "Skipping batch 4: loss is nan",
        "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: bad tile",
        "2026-01-05 10:00:00,123 WARNING trainer: CUDA out of memory with batch=32, retrying",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "batch 3: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total)",
        "| WARNING: ran out of memory with exception: CUDA out of memory. Tried to allocate 2 GiB",
        "caught OOM, skipping this batch",
        '{"time": "10:00", "level": "error", "message": "CUDA out of memory"}',
        "tile 9 skipped due to CUDA error: out of memory",
        "CUDA out of memory",
        "MemoryError()",
        "OSError: [Errno 12] Cannot allocate memory",
        "10:00:01 INFO finished with 4 failed tiles",
        "INFO: Failed images: 3",
        "ERROR: failed to load image 7: truncated",
        "Skipped 3 samples due to errors",
        "Error in batch 3: shapes do not match",
        *HAPPENED.splitlines(),
    ],
)
def test_lost_work_is_a_failure_whatever_the_exit_code(text: str) -> None:
    """The program's own words stand against its exit code."""
    assert kind_of(replace(DONE, stdout=f"start\n{text}\nend\n"), measured=True) == "work-not-done"


@pytest.mark.parametrize(
    "text",
    [
        "Failed: 0",
        "0 images failed",
        "attempt 1 failed, trying the mirror",
        "error: 0.0123",
        "mean error 4.2, errors logged to errors.txt",
        "Exception ignored in: <function f>\nTraceback (most recent call last):\n  x\nOSError: 9",
        "Traceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'apex'",
        "if this runs out of memory, lower batch_size",
        "Retrying on OutOfMemoryError is enabled",
        "WARNING Retrying on OutOfMemoryError is enabled",
        "2026-01-05 10:00:00 - INFO - retry_on: [OutOfMemoryError, TimeoutError]",
        "{'retry_on': ('torch.OutOfMemoryError', 'MemoryError'), 'retries': 3}",
        "retry_on:\n  - OutOfMemoryError\n  - MemoryError",
        "OutOfMemoryError: retry",
        "Catching torch.cuda.OutOfMemoryError: yes",
        "CUDA out of memory handling: skip",
        "  --skip-oom     skip a batch when it caught OOM (default: off)",
        "usage: train.py [--retry-on OutOfMemoryError]",
        "ERROR_HANDLERS registered for MemoryError",
        "WARNING: batches over 64 may hit CUDA out of memory",
        "Set PYTORCH_CUDA_ALLOC_CONF to avoid CUDA out of memory",
        "No CUDA out of memory errors were encountered",
        "OOM events: 0",
        '{"time": "10:00", "level": "info", "message": "CUDA out of memory is retried"}',
        "CUBLAS_STATUS_ALLOC_FAILED is retried once",
        "std::bad_alloc handler installed",
        "failures allowed: 5",
        "Failed retries limit = 3",
        "stop after 5 failed batches",
        "up to 3 images failed are tolerated",
        "worker 3 failed over to the mirror",
        "Skipping batches with nan loss: enabled",
        "Ignoring file errors is off",
        "Dropping samples that fail validation: False",
        "relative error in image space: 0.012",
        "error in batch: 0.12",
        "files that failed to load image data would be skipped",
        *MENTIONED.splitlines(),
    ],
)
def test_harmless_words_are_no_failure(text: str) -> None:
    """The word "error" alone means nothing."""
    assert kind_of(replace(DONE, stdout=f"start\n{text}\nend\n"), measured=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "Retrying on OutOfMemoryError is enabled",
        "retry_on: [OutOfMemoryError]",
        "to avoid out of shared memory, pass --ipc=host",
        "hint: when all CUDA-capable devices are busy or unavailable, wait",
        "retrying on JSONDecodeError is enabled",
        "config errors: yaml.scanner.ScannerError, pydantic.ValidationError",
    ],
)
def test_a_crash_is_not_told_by_what_was_only_mentioned(text: str) -> None:
    """Advice and settings in the log give no other crash their name."""
    crash = "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: odd"
    assert kind_of(replace(DIED, stdout=text, stderr=crash)) == "crash-start"
