"""The judge, on endings that cannot be brought about here, or not quickly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from advisor.errors import FAILURE_EXIT_CODES
from advisor.model import Candidate, Change, Trial
from advisor.trials.classify import classify
from advisor.trials.records import Measured, Memory, ProcessRecord, ProgramException
from advisor.trials.resources import OomCounter, new_kills, oom_counters
from advisor.trials.said import log_tail
from advisor.trials.signs import NEXT_STEPS
from advisor.trials.watch import Ending

if TYPE_CHECKING:
    from pathlib import Path

CHANGE = Change(
    document="c.json", path="data.batch_size", kind="batch_size", knob_class="free", old=1, new=8
)
HAPPENED = """\
Epoch 1: 100%|####| 10/10 RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
[2026-01-01 10:00:00,000][trainer][WARNING] - CUDA out of memory at batch 32; skipping
WARNING:root:CUDA out of memory, skipping batch 3
2026-01-01T10:00:00Z ERROR worker: OutOfMemoryError('CUDA out of memory.')
E1121 10:00:00.000 123 run.py:5] CUDA out of memory
! CUDA OOM, batch dropped
OOM: skipping batch 12
Ran out of memory, retrying with batch size 8
Caught OutOfMemoryError on batch 3, continuing
exception in batch 3: CUDA out of memory
batch 17 failed: CUDA error: out of memory
got MemoryError, giving up on tile 3
❌ tile 14 failed: RuntimeError: odd
Warning: CUDA out of memory - falling back to CPU
[W 10:00:00] out of memory: CUDA out of memory; skipping
skipping tile (3, 4): exception ValueError
Skipping corrupted file a.png: error reading
Failed to load sample 12
Failed to decode image img_0001.png
12 samples failed
Processed 90/100 tiles, 10 failed
Failed: 4/100
failed=3
number of failed tiles: 12
DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes
numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB for an array with shape (1,)
Error processing tile 3
error while processing sample 'x': bad
error processing batch 3
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
TRIAL = Trial(
    id="1",
    purpose="search",
    label="batch_size=8",
    command=("python", "run.py"),
    cwd="/",
    scratch="/s",
    candidate=Candidate(changes=(CHANGE,)),
)
STEPPED = ProcessRecord(pid=7, state="exited", steps=40)
BOOTED = ProcessRecord(pid=7, state="torch")
DIED = Ending(end="exited", started=0.0, ended=9.0, exit_code=1, processes=(BOOTED,))
DONE = replace(DIED, exit_code=0, processes=(STEPPED,))


def kind_of(ending: Ending, *, measured: bool = False) -> str | None:
    found = classify(TRIAL, ending, measured=measured)
    return None if found is None else found.kind


def raised(kind: str, message: str, where: str = "start") -> ProgramException:
    return ProgramException(type=kind, message=message, where=where)


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
    found = classify(TRIAL, replace(DIED, stderr=trace), measured=False)
    assert found is not None
    assert (found.kind, line.strip()[:60] in found.evidence) == (kind, True)


def test_after_a_step_the_same_errors_are_no_rejected_config() -> None:
    """A value error of step 40 is a crash, whatever it names."""
    problem = raised("ValueError", "batch_size 8 does not match 7 targets", "step")
    process = replace(STEPPED, exception=problem)
    assert kind_of(replace(DIED, processes=(process,))) == "crash-step"


def test_a_crash_of_a_rank_counts_though_the_launcher_stands_at_its_start() -> None:
    """The launcher's exception carries the rank's traceback: its last line is the evidence."""
    message = (
        "\n\n-- Process 0 terminated with the following error:\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: odd\n'
    )
    launcher = replace(BOOTED, exception=raised("ProcessRaisedException", message))
    found = classify(TRIAL, replace(DIED, processes=(launcher, STEPPED)), measured=False)
    assert found is not None
    assert (found.kind, found.evidence) == ("crash-step", "ValueError: odd")


def test_what_a_rank_raised_is_told_before_what_its_launcher_says_of_it() -> None:
    """torchrun's summary names no cause; the rank's own words and traceback do."""
    launcher = replace(BOOTED, pid=1, exception=raised("ChildFailedError", "\n==== FAILED"))
    own = replace(
        raised("RuntimeError", "12 layers"), tail="Traceback ...\nRuntimeError: 12 layers"
    )
    rank = replace(BOOTED, pid=2, exception=own)
    ending = replace(DIED, processes=(launcher, rank), stderr="==== FAILED\n")
    found = classify(TRIAL, ending, measured=False)
    assert found is not None
    assert (found.kind, found.evidence) == ("crash-start", "RuntimeError: 12 layers")
    assert log_tail(ending) == "Traceback ...\nRuntimeError: 12 layers\n==== FAILED"


def test_a_rank_that_crashed_counts_though_the_rest_was_measured() -> None:
    """Exit code 0 and a full window elsewhere do not outweigh it."""
    lost = replace(STEPPED, exception=raised("IndexError", "12", "step"))
    ending = replace(
        DONE, end="measured", exit_code=None, processes=(replace(STEPPED, state="stopped"), lost)
    )
    assert kind_of(ending, measured=True) == "crash-step"


def test_a_helper_that_failed_and_was_got_over_is_no_failure() -> None:
    """`python -c 'import apex' || true` in a shell script is the user's own affair."""
    helper = replace(BOOTED, exception=raised("ModuleNotFoundError", "apex", "import"))
    assert kind_of(replace(DONE, processes=(helper, STEPPED)), measured=True) is None


def test_an_exception_behind_exit_code_0_is_told_where_nothing_was_measured() -> None:
    """`python train.py || true` ends well; why there was no step is the exception."""
    lost = replace(BOOTED, exception=raised("RuntimeError", "no weights"))
    assert kind_of(replace(DONE, processes=(lost,))) == "crash-start"


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


def test_memory_that_ran_out_in_silence_is_lost_work() -> None:
    """Outside forward and backward no hook sees it, and the program said nothing: the allocator
    counted it."""
    quiet = replace(STEPPED, memory=Memory(allocated_gib=2.0, ooms=3))
    found = classify(TRIAL, replace(DONE, processes=(quiet,)), measured=True)
    assert found is not None
    assert (found.kind, "3 times" in found.evidence) == ("work-not-done", True)
    assert kind_of(replace(DONE, processes=(replace(quiet, memory=Memory(ooms=0)),))) == "no-steps"


def test_what_was_caught_inside_a_step_is_lost_work() -> None:
    """Seen by the probe, printed by nobody."""
    caught = ProgramException(type="RuntimeError", message="odd", where="forward")
    found = classify(
        TRIAL, replace(DONE, processes=(replace(STEPPED, swallowed=(caught,)),)), measured=True
    )
    assert found is not None
    assert (found.kind, found.evidence) == (
        "work-not-done",
        "caught in the forward: RuntimeError: odd",
    )


def test_a_kill_with_the_kernels_word_for_it_is_an_out_of_memory_kill(tmp_path: Path) -> None:
    """A recorded pair of counter files, before and after, drives the judgement."""
    for version, group, name in (
        ("0::/box", "box", "memory.events"),
        ("4:memory:/box", "memory/box", "memory.oom_control"),
    ):
        root = tmp_path / name
        folder = root / "cgroup" / group
        folder.mkdir(parents=True)
        (root / "self").mkdir()
        (root / "self" / "cgroup").write_text(f"{version}\n")
        (folder / name).write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
        before = oom_counters(root, root / "cgroup")
        (folder / name).write_text("low 0\nhigh 0\nmax 40\noom 2\noom_kill 3\n")
        kills = new_kills(before, oom_counters(root, root / "cgroup"))
        assert kills is not None
        found = classify(TRIAL, replace(DIED, exit_code=-9, oom=kills), measured=False)
        assert found is not None
        assert found.kind == "host-oom"
        assert found.evidence.startswith(f"ended by SIGKILL; 2 out-of-memory kills in {folder}")


def test_a_kill_elsewhere_on_the_host_explains_no_other_end() -> None:
    """The host's counter speaks for a SIGKILL only; the cgroup's for a lost worker too."""
    host = OomCounter(path="/proc/vmstat", scope="this host", kills=1)
    ours = replace(host, scope="this cgroup")
    assert kind_of(replace(DIED, exit_code=-9, oom=host)) == "host-oom"
    assert kind_of(replace(DIED, exit_code=-9)) == "killed"
    assert kind_of(replace(DIED, exit_code=1, oom=host)) == "crash-start"
    assert kind_of(replace(DIED, exit_code=1, oom=ours)) == "host-oom"


def test_the_rank_that_was_killed_is_the_evidence_not_those_that_were_asked_to_end() -> None:
    """A launcher lists both."""
    told = "\n".join(
        f"traceback : Signal {number} ({name}) received by PID {number}"
        for number, name in ((15, "SIGTERM"), (9, "SIGKILL"))
    )
    found = classify(TRIAL, replace(DIED, stderr=told), measured=False)
    assert found is not None
    assert (found.kind, "SIGKILL" in found.evidence) == ("killed", True)


@pytest.mark.parametrize(("code", "kind"), [(137, "killed"), (135, "shm"), (139, "killed")])
def test_a_shell_tells_of_a_signal_in_its_exit_code(code: int, kind: str) -> None:
    """128 and the signal's number."""
    assert kind_of(replace(DIED, exit_code=code)) == kind


def test_the_log_tail_has_no_noise_and_no_colours() -> None:
    """The last twenty lines that say something."""
    lines = [f"line {number}" for number in range(40)]
    noise = "resource_tracker: There appear to be 2 leaked semaphore objects to clean up"
    tail = log_tail(replace(DIED, stderr="\n".join([*lines, noise, ""])))
    assert tail.splitlines() == lines[-20:]


RAN_OUT = ProgramException(
    type="OutOfMemoryError", message="CUDA out of memory. Tried to allocate 2 GiB", where="forward"
)
WINDOW = Measured(
    kind="root forward",
    source="by hand",
    units_per_s=10.0,
    window_start=1.0,
    window_end=4.0,
    stretches=(),
    step_ms=10.0,
    wait_share=None,
    backward_share=None,
    shares=None,
    whole_units=30.0,
    finished_batches=3,
    batch=16.0,
    forwards_per_unit=None,
    notes=(),
)


@pytest.mark.parametrize(("shrunk_from", "kind"), [(32.0, None), (None, "work-not-done")])
def test_a_batch_that_the_program_halved_by_itself_is_no_lost_work(
    shrunk_from: float | None, kind: str | None
) -> None:
    """What it printed, caught and counted of that is no failure; the same without it is."""
    process = replace(
        STEPPED,
        swallowed=(RAN_OUT,),
        measured=replace(WINDOW, shrunk_from=shrunk_from),
        memory=Memory(ooms=1),
    )
    said = "Decreasing batch size to: 16.\nCUDA out of memory. Tried to allocate 2 GiB\n"
    assert kind_of(replace(DONE, processes=(process,), stderr=said), measured=True) == kind


def test_what_ended_a_rank_is_told_before_the_hang_of_the_others() -> None:
    """They wait for it in a collective, for ever."""
    waits = replace(STEPPED, world_size=2, rank=0)
    lost = replace(STEPPED, pid=8, world_size=2, rank=1, exception=replace(RAN_OUT, where="step"))
    hang = replace(DONE, end="hang", exit_code=None, silence_s=60.0, processes=(waits, lost))
    assert kind_of(hang) == "gpu-oom"
    assert kind_of(replace(hang, processes=(waits, replace(lost, exception=None)))) == "hang"


@pytest.mark.parametrize(("steps", "told"), [(1, "1 step:"), (2, "2 steps:")])
def test_one_step_is_no_steps(steps: int, told: str) -> None:
    found = classify(
        TRIAL, replace(DONE, processes=(replace(STEPPED, steps=steps),)), measured=False
    )
    assert found is not None
    assert f"and {told}" in found.evidence
