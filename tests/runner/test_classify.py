"""Classification: exceptions, messages, signals and limits name a failure; a mention names none."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from advisor.analysis.measurement import NO_RUN, Measurement
from advisor.model import Candidate, Effects, Failure
from advisor.runner.classify import (
    EVIDENCE_CHARS,
    beside_others,
    classify,
    failed,
    log_tail,
    shortened,
)
from advisor.runner.monitor import TrialExit
from advisor.runner.process_records import ProcessRecord, ProgramException
from advisor.runner.resources import oom_kills
from tests.runs import a_change, a_trial

TRIAL = a_trial("python", "run.py", candidate=Candidate(changes=(a_change("data.batch_size"),)))
STEPPED = ProcessRecord(pid=7, state="exited", steps=40)
BOOTED = ProcessRecord(pid=7, state="torch")
DIED = TrialExit(end="exited", started=0.0, ended=9.0, exit_code=1, processes=(BOOTED,))
DONE = replace(DIED, exit_code=0, processes=(STEPPED,))
HANGS = replace(DONE, end="hang", exit_code=None, silence_s=60.0)


def failure_of(ending: TrialExit) -> Failure:
    """The failure that such an ending must be."""
    found = classify(TRIAL, ending, measured=False)
    assert found is not None
    return found


def kind_of(ending: TrialExit, *, measured: bool = False) -> str | None:
    """What such an ending means, by the kind of its failure; None where the work was done."""
    found = classify(TRIAL, ending, measured=measured)
    return None if found is None else found.kind


def raised(kind: str, message: str, where: str = "start") -> ProgramException:
    return ProgramException(type=kind, message=message, where=where)


def ended(process: ProcessRecord, problem: ProgramException, **facts: Any) -> ProcessRecord:
    """The process, which `problem` ended."""
    return replace(process, exception=problem, **facts)


TORCHRUN = """
============================================================
ddp.py FAILED
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 8)  (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 8
"""
SPAWN = (
    "\n\n-- Process 0 terminated with the following error:\n"
    'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: odd\n'
)
LAUNCHER = ended(BOOTED, raised("ChildFailedError", TORCHRUN), pid=1)
LOST = raised("RuntimeError", "pair.cc:553] Connection closed by peer [127.0.0.1]", "step")
CAUSE = raised("RuntimeError", "shapes do not match", "step")
RAN_OUT = raised("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB", "forward")


@pytest.mark.parametrize(
    ("processes", "output", "kind", "evidence"),
    [
        # after a step the same errors are no rejected config
        ([ended(STEPPED, raised("ValueError", "\x1b[1mbatch_size\x1b[0m 8 is odd", "step"))], "",
         "crash-step", "ValueError: batch_size 8 is odd"),
        # the launcher's exception carries the rank's traceback
        ([ended(BOOTED, raised("ProcessRaisedException", SPAWN)), STEPPED], "",
         "crash-step", "ValueError: odd"),
        # what a rank raised comes before its launcher and before those that lost a connection
        ([LAUNCHER, ended(STEPPED, LOST, world_size=2),
          ended(STEPPED, CAUSE, pid=9, rank=1, world_size=2)], TORCHRUN,
         "crash-step", "rank 1: RuntimeError: shapes do not match"),
        # torch marks each line of a rank that raised
        ([BOOTED], "[rank1]: Traceback (most recent call last):\n[rank1]:  x\n[rank1]: OddError: 1",
         "crash-start", "OddError: 1"),
        # a launcher lists the rank that was killed, and those that it asked to end
        ([BOOTED], TORCHRUN + "Signal 9 (SIGKILL) received by PID 9",
         "killed", "Signal 9 (SIGKILL"),
        ([replace(STEPPED, pid=9, rank=1, world_size=2)],
         TORCHRUN + "Signal 9 (SIGKILL) received by PID 9",
         "killed", "rank 1: Signal 9 (SIGKILL"),
    ],
)  # fmt: skip
def test_the_cause_of_a_death(processes, output, kind, evidence) -> None:
    found = failure_of(replace(DIED, processes=tuple(processes), stderr=output))
    assert found.kind == kind
    assert found.evidence[: len(evidence)] == evidence


@pytest.mark.parametrize(
    ("problem", "state", "measured", "kind"),
    [
        # exit code 0 and a full window elsewhere do not outweigh a lost rank
        (raised("IndexError", "12", "step"), "exited", True, "crash-step"),
        # a helper that failed and was got over is the program's own affair
        (raised("ModuleNotFoundError", "apex", "import"), "torch", True, None),
        # `python train.py || true`
        (raised("RuntimeError", "no weights"), "torch", False, "crash-start"),
    ],
)
def test_an_exception_behind_exit_code_0(problem, state, measured, kind) -> None:
    process = replace(STEPPED if measured else BOOTED, state=state, exception=problem)
    others = (STEPPED,) if measured else ()
    assert kind_of(replace(DONE, processes=(process, *others)), measured=measured) == kind


@pytest.mark.parametrize("why", ["Torch not compiled with CUDA enabled", "Found no NVIDIA driver"])
def test_a_torch_that_sees_no_card_has_a_next_step_of_its_own(why) -> None:
    process = ended(BOOTED, raised("AssertionError", why))
    found = classify(TRIAL, replace(DIED, processes=(process,)), measured=False)
    assert found is not None
    assert found.kind == "crash-start"
    assert "gpu-advisor doctor" in found.next_step


def test_the_loss_of_a_rank_without_a_record_that_we_ended_is_ours() -> None:
    """Its launcher prints that it failed, after we stopped the others."""
    error = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    printed = f'Traceback (most recent call last):\n  File "run.py", line 1\n{error}\n'
    ending = replace(DONE, stderr=printed)
    assert kind_of(ending, measured=True) == "work-not-done"
    assert kind_of(replace(ending, end="measured"), measured=True) is None


@pytest.mark.parametrize(("busy_cpus", "kind"), [(None, "hang"), (0.1, "hang"), (1.6, "timeout")])
def test_a_silent_program_that_works_does_not_hang(busy_cpus, kind) -> None:
    """Its step takes longer than our limit: that is not known to be the program's fault."""
    assert kind_of(replace(HANGS, busy_cpus=busy_cpus)) == kind


@pytest.mark.parametrize(("items", "kind"), [(32.0, None), (8.0, "work-not-done")])
def test_a_batch_that_the_program_halved_by_itself_is_no_lost_work(items, kind) -> None:
    """Its prints and caught errors are no failure; the same without a smaller batch is."""
    run = replace(NO_RUN, window_start=9.0, effects=Effects(batch=16.0))
    ran_out = replace(RAN_OUT, items=items, time=2.0)
    process = replace(STEPPED, swallowed=(ran_out,), measurement=Measurement(run=run))
    said = "Decreasing batch size to: 16.\nCUDA out of memory. Tried to allocate 2 GiB\n"
    assert kind_of(replace(DONE, processes=(process,), stderr=said), measured=True) == kind


def test_a_hang_names_the_rank_that_stands_elsewhere() -> None:
    """The others wait for it, each at the same line."""
    stack = (
        "process {}:\nCurrent thread 0x7 (most recent call first):\n"
        '{}  File "/p/run.py", line {} in <module>'
    )
    wait = '  File "/venv/lib/python3.11/site-packages/torch/autograd/graph.py", line 979 in run\n'
    stacks = [stack.format(n, "" if n == 1 else wait, 30 if n == 1 else 33) for n in range(3)]
    ranks = tuple(ProcessRecord(pid=n, rank=n, world_size=3) for n in range(3))
    ending = replace(HANGS, processes=ranks, stacks="\n".join(stacks))
    assert failure_of(ending).evidence.startswith("rank 1 at run.py:30; ranks 0, 2 at run.py:33; ")
    assert "rank" not in failure_of(replace(ending, stacks=stacks[0])).evidence


def test_a_lost_rank_comes_before_the_hang_of_the_others() -> None:
    """They wait for it in a collective, for ever."""
    waits = replace(STEPPED, world_size=2, rank=0)
    lost = ended(STEPPED, replace(RAN_OUT, where="step"), pid=8, world_size=2, rank=1)
    assert kind_of(replace(HANGS, processes=(waits, lost))) == "gpu-oom"
    assert kind_of(replace(HANGS, processes=(waits, replace(lost, exception=None)))) == "hang"


@pytest.mark.parametrize(
    ("version", "group", "name"),
    [("0::/box", "box", "memory.events"), ("4:memory:/box", "memory/box", "memory.oom_control")],
)
def test_kills_that_the_kernel_counts_are_read_from_the_nearest_cgroup(
    tmp_path, version, group, name
) -> None:
    folder = tmp_path / "sys/fs/cgroup" / group
    for made in (folder, tmp_path / "proc/self"):
        made.mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{version}\n")
    (folder / name).write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
    before = oom_kills(tmp_path)
    (folder / name).write_text("low 0\nhigh 0\nmax 40\noom 2\noom_kill 3\n")
    assert oom_kills(tmp_path) - before == Counter(cgroup=2)


HOST = Counter(host=1)


@pytest.mark.parametrize(
    ("code", "oom", "kind"),
    [
        (-9, HOST, "host-oom"),
        (-9, Counter(), "killed"),
        (1, HOST, "crash-start"),  # a kill elsewhere on the host explains no other end
        (1, Counter(cgroup=1), "host-oom"),
        (137, Counter(), "killed"),  # a shell's: 128 and the signal's number
        (135, Counter(), "shm"),
    ],
)
def test_signals_and_kernel_counters(code, oom, kind) -> None:
    assert kind_of(replace(DIED, exit_code=code, oom=oom)) == kind


def test_the_log_tail_has_the_cause_and_no_noise() -> None:
    """The last twenty lines that say something, and the traceback that is not among them."""
    lines = [f"line {number}" for number in range(40)]
    noise = "resource_tracker: There appear to be 2 leaked semaphore objects to clean up"
    problem = replace(CAUSE, tail="Traceback ...\nRuntimeError: shapes do not match")
    processes = (LAUNCHER, ended(BOOTED, problem))
    tail = log_tail(replace(DIED, stderr="\n".join([*lines, noise, ""]), processes=processes))
    assert tail.splitlines() == [*problem.tail.splitlines(), *lines[-20:]]


def test_a_long_line_is_shown_by_its_beginning() -> None:
    """A report keeps what is shown, so a program's lines must not fill it."""
    tail = log_tail(replace(DIED, stderr=f"before\n{'x' * 2_000_000}\nafter"))
    before, cut, after = tail.splitlines()
    assert before == "before"
    assert after == "after"
    assert cut.endswith("x ... (1,998,000 characters more)")


TRACE = "Traceback (most recent call last):\n"


@pytest.mark.parametrize("ends", ["", "goodbye\n" * 30])
def test_a_traceback_in_the_one_stream_is_shown_beside_a_progress_bar_in_the_other(ends) -> None:
    """Logging libraries print it to the standard output."""
    block = f'{TRACE}  File "train.py", line 9, in fit\n    step()\nKeyError: 7\n'
    bar = "\n".join(f"{share}%|####|" for share in range(40))
    tail = log_tail(replace(DIED, stdout=f"hello\n{block}{ends}", stderr=bar))
    assert block.strip() in tail
    assert "hello" not in tail
    assert tail.endswith("39%|####|")


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
    "RuntimeError: The NVIDIA driver on your system is too old (found version 12040).": "gpu-fault",
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


def test_the_last_line_of_a_traceback_names_the_kind() -> None:
    """Where the probe saw nothing, standard error is all there is."""
    for line, kind in RAISED.items():
        trace = f'{TRACE}  File "run.py", line 1, in <module>\n{line}\n'
        found = failure_of(replace(DIED, stderr=trace))
        assert found.kind == kind, line
        assert line.strip()[:60] in found.evidence, line


def kind_of_words(text: str) -> str | None:
    """Kind of a measured run that ended well and printed `text`."""
    return kind_of(replace(DONE, stdout=f"start\n{text}\nend\n"), measured=True)


def test_lost_work_is_a_failure_whatever_the_exit_code() -> None:
    trace = f"{TRACE}  File 'a.py'\nValueError: bad tile"
    kinds = {text: kind_of_words(text) for text in (*HAPPENED, trace)}
    assert kinds == dict.fromkeys(kinds, "work-not-done")


def test_harmless_words_are_no_failure() -> None:
    ignored = f"Exception ignored in: <function f>\n{TRACE}  x\nOSError: 9"
    caught = f"{TRACE}  x\nModuleNotFoundError: No module named 'apex'"
    kinds = {text: kind_of_words(text) for text in (*MENTIONED, ignored, caught)}
    assert kinds == dict.fromkeys(kinds)


ADVICE = """\
retry_on: [OutOfMemoryError]
to avoid out of shared memory, pass --ipc=host
hint: when all CUDA-capable devices are busy or unavailable, wait
config errors: yaml.scanner.ScannerError, pydantic.ValidationError
"""


def test_advice_in_the_log_gives_no_other_crash_its_name() -> None:
    crash = f"{TRACE}  File 'a.py', line 1\nValueError: odd"
    assert kind_of(replace(DIED, stdout=ADVICE, stderr=crash)) == "crash-start"


FULL = (
    "CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of 23.69 GiB of "
    "which {free} GiB is free. Including non-PyTorch memory, this process has {own} GiB memory in "
    "use. Of the allocated memory 0.10 GiB is allocated by PyTorch."
)
CONTEXT = "CUDA error: out of memory"


@pytest.mark.parametrize(
    ("said", "others_gib", "kind", "leads"),
    [
        (FULL.format(asked=2.0, free=0.09, own=0.4), 23.2, "gpu-fault", "others hold 23.2 of 23.7"),
        (FULL.format(asked=2.0, free=0.09, own=0.4), None, "gpu-fault", "others hold 23.2 of 23.7"),
        (CONTEXT, 23.5, "gpu-fault", "others hold 23.5 of 24.0"),
        (FULL.format(asked=8.0, free=3.0, own=14.69), None, "gpu-oom", "others hold 6.00 of"),
        (FULL.format(asked=30.0, free=9.0, own=0.69), None, "gpu-oom", "others hold 14.0 of"),
        (FULL.format(asked=8.0, free=3.0, own=20.69), 0.0, "gpu-oom", "CUDA out of memory"),
        (CONTEXT, None, "gpu-oom", "CUDA error"),
        (CONTEXT, 0.3, "gpu-oom", "CUDA error"),
    ],
)
def test_a_card_that_others_hold_leads_and_may_be_the_cause(said, others_gib, kind, leads) -> None:
    """What would fit the empty card was kept out by them; a larger batch would not fit anyway."""
    found = beside_others(failed("gpu-oom", said), said, others_gib, 24.0)
    assert found.kind == kind
    assert found.evidence.startswith(leads)
    assert ("nvidia-smi" in found.next_step) is leads.startswith("others")


def test_evidence_ends_with_a_sentence_or_a_word() -> None:
    """Torch's message on memory has six hundred letters."""
    text = FULL.format(asked=2.0, free=0.09, own=0.4) + " See the documentation." * 9
    assert shortened(text) == text[: len(shortened(text))].rstrip()
    assert shortened(text).endswith(".")
    words = "word " * 100
    assert shortened(words).endswith("word ...")
    assert len(shortened(words)) <= EVIDENCE_CHARS
    assert shortened("short") == "short"
